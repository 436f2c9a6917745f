"""The exact variances of both compact kernels, against simulation and enumeration, and the law 1/√d."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from compact_bilinear import RandomMaclaurin, TensorSketch
from compact_bilinear.pooling.variance import random_maclaurin_variance, tensor_sketch_variance
from contract import bilinear, descriptors

Formula = Callable[[Tensor, Tensor, int], Tensor]
methods = pytest.mark.parametrize(
    ("cls", "formula"),
    [
        pytest.param(TensorSketch, tensor_sketch_variance, id="tensor_sketch"),
        pytest.param(RandomMaclaurin, random_maclaurin_variance, id="random_maclaurin"),
    ],
)


def kernels(cls: type[TensorSketch], a: Tensor, c: Tensor, d: int, draws: int) -> Tensor:
    """⟨C(X), C(Y)⟩ for many seeds, from B(X) and B(Y)."""
    both = torch.stack([a.flatten(), c.flatten()])
    pooled = (both @ cls(len(a), d, seed=seed).matrix().double().T for seed in range(draws))
    return torch.stack([first @ second for first, second in pooled])


def two_images(c: int) -> tuple[Tensor, Tensor]:
    x, y = descriptors(1, 3, c, seed=1), descriptors(1, 5, c, seed=2)
    return bilinear(x).view(c, c), bilinear(y).view(c, c)


@pytest.mark.parametrize("d", [1, 4, 7])
@methods
def test_against_simulation(cls: type[TensorSketch], formula: Formula, d: int) -> None:
    a, c = two_images(4)
    squared = (kernels(cls, a, c, d, draws=3000) - (a * c).sum()).square()
    standard_error = squared.std() / len(squared) ** 0.5
    assert standard_error < 0.15 * squared.mean(), "too few draws for the test to bite"
    assert (squared.mean() - formula(a, c, d)).abs() < 5 * standard_error


@methods
def test_by_counting_every_draw(cls: type[TensorSketch], formula: Formula) -> None:
    """With c = 2 and d = 2 all draws can be listed, so the variance is a plain average."""
    a = torch.tensor([[2.0, -1.0], [0.5, 3.0]], dtype=torch.float64)
    c = torch.tensor([[1.0, 4.0], [-2.0, 0.5]], dtype=torch.float64)
    bits = torch.cartesian_prod(*[torch.arange(2)] * 4).view(-1, 2, 2)
    signs = bits * 2.0 - 1
    if cls is TensorSketch:
        matrices = [TensorSketch(2, 2, bucket=h, sign=s).matrix() for h in bits for s in signs]
    else:
        matrices = [RandomMaclaurin(2, 1, w=s.unsqueeze(1)).matrix() for s in signs]
    drawn = torch.stack([(m.double() @ a.flatten()) @ (m.double() @ c.flatten()) for m in matrices])
    torch.testing.assert_close(drawn.mean(), (a * c).sum())
    # the two outputs of Random Maclaurin are independent and alike: their average has half the variance of one
    variance = drawn.var(correction=0) / (1 if cls is TensorSketch else 2)
    torch.testing.assert_close(formula(a, c, 2), variance)


@methods
def test_symmetries(cls: type[TensorSketch], formula: Formula) -> None:
    a, c = torch.randn(3, 2, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    torch.testing.assert_close(formula(a, c, 5), formula(a.mT, c.mT, 5))
    torch.testing.assert_close(formula(a, c, 5), formula(c, a, 5))


@methods
def test_the_error_falls_as_one_over_the_root_of_d(cls: type[TensorSketch], formula: Formula) -> None:
    a, c = two_images(8)
    dims = [16, 64, 256, 1024]
    errors = torch.stack([(kernels(cls, a, c, d, draws=200) - (a * c).sum()).square().mean().sqrt() for d in dims])
    exact = torch.stack([formula(a, c, d) for d in dims]).sqrt()
    # the logarithm of a root mean square of 200 draws is off by about 0.05, more where the tails are heavy
    assert ((errors / exact).log().abs() < 0.3).all()
    logs = torch.tensor(dims, dtype=torch.float64).log()
    slope = ((logs - logs.mean()) * errors.log()).sum() / (logs - logs.mean()).square().sum()
    assert abs(slope + 0.5) < 0.1
