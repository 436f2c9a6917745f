"""Every layer where the data is: what is drawn is the same everywhere, and so are features and gradients."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import promises
from compact_bilinear import AveragePool, FisherVector, PCABilinear, RandomProjection, SpatialPyramid, signed_sqrt_l2
from contract import COMPACT, EVERY, TWO_INPUTS, Make, descriptors

devices = pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")),
    ],
)
OTHERS: dict[str, Callable[[], nn.Module]] = {
    "average_pool": lambda: AveragePool(7),
    "fisher_vector": lambda: FisherVector(7, components=3).fit(descriptors(1, 60)),
    "pca_bilinear": lambda: PCABilinear(7, 9).fit(descriptors(1, 60)),
    "random_projection": lambda: RandomProjection(7, 16),
    "random_projection-sparse": lambda: RandomProjection(7, 16, sparse=True),
    "spatial_pyramid": lambda: SpatialPyramid(RandomProjection(7, 16), levels=(1, 2)),
}
LAYERS = {name: lambda make=make: make(7, 16) for name, make in EVERY.items()} | OTHERS


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())
@devices
def test_features_and_gradients_are_those_of_the_cpu(device: str, make: Callable[[], nn.Module]) -> None:
    x, weights = promises.feature_map(), promises.positive_weights()
    pool = make().double()
    expected = promises.features_and_gradients(pool, x, weights=weights, learned=list(pool.parameters()))
    there = make().double().to(device)
    ours = promises.features_and_gradients(there, x.to(device), weights=weights.to(device), learned=list(there.parameters()))
    assert {each.device.type for each in ours} == {device}
    torch.testing.assert_close([each.cpu() for each in ours], list(expected), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("make", TWO_INPUTS.values(), ids=TWO_INPUTS.keys())
@devices
def test_two_inputs(device: str, make: Make) -> None:
    pool, x, z = make((7, 4), 16).double(), descriptors(), descriptors(c=4, seed=1)
    torch.testing.assert_close(pool.to(device)(x.to(device), z.to(device)).cpu(), pool.cpu()(x, z), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("make", [*COMPACT.values(), OTHERS["random_projection"], OTHERS["random_projection-sparse"]])
@devices
def test_the_same_numbers_are_drawn_under_any_default_device(device: str, make: Callable[..., nn.Module]) -> None:
    arguments = (7, 16) if make in COMPACT.values() else ()
    expected = make(*arguments)
    with torch.device(device):
        drawn = make(*arguments)
    for name, value in drawn.state_dict().items():
        assert value.device.type == device
        assert torch.equal(value.cpu(), expected.state_dict()[name])
    torch.testing.assert_close(drawn.matrix().cpu(), expected.matrix())
    moved = expected.to(device)
    for name, value in moved.state_dict().items():
        assert torch.equal(value, drawn.state_dict()[name])


@devices
def test_autocast_and_half(device: str) -> None:
    for make in LAYERS.values():
        pool, x = make().to(device), promises.feature_map().to(device, torch.bfloat16)
        expected = pool(x.float())
        with torch.autocast(device, dtype=torch.bfloat16):
            y = pool(x)
        assert y.dtype == torch.float32
        torch.testing.assert_close(y, expected)


@devices
def test_the_normalisation(device: str) -> None:
    y = descriptors()[0]
    there, here = (promises.features_and_gradients(lambda y: signed_sqrt_l2(y) + 1, each) for each in (y.to(device), y))
    torch.testing.assert_close([each.cpu() for each in there], list(here), rtol=1e-10, atol=1e-10)
