"""An index on the disk, opened and searched. Writers do not disturb it: it stays as it was when it was opened."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..features.unit_rows import unit
from .layout import Manifest, check_files, read_manifest
from .segment import Near, Segment


class Item(NamedTuple):
    """What is known of an image inside."""

    number: int  # its place in the index
    path: str  # its name, relative to the folder of images
    label: int  # a place in the index's classes, -1 where it is not known
    name: str  # of its class, "" where it is not known
    split: str  # "train", "test", "val", or "" where nobody said
    file: Path | None  # where the image lies, if the index was told


class Found(NamedTuple):
    """The neighbours of one query, most similar first, and where as similar, in the order of the index."""

    similarities: NDArray[np.float64]  # (k,), cosines
    numbers: NDArray[np.int64]  # (k,), of the items


class Index:
    """What ``cbp index`` made, opened by memory map: however large, it is there at once.

    Sizes of all files are checked, and the checksums of those up to 16 MB; :meth:`verify` checks all. May be searched from
    several threads. How many threads FAISS itself takes is what ``OMP_NUM_THREADS`` says.

    Args:
        folder: with a manifest and what it names.

    Attributes:
        folder: as given.
        manifest: all that is known of it.
        classes: names; a label is a place in here.
        pooling: which features it holds.
        d: numbers a row.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        while True:
            self.manifest: Manifest = read_manifest(self.folder)
            try:
                check_files(self.folder, self.manifest)
                self.segments = self._open()
                break
            except (ValueError, OSError):
                # a writer may have removed what this manifest named, in the moment since
                if read_manifest(self.folder)["generation"] == self.manifest["generation"]:
                    raise
        self.classes: tuple[str, ...] = tuple(self.manifest["classes"])
        self.pooling: str = self.manifest["pooling"]
        self.d: int = self.manifest["d"]

    def _open(self) -> list[Segment]:
        deleted, counts = self.manifest["deleted"], [facts["count"] for facts in self.manifest["segments"]]
        dead = np.zeros(sum(counts), bool)
        if deleted is not None:
            bits = np.load(self.folder / deleted, allow_pickle=False)
            dead[:] = np.unpackbits(bits, count=len(dead))
        firsts = np.concatenate([[0], np.cumsum(counts)]).tolist()
        return [
            Segment(self.folder, facts, first, dead[first:stop])
            for facts, first, stop in zip(self.manifest["segments"], firsts[:-1], firsts[1:], strict=True)
        ]

    def __len__(self) -> int:
        return sum(segment.count - int(segment.dead.sum()) for segment in self.segments)

    def __repr__(self) -> str:
        return f"Index({str(self.folder)!r})"

    def __str__(self) -> str:
        """What is in it, for people."""
        engines = " and ".join(dict.fromkeys(segment.facts["engine"] for segment in self.segments))
        of = f" of {len(self.classes)} classes" if self.classes else ""
        line = f"{self.folder}: {len(self)} images{of}, {self.pooling} (d={self.d}) in {self.manifest['codes']}, {engines}"
        rows, parts = sum(segment.count for segment in self.segments), len(self.segments)
        if rows > len(self) or parts > 1:
            line += (
                f"\ndeleted or replaced: {rows - len(self)} of {rows} rows; parts: {parts}; --compact makes one of what is left"
            )
        return line

    @property
    def model(self) -> Path | None:
        """The folder of the model that made the features, for :func:`~compact_bilinear.model.load_model`; if it was kept."""
        return None if self.manifest["model"] is None else self.folder / self.manifest["model"]

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The numbers of all items that are not deleted."""
        return np.concatenate([segment.first + np.flatnonzero(~segment.dead) for segment in self.segments])

    def search(self, features: NDArray[np.floating], top: int = 10, effort: int | None = None) -> list[Found]:
        """The nearest items of each query, by cosine.

        Args:
            features: (b, d), of whatever length.
            top: k, how many are wanted; less come where there are less.
            effort: HNSW's rows in sight, or the lists that IVF-PQ looks into: more find more, slower. None: 64, or 16.

        Returns:
            One :class:`Found` a query.
        """
        features = np.asarray(features)
        if features.ndim != 2 or features.shape[1] != self.d:
            raise ValueError(
                f"{self.folder} is searched with features (b, d={self.d}) but got {features.shape}.\n"
                f"Pool the images as those inside were pooled: {self.pooling}."
            )
        if top < 1 or (effort is not None and effort < 1):
            raise ValueError(
                f"A search finds top ≥ 1 items with an effort ≥ 1, but got top={top}, effort={effort}.\n"
                "Write top=10, and no effort."
            )
        queries, kept = unit(features)
        if not kept.all():
            raise ValueError(
                f"A query has a direction, but query {int(np.flatnonzero(~kept)[0])} of {len(kept)} is zero or not finite.\n"
                "Leave it out."
            )
        of_segments = [list(segment.search(queries, top, effort)) for segment in self.segments]
        return [self._merge(near, top) for near in zip(*of_segments, strict=True)]

    def _merge(self, near: Sequence[Near], top: int) -> Found:
        similarities = np.concatenate([each.similarities for each in near])
        numbers = np.concatenate([seg.first + each.positions for seg, each in zip(self.segments, near, strict=True)])
        order = np.lexsort((numbers, -similarities))[:top]
        # rounded rows are not quite as long as 1, and nothing is more similar than the same
        return Found(similarities[order].clip(-1, 1), numbers[order])

    def neighbours(self, number: int, top: int = 10, effort: int | None = None) -> Found:
        """The nearest items of one that is inside, without itself."""
        near = self.search(self.features([number]), top + 1, effort)[0]
        others = near.numbers != number
        return Found(near.similarities[others][:top], near.numbers[others][:top])

    def features(self, numbers: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows as they are kept, (len(numbers), d)."""
        wanted = np.asarray(numbers, np.int64)
        self._require(wanted)
        rows = np.empty((len(wanted), self.d), np.float32)
        for segment in self.segments:
            here = (wanted >= segment.first) & (wanted < segment.first + segment.count)
            if here.any():
                rows[here] = segment.decode(wanted[here] - segment.first)
        return rows

    def item(self, number: int) -> Item:
        """What is known of an item, also of one that was deleted."""
        self._require(np.array([number]))
        segment = next(each for each in self.segments if number < each.first + each.count)
        path, label, split, place = (column[number - segment.first].as_py() for column in segment.items.columns)
        name = self.classes[label] if label >= 0 else ""
        return Item(int(number), path, label, name, split, None if place < 0 else Path(self.manifest["images"][place], path))

    def _require(self, numbers: NDArray[np.int64]) -> None:
        count = sum(segment.count for segment in self.segments)
        if not ((numbers >= 0) & (numbers < count)).all():
            raise ValueError(
                f"{self.folder} has items 0 to {count - 1}, but got {numbers.min()} to {numbers.max()}.\n"
                "Take numbers that a search found, or that `numbers` lists."
            )

    def find(self, path: str) -> int:
        """The number of the item with a path."""
        for segment in reversed(self.segments):
            position = segment.find(path)
            if position is not None:
                return segment.first + position
        example = self.item(int(self.numbers[0])).path
        raise ValueError(
            f"{self.folder} has no image {path}.\nName a file or a folder of images, or an image inside: {example}, for one."
        )

    def verify(self) -> None:
        """Read every file in full, and refuse what is damaged."""
        try:
            check_files(self.folder, self.manifest, full=True)
        except (ValueError, OSError) as fault:
            if read_manifest(self.folder)["generation"] == self.manifest["generation"]:
                raise
            raise ValueError(
                f"{self.folder} was changed after it was opened, and files of what it was are gone.\nOpen and verify it again."
            ) from fault
