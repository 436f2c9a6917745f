"""Images that a program makes from a seed: what the small trunk learns from, so that nobody's photographs are needed.

An image is one texture, two textures with a ragged border, or leaves that fell on one another (the dead leaves model). A
texture is a field of heights, coloured by a few random colours and perhaps lit from the side as a relief. Fields are noise of
every spectrum, waves, cells, bricks, spots, scratches and their warps and mixtures. At the end comes what a camera adds:
shading, blur, contrast, colour, grain. Chance decides everything, from ``(seed, index)`` alone.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.fft import irfft2, rfft2
from scipy.ndimage import gaussian_filter, map_coordinates

Field = Any  # an array (side, side) in [0, 1]; in arithmetic with what chance gives, numpy's types are lost
Image = Any  # an array (side, side, 3)


def procedural_image(seed: int, index: int, side: int) -> Image:
    """Image number ``index`` of the endless set ``seed``: (side, side, 3), uint8."""
    draw = np.random.default_rng((seed, index))
    kind = draw.random()
    if kind < 0.55:
        image = _texture(draw, side)
    elif kind < 0.75:
        image = _blended(draw, side)
    else:
        image = _leaves(draw, side)
    return (_photographed(draw, image) * 255 + 0.5).astype(np.uint8)


# --- fields ---


def _noise(draw: Generator, side: int) -> Field:
    """Random phases under a spectrum: 1/f^a, or a ring of frequencies, round or drawn out in one direction."""
    y, x = np.fft.fftfreq(side)[:, None] * side, np.fft.rfftfreq(side)[None] * side
    angle, stretch = draw.uniform(0, np.pi), np.exp(draw.uniform(0, 2.2) * (draw.random() < 0.5))
    u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    f = np.hypot(u * stretch, v / stretch)
    if draw.random() < 0.6:
        spectrum = (f + 0.5) ** -draw.uniform(0.3, 2.4)
    else:
        centre = np.exp(draw.uniform(np.log(3), np.log(side / 3)))
        spectrum = np.exp(-0.5 * ((f - centre) / (centre * draw.uniform(0.08, 0.5))) ** 2)
    spectrum[0, 0] = 0
    field = irfft2(spectrum * rfft2(draw.standard_normal((side, side))), s=(side, side))
    field /= field.std() + 1e-9
    match draw.integers(5):
        case 0:
            field = np.abs(field)  # ridges and veins
        case 1:
            field = np.tanh(field * draw.uniform(1, 8))  # spots and labyrinths
        case 2:
            field = np.floor(field * draw.uniform(0.7, 3))  # terraces
    return _spread(field)


def _waves(draw: Generator, side: int) -> Field:
    """Stripes, or the product or maximum of two: grids, checks, weaves."""
    field = _stripes(draw, side)
    for _ in range(draw.integers(0, 2)):
        other = _stripes(draw, side)
        field = (field * other, np.maximum(field, other), np.abs(field - other))[draw.integers(3)]
    return field


def _stripes(draw: Generator, side: int) -> Field:
    u, v = _turned(draw, side)
    phase = u * np.exp(draw.uniform(np.log(2.5), np.log(side / 4))) + draw.random()
    if draw.random() < 0.4:
        phase = phase + draw.uniform(0.1, 0.6) * np.sin(2 * np.pi * v * draw.uniform(1, 6))
    shape = draw.integers(3)
    if shape == 0:
        return 0.5 + 0.5 * np.sin(2 * np.pi * phase)
    if shape == 1:
        return (phase % 1 < draw.uniform(0.08, 0.6)).astype(float)
    return phase % 1


def _cells(draw: Generator, side: int) -> Field:
    """Distances to scattered points: pebbles, cracks, scales; or a grey for each cell."""
    u, v = _turned(draw, side)
    count = int(np.exp(draw.uniform(np.log(6), np.log(150))))
    points = draw.uniform(-0.75, 0.75, (count, 2)) * (1, np.exp(draw.uniform(-0.6, 0.6)))
    distance = (u[None] - points[:, 0, None, None]) ** 2 + (v[None] - points[:, 1, None, None]) ** 2
    nearest = distance.argmin(0)[None]
    first = np.sqrt(np.take_along_axis(distance, nearest, 0)[0])
    np.put_along_axis(distance, nearest, np.inf, 0)
    gap = np.sqrt(distance.min(0)) - first
    match draw.integers(4):
        case 0:
            return _spread(first)
        case 1:
            return np.clip(gap * count**0.5 * draw.uniform(1, 8), 0, 1)
        case 2:
            return draw.random(count)[nearest[0]]
    return _spread(gap) * draw.uniform(0.3, 1, count)[nearest[0]]


def _bricks(draw: Generator, side: int) -> Field:
    """Rows of stones with joints, each of its own grey."""
    u, v = _turned(draw, side, most=0.3)
    rows, aspect = draw.uniform(2.5, 14), draw.uniform(1, 3)
    row = np.floor(v * rows)
    x = u * rows / aspect + draw.choice((0, 0.5, draw.random())) * row
    column = np.floor(x)
    joint = draw.uniform(0.03, 0.18)
    inside = (np.abs(v * rows - row - 0.5) < 0.5 - joint) & (np.abs(x - column - 0.5) < 0.5 - joint / aspect)
    grey = ((row * 127.1 + column * 311.7 + draw.integers(1000)) * 0.618033989) % 1
    return inside * (1 - draw.uniform(0, 0.6) * grey)


def _spots(draw: Generator, side: int) -> Field:
    """Dots in a lattice or scattered, hard or soft, of one or of many sizes."""
    u, v = _turned(draw, side)
    if draw.random() < 0.5:
        count = draw.uniform(3, 18)
        x, y = u * count, v * count
        x = x + 0.5 * (np.floor(y) % 2) * (draw.random() < 0.5)
        distance = np.hypot(x % 1 - 0.5, y % 1 - 0.5)
        radius = draw.uniform(0.12, 0.45)
        return 1 / (1 + np.exp((distance - radius) * draw.uniform(10, 90)))
    impulses = draw.random((side, side)) < draw.uniform(0.002, 0.05)
    weights = impulses * (1 if draw.random() < 0.5 else draw.random((side, side)))
    return np.clip(_spread(gaussian_filter(weights, draw.uniform(0.5, 4))) * draw.uniform(1, 4), 0, 1)


def _scratches(draw: Generator, side: int) -> Field:
    """Straight fibres or needles, nearly parallel or in every direction: grass, fur, brushed metal."""
    field = np.zeros((side, side))
    angle, scatter = draw.uniform(0, np.pi), draw.choice((0.05, 0.3, 3.0))
    length = draw.uniform(0.1, 1.5) * side
    for _ in range(draw.integers(20, 160)):
        x, y, a = *draw.uniform(-0.2, 1.2, 2) * side, angle + scatter * draw.standard_normal()
        t = np.arange(-length / 2, length / 2, 0.7)
        i, j = (y + t * np.sin(a)).astype(int), (x + t * np.cos(a)).astype(int)
        there = (i >= 0) & (i < side) & (j >= 0) & (j < side)
        field[i[there], j[there]] = draw.uniform(0.2, 1)
    return _spread(gaussian_filter(field, draw.uniform(0.4, 1.6)))


FIELDS: tuple[tuple[Callable[[Generator, int], Field], float], ...] = (
    (_noise, 0.4),
    (_waves, 0.15),
    (_cells, 0.15),
    (_bricks, 0.1),
    (_spots, 0.1),
    (_scratches, 0.1),
)


def _field(draw: Generator, side: int) -> Field:
    field = _one_field(draw, side)
    if draw.random() < 0.35:
        other, share = _one_field(draw, side), draw.uniform(0.15, 0.6)
        field = (field * (1 - share) + other * share, field * other, np.maximum(field, other))[draw.integers(3)]
    if draw.random() < 0.35:
        field = _warped(draw, field)
    return field


def _one_field(draw: Generator, side: int) -> Field:
    shares = np.array([share for _, share in FIELDS])
    return FIELDS[draw.choice(len(FIELDS), p=shares)][0](draw, side)


def _warped(draw: Generator, field: Field) -> Field:
    side = len(field)
    strength = draw.uniform(0.01, 0.08) * side
    shift = gaussian_filter(draw.standard_normal((2, side, side)), (0, *[draw.uniform(0.03, 0.2) * side] * 2), mode="wrap")
    shift *= strength / (shift.std() + 1e-9)
    return map_coordinates(field, np.indices(field.shape) + shift, order=1, mode="reflect")


# --- from heights to colours ---


def _texture(draw: Generator, side: int) -> Image:
    heights = _field(draw, side)
    colours = _palette(draw, int(draw.integers(2, 6)))
    place = np.linspace(0, 1, len(colours))
    image = np.stack([np.interp(heights, place, channel) for channel in colours.T], -1)
    if draw.random() < 0.4:  # dirt, moss, fading: another field decides where another colour is mixed in
        share = (_field(draw, side) * draw.uniform(0.2, 0.9))[..., None]
        image = image * (1 - share) + _palette(draw, 1)[0] * share
    if draw.random() < 0.5:
        image = _lit(draw, image, heights)
    return image


def _palette(draw: Generator, count: int) -> Any:
    """Colours (count, 3) around a base, varying mostly along one line, as those of one material do."""
    base, line = draw.uniform(0.1, 0.9, 3), draw.standard_normal(3)
    line /= np.linalg.norm(line)
    if draw.random() < 0.7:  # most materials vary in brightness above all
        line = 0.8 / 3**0.5 + 0.3 * line
    if draw.random() < 0.6:  # and most are greyish
        base = base.mean() + (base - base.mean()) * draw.uniform(0, 0.6)
    along = draw.standard_normal((count, 1)) * draw.uniform(0.1, 0.4)
    return np.clip(base + along * line + draw.uniform(0, 0.1) * draw.standard_normal((count, 3)), 0, 1)


def _lit(draw: Generator, image: Image, heights: Field) -> Image:
    smooth = gaussian_filter(heights, draw.uniform(0.5, 2.0))
    dy, dx = np.gradient(smooth * draw.uniform(2, 14))
    angle, low = draw.uniform(0, 2 * np.pi), draw.uniform(0.4, 1.2)
    norm = np.sqrt(1 + dx**2 + dy**2)
    light = (np.cos(low) * (dx * np.cos(angle) + dy * np.sin(angle)) + np.sin(low)) / norm
    image = image * (0.35 + 0.9 * np.clip(light, 0, 1))[..., None]
    if draw.random() < 0.3:
        image = image + (np.clip(light, 0, 1) ** draw.uniform(8, 40) * draw.uniform(0.1, 0.6))[..., None]
    return image


def _blended(draw: Generator, side: int) -> Image:
    mask = np.clip((_noise(draw, side) - draw.uniform(0.3, 0.7)) * draw.uniform(2, 40) + 0.5, 0, 1)[..., None]
    return _texture(draw, side) * mask + _texture(draw, side) * (1 - mask)


def _leaves(draw: Generator, side: int) -> Image:
    """Shapes of heavy-tailed size fall on one another, each flat, shaded or textured, some with a dark rim."""
    image = _texture(draw, side)
    textures = [_texture(draw, side) for _ in range(draw.integers(0, 4))]
    y, x = np.indices((side, side)) / side
    smallest = draw.uniform(0.02, 0.1)
    colours = _palette(draw, 40) if draw.random() < 0.5 else draw.random((40, 3))
    for _ in range(draw.integers(8, 70)):
        cx, cy, angle = *draw.uniform(-0.1, 1.1, 2), draw.uniform(0, np.pi)
        u = (x - cx) * np.cos(angle) + (y - cy) * np.sin(angle)
        v = (y - cy) * np.cos(angle) - (x - cx) * np.sin(angle)
        size = min(smallest / draw.random() ** 0.7, 0.5)
        aspect = np.exp(draw.uniform(-0.8, 0.8))
        power = draw.choice((1, 2, 8))  # diamond, ellipse, rectangle
        edge = (np.abs(u / (size * aspect)) ** power + np.abs(v * aspect / size) ** power) ** (1 / power)
        inside = edge < 1
        fill: np.ndarray = colours[draw.integers(len(colours))]
        match draw.integers(3):
            case 0 if textures:
                fill = textures[draw.integers(len(textures))][inside]
            case 1:
                fill = fill * (1 - 0.5 * edge[inside])[:, None]
        image[inside] = fill
        if draw.random() < 0.2:
            image[inside & (edge > 0.9)] *= 0.5
    return image


# --- what a camera adds ---


def _photographed(draw: Generator, image: Image) -> Image:
    side = len(image)
    if draw.random() < 0.5:
        u, _ = _turned(draw, side)
        image = image * (1 + draw.uniform(0, 0.9) * u)[..., None]
    if draw.random() < 0.3:
        image = gaussian_filter(image, (*[draw.uniform(0.3, 1.4)] * 2, 0))
    mean = image.mean()
    image = (image - mean) * np.exp(draw.uniform(-0.7, 0.5)) + np.clip(mean + draw.uniform(-0.15, 0.15), 0.15, 0.85)
    grey = image.mean(-1, keepdims=True)
    image = grey + (image - grey) * draw.uniform(0, 1.4)
    image = np.clip(image, 0, 1) ** np.exp(draw.uniform(-0.4, 0.4))
    image = image * np.exp(0.08 * draw.standard_normal(3))
    if draw.random() < 0.5:
        image = image + draw.uniform(0, 0.06) * draw.standard_normal(image.shape)
    return np.clip(image, 0, 1)


def _turned(draw: Generator, side: int, most: float = np.pi) -> tuple[Field, Field]:
    """Coordinates from −½ to ½, turned by at most that angle and shifted."""
    y, x = np.indices((side, side)) / side - 0.5
    angle = draw.uniform(-most, most)
    return x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)


def _spread(field: np.ndarray) -> Field:
    """Most of the values between 0 and 1, whatever the tails do."""
    low, high = np.quantile(field[::3, ::3], (0.02, 0.98))
    return np.clip((field - low) / max(high - low, 1e-9), 0, 1)
