"""What PyTorch makes of the layers: compiled, exported, mapped and differentiated by torch.func, run under autocast."""

import os
import shutil
import sysconfig
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

import promises
from compact_bilinear import FullBilinear, RandomMaclaurin, TensorSketch, signed_sqrt_l2
from contract import COMPACT, EVERY, TWO_INPUTS, Make, descriptors

every = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY.keys())
two_inputs = pytest.mark.parametrize("make", TWO_INPUTS.values(), ids=TWO_INPUTS.keys())
compact = pytest.mark.parametrize("make", COMPACT.values(), ids=COMPACT.keys())
BUILDS_CPP = shutil.which(os.environ.get("CXX", "g++")) and Path(sysconfig.get_path("include"), "Python.h").is_file()


def both(b: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two inputs of 7 and 4 channels, and weights."""
    return descriptors(b, n, 7), descriptors(b, n, 4, seed=1), descriptors(b, n, 1, seed=2)[..., 0]


# --- torch.compile ---


@every
def test_compiles(make: Make) -> None:
    sizes = [(3, 4, 5), (2, 6, 3), (5, 3, 3), (5, 2, 9), (4, 7, 7)]
    maps = [(promises.feature_map(b, h=h, w=w), promises.positive_weights(b, h, w)) for b, h, w in sizes]
    promises.check_compiles(make(7, 16).double(), *maps)


@two_inputs
def test_compiles_with_two_inputs_and_what_is_learned(make: Make) -> None:
    options = {} if make is TWO_INPUTS["full_bilinear"] else {"learnable": True}
    promises.check_compiles(make((7, 4), 16, **options).double(), *(both(b, 6) for b in (3, 2, 5, 4)))


@pytest.mark.skipif(not BUILDS_CPP, reason="what torch.compile does by default needs a C++ compiler and Python's headers")
def test_the_default_backend_of_torch_compile() -> None:
    torch.compiler.reset()
    model = nn.Sequential(nn.Conv2d(3, 7, 3), TensorSketch(7, 16, learnable=True, plan="gram"), nn.Linear(16, 2))
    compiled = torch.compile(model, fullgraph=True)
    for b in (3, 2, 5):
        x = promises.feature_map(b, 3).float()
        expected = promises.features_and_gradients(model, x, learned=list(model.parameters()))
        ours = promises.features_and_gradients(compiled, x, learned=list(model.parameters()))
        torch.testing.assert_close(ours, expected)


def test_compiles_with_the_normalisation_behind_it() -> None:
    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool = TensorSketch(7, 16).double()

        def forward(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
            return signed_sqrt_l2(self.pool(x, weights=weights)) * torch.arange(16)

    promises.check_compiles(Features())
    promises.check_exports(Features())
    promises.check_transforms(Features())


# --- torch.export ---


@every
def test_exports(make: Make) -> None:
    promises.check_exports(make(7, 16).double())


@two_inputs
def test_exports_with_two_inputs(make: Make) -> None:
    pool, any_size = make((7, 4), 16).double(), {0: torch.export.Dim("batch"), 1: torch.export.Dim("n")}
    x, z, weights = both(3, 5)
    sizes = dict.fromkeys(("x", "z", "weights"), any_size)
    program = torch.export.export(pool, (x, z), {"weights": weights}, dynamic_shapes=sizes)
    for b, n in ((2, 7), (1, 1), (4, 3)):
        x, z, weights = both(b, n)
        torch.testing.assert_close(program.module()(x, z, weights=weights), pool(x, z, weights=weights), rtol=1e-10, atol=1e-10)


# --- torch.func ---


@every
def test_torch_func(make: Make) -> None:
    promises.check_transforms(make(7, 16).double())


@two_inputs
def test_per_image_gradients_of_two_inputs_and_weights(make: Make) -> None:
    pool, inputs = make((7, 4), 16).double(), both(4, 5)

    def loss(x: Tensor, z: Tensor, a: Tensor) -> Tensor:
        return pool(x.unsqueeze(0), z.unsqueeze(0), weights=a.unsqueeze(0)).square().sum()

    _, *expected = promises.features_and_gradients(pool, *inputs[:2], weights=inputs[2])
    torch.testing.assert_close(list(vmap(grad(loss, argnums=(0, 1, 2)))(*inputs)), expected, rtol=1e-10, atol=1e-10)


@two_inputs
def test_vmap_over_one_argument_of_several(make: Make) -> None:
    pool, (x, z, weights) = make((7, 4), 16).double(), both(4, 5)
    over_z = vmap(lambda z: pool(x, z, weights=weights))(torch.stack([z, z.flip(0)]))
    torch.testing.assert_close(over_z[1], pool(x, z.flip(0), weights=weights), rtol=1e-10, atol=1e-10)
    over_weights = vmap(lambda a: pool(x, z, weights=a))(torch.stack([weights, weights.flip(0)]))
    torch.testing.assert_close(over_weights[1], pool(x, z, weights=weights.flip(0)), rtol=1e-10, atol=1e-10)


@compact
def test_an_ensemble_in_one_call(make: Make) -> None:
    """The way of torch's tutorial: stacked layers, each with its own drawn numbers, and the gradient of each."""
    pools, x = [make(7, 16, seed=seed, learnable=True).double() for seed in range(3)], descriptors()
    learned, buffers = stack_module_state(pools)

    def features(learned: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        return functional_call(pools[0], (learned, buffers), (x,))

    torch.testing.assert_close(
        vmap(features)(learned, buffers), torch.stack([pool(x) for pool in pools]), rtol=1e-10, atol=1e-10
    )
    (gradients,) = vmap(grad(lambda *state: features(*state).square().sum()))(learned, buffers).values()
    for pool, gradient in zip(pools, gradients, strict=True):
        *_, expected = promises.features_and_gradients(pool, x, learned=list(pool.parameters()))
        torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-10)


# --- autocast, and inputs of different dtypes ---


@every
def test_precision(make: Make) -> None:
    promises.check_precision(make(7, 16))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@two_inputs
def test_autocast_behind_a_network(make: Make, dtype: torch.dtype) -> None:
    """Maps arrive in half, what is learned is float32: sums and gradients are those of full precision."""
    options = {} if make is TWO_INPUTS["full_bilinear"] else {"learnable": True}
    pool = make((7, 4), 16, **options)
    learned = list(pool.parameters())
    halves = [each.to(dtype) for each in both(3, 50)]
    x, z, weights = (each.float() for each in halves)

    def under_autocast(*inputs: Tensor, **options: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=dtype):
            return pool(*inputs, **options)

    expected = promises.features_and_gradients(pool, x, z, weights=weights, learned=learned)
    ours = promises.features_and_gradients(under_autocast, *halves[:2], weights=halves[2], learned=learned)
    assert [each.dtype for each in ours] == [torch.float32, dtype, dtype, dtype, *(torch.float32 for _ in learned)]
    for one, other in zip(ours, expected, strict=True):
        # gradients of halves are rounded to half, once
        torch.testing.assert_close(one, other.to(one.dtype))


@pytest.mark.parametrize(
    ("dtypes", "wide"),
    [
        ((torch.float16, torch.float32, torch.bfloat16), torch.float32),
        ((torch.bfloat16, torch.float16, torch.float16), torch.float32),
        ((torch.float32, torch.float16, torch.float64), torch.float64),
        ((torch.float64, torch.float32, torch.float32), torch.float64),
    ],
)
@two_inputs
def test_inputs_of_different_dtypes(make: Make, dtypes: tuple[torch.dtype, ...], wide: torch.dtype) -> None:
    pool, inputs = make((7, 4), 16), [each.to(dtype) for each, dtype in zip(both(3, 5), dtypes, strict=True)]
    y, *gradients = promises.features_and_gradients(pool, *inputs[:2], weights=inputs[2])
    assert y.dtype == wide
    assert tuple(gradient.dtype for gradient in gradients) == dtypes
    torch.testing.assert_close(y, pool(*(each.to(wide) for each in inputs[:2]), weights=inputs[2].to(wide)))


# --- the tests are tested: each of these is wrong in one way ---


class AsksForTheSizeOfTheBatch(FullBilinear):
    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        pooled = super().forward(x, z, weights=weights)
        return torch.stack([pooled[image] for image in range(x.shape[0])])


class LooksAtNumbers(RandomMaclaurin):
    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        return super().forward(x, z, weights=weights) * (1.0 if x.isfinite().all() else 2.0)


class ForgetsItsCotangent(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(y: Tensor) -> Tensor:
        return y.clone()

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: object, g: Tensor) -> Tensor:
        return g.mean(0, keepdim=True).expand_as(g)


class MixesGradientsOfImages(FullBilinear):
    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        return ForgetsItsCotangent.apply(super().forward(x, z, weights=weights))


def test_compile_and_export_checks_catch() -> None:
    with pytest.raises(AssertionError, match="compiled 4 times for 4 shapes"):
        promises.check_compiles(AsksForTheSizeOfTheBatch(7).double())
    with pytest.raises(torch._dynamo.exc.UserError, match="specialized it to be a constant"):
        promises.check_exports(AsksForTheSizeOfTheBatch(7).double())
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Data-dependent branching"):
        promises.check_compiles(LooksAtNumbers(7, 16).double())


def test_torch_func_check_catches() -> None:
    with pytest.raises(RuntimeError, match="vmap: It looks like"):
        promises.check_transforms(LooksAtNumbers(7, 16).double())
    with pytest.raises(AssertionError):
        promises.check_transforms(MixesGradientsOfImages(7).double())
