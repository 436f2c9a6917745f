"""Transforms: what of an image is seen, in what numbers, and that chance is an argument."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from compact_bilinear.images import Transform


def ramp(width: int, height: int) -> Image.Image:
    """Red grows to the right, green downwards, both from 0 to 255: a pixel's colour tells where it was."""
    x = np.linspace(0, 255, width)[None, :].repeat(height, 0)
    y = np.linspace(0, 255, height)[:, None].repeat(width, 1)
    return Image.fromarray(np.stack([x, y, np.full_like(x, 7)], 2).round().astype(np.uint8))


def seen(pixels: Tensor) -> tuple[float, float, float, float]:
    """Where the left, top, right and bottom edges of the tensor were in the ramp, from 0 to 1."""
    red, green = pixels[0].float().mean(0) / 255, pixels[1].float().mean(1) / 255
    return red[0].item(), green[0].item(), red[-1].item(), green[-1].item()


@pytest.mark.parametrize("size", [(90, 30), (31, 97), (64, 64), (5, 3)])
def test_stretching_shows_everything(size: tuple[int, int]) -> None:
    pixels = Transform(size=48).pixels(ramp(*size))
    assert pixels.shape == (3, 48, 48)
    assert pixels.dtype == torch.uint8
    assert pixels.permute(1, 2, 0).is_contiguous()
    assert seen(pixels) == pytest.approx((0, 0, 1, 1), abs=0.03)
    assert (pixels[2] == 7).all()


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        # the shorter side becomes 64, of which 48 are seen: from 1/8 to 7/8; of a side twice as long, half as much
        ((640, 640), (1 / 8, 1 / 8, 7 / 8, 7 / 8)),
        ((1280, 640), (5 / 16, 1 / 8, 11 / 16, 7 / 8)),
        ((640, 1280), (1 / 8, 5 / 16, 7 / 8, 11 / 16)),
        ((20, 20), (1 / 8, 1 / 8, 7 / 8, 7 / 8)),
    ],
)
def test_a_center_crop_shows_the_middle(size: tuple[int, int], expected: tuple[float, ...]) -> None:
    transform = Transform(size=48, shorter=64, fit="center-crop")
    assert seen(transform.pixels(ramp(*size))) == pytest.approx(expected, abs=0.02)
    assert torch.equal(transform.pixels(ramp(*size), epoch=3, index=9), transform.pixels(ramp(*size)))


def test_a_crop_is_that_of_the_resized_image() -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (96, 128, 3)).astype(np.uint8))
    expected = image.resize((64, 48), Image.Resampling.BILINEAR).crop((12, 4, 52, 44))
    pixels = Transform(size=40, shorter=48, fit="center-crop").pixels(image)
    assert (pixels.permute(1, 2, 0).int() - torch.from_numpy(np.array(expected)).int()).abs().max() <= 1


def test_a_random_crop_goes_everywhere_and_never_out() -> None:
    transform = Transform(size=48, shorter=64, fit="random-crop")
    places = np.array([seen(transform.pixels(ramp(1280, 640), index=index)) for index in range(200)])
    assert places[:, 2] - places[:, 0] == pytest.approx(3 / 8, abs=0.02)
    assert places[:, 3] - places[:, 1] == pytest.approx(3 / 4, abs=0.02)
    for left, room in ((places[:, 0], 5 / 8), (places[:, 1], 1 / 4)):
        assert left.min() < 0.1 * room
        assert left.max() > 0.9 * room
        assert left.mean() == pytest.approx(room / 2, abs=4 * room / np.sqrt(12 * 200))


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (7, 7)])
@pytest.mark.parametrize("fit", ["stretch", "center-crop", "random-crop"])
def test_any_shape_fits(size: tuple[int, int], fit: str) -> None:
    for index in range(20):
        pixels = Transform(size=48, fit=fit).pixels(Image.new("RGB", size, (1, 2, 3)), index=index)  # type: ignore[arg-type]
        assert torch.equal(pixels, torch.tensor([1, 2, 3], dtype=torch.uint8).view(3, 1, 1).expand(3, 48, 48))


def test_flips() -> None:
    image = ramp(64, 64)
    never, always = Transform(size=48).pixels(image), Transform(size=48, flip="always").pixels(image)
    assert torch.equal(always, never.flip(2))
    flipped = [torch.equal(Transform(size=48, flip="random").pixels(image, index=index), always) for index in range(400)]
    assert abs(sum(flipped) - 200) < 4 * 10  # standard errors


def test_draws_depend_on_seed_epoch_and_index_and_on_nothing_else() -> None:
    image = ramp(200, 100)

    def draw(seed: int, epoch: int, index: int) -> bytes:
        pixels = Transform(size=16, fit="random-crop", flip="random", seed=seed).pixels(image, epoch=epoch, index=index)
        return pixels.numpy().tobytes()

    first = [draw(*key) for key in np.ndindex(3, 3, 3)]
    assert len(set(first)) == 27
    torch.manual_seed(5)
    backwards = [draw(*key) for key in list(np.ndindex(3, 3, 3))[::-1]]
    assert backwards[::-1] == first


def test_the_same_crop_is_drawn_for_ever() -> None:
    """Python promises the same numbers for the same seed; should it change, features that were stored are of other crops."""
    places = [
        seen(Transform(size=48, shorter=64, fit="random-crop").pixels(ramp(1280, 640), index=index))[0] for index in range(3)
    ]
    assert places == pytest.approx([0.318, 0.027, 0.325], abs=0.005)


# --- settings ---


def test_goes_through_json_and_back() -> None:
    transform = Transform(size=224, fit="random-crop", shorter=256, flip="random", seed=3)
    again = Transform.from_json(transform.to_json())
    assert again == transform
    assert hash(again) == hash(transform)
    assert json.loads(transform.to_json())["shorter"] == 256


def test_settings_of_another_version_are_refused() -> None:
    with pytest.raises(ValueError, match=r"(?s)has the settings size, .*, but got blur\..*by another version"):
        Transform.from_json('{"size": 3, "blur": 2}')


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"size": 0}, "a square of size=0"),
        ({"size": 64, "shorter": 48}, "a shorter side of 48"),
        ({"fit": "squeeze"}, "knows no fit='squeeze'.\nWrite one of 'stretch', 'center-crop', 'random-crop'"),
        ({"flip": "often"}, "knows no flip='often'.\nWrite one of 'never', 'random', 'always'"),
    ],
)
def test_refuses(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Transform(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "shorter"), [(448, 512), (224, 256)])
def test_the_usual_shorter_sides(size: int, shorter: int) -> None:
    assert Transform(size=size, fit="random-crop").reads == shorter
    assert Transform(size=size, fit="random-crop", shorter=600).reads == 600
    assert Transform(size=size, shorter=600).reads == size
