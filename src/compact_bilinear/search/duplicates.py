"""Near-duplicates: groups of images that are connected by similarities above a threshold."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ..progress import counting_bar
from .index import Index

THRESHOLD = 0.95
TILE = 1024  # as many rows are compared with as many others at a time: 4 MB of similarities
HELD = 2**26  # numbers of the rows that are held while all before them pass by, 256 MB
LINKS = 32  # neighbours of each image that are looked at where the engine is not exact


class Group(NamedTuple):
    """Images that are one and the same, or nearly."""

    numbers: NDArray[np.int64]  # of the items, in their order
    similarities: NDArray[np.float32]  # of each to the one most similar to it


class Pairs(NamedTuple):
    """Some pairs of images, by their places among those that are not deleted."""

    one: NDArray[np.int64]
    other: NDArray[np.int64]
    similarities: NDArray[np.float32]


def duplicates(index: Index, threshold: float = THRESHOLD) -> list[Group]:
    """Groups of images in which each is at least as similar as a threshold to another; in the order of their first images.

    A flat index is compared exactly, all with all, tile by tile: m² · d / 2 multiplications for m images. With HNSW and IVF-PQ
    each image is compared with the 32 nearest that a search finds.

    Args:
        index: whose.
        threshold: the least cosine of two images that count as the same. A lower one finds images that were changed more, and
            more that only look alike.
    """
    if not -1 < threshold < 1:
        raise ValueError(
            f"Duplicates are more similar than a threshold between -1 and 1, but got {threshold}.\n"
            f"Write --threshold {THRESHOLD}, or a little less for images that were changed more."
        )
    numbers = index.numbers
    groups = _Groups(len(numbers))
    pairs_of = _all_pairs if all(segment.engine.exact for segment in index.segments) else _near_pairs
    with counting_bar("duplicates", "images", 0, len(numbers)) as advance:
        for done, pairs in pairs_of(index, numbers):
            same = pairs.similarities >= threshold
            if same.any():
                groups.connect(pairs.one[same], pairs.other[same], pairs.similarities[same])
            advance(done)
    return groups.found(numbers)


def _all_pairs(index: Index, numbers: NDArray[np.int64]) -> Iterator[tuple[int, Pairs]]:
    """Every tile with every one before it and itself; and how many images that completes."""
    held = max(1, HELD // max(index.d, TILE) // TILE) * TILE
    for start in range(0, len(numbers), held):
        x = index.features(numbers[start : start + held])
        for column in range(0, start + len(x), TILE):
            inside = column - start
            y = x[inside : inside + TILE] if inside >= 0 else index.features(numbers[column : column + TILE])
            for row in range(max(0, inside), len(x), TILE):
                similarities = x[row : row + TILE] @ y.T
                if row == inside:
                    similarities[np.tri(*similarities.shape, dtype=np.bool_)] = -2  # each pair once, and none with itself
                one, other = np.divmod(np.arange(similarities.size), len(y))
                yield len(y) * (row == inside), Pairs(start + row + one, column + other, similarities.reshape(-1))


def _near_pairs(index: Index, numbers: NDArray[np.int64]) -> Iterator[tuple[int, Pairs]]:
    """Each image with those that a search finds."""
    for start in range(0, len(numbers), TILE):
        some = numbers[start : start + TILE]
        found = index.search(index.features(some), LINKS + 1)
        one = np.repeat(np.arange(start, start + len(some)), [len(each.numbers) for each in found])
        other = np.searchsorted(numbers, np.concatenate([each.numbers for each in found]))
        similarities = np.concatenate([each.similarities for each in found]).astype(np.float32)
        similarities[one == other] = -2
        yield len(some), Pairs(one, other, similarities)


class _Groups:
    """Connected components of pairs that come some at a time: of each image one that leads to the first of its group."""

    def __init__(self, count: int) -> None:
        self._leader = np.arange(count)
        self._similarity = np.full(count, -1, np.float32)

    def connect(self, one: NDArray[np.int64], other: NDArray[np.int64], similarities: NDArray[np.float32]) -> None:
        for end in (one, other):
            np.maximum.at(self._similarity, end, similarities)
        places, ends = np.unique(np.concatenate([one, other]), return_inverse=True)
        links = coo_array((np.ones(len(one), bool), (ends[: len(one)], ends[len(one) :])), (len(places), len(places)))
        _, component = connected_components(links, directed=False)
        firsts: dict[int, int] = {}
        for place, number in zip(places.tolist(), component.tolist(), strict=True):
            mine, first = self._first(place), firsts.setdefault(number, self._first(place))
            firsts[number] = min(mine, first)
            self._leader[max(mine, first)] = min(mine, first)

    def _first(self, place: int) -> int:
        leader = self._leader
        while leader[place] != place:
            leader[place] = leader[leader[place]]
            place = int(leader[place])
        return place

    def found(self, numbers: NDArray[np.int64]) -> list[Group]:
        firsts = np.array([self._first(place) for place in range(len(numbers))])
        order = np.argsort(firsts, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(firsts[order])) + 1)
        # rounded rows may be a little longer than 1, and nothing is more similar than the same
        return [Group(numbers[each], self._similarity[each].clip(-1, 1)) for each in groups if len(each) > 1]
