"""Files to pixels: whatever the file holds, eight bits of red, green and blue, the right way up; or a reason why not.

- The orientation that a camera wrote into EXIF is applied; colour profiles are not.
- Transparency is laid on :data:`BACKGROUND`.
- 16-bit grey is divided by 257, so that white stays white. Integers of 32 bits and floating point have no agreed white: such
  images are stretched from their smallest value to their largest.
- Of an animation, or a file with several pages, the first image is taken.
- Sizes are looked at before pixels are: a small file that unpacks to gigabytes is refused.
"""

import io
import stat
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

BACKGROUND = (255, 255, 255)
PIXELS = 100_000_000  # a 16-bit panorama fits; Pillow itself refuses from 179 million on
# Formats that only hold pixels. Pillow knows more, and one of them starts an interpreter of PostScript.
FORMATS = ("JPEG", "MPO", "PNG", "GIF", "BMP", "DIB", "TIFF", "WEBP", "PPM", "AVIF", "JPEG2000")
SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".gif", ".bmp", ".dib", ".tif", ".tiff", ".webp", ".avif"}
    | {".jp2", ".ppm", ".pgm", ".pbm", ".pnm"}
)

# what EXIF's orientation tag means (1: nothing to do)
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class BrokenImage(ValueError):
    """A file that gives no image; the message is its name and the reason."""


def decode(source: Path | str | bytes, *, pixels: int = PIXELS, draft: int = 0) -> Image.Image:
    """Read one image as RGB.

    Args:
        source: a file, or what is in it.
        pixels: the largest width × height that is still unpacked.
        draft: a JPEG may be unpacked at 1/2, 1/4 or 1/8 of its size, which is faster, as long as both sides have this many
            pixels left. 0: always at its full size. What is later resized to about this size looks nearly the same.

    Returns:
        A Pillow image of mode RGB. Raises :class:`BrokenImage`.
    """
    name = "image" if isinstance(source, bytes) else str(source)
    try:
        with warnings.catch_warnings():
            # Pillow warns of odd files that it reads all the same
            warnings.simplefilter("ignore")
            return _decode(source, pixels, draft)
    except BrokenImage as fault:
        raise BrokenImage(f"{name}: {fault}") from None
    except Exception as fault:  # a broken file can trip its decoder anywhere: SyntaxError, struct.error, IndexError, ...
        raise BrokenImage(f"{name}: {_in_words(fault)}") from fault


def _decode(source: Path | str | bytes, pixels: int, draft: int) -> Image.Image:
    if not isinstance(source, bytes) and not stat.S_ISREG(Path(source).stat().st_mode):
        raise BrokenImage("not a file")  # nobody waits for what a pipe may hold
    if not (len(source) if isinstance(source, bytes) else Path(source).stat().st_size):
        raise BrokenImage("the file is empty")
    Image.init()
    known = [name for name in FORMATS if name in Image.OPEN]
    with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=known) as image:
        if image.width * image.height > pixels:
            raise BrokenImage(f"{image.width}×{image.height} pixels are more than the limit of {pixels}")
        if draft:
            image.draft("RGB", (draft, draft))
        image.load()
        turn = _turn(image)
        rgb = _to_rgb(image)
        return rgb if turn is None else rgb.transpose(turn)


def _to_rgb(image: Image.Image) -> Image.Image:
    """Any of Pillow's modes as RGB, in a copy."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):  # of which Pillow makes 16 bits in 32
        return _from_grey(np.asarray(image).astype(np.float64) / 257)
    if image.mode in ("I", "F"):
        values = np.asarray(image).astype(np.float64)
        if not np.isfinite(values).all():
            raise BrokenImage("some of its pixels are not finite numbers")
        return _from_grey((values - values.min()) * (255 / (np.ptp(values) or 1)))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, (*BACKGROUND, 255)), image).convert("RGB")
    return image.convert("RGB")


def _from_grey(values: NDArray[np.float64]) -> Image.Image:
    return Image.fromarray(values.round().astype(np.uint8)).convert("RGB")


def _turn(image: Image.Image) -> Image.Transpose | None:
    try:
        return TURNS.get(image.getexif().get(0x0112, 1))
    except Exception:  # EXIF that cannot be read says nothing, and the pixels are there
        return None


def _in_words(fault: Exception) -> str:
    if isinstance(fault, UnidentifiedImageError):
        return "not an image in a known format"
    if isinstance(fault, Image.DecompressionBombError):
        return "more pixels than Pillow unpacks"
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror.lower()
    return str(fault) or type(fault).__name__
