"""Inner products of stored features, a block of them in memory at a time, however many numbers a feature has."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..features import FeatureStore

Doubles = NDArray[np.float64]
Rows = NDArray[np.int64]

HELD = 2**30  # bytes of features, as they were stored, that are held while the others pass by
COLUMNS = 8192  # of these no more than so many
ROWS = 512  # of those that pass by, so many at a time
WIDE = 4096  # numbers of each feature that are in float64 at a time


def inner_products(
    store: FeatureStore,
    pooling: str,
    rows: Rows,
    columns: Rows,
    device: torch.device | str = "cpu",
    advance: Callable[[int], None] = lambda images: None,
) -> Doubles:
    """The inner products of some features with some others.

    They are computed in float64. In float32 the Gram matrix of images that are nearly the same, or of more images than numbers
    in a feature, is often not positive definite. Features are widened piece by piece, so that this takes time but no memory.

    Args:
        store: where they are. It is read once for the columns, and once more for each GB of them.
        pooling: which features.
        rows, columns: places in the store, ascending.
        device: where to multiply.
        advance: called with a number of rows whenever they are done; with ``len(rows)`` in all.

    Returns:
        (rows, columns) in float64. Nothing else of this size is held.
    """
    products = np.empty((len(rows), len(columns)))
    d = store.poolings[pooling]
    cuts = range(0, len(columns), max(1, min(COLUMNS, HELD // (np.dtype(store.dtype).itemsize * d))))
    done = 0.0
    for first in cuts:
        some = columns[first : first + cuts.step]
        held = torch.cat([block.to(device) for block in _blocks(store, pooling, some)])
        start = 0
        for block in _blocks(store, pooling, rows):
            stop = start + len(block)
            products[start:stop, first : first + len(some)] = _product(block.to(device), held).cpu().numpy()
            start = stop
            before, done = int(done), done + len(block) / len(cuts)
            advance(int(done) - before)
    return products


def squared_lengths(store: FeatureStore, pooling: str, rows: Rows) -> Doubles:
    """The inner product of each feature with itself, (rows,)."""
    return np.concatenate([_squares(block).numpy() for block in _blocks(store, pooling, rows)])


def _blocks(store: FeatureStore, pooling: str, rows: Rows) -> Iterator[Tensor]:
    """The features of ascending rows, in blocks."""
    wanted = np.zeros(len(store), bool)
    wanted[rows] = True
    first = 0
    for block in store.blocks(pooling, rows=ROWS):
        chosen = wanted[first : first + len(block)]
        first += len(block)
        if chosen.any():
            yield torch.from_numpy(block if chosen.all() else block[chosen])


def _squares(block: Tensor) -> Tensor:
    total = torch.zeros(len(block), dtype=torch.float64)
    for x in block.split(WIDE, 1):
        total += x.double().square_().sum(1)
    return total


def _product(a: Tensor, b: Tensor) -> Tensor:
    total = torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
    for x, z in zip(a.split(WIDE, 1), b.split(WIDE, 1), strict=True):
        total.addmm_(x.double(), z.double().mT)
    return total
