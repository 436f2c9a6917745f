"""What every pooling of this house promises: it is a linear map, ``pool.matrix()``, of B(X) = Σ_s a_s x_s z_sᵀ."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from compact_bilinear import FullBilinear, RandomMaclaurin, TensorSketch

Make = Callable[..., nn.Module]


def tensor_sketch(plan: str) -> Make:
    return lambda channels, dim, **options: TensorSketch(channels, dim, plan=plan, **options)


def random_maclaurin(plan: str) -> Make:
    return lambda channels, dim, **options: RandomMaclaurin(channels, dim, plan=plan, **options)


def full_bilinear(triangle: bool) -> Make:
    return lambda channels, dim, seed=0, **options: FullBilinear(channels, triangle=triangle, **options)


COMPACT: dict[str, Make] = {
    "tensor_sketch-gram": tensor_sketch("gram"),
    "tensor_sketch-fft": tensor_sketch("fft"),
    "tensor_sketch-auto": tensor_sketch("auto"),
    "random_maclaurin-gram": random_maclaurin("gram"),
    "random_maclaurin-direct": random_maclaurin("direct"),
    "random_maclaurin-auto": random_maclaurin("auto"),
}
TWO_INPUTS: dict[str, Make] = COMPACT | {"full_bilinear": full_bilinear(triangle=False)}
EVERY: dict[str, Make] = TWO_INPUTS | {"full_bilinear-triangle": full_bilinear(triangle=True)}


def descriptors(b: int = 3, n: int = 5, c: int = 7, seed: int = 0) -> Tensor:
    """Tokens (b, n, c) in float64."""
    return torch.randn(b, n, c, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def bilinear(x: Tensor, z: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
    """vec B of tokens, written without any of the code under test."""
    weights = x.new_ones(x.shape[:2]) if weights is None else weights
    return torch.einsum("bs,bsi,bsk->bik", weights, x, x if z is None else z).flatten(1)


def check_matches_matrix(pool: nn.Module, x: Tensor, z: Tensor | None = None, weights: Tensor | None = None) -> None:
    """Exact algebra: 1e-10 in float64."""
    expected = bilinear(x, z, weights) @ pool.matrix().T
    inputs = (x,) if z is None else (x, z)
    torch.testing.assert_close(pool(*inputs, weights=weights), expected, rtol=1e-10, atol=1e-10)


def check_unbiased(pools: Sequence[nn.Module], x: Tensor, y: Tensor) -> None:
    """E⟨C(X), C(Y)⟩ = ⟨B(X), B(Y)⟩, to 5 standard errors of the mean over independent draws."""
    exact = (bilinear(x) * bilinear(y)).sum(1)
    drawn = torch.stack([(pool(x) * pool(y)).sum(1) for pool in pools])
    error, standard_error = drawn.mean(0) - exact, drawn.std(0) / len(pools) ** 0.5
    assert (standard_error > 0).all(), "the estimate does not vary: nothing was drawn"
    assert (standard_error < 0.1 * exact.abs().max()).all(), "too few draws for the test to bite"
    assert (error.abs() < 5 * standard_error).all(), f"biased by {error / standard_error} standard errors"


def check_gradients_equal(first: nn.Module, second: nn.Module, *inputs: Tensor) -> None:
    """Two layers give the same features, and the same gradients to their inputs and parameters."""
    results = []
    for pool in (first, second):
        leaves = [t.detach().clone().requires_grad_() for t in inputs]
        y = pool(*leaves)
        seed = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
        results.append([y, *torch.autograd.grad(y, [*leaves, *pool.parameters()], seed)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
