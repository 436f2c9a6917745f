"""Rows of length 1, so that the inner product of two is their cosine; and those that have no length, by name."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import FeatureStore

BLOCK = 2**22  # numbers in a block, 16 MB in float32


class UnitRows(NamedTuple):
    """Some rows of a store."""

    first: int  # place of the block's first row among those that were asked for
    rows: NDArray[np.float32]  # (m, d), each of length 1
    kept: NDArray[np.bool_]  # for all rows of the block, whether it is among them


def unit(x: NDArray[np.floating]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Rows scaled to length 1, without those that are zero or not finite; and for each whether it was kept.

    >>> rows, kept = unit(np.array([[3.0, 4.0], [0.0, 0.0], [np.inf, 1.0]]))
    >>> rows, kept
    (array([[0.6, 0.8]], dtype=float32), array([ True, False, False]))
    """
    wide = x.astype(np.float32)
    largest = np.abs(wide).max(axis=1, keepdims=True)
    kept = np.isfinite(largest[:, 0]) & (largest[:, 0] > 0)
    wide, largest = wide[kept], largest[kept]
    wide /= largest  # or the squares of large numbers would be infinite, and those of small ones zero
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    return wide, kept


def d_of(store: FeatureStore, pooling: str) -> int:
    """How many numbers a row of a pooling has."""
    if pooling not in store.poolings:
        raise ValueError(f"{store.folder} has no features {pooling!r}.\nIt has {', '.join(store.poolings)}.")
    return store.poolings[pooling]


def unit_blocks(store: FeatureStore, pooling: str, split: str | None = None) -> Iterator[UnitRows]:
    """The rows of a store, block after block."""
    first = 0
    for block in store.blocks(pooling, split, max(1, BLOCK // d_of(store, pooling))):
        rows, kept = unit(block)
        yield UnitRows(first, rows, kept)
        first += len(block)
