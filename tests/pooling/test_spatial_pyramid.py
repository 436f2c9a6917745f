"""Spatial pyramids against their definition: each cell cut out of the map and pooled by itself."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import lcm

import pytest
import torch
from torch import Tensor, nn

import promises
from compact_bilinear import (
    AveragePool,
    FisherVector,
    FullBilinear,
    PCABilinear,
    RandomMaclaurin,
    RandomProjection,
    SpatialPyramid,
    TensorSketch,
)

POOLS: dict[str, Callable[[], nn.Module]] = {
    "full_bilinear": lambda: FullBilinear(7),
    "full_bilinear-triangle": lambda: FullBilinear(7, triangle=True),
    "tensor_sketch-gram": lambda: TensorSketch(7, 11, plan="gram"),
    "tensor_sketch-fft": lambda: TensorSketch(7, 11, plan="fft", learnable=True),
    "random_maclaurin": lambda: RandomMaclaurin(7, 11, learnable=True),
    "random_projection-sparse": lambda: RandomProjection(7, 11, sparse=True),
    "pca_bilinear": lambda: PCABilinear(7, 9).fit(torch.randn(40, 7)),
}
every_pool = pytest.mark.parametrize("make", POOLS.values(), ids=POOLS.keys())


def definition(pool: nn.Module, levels: Sequence[int], *inputs: Tensor, weights: Tensor | None = None) -> Tensor:
    """One cell after the other, each sliced out of the map."""
    h, w = inputs[0].shape[2:]
    grid = lcm(*levels)
    cells = []
    for level in levels:
        # lines of a coarse grid are lines of the finest one, which are rounded to whole locations
        rows = [round(i * (grid // level) * h / grid) for i in range(level + 1)]
        columns = [round(i * (grid // level) * w / grid) for i in range(level + 1)]
        for top, bottom in pairwise(rows):
            for left, right in pairwise(columns):
                cell = (..., slice(top, bottom), slice(left, right))
                options = {} if weights is None else {"weights": weights[cell]}
                cells.append(pool(*(each[cell] for each in inputs), **options))
    return torch.cat(cells, 1)


def check_is_a_pyramid(pyramid: nn.Module, h: int = 7, w: int = 9) -> None:
    x, weights = promises.feature_map(h=h, w=w), promises.positive_weights(h=h, w=w)
    for a in (None, weights):
        y, expected = pyramid(x, weights=a), definition(pyramid.pool, pyramid.levels, x, weights=a)
        assert y.shape == (3, pyramid.dim)
        torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)


# --- the definition ---


@every_pool
def test_pools_each_cell_by_itself(make: Callable[[], nn.Module]) -> None:
    check_is_a_pyramid(SpatialPyramid(make()).double())


@pytest.mark.parametrize("levels", [(1, 2, 4), (4, 1), (1,), (3,), (2, 3), [1, 6]])
@pytest.mark.parametrize(("h", "w"), [(12, 12), (6, 6), (12, 6), (7, 13), (11, 6)])
def test_any_levels_over_any_map(levels: Sequence[int], h: int, w: int) -> None:
    check_is_a_pyramid(SpatialPyramid(FullBilinear(7), levels).double(), h, w)


def test_the_first_numbers_by_hand() -> None:
    # the squares of 0 … 5 in two rows of three, cut after the second column
    x = torch.arange(6.0).view(1, 1, 2, 3)
    assert SpatialPyramid(FullBilinear(1), levels=(1, 2))(x).tolist() == [[55.0, 1.0, 4.0, 25.0, 25.0]]


@pytest.mark.parametrize("plan", ["gram", "fft"])
def test_two_inputs(plan: str) -> None:
    pyramid = SpatialPyramid(TensorSketch((7, 4), 11, plan=plan)).double()
    x, z, weights = (
        promises.feature_map(h=5, w=6),
        promises.feature_map(c=4, h=5, w=6, seed=1),
        promises.positive_weights(h=5, w=6),
    )
    for a in (None, weights):
        expected = definition(pyramid.pool, pyramid.levels, x, z, weights=a)
        torch.testing.assert_close(pyramid(x, z, weights=a), expected, rtol=1e-10, atol=1e-10)


@every_pool
def test_the_coarsest_cell_is_the_pool_itself(make: Callable[[], nn.Module]) -> None:
    pool, x = make().double(), promises.feature_map()
    torch.testing.assert_close(SpatialPyramid(pool, levels=[1])(x), pool(x), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(SpatialPyramid(pool, levels=[1, 4])(x)[:, : pool.dim], pool(x), rtol=1e-10, atol=1e-10)


def test_holds_what_its_pool_learns() -> None:
    pyramid = SpatialPyramid(TensorSketch(7, 11, learnable=True))
    assert [name for name, _ in pyramid.named_parameters()] == ["pool.sign"]
    other = SpatialPyramid(TensorSketch(7, 11, seed=1, learnable=True))
    other.load_state_dict(pyramid.state_dict())
    x = promises.feature_map().float()
    assert torch.equal(other(x), pyramid(x))
    assert repr(pyramid).startswith("SpatialPyramid(\n  levels=(1, 2, 4), dim=231\n  (pool): TensorSketch(")


# --- how it computes ---


@pytest.mark.parametrize(("h", "w", "calls"), [(8, 12, 1), (9, 12, 2), (9, 13, 4), (4, 4, 1)])
def test_pools_each_location_once_in_few_calls(h: int, w: int, calls: int) -> None:
    pooled = []
    pyramid = SpatialPyramid(TensorSketch(7, 11))
    pyramid.pool.register_forward_pre_hook(lambda pool, inputs: pooled.append(inputs[0].shape))
    pyramid(promises.feature_map(h=h, w=w).float())
    assert sum(b * height * width for b, _, height, width in pooled) == 3 * h * w
    assert len(pooled) == calls
    # as many cells as the finest grid has, and no other
    assert sum(shape[0] for shape in pooled) == 3 * 4 * 4


# --- every layer's promises ---


def uneven() -> SpatialPyramid:
    """Cells of two sizes on the maps of promises.py."""
    return SpatialPyramid(TensorSketch(7, 11, learnable=True), levels=(1, 2)).double()


def test_layouts() -> None:
    promises.check_layouts(uneven(), tokens=False)


@every_pool
def test_images_do_not_see_each_other(make: Callable[[], nn.Module]) -> None:
    pyramid = SpatialPyramid(make(), levels=(1, 2)).double()
    promises.check_images_do_not_see_each_other(pyramid)
    promises.check_no_images(pyramid)
    promises.check_zeros(pyramid)


@every_pool
def test_precision(make: Callable[[], nn.Module]) -> None:
    promises.check_precision(SpatialPyramid(make(), levels=(1, 2)))


@every_pool
def test_gradients(make: Callable[[], nn.Module]) -> None:
    pyramid = SpatialPyramid(make(), levels=(1, 2)).double()
    x, weights = promises.feature_map(1, h=2, w=3), promises.positive_weights(1, 2, 3)
    promises.check_gradients(lambda x, a: pyramid(x, weights=a), x, weights)


def test_torch_func() -> None:
    promises.check_transforms(uneven())


def test_compiles_and_exports() -> None:
    promises.check_compiles(uneven())
    promises.check_exports(uneven(), tokens=False)


# --- what it refuses ---


@pytest.mark.parametrize("levels", [(), (0, 1), (1, 2, 2), (1.0, 2), (True, 2), 4, "124"])
def test_levels_are_checked(levels: object) -> None:
    with pytest.raises(ValueError, match=r"different positive integers.*\nWrite levels=\(1, 2, 4\)") as refused:
        SpatialPyramid(FullBilinear(7), levels)
    assert repr(levels) in str(refused.value)


@pytest.mark.parametrize(
    "pool", [AveragePool(7), FisherVector(7), nn.Linear(7, 7), SpatialPyramid(FullBilinear(7)), FullBilinear]
)
def test_only_sums_can_be_added_up(pool: nn.Module) -> None:
    with pytest.raises(
        ValueError, match=r"takes a pooling that is a sum over locations .* is not\.\nPass FullBilinear"
    ) as refused:
        SpatialPyramid(pool)
    assert type(pool).__name__ in str(refused.value)


def test_any_sum_that_knows_its_dimension_is_welcome() -> None:
    class Total(nn.Module):
        additive = True

        def forward(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
            return (x if weights is None else x * weights.unsqueeze(1)).sum((2, 3))

    pool = Total()
    with pytest.raises(ValueError, match=r"says its output dimension d as `dim`, but Total has dim=None.\nSet `self.dim`"):
        SpatialPyramid(pool)
    pool.dim = 7
    check_is_a_pyramid(SpatialPyramid(pool))


def test_inputs_are_checked() -> None:
    pyramid, x = SpatialPyramid(FullBilinear((7, 4))), torch.zeros(2, 7, 5, 6)
    with pytest.raises(ValueError, match=r"takes a tensor but x is list.\nPass `torch.as_tensor\(x\)`"):
        pyramid([1.0], x)
    with pytest.raises(ValueError, match=r"takes weights as a tensor but got list.\nPass `torch.as_tensor\(weights\)`"):
        pyramid(x, torch.zeros(2, 4, 5, 6), weights=[1.0])
    # of the map that was passed, not of its cells
    with pytest.raises(ValueError, match=r"but x is \(2, 5, 6, 7\).\nChannels come second in a map: pass `x.permute"):
        SpatialPyramid(TensorSketch(7, 5))(torch.zeros(2, 5, 6, 7))
    with pytest.raises(
        ValueError, match=r"takes a feature map \(b, c, h, w\) but z is \(2, 30, 4\).*\nPass `z.mT.unflatten\(2, "
    ):
        pyramid(x, torch.zeros(2, 30, 4))
    with pytest.raises(ValueError, match=r"levels \(1, 2, 4\) takes maps of at least 4 × 4 .* x is \(2, 7, 3, 9\).\nLeave out"):
        pyramid(torch.zeros(2, 7, 3, 9), torch.zeros(2, 4, 3, 9))
    with pytest.raises(ValueError, match=r"SpatialPyramid takes two inputs over the same locations, .*\nResize one map"):
        pyramid(x, torch.zeros(2, 4, 6, 5))
    with pytest.raises(ValueError, match=r"SpatialPyramid takes two inputs over the same images, but x has b=2 and z b=3"):
        pyramid(x, torch.zeros(3, 4, 5, 6))
    for shape in ((2, 30), (2, 6, 5), (2, 1, 5, 6)):
        with pytest.raises(ValueError, match=r"takes weights \(b, h, w\) = \(2, 5, 6\), .*\nPass `weights.reshape\(2, 5, 6\)`"):
            pyramid(x, torch.zeros(2, 4, 5, 6), weights=torch.zeros(shape))
    with pytest.raises(ValueError, match=r"SpatialPyramid takes a feature map \(b, c=4, h, w\)"):
        pyramid(x, torch.zeros(2, 5, 5, 6))


# --- the tests are tested: each of these is wrong in one way ---


class MeanForTheWholeMap(SpatialPyramid):
    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        y = super().forward(x, z, weights=weights).unflatten(1, (-1, self.pool.dim))
        return torch.cat([y[:, :1] / 16, y[:, 1:]], 1).flatten(1)


class ColumnsBeforeRows(SpatialPyramid):
    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        return super().forward(x.mT, weights=None if weights is None else weights.mT)


class ShiftedCells(SpatialPyramid):
    def _finest(self, x: Tensor, z: Tensor | None, weights: Tensor | None) -> Tensor:
        return super()._finest(x.roll(1, 3), z, weights)


class IgnoresWeights(SpatialPyramid):
    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        return super().forward(x, z)


@pytest.mark.parametrize("wrong", [MeanForTheWholeMap, ColumnsBeforeRows, ShiftedCells, IgnoresWeights])
def test_the_definition_catches(wrong: type[SpatialPyramid]) -> None:
    with pytest.raises(AssertionError):
        check_is_a_pyramid(wrong(FullBilinear(7)).double())
