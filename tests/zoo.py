"""Odd images, and what they should look like; files that are none, and why not."""

import io
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

WIDTH, HEIGHT = 40, 30


def _scene() -> NDArray[np.uint8]:
    """Four areas of plain colours, all different, so that any turn or exchange shows."""
    pixels = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    pixels[:14, :24], pixels[:14, 24:], pixels[14:, :24], pixels[14:, 24:] = (
        (220, 40, 40),
        (40, 200, 60),
        (30, 60, 220),
        (240, 220, 30),
    )
    return pixels


RGB = _scene()
GREY = np.asarray(Image.fromarray(RGB).convert("L"))


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def _exif(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def _as_stored(orientation: int) -> Image.Image:
    """The scene as a camera held in that way writes it."""
    image = Image.fromarray(RGB)
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    return image.transpose(undo[orientation]) if orientation in undo else image


def _half_transparent() -> tuple[Image.Image, NDArray[np.uint8]]:
    alpha = np.zeros((HEIGHT, WIDTH), np.uint8)
    alpha[:, :10], alpha[:, 10:20] = 255, 128
    on_white = np.round(RGB * (alpha[..., None] / 255) + 255 * (1 - alpha[..., None] / 255))
    return Image.fromarray(np.dstack([RGB, alpha])), on_white.astype(np.uint8)


def odd_images() -> dict[str, tuple[bytes, NDArray[np.uint8], int]]:
    """Name: the file, the pixels (h, w, 3) that it shows, and how far they may be off."""
    image, grey = Image.fromarray(RGB), Image.fromarray(GREY)
    grey_rgb = np.repeat(GREY[..., None], 3, axis=2)
    on_off = np.where(GREY > 110, 255, 0).astype(np.uint8)
    on_off_rgb = np.repeat(on_off[..., None], 3, axis=2)
    sixteen = GREY.astype(np.uint16) * 257
    transparent, on_white = _half_transparent()
    grey_alpha = Image.merge("LA", (grey, transparent.getchannel("A")))
    grey_on_white = np.asarray(Image.composite(grey, Image.new("L", grey.size, 255), transparent.getchannel("A")))
    keyed = np.where((RGB[0, 0] == RGB).all(2, keepdims=True), 255, RGB).astype(np.uint8)  # its red is transparent
    palette = image.quantize(16)
    palette_rgb = np.asarray(palette.convert("RGB"))
    transparent_index = palette.getpixel((0, 0))
    palette_keyed = np.where((palette_rgb == palette_rgb[0, 0]).all(2, keepdims=True), 255, palette_rgb).astype(np.uint8)
    black = Image.new("RGB", image.size)
    floats = GREY.astype(np.float32) / 255
    floats_rgb = np.repeat(np.round((floats - floats.min()) / np.ptp(floats) * 255).astype(np.uint8)[..., None], 3, axis=2)
    animation = {"save_all": True, "append_images": [black], "duration": 100}
    zoo: dict[str, tuple[bytes, NDArray[np.uint8], int]] = {
        "plain.png": (encoded(image, "PNG"), RGB, 0),
        "plain.jpg": (encoded(image, "JPEG", quality=95, subsampling=0), RGB, 12),
        "progressive.jpg": (encoded(image, "JPEG", quality=95, subsampling=0, progressive=True), RGB, 12),
        "grey.jpg": (encoded(grey, "JPEG", quality=95), grey_rgb, 12),
        "cmyk.jpg": (encoded(image.convert("CMYK"), "JPEG", quality=95), RGB, 16),
        "cmyk.tif": (encoded(image.convert("CMYK"), "TIFF"), RGB, 1),
        "lab.tif": (encoded(_lab(image), "TIFF"), RGB, 8),
        "ycbcr.tif": (encoded(image.convert("YCbCr"), "TIFF"), RGB, 3),
        "deflate.tif": (encoded(image, "TIFF", compression="tiff_deflate"), RGB, 0),
        "1-bit.png": (encoded(Image.fromarray(on_off).convert("1"), "PNG"), on_off_rgb, 0),
        "1-bit.tif": (encoded(Image.fromarray(on_off).convert("1"), "TIFF", compression="group4"), on_off_rgb, 0),
        "1-bit.pbm": (encoded(Image.fromarray(on_off).convert("1"), "PPM"), on_off_rgb, 0),
        "16-bit grey.png": (encoded(Image.fromarray(sixteen), "PNG"), grey_rgb, 0),
        "16-bit grey.tif": (encoded(Image.fromarray(sixteen), "TIFF"), grey_rgb, 0),
        "16-bit grey, big end first.tif": (encoded(_big_endian(sixteen), "TIFF"), grey_rgb, 0),
        "16-bit grey.pgm": (b"P5 %d %d 65535\n" % (WIDTH, HEIGHT) + sixteen.astype(">u2").tobytes(), grey_rgb, 0),
        "16-bit colour.png": (_png16(RGB), RGB, 0),
        "floats.tif": (encoded(Image.fromarray(floats), "TIFF"), floats_rgb, 1),
        "palette.png": (encoded(palette, "PNG"), palette_rgb, 0),
        "palette.gif": (encoded(palette, "GIF"), palette_rgb, 0),
        "palette.bmp": (encoded(palette, "BMP"), palette_rgb, 0),
        "transparent.png": (encoded(transparent, "PNG"), on_white, 1),
        "transparent.webp": (encoded(transparent, "WEBP", lossless=True, exact=True), on_white, 1),
        "transparent grey.png": (encoded(grey_alpha, "PNG"), np.repeat(grey_on_white[..., None], 3, axis=2), 1),
        "transparent colour.png": (encoded(image, "PNG", transparency=tuple(RGB[0, 0].tolist())), keyed, 0),
        "transparent palette.png": (encoded(palette, "PNG", transparency=transparent_index), palette_keyed, 0),
        "transparent palette.gif": (encoded(palette, "GIF", transparency=transparent_index), palette_keyed, 0),
        "animated.gif": (encoded(image.quantize(16), "GIF", **animation), palette_rgb, 0),
        "animated.png": (encoded(image, "PNG", **animation), RGB, 0),
        "animated.webp": (encoded(image, "WEBP", lossless=True, **animation), RGB, 0),
        "pages.tif": (encoded(image, "TIFF", save_all=True, append_images=[black]), RGB, 0),
        "wrong suffix.jpg": (encoded(image, "PNG"), RGB, 0),
        "broken exif.jpg": (_with_broken_exif(encoded(image, "JPEG", quality=95, subsampling=0)), RGB, 12),
        "turned.tif": (encoded(_as_stored(6), "TIFF", exif=_exif(6)), RGB, 0),
        "turned.png": (encoded(_as_stored(8), "PNG", exif=_exif(8)), RGB, 0),
        "no such turn.png": (encoded(image, "PNG", exif=_exif(9)), RGB, 0),
    }
    for orientation in range(1, 9):
        stored = encoded(_as_stored(orientation), "JPEG", quality=95, subsampling=0, exif=_exif(orientation))
        zoo[f"orientation {orientation}.jpg"] = (stored, RGB, 12)
    return zoo


def broken_images() -> dict[str, tuple[bytes, str]]:
    """Name: the file, and what is to be said of it."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3)).astype(np.uint8))
    jpeg, png = encoded(image, "JPEG"), encoded(image, "PNG")
    nan = np.full((5, 5), np.nan, np.float32)
    return {
        "empty.jpg": (b"", "the file is empty"),
        "text.jpg": (b"this is no image, whatever its name says\n", "not an image in a known format"),
        "page.png": (b"<!DOCTYPE html><html><body>404</body></html>", "not an image in a known format"),
        "postscript.jpg": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image in a known format"),
        "zeros.jpg": (bytes(5000), "not an image in a known format"),
        "header only.jpg": (jpeg[:100], r"[Tt]runcated|not an image"),
        "half.jpg": (jpeg[: len(jpeg) // 2], "truncated"),
        "half.png": (png[: len(png) // 2], "truncated|unrecognized data stream"),
        "half.gif": (encoded(image, "GIF")[:2000], "truncated"),
        "half.webp": (encoded(image, "WEBP", lossless=True)[:2000], "decoder|not an image"),
        "half.tif": (encoded(image, "TIFF")[:2000], "[Tt]runcated|not an image"),
        "half.bmp": (encoded(image, "BMP")[:2000], "truncated"),
        "damaged.png": (png[:200] + bytes(400) + png[600:], "broken PNG file|decompress|data"),
        "bomb.png": (_png_header(50_000, 50_000), "more pixels than Pillow unpacks"),
        "large.png": (_png_header(12_000, 10_000), "12000×10000 pixels are more than the limit of 100000000"),
        "large.pgm": (b"P5 12000 10000 255\n", "12000×10000 pixels are more than the limit"),
        "not finite.tif": (encoded(Image.fromarray(nan), "TIFF"), "not finite"),
    }


def _lab(image: Image.Image) -> Image.Image:
    from PIL import ImageCms

    srgb, lab = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    converted = ImageCms.applyTransform(image, ImageCms.buildTransform(srgb, lab, "RGB", "LAB"))
    assert converted is not None
    return converted


def _big_endian(values: NDArray[np.uint16]) -> Image.Image:
    return Image.frombytes("I;16B", (values.shape[1], values.shape[0]), values.astype(">u2").tobytes())


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _png_header(width: int, height: int) -> bytes:
    """The beginning of a PNG of that size, which is all that should be read of it."""
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + _chunk(b"IDAT", b"")


def _png16(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG of 16 bits a colour, which Pillow reads but does not write."""
    height, width, _ = pixels.shape
    rows = (pixels.astype(np.uint16) * 257).astype(">u2")
    content = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", content) + _chunk(b"IEND", b"")


def _with_broken_exif(jpeg: bytes) -> bytes:
    exif = b"Exif\0\0II*\0\xff\xff\xff\x7f garbage"
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + jpeg[2:]
