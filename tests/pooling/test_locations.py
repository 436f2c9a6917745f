"""The public door: what comes in wrong is refused with what was expected, what came, and what to write."""

import numpy as np
import pytest
import torch
from torch import nn

from compact_bilinear import FullBilinear, RandomMaclaurin, RandomProjection, TensorSketch
from contract import TWO_INPUTS, Make, descriptors

LAYERS = [FullBilinear(8), TensorSketch(8, 16), RandomMaclaurin(8, 16)]
layers = pytest.mark.parametrize("pool", LAYERS, ids=lambda pool: type(pool).__name__)


@pytest.mark.parametrize(
    ("shape", "remedy"),
    [
        ((3, 9, 4, 5), "built for 8 channels: build it for 9"),
        ((3, 20, 9), "built for 8 channels: build it for 9"),
        ((3, 4, 5, 8), r"pass `x.permute\(0, 3, 1, 2\)`"),
        ((3, 8, 20), "pass `x.mT`"),
        ((8, 4, 5), r"pass `x\[None\]`"),
        ((3, 8), r"`x\[None\]` or `x\[:, None\]`"),
        ((8,), "Flatten the axes"),
        ((3, 2, 8, 4, 5), "Flatten the axes"),
    ],
)
@layers
def test_wrong_shapes(pool: nn.Module, shape: tuple[int, ...], remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy) as refused:
        pool(torch.zeros(shape))
    assert str(refused.value).startswith(f"{type(pool).__name__} takes a feature map (b, c=8, h, w) or tokens (b, n, c=8)")
    assert str(shape) in str(refused.value)


@layers
def test_wrong_types(pool: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"floating-point descriptors but x is torch.uint8.\nPass `x.float\(\)`"):
        pool(torch.zeros(3, 8, 4, 5, dtype=torch.uint8))
    with pytest.raises(ValueError, match="takes a tensor but x is list"):
        pool([[0.0]])


@layers
def test_two_inputs_must_share_their_locations(pool: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"the same locations, but x has n=5 and z has n=6.\nResize"):
        pool(torch.zeros(3, 5, 8), torch.zeros(3, 6, 8))
    with pytest.raises(ValueError, match=r"the same images, but x has b=3 and z b=2.\nPass as many"):
        pool(torch.zeros(3, 5, 8), torch.zeros(2, 5, 8))
    with pytest.raises(ValueError, match=r"x has \(h, w\) = \(2, 6\) and z has \(h, w\) = \(3, 4\).\nResize"):
        pool(torch.zeros(2, 8, 2, 6), torch.zeros(2, 8, 3, 4))
    assert pool(torch.zeros(2, 8, 2, 6), torch.zeros(2, 12, 8)).isfinite().all()  # a map and tokens may be one grid
    with pytest.raises(ValueError, match=r"but z is \(3, 5, 7\)"):
        pool(torch.zeros(3, 5, 8), torch.zeros(3, 5, 7))


@pytest.mark.parametrize("make", TWO_INPUTS.values(), ids=TWO_INPUTS.keys())
def test_one_input_where_two_are_needed(make: Make) -> None:
    with pytest.raises(ValueError, match=r"built for two inputs, of 8 and 7 channels, but got one"):
        make((8, 7), 16)(torch.zeros(3, 5, 8))


@layers
def test_wrong_weights(pool: nn.Module) -> None:
    x = torch.zeros(3, 8, 4, 5)
    for wrong in (torch.ones(3, 20), torch.ones(3, 1, 4, 5), torch.ones(4, 5)):
        with pytest.raises(ValueError, match=r"weights \(b, h, w\) = \(3, 4, 5\), one number a location, but got"):
            pool(x, weights=wrong)
    with pytest.raises(ValueError, match=r"weights \(b, n\) = \(3, 20\)"):
        pool(x.flatten(2).mT, weights=torch.ones(3, 4, 5))
    with pytest.raises(ValueError, match=r"floating-point weights but got torch.bool.\nPass a mask as `mask.to\(x.dtype\)`"):
        pool(x, weights=torch.ones(3, 4, 5, dtype=torch.bool))


@pytest.mark.parametrize("channels", [0, -3, 2.0, "8", (8,), (8, 8, 8), True])
@pytest.mark.parametrize("cls", [TensorSketch, RandomMaclaurin])
def test_wrong_channels(cls: type[nn.Module], channels: object) -> None:
    with pytest.raises(ValueError, match="channels as a positive integer, or two of them"):
        cls(channels, 16)


@pytest.mark.parametrize("dim", [0, -1, 2.5, None, True])
@pytest.mark.parametrize("cls", [TensorSketch, RandomMaclaurin])
def test_wrong_dimensions(cls: type[nn.Module], dim: object) -> None:
    with pytest.raises(ValueError, match=f"output dimension d ≥ 1, an integer, but got {dim!r}"):
        cls(8, dim)


def test_a_square_map_is_read_as_a_map() -> None:
    # (b, 8, 8, 8) fits both orders: channels come second in maps and last in tokens
    x, pool = torch.randn(2, 8, 8, 8), TensorSketch(8, 16)
    torch.testing.assert_close(pool(x), pool(x.flatten(2).mT))


def test_an_expanded_input_is_as_good_as_a_copied_one() -> None:
    pool, vector = TensorSketch(8, 16).double(), descriptors(n=1, c=8)
    torch.testing.assert_close(pool(vector.expand(3, 6, 8)), 6 * pool(vector), rtol=1e-10, atol=1e-10)


@layers
def test_weights_are_a_tensor(pool: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"takes weights as a tensor but got list.\nPass `torch.as_tensor\(weights\)`"):
        pool(torch.zeros(3, 5, 8), weights=[1.0])


@layers
def test_a_map_of_one_location_is_one_token(pool: nn.Module) -> None:
    x = torch.randn(3, 8, 1, 1)
    for layout in (x, x.contiguous(memory_format=torch.channels_last)):
        torch.testing.assert_close(pool(layout), pool(x[..., 0].mT))


@pytest.mark.parametrize("make", [TensorSketch, RandomMaclaurin, RandomProjection])
def test_numbers_may_be_of_numpy(make: type[TensorSketch]) -> None:
    pool = make(np.int64(6), np.int32(5), seed=np.int64(3))
    assert type(pool.dim) is int
    x = torch.randn(2, 4, 6)
    assert torch.equal(pool(x), make(6, 5, seed=3)(x))


@pytest.mark.parametrize("seed", [1.9, True, None, "0", -1, 2**32])
@pytest.mark.parametrize("make", [TensorSketch, RandomMaclaurin, RandomProjection])
def test_seeds_are_integers(make: type[TensorSketch], seed: int) -> None:
    with pytest.raises(ValueError, match=r"takes a seed from 0 to 2³² − 1, an integer, but got .*\nWrite seed=0"):
        make(6, 5, seed=seed)
