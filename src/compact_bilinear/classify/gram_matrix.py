"""Inner products of all pairs of images, and sums over images, of features that are read in blocks and never held whole."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Read = Callable[[], Iterator[NDArray[Any]]]

# what is multiplied at a time: two such tiles and their product stay small beside what is held, and keep the processor busy
ROWS, COLUMNS = 1024, 16384
# bytes of features that are held while the others pass by
HELD = 2**30


def gram_matrix(read: Read, m: int, dtype: torch.dtype, device: torch.device, held: int = HELD) -> Tensor:
    """K = X Xᵀ, (m, m).

    Features are read once for each ``held`` bytes of them: as many rows as fit are kept, and multiplied with all that come
    after. Products of up to 16384 columns run in ``dtype``, and their sum in float64, so that the rounding errors of K do not
    grow with d.

    Args:
        read: called without arguments, gives a new iterator over blocks (rows, d), every time the same rows in the same order.
            A block must stay as it is after the next one has come.
        m: how many rows there are.
        dtype: float32 or float64.
        device: where K shall be.
        held: bytes.

    >>> x = np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]])
    >>> gram_matrix(lambda: iter([x[:2], x[2:]]), 3, torch.float64, torch.device("cpu"))
    tensor([[ 5., 11.,  2.],
            [11., 25.,  4.],
            [ 2.,  4.,  1.]], dtype=torch.float64)
    """
    gram = torch.empty(m, m, dtype=dtype, device=device)
    first = 0
    while first < m:
        kept: list[tuple[slice, Tensor]] = []
        room = held
        for place, tile in _tiles(read, m, seen=first > 0):
            if place.start < first:
                continue
            size = tile.numel() * tile.element_size()
            if place.start == first and (room >= size or not kept):
                kept.append((place, tile))
                room -= size
                first = place.stop
            for other, mate in kept:
                product = _product(mate, tile, dtype, device)
                gram[other, place] = product
                gram[place, other] = product.mT
    return gram


def read_whole(read: Read, m: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """X, (m, d)."""
    return torch.cat([tile.to(device, dtype) for _, tile in _tiles(read, m)])


def weighted_sum(read: Read, weights: Tensor) -> Tensor:
    """Weightsᵀ X, (k, d), for weights (m, k) in their dtype and on their device. Whoever has weights has seen the rows."""
    total: Tensor | None = None
    for place, tile in _tiles(read, len(weights), seen=True):
        if total is None:
            total = weights.new_zeros(weights.shape[1], tile.shape[1])
        for start in range(0, tile.shape[1], COLUMNS):
            part = tile[:, start : start + COLUMNS].to(weights)
            total[:, start : start + COLUMNS].addmm_(weights[place].mT, part)
    assert total is not None  # there are rows
    return total


def _product(a: Tensor, b: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    total: Tensor | None = None
    for x, y in zip(a.split(COLUMNS, 1), b.split(COLUMNS, 1), strict=True):
        part = x.to(device, dtype) @ y.to(device, dtype).mT
        total = part if total is None else total.double().add_(part)
    assert total is not None  # there are columns
    return total


def _tiles(read: Read, m: int, *, seen: bool = False) -> Iterator[tuple[slice, Tensor]]:
    """The rows in pieces of at most ``ROWS``, each with its place; or why they cannot be used.

    Args:
        read, m: as for the others.
        seen: they have passed by before, and were finite; to look again would take a third of the pass.
    """
    start = 0
    d: int | None = None
    for block in read():
        if block.ndim != 2 or (d is not None and block.shape[1] != d):
            raise ValueError(
                f"Features come in blocks (rows, d={'any' if d is None else d}), but one is {block.shape}.\n"
                "Give the blocks of one pooling, as `store.blocks(pooling, split)` does."
            )
        d = block.shape[1]
        if start + len(block) > m:
            raise ValueError(
                f"There are {m} labels, but at least {start + len(block)} rows of features.\n"
                "Give the labels of the same rows: `store.labels[store.rows(split)]`."
            )
        if not len(block):
            continue
        tensor = torch.from_numpy(np.ascontiguousarray(block))
        for tile in tensor.split(ROWS):
            if not seen and not tile.isfinite().all():
                raise ValueError(
                    f"Features must be finite, but rows {start} to {start + len(tile) - 1} have NaN or infinity.\n"
                    "Remove these rows, or compute them in float32."
                )
            yield slice(start, start + len(tile)), tile
            start += len(tile)
    if start < m:
        raise ValueError(
            f"There are {m} labels, but {start} rows of features.\n"
            "Give the labels of the same rows, and a function that begins anew each time it is called."
        )
