"""Spatial pyramids: each cell of ever finer grids pooled by itself, so features say where (Lazebnik et al., CVPR 2006)."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, pairwise, product
from math import lcm

import torch
from torch import Tensor, nn

from .locations import read_locations


class SpatialPyramid(nn.Module):
    r"""A pooling applied to each cell of several grids over the map: (b, c, h, w) → (b, Σ ℓ²·pool.dim).

    .. math:: y = \bigl(\mathrm{pool}(x_{C}) \bigr)_{C \,\in\, \text{cells of all levels}}

    Level ℓ cuts the map into ℓ × ℓ cells. A pooling that is a sum over locations gives for a cell the sum of what it gives for
    the parts of the cell, so only the finest grid is pooled, once, and coarser cells are added up from its cells. That grid has
    L × L cells, L the least common multiple of the levels; its lines lie at round(i·h/L) and round(i·w/L).

    Args:
        pool: a pooling with the attribute ``additive = True``: FullBilinear, TensorSketch, RandomMaclaurin, PCABilinear,
            RandomProjection, or your own that is a sum over locations and knows its ``dim``. AveragePool and FisherVector are
            means.
        levels: how many cells each grid has along either axis.

    The result holds level after level as ``levels`` has them, each level row by row from the upper left cell, each cell with
    ``pool.dim`` numbers.

    >>> from compact_bilinear import TensorSketch
    >>> pyramid = SpatialPyramid(TensorSketch(512, 1000), levels=(1, 2))
    >>> pyramid(torch.zeros(2, 512, 7, 9)).shape
    torch.Size([2, 5000])
    """

    def __init__(self, pool: nn.Module, levels: Sequence[int] = (1, 2, 4)) -> None:
        super().__init__()
        self.pool = pool
        self.levels = _read_levels(levels)
        self.grid = lcm(*self.levels)
        self.dim = sum(level**2 for level in self.levels) * _read_dim_of(pool)

    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        self._check(x, z, weights)
        finest = self._finest(x, z, weights)  # (b, L, L, d)
        levels = []
        for level in self.levels:
            side = self.grid // level
            cells = finest.unflatten(2, (level, side)).unflatten(1, (level, side)).sum((2, 4))
            levels.append(cells.flatten(1))
        return torch.cat(levels, 1)

    def _finest(self, x: Tensor, z: Tensor | None, weights: Tensor | None) -> Tensor:
        b, _, h, w = x.shape
        heights, widths = _cut(h, self.grid), _cut(w, self.grid)
        # cells of one size go through the pool together: one call where L divides h and w, at most four elsewhere
        places = defaultdict(list)
        for place, size in enumerate(product(heights, widths)):
            places[size].append(place)
        inputs, options = [_cells(x, heights, widths)], {}
        if z is not None:
            inputs.append(_cells(z, heights, widths))
        if weights is not None:
            options["weights"] = _cells(weights, heights, widths)
        pooled = []
        for those in places.values():
            positional = [_stacked(cells, those) for cells in inputs]
            named = {name: _stacked(cells, those) for name, cells in options.items()}
            pooled.append(self.pool(*positional, **named).unflatten(0, (b, len(those))))
        if len(pooled) > 1:
            found = dict(zip(chain(*places.values()), torch.cat(pooled, 1).unbind(1), strict=True))
            pooled = [torch.stack([found[place] for place in range(self.grid**2)], 1)]
        finest: Tensor = pooled[0].unflatten(1, (self.grid, self.grid))
        return finest

    def _check(self, x: Tensor, z: Tensor | None, weights: Tensor | None) -> None:
        for name, each in (("x", x), ("z", z)):
            if isinstance(each, Tensor) and each.ndim == 3:
                raise ValueError(
                    f"SpatialPyramid takes a feature map (b, c, h, w) but {name} is {tuple(each.shape)}: "
                    f"tokens do not say where they lie.\nPass `{name}.mT.unflatten(2, (h, w))`, without a class token."
                )
        # here, not in the pool, which sees cells: of shapes that nobody has passed
        channels = getattr(self.pool, "channels", None)
        read_locations("SpatialPyramid", channels if isinstance(channels, tuple) else (channels, channels), x, z, weights)
        h, w = x.shape[2:]
        if min(h, w) < self.grid:
            raise ValueError(
                f"SpatialPyramid with levels {self.levels} takes maps of at least {self.grid} × {self.grid} locations but x is "
                f"{tuple(x.shape)}.\nLeave out a level, or pass larger images."
            )

    def extra_repr(self) -> str:
        return f"levels={self.levels}, dim={self.dim}"


def _cut(size: int, parts: int) -> list[int]:
    """How long each part of ``size`` is, where part i begins at round(i·size/parts)."""
    return [end - start for start, end in pairwise(round(i * size / parts) for i in range(parts + 1))]


def _cells(x: Tensor, heights: list[int], widths: list[int]) -> list[Tensor]:
    # split, whose backward pass is one cat: each slice x[..., a:b, c:d] would add a whole map of zeros
    return [cell for band in x.split(heights, -2) for cell in band.split(widths, -1)]


def _stacked(cells: list[Tensor], places: list[int]) -> Tensor:
    return torch.stack([cells[place] for place in places], 1).flatten(0, 1)


def _read_levels(levels: Sequence[int]) -> tuple[int, ...]:
    given = tuple(levels) if isinstance(levels, (tuple, list)) else ()
    counts = all(isinstance(level, int) and not isinstance(level, bool) and level >= 1 for level in given)
    if not given or not counts or len(set(given)) < len(given):
        raise ValueError(
            f"SpatialPyramid takes levels as different positive integers, one a grid, but got {levels!r}.\n"
            "Write levels=(1, 2, 4) for the whole map, its quarters and its sixteenths."
        )
    return given


def _read_dim_of(pool: nn.Module) -> int:
    name = type(pool).__name__
    if not isinstance(pool, nn.Module) or getattr(pool, "additive", False) is not True:
        raise ValueError(
            f"SpatialPyramid adds cells up, so it takes a pooling that is a sum over locations (additive = True), and {name} "
            "is not.\n"
            "Pass FullBilinear, TensorSketch, RandomMaclaurin, PCABilinear or RandomProjection. If yours is a sum, give it the "
            "attribute `additive = True`."
        )
    dim = getattr(pool, "dim", None)
    if not isinstance(dim, int):
        raise ValueError(
            f"SpatialPyramid takes a pooling that says its output dimension d as `dim`, but {name} has dim={dim!r}.\n"
            "Set `self.dim` in its __init__."
        )
    return dim
