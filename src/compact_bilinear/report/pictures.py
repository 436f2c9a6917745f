"""Images in a page: made small, written as JPEG into the page itself, and together never more than a bound.

The side that images get depends on how many there are. What cannot be read, and what no longer fits, is a box with a reason.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

BOUND = 4_000_000  # bytes that all images of a page take as JPEG; in base64 they are a third more
SIDES = ((320, 82), (224, 80), (160, 76), (112, 72), (80, 66))  # pixels of the longer side, and the quality of JPEG
EVIDENCE = 0.8  # how much of the colour lies on the strongest evidence


@dataclass(frozen=True, eq=False)
class Picture:
    """An image and what is said of it.

    Args:
        image: a file, or pixels (h, w, 3) of eight bits.
        label: what stands below it: its class, for instance.
        note: a second line, fainter.
        right: whether what is said of it is right, which gives a mark; None gives none.
        evidence: (rows, columns) of any size, what each place of the image says for a class: positive for, negative against.
            The image is shown with it laid over.
    """

    image: "Path | NDArray[np.uint8]"
    label: str
    note: str = ""
    right: bool | None = None
    evidence: "NDArray[Any] | None" = None

    def __post_init__(self) -> None:
        if self.evidence is not None and (self.evidence.ndim != 2 or 0 in self.evidence.shape):
            raise ValueError(
                f"Evidence is a map (rows, columns), but that of {self.label!r} is {self.evidence.shape}.\n"
                "Pass that of one image and one class."
            )
        if not isinstance(self.image, Path):
            _check_pixels(self.image)

    @property
    def alternative(self) -> str:
        """What it is, for those who do not see it."""
        mark = {True: "right", False: "wrong", None: ""}[self.right]
        over = "the evidence laid over it" if self.evidence is not None else ""
        return ", ".join(filter(None, [self.label, self.note, mark, over]))


@dataclass(frozen=True)
class Embedded:
    """What stands for a picture in the page: an address that holds all its bytes, or why there is none."""

    address: str = ""
    width: int = 0
    height: int = 0
    absent: str = ""
    size: int = field(default=0, repr=False)


def embed(pictures: Sequence[Picture], bound: int = BOUND) -> Mapping[Picture, Embedded]:
    """Pictures as data addresses, at the largest of ``SIDES`` at which all of them fit.

    Args:
        pictures: in the order of the page.
        bound: bytes for all of them. Those that do not fit even at the smallest side are left out, the last first.

    Returns:
        For each picture what is shown in its place.
    """
    small = {each: _read(each) for each in pictures}
    found: dict[Picture, Embedded] = {}
    for side, quality in SIDES:
        found = {
            each: Embedded(absent=image) if isinstance(image, str) else _encode(image, each.evidence, side, quality)
            for each, image in small.items()
        }
        if sum(each.size for each in found.values()) <= bound:
            return found
    left = bound
    for each, embedded in found.items():
        left -= embedded.size
        if left < 0:
            found[each] = Embedded(absent=f"left out: a page holds {bound / 1e6:.3g} MB of images")
    return found


def overlay(image: "Image.Image", evidence: "NDArray[Any]") -> "Image.Image":
    """An image in grey, with what speaks for a class in orange and what speaks against it in blue.

    Args:
        image: of mode RGB.
        evidence: (rows, columns), stretched over the image. Its largest absolute value gets the most colour.
    """
    import numpy as np
    from PIL import Image

    grey = np.asarray(image.convert("L"), np.float64)[..., None] * 0.75 + 32
    values = np.nan_to_num(np.asarray(evidence, np.float32))
    values = values / (np.abs(values).max() or 1)
    smooth = np.asarray(Image.fromarray(values).resize(image.size, Image.Resampling.BICUBIC), np.float64)[..., None]
    strength = EVIDENCE * np.clip(np.abs(smooth), 0, 1)
    color = np.where(smooth > 0, (255.0, 120.0, 0.0), (0.0, 90.0, 255.0))
    return Image.fromarray(np.clip((1 - strength) * grey + strength * color, 0, 255).round().astype(np.uint8))


def _read(picture: Picture) -> "Image.Image | str":
    """The image at the largest side that a page may show, or why there is none."""
    from PIL import Image

    from ..images.decode import BrokenImage, decode

    largest = SIDES[0][0]
    try:
        file = picture.image if isinstance(picture.image, Path) else None
        image = Image.fromarray(picture.image) if file is None else decode(file, draft=largest)  # type: ignore[arg-type]
    except BrokenImage as fault:
        return str(fault).replace(str(picture.image), picture.image.name)  # type: ignore[union-attr]
    image.thumbnail((largest, largest), Image.Resampling.LANCZOS, reducing_gap=3.0)
    return image


def _check_pixels(pixels: "NDArray[np.uint8]") -> None:
    if str(pixels.dtype) != "uint8" or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise ValueError(
            f"A picture is a file, or pixels (h, w, 3) as uint8, but got {pixels.dtype} of shape {pixels.shape}.\n"
            "Pass a Path; or multiply by 255, round, and move the channels to the end."
        )


def _encode(image: "Image.Image", evidence: "NDArray[Any] | None", side: int, quality: int) -> Embedded:
    from PIL import Image

    shown = image.copy()
    shown.thumbnail((side, side), Image.Resampling.LANCZOS)
    if evidence is not None:
        shown = overlay(shown, evidence)
    file = io.BytesIO()
    shown.save(file, "JPEG", quality=quality, optimize=True)
    data = file.getvalue()
    address = f"data:image/jpeg;base64,{base64.b64encode(data).decode('ascii')}"
    return Embedded(address, *shown.size, size=len(data))
