r"""Textures out of a formula: classes that no statistic of a single colour can tell apart.

Every image is woven from K = 18 threads, one for each of three octaves of wavelength (3 to 24 pixels) and six orientations. A
thread is a random-phase field (Galerne, Gousseau & Morel, 2011), complex, so that its phase can be turned:

.. math::
    g_k(s) = \sum_{f \in F_k} a_k(f)\; e^{i (2\pi f \cdot s + \theta(f))}, \qquad \theta(f) \sim U[0, 2\pi),
    \quad a_k(f) \propto 1 / |f|

where :math:`F_k` are the frequencies of its octave and orientation. Where it shows is decided by smooth noise :math:`z_k`, and
in the colour c = red, green, blue it shows with the phase :math:`\psi_{kc}`:

.. math::
    x_c(s) = \sum_k m_k(s)\; \mathrm{Re}\, [ g_k(s)\, e^{i \psi_{kc}} ],
    \qquad m_k \propto e^{z_k / \tau}, \quad \sum_k m_k(s)^2 = 1

**The class is in** ψ **and nowhere else.** It says of each thread whether its red, green and blue rise together (grey stripes)
or one of them falls when the others rise (yellow and blue, magenta and green, red and cyan): one of four, drawn for each class
and thread. Each image adds a little of its own to each phase, normal with the standard deviation ``jitter``, in radians.

Take one colour alone. There :math:`\psi_{kc}` is added to all phases θ of a thread, and a uniform phase with a constant added
is a uniform phase. So the law of :math:`x_c`, as an image, is the same in all classes and for any ψ: mean, variance, spectrum,
histogram, and all that can be computed from it. What differs is how colours go together, at which orientation and scale: a
correlation. A filter that sees several colours does respond to it, each filter to one mixture of the K unknowns, which the
jitter blurs in all directions. The average of c rectified filters has c such mixtures, their outer product c(c+1)/2: with a
filter bank of moderate size the first cannot get rid of the blur and the second can.
"""

import shutil
import tempfile
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

WAVELENGTHS = (3, 6, 12, 24)  # pixels, between the octaves
ORIENTATIONS = 6
# in which of red, green, blue a thread is turned round: grey, yellow and blue, magenta and green, red and cyan
COLOURS = np.pi * np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]])
REGION = 24.0  # pixels over which the noise that distributes the threads is smooth
SHARPNESS = 0.3  # τ; the smaller, the fewer threads in one place
MEAN, CONTRAST = 128, 45  # of pixels, mean and standard deviation; 2 in 1000 fall outside 0 ... 255 and are clipped
JITTER = 0.6


def textures(
    classes: int = 10, images_per_class: int = 40, size: int = 64, seed: int = 0, *, jitter: float = JITTER
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All images of a data set, and their labels.

    Args:
        classes: how many.
        images_per_class: how many of each.
        size: side of the images in pixels, 32 or more. The threads do not grow with it: larger images show more of them.
        seed: what everything is drawn from. More classes, or more images, leave those that were there as they are.
        jitter: how far the phases of an image stray from those of its class. The more, the harder: 0.3 is easy, 1 is hopeless.

    Returns:
        images (n, size, size, 3) and labels (n,), one class after the other.

    >>> images, labels = textures(classes=2, images_per_class=3, size=32)
    >>> images.shape, labels.tolist()
    ((6, 32, 32, 3), [0, 0, 0, 1, 1, 1])
    """
    _check(classes, images_per_class, size, jitter)
    images = [
        texture(label, number, size, seed, jitter=jitter) for label in range(classes) for number in range(images_per_class)
    ]
    return np.stack(images), np.repeat(np.arange(classes), images_per_class)


def texture(label: int, number: int, size: int = 64, seed: int = 0, *, jitter: float = JITTER) -> NDArray[np.uint8]:
    """One image of :func:`textures`, (size, size, 3): the one of this number in the class of this label."""
    amplitudes = _amplitudes(size)
    k = len(amplitudes)
    of_class, of_image = np.random.default_rng([seed, 0, label]), np.random.default_rng([seed, 1, label, number])
    psi = COLOURS[of_class.integers(len(COLOURS), size=k)] + jitter * of_image.standard_normal((k, 3))
    theta = 2 * np.pi * of_image.random((k, size, size))
    threads = np.fft.ifft2(amplitudes * np.exp(1j * theta)) * _where(k, size, of_image)
    x: NDArray[np.float64] = np.einsum("kij,kc->ijc", threads, np.exp(1j * psi)).real
    return np.clip(np.round(MEAN + CONTRAST * x), 0, 255).astype(np.uint8)


def write_textures(
    folder: Path,
    classes: int = 10,
    images_per_class: int = 40,
    size: int = 64,
    seed: int = 0,
    *,
    jitter: float = JITTER,
    test_share: float = 0.5,
) -> Path:
    """The images of :func:`textures` as files ``train/CLASS/NUMBER.png`` and ``test/CLASS/NUMBER.png``.

    Args:
        folder: where to; it must not exist yet, and does so only when all is written.
        classes, images_per_class, size, seed, jitter: as in :func:`textures`.
        test_share: the part of each class that goes into ``test``.
    """
    _check(classes, images_per_class, size, jitter)
    if folder.exists():
        raise ValueError(f"write_textures makes a new folder, but {folder} is there already.\nRemove it, or name another.")
    tests = round(test_share * images_per_class)
    if not 0 < tests < images_per_class:
        raise ValueError(
            f"Of {images_per_class} images a class, test_share={test_share!r} leaves {images_per_class - tests} to train on "
            f"and {tests} to test on.\nWrite a share between 0 and 1, and at least two images a class."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for label in range(classes):
            for number in range(images_per_class):
                split = "train" if number < images_per_class - tests else "test"
                file = unfinished / split / f"texture-{label:02d}" / f"{number:04d}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(texture(label, number, size, seed, jitter=jitter)).save(file)
        unfinished.chmod(0o755)  # mkdtemp lets nobody else in
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    return folder


@lru_cache(maxsize=2)
def _amplitudes(size: int) -> NDArray[np.float64]:
    """a_k(f) on the grid of the FFT, (K, size, size), such that the real part of every thread has the variance 1.

    Only one of f and −f is there: with both, the sum would be real and could not be turned.
    """
    fy, fx = np.fft.fftfreq(size)[:, None], np.fft.fftfreq(size)[None, :]
    radius, angle = np.hypot(fy, fx), np.arctan2(fy, fx)
    half_plane = (fy > 0) | ((fy == 0) & (fx > 0))
    found = []
    for short, long in pairwise(WAVELENGTHS):
        for orientation in range(ORIENTATIONS):
            turned = np.abs((angle - np.pi * orientation / ORIENTATIONS + np.pi / 2) % np.pi - np.pi / 2)
            mine = half_plane & (radius >= 1 / long) & (radius < 1 / short) & (turned <= np.pi / ORIENTATIONS / 2)
            a = np.where(mine, 1 / np.maximum(radius, 1 / size), 0)
            found.append(a * size**2 * np.sqrt(2 / np.square(a).sum()))
    return np.stack(found)


def _where(k: int, size: int, draw: np.random.Generator) -> NDArray[np.float64]:
    """m_k(s), (K, size, size): smooth noise of variance 1 through a softmax, with squares that add up to 1 everywhere."""
    fy, fx = np.fft.fftfreq(size)[:, None], np.fft.fftfreq(size)[None, :]
    smooth = np.exp(-2 * REGION**2 * (fy**2 + fx**2))
    noise = draw.standard_normal((2, k // 2, size, size))
    # real and imaginary part are two fields for the price of one
    fields = np.fft.ifft2(smooth * (noise[0] + 1j * noise[1]))
    z = np.concatenate([fields.real, fields.imag]) * size**2 / np.sqrt(np.square(smooth).sum())
    m = np.exp((z - z.max(0)) / SHARPNESS)
    return np.asarray(m / np.sqrt(np.square(m).sum(0)))


def _check(classes: int, images_per_class: int, size: int, jitter: float) -> None:
    if classes < 1 or images_per_class < 1 or size < 32 or jitter < 0:
        raise ValueError(
            f"Textures have at least one class of one image, of 32 pixels, and a jitter ≥ 0, but got classes={classes!r}, "
            f"images_per_class={images_per_class!r}, size={size!r}, jitter={jitter!r}.\nWrite textures(10, 40, size=64)."
        )
