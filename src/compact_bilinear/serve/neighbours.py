"""What an index finds near an image, and the pictures of what it found: by number, and only from the indexed folder."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..fingerprint import fingerprint
from ..images import BrokenImage
from ..images.decode import decode
from ..model import Model, load_model

THUMBNAIL, LARGE = 320, 1600  # pixels on the longer side of what is sent


class Searchable(Protocol):
    """What is asked of an index; :class:`compact_bilinear.search.Index` is one."""

    folder: Path
    pooling: str
    d: int

    @property
    def model(self) -> Path | None:
        """The model whose features it holds."""

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Of all items, ascending."""

    def search(self, features: NDArray[np.floating], top: int = 10) -> Sequence[Any]:
        """For each query its ``similarities`` and ``numbers``."""

    def item(self, number: int) -> Any:
        """Its ``path``, its class's ``name``, and its ``file`` if that is known."""


class Near(NamedTuple):
    """An item of the index that is near a query."""

    item: int
    similarity: float
    path: str
    name: str
    has_image: bool


class Neighbours:
    """An index that fits a model, or a ``ValueError``.

    Args:
        index: opened.
        model: whose features it has to hold.
    """

    def __init__(self, index: Searchable, model: Model) -> None:
        _refuse_another_model(index, model)
        self.index = index
        self._numbers = index.numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def near(self, features: NDArray[np.floating], top: int) -> list[list[Near]]:
        """The nearest items of each row of features (b, d), most similar first; none for a row of zeros."""
        found: list[list[Near]] = [[] for _ in features]
        rows = np.flatnonzero(np.abs(features).max(1, initial=0) > 0)
        if len(rows) and len(self):
            for row, near in zip(rows.tolist(), self.index.search(features[rows], top), strict=True):
                pairs = zip(near.numbers.tolist(), near.similarities.tolist(), strict=True)
                found[row] = [self._describe(number, similarity) for number, similarity in pairs]
        return found

    def _describe(self, number: int, similarity: float) -> Near:
        item = self.index.item(number)
        return Near(number, similarity, item.path, item.name, item.file is not None)

    def content(self, number: int) -> bytes:
        """The file of an item; or :class:`LookupError`, in a sentence."""
        place = int(np.searchsorted(self._numbers, number)) if abs(number) < 2**62 else len(self)
        if place == len(self) or self._numbers[place] != number:
            raise LookupError(f"The index has no item {number}.")
        item = self.index.item(number)
        if item.file is None:
            raise LookupError(f"The index does not know where the image of item {number} lies.")
        file = Path(item.file).resolve()
        if item.path.startswith(("/", "\\")) or not file.is_relative_to(_root(Path(item.file), item.path)):
            raise LookupError(f"The image of item {number} does not lie in the indexed folder.")
        try:
            return file.read_bytes()
        except OSError:
            raise LookupError(f"The image of item {number} is not there any more.") from None

    def picture(self, number: int, side: int, limit: int) -> bytes:
        """An item's image as a JPEG of at most ``side`` pixels on its longer side, with nothing else that its file may hold."""
        try:
            image = decode(self.content(number), pixels=limit, draft=side)
        except BrokenImage as fault:
            raise LookupError(f"The image of item {number} cannot be read{str(fault).removeprefix('image')}.") from None
        image.thumbnail((side, side), Image.Resampling.BILINEAR)
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=85)
        return stream.getvalue()


def _root(file: Path, path: str) -> Path:
    """The indexed folder: the file's, without its path in the index."""
    return file.parents[len(Path(path).parts) - 1].resolve()


def _refuse_another_model(index: Searchable, model: Model) -> None:
    if (index.pooling, index.d) != (str(model.named), model.pooling.dim):
        raise ValueError(
            f"The index has to hold the features of the model, {model.named} (d={model.pooling.dim}), but {index.folder} holds "
            f"{index.pooling} (d={index.d}).\nIndex features of {model.named}, or serve a model of {index.pooling}."
        )
    if index.model is None:
        return
    other = load_model(index.model)
    for what, ours, theirs in (
        ("backbone", fingerprint(model.backbone), fingerprint(other.backbone)),
        ("pooling", fingerprint(model.pooling), fingerprint(other.pooling)),
        ("normalisation", model.normalize, other.normalize),
        ("transform", model.transform, other.transform),
    ):
        if ours != theirs:
            raise ValueError(
                f"The index has to hold the features of the model, but {index.folder} was made with another {what}.\n"
                "Index features of this model's backbone, pooling and image size, or serve the model that it was made with."
            )
