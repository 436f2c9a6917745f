"""A zoo of odd images, which all show the same scene, and of files that show none."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import zoo
from compact_bilinear.images.decode import SUFFIXES, BrokenImage, decode

ODD, BROKEN = zoo.odd_images(), zoo.broken_images()


@pytest.mark.parametrize("name", ODD)
def test_an_odd_image_shows_its_scene(name: str, tmp_path: Path) -> None:
    content, expected, off_by = ODD[name]
    (tmp_path / name).write_bytes(content)
    image = decode(tmp_path / name)
    assert image.mode == "RGB"
    pixels = np.asarray(image)
    assert pixels.shape == expected.shape
    wrong = np.abs(pixels.astype(int) - expected).max(2)
    # edges between areas may be blurred by JPEG
    assert np.quantile(wrong, 0.8 if off_by > 3 else 1) <= off_by
    assert np.array_equal(pixels, np.asarray(decode(content)))
    assert Path(name).suffix in SUFFIXES


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_image_is_named_with_the_reason(name: str, tmp_path: Path) -> None:
    content, reason = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BrokenImage, match=rf"{name}: .*({reason})"):
        decode(tmp_path / name)
    with pytest.raises(BrokenImage, match=r"^image: "):
        decode(content)


def test_no_prefix_of_an_image_does_anything_but_break_or_show() -> None:
    """Whatever of a file is missing, the one error says it."""
    for name in ("plain.png", "plain.jpg", "palette.gif", "transparent.webp", "deflate.tif", "1-bit.tif"):
        content = ODD[name][0]
        for length in range(0, len(content), max(len(content) // 40, 1)):
            try:
                decode(content[:length])
            except BrokenImage:
                continue


def test_no_damage_does_anything_but_break_or_show() -> None:
    draw = np.random.default_rng(0)
    for name in ("plain.png", "cmyk.jpg", "orientation 6.jpg", "animated.gif", "transparent.webp", "16-bit grey.tif"):
        for _ in range(60):
            content = bytearray(ODD[name][0])
            for place in draw.integers(0, len(content), 5):
                content[place] = draw.integers(0, 256)
            try:
                assert decode(bytes(content)).mode == "RGB"
            except BrokenImage:
                continue


def test_warnings_of_pillow_are_not_passed_on(recwarn: pytest.WarningsRecorder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        decode(ODD["broken exif.jpg"][0])
        with pytest.raises(BrokenImage):
            decode(zoo.broken_images()["large.png"][0])
    assert not recwarn.list


def test_the_limit_of_pixels_can_be_set() -> None:
    content = ODD["plain.png"][0]
    assert decode(content, pixels=zoo.WIDTH * zoo.HEIGHT).size == (zoo.WIDTH, zoo.HEIGHT)
    with pytest.raises(BrokenImage, match="40×30 pixels are more than the limit of 1199"):
        decode(content, pixels=zoo.WIDTH * zoo.HEIGHT - 1)


def test_a_draft_is_smaller_and_never_too_small() -> None:
    smooth = Image.linear_gradient("L").resize((1000, 640)).convert("RGB")
    content = zoo.encoded(smooth, "JPEG", quality=95)
    assert decode(content).size == (1000, 640)
    assert decode(content, draft=321).size == (1000, 640)
    assert decode(content, draft=300).size == (500, 320)
    assert decode(content, draft=80).size == (125, 80)
    assert decode(zoo.encoded(smooth, "PNG"), draft=80).size == (1000, 640)
    whole, draft = (np.asarray(decode(content, draft=size).resize((64, 64))).astype(int) for size in (0, 100))
    assert np.abs(whole - draft).max() <= 3


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1)])
def test_extreme_shapes(size: tuple[int, int]) -> None:
    assert decode(zoo.encoded(Image.new("RGB", size), "PNG")).size == size


def test_what_is_no_file_is_a_broken_image(tmp_path: Path) -> None:
    with pytest.raises(BrokenImage, match=r"gone\.jpg: no such file"):
        decode(tmp_path / "gone.jpg")
    with pytest.raises(BrokenImage, match="not a file"):
        decode(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.jpg")
        with pytest.raises(BrokenImage, match="not a file"):
            decode(str(tmp_path / "pipe.jpg"))
