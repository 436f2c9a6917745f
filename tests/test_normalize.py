"""signed_sqrt_l2: its value against the plain composition, its gradient against its own formula and the authors' two."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import normalize

from compact_bilinear import signed_sqrt_l2


def composed(y: Tensor) -> Tensor:
    return normalize(y.sign() * y.abs().sqrt(), dim=-1, eps=1e-300)


def away_from_zero(*shape: int) -> Tensor:
    y = torch.randn(*shape, dtype=torch.float64)
    return y + y.sign() * 0.1


@pytest.mark.parametrize("shape", [(1,), (5,), (3, 7), (2, 3, 8192)])
def test_is_the_composition(shape: tuple[int, ...]) -> None:
    y = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(signed_sqrt_l2(y), composed(y), rtol=1e-12, atol=1e-12)


def test_has_unit_length_and_keeps_signs_and_zeros() -> None:
    y = torch.randn(4, 100)
    y[:, ::3] = 0
    f = signed_sqrt_l2(y)
    torch.testing.assert_close(f.norm(dim=1), torch.ones(4))
    assert torch.equal(f.sign(), y.sign())


def test_gradient_is_exact_away_from_zero() -> None:
    y = away_from_zero(3, 6).requires_grad_()
    assert gradcheck(signed_sqrt_l2, y)
    assert gradgradcheck(signed_sqrt_l2, y)
    g = torch.randn(3, 6, dtype=torch.float64)
    (ours,), (theirs,) = torch.autograd.grad(signed_sqrt_l2(y), y, g), torch.autograd.grad(composed(y), y, g)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_slope_at_zero_is_the_documented_one() -> None:
    y = torch.tensor([[4.0, 0.0, -12.0]], dtype=torch.float64, requires_grad=True)
    f = signed_sqrt_l2(y, eps=0.01)
    g = torch.tensor([[0.3, -0.7, 0.2]], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(f, y, g)
    total, f = 16.0, f.detach()
    expected = (g - f * (g * f).sum()) / (2 * total * torch.tensor([[0.5, 0.01, 0.75**0.5]], dtype=torch.float64))
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient[0, 1].item(), -0.7 / (2 * 16 * 0.01))


def test_slope_ignores_the_scale_of_the_features() -> None:
    y, g = torch.tensor([[4.0, 0.0, -12.0, 1e-12]], dtype=torch.float64), torch.randn(1, 4, dtype=torch.float64)
    gradients = []
    for scale in (1.0, 1e6):
        leaf = (y * scale).requires_grad_()
        gradients.append(torch.autograd.grad(signed_sqrt_l2(leaf), leaf, g)[0] * scale)
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("damping", [0.1, 0.03])
def test_damping_is_the_authors_backward_pass(damping: float) -> None:
    """Their layers written out: the square root first, then ℓ₂, each with its own backward pass."""
    y, g = torch.randn(3, 6, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    y[0, 0] = 0
    root = y.sign() * y.abs().sqrt()
    norm = root.norm(dim=1, keepdim=True)
    f = root / norm
    after_l2 = (g - f * (g * f).sum(1, keepdim=True)) / (norm + 1e-10)
    expected = after_l2 * 0.5 / (y.abs().sqrt() + damping)
    leaf = y.clone().requires_grad_()
    value = signed_sqrt_l2(leaf, damping=damping)
    torch.testing.assert_close(value, f, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(value, leaf, g)[0], expected, rtol=1e-10, atol=1e-10)


def test_rows_of_zeros_give_zeros() -> None:
    for damping in (None, 0.1):
        y = torch.zeros(2, 5, requires_grad=True)
        f = signed_sqrt_l2(y, damping=damping)
        f.backward(torch.randn(2, 5))
        assert torch.equal(f, torch.zeros(2, 5))
        assert y.grad is not None
        assert torch.equal(y.grad, torch.zeros(2, 5))


@pytest.mark.parametrize("magnitude", [1e-30, 1e30])
def test_very_small_and_very_large_features(magnitude: float) -> None:
    y = (torch.randn(2, 50) * magnitude).requires_grad_()
    f = signed_sqrt_l2(y)
    torch.testing.assert_close(f.norm(dim=1), torch.ones(2))
    f.sum().backward()
    assert y.grad is not None
    assert y.grad.isfinite().all()


@pytest.mark.parametrize("damping", [None, 0.1])
@pytest.mark.parametrize("magnitude", [1e-20, 1e-34, 1e-36, 1e-44])
def test_gradients_at_zeros_in_the_smallest_rows_are_finite(magnitude: float, damping: float | None) -> None:
    y = torch.tensor([[magnitude, 0.0, 2 * magnitude]], requires_grad=True)
    (gradient,) = torch.autograd.grad(signed_sqrt_l2(y, damping=damping), y, torch.tensor([[1.0, 1.0, 0.0]]))
    assert gradient.isfinite().all()
    assert gradient[0, 1] > 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_broken_row_does_not_reach_another(bad: float) -> None:
    y = torch.randn(3, 6)
    clean, broken = y.clone().requires_grad_(), y.clone()
    broken[1, 2] = bad
    broken.requires_grad_()
    for leaf in (clean, broken):
        signed_sqrt_l2(leaf).square().sum().backward()
    assert torch.equal(signed_sqrt_l2(broken)[[0, 2]], signed_sqrt_l2(clean)[[0, 2]])
    assert clean.grad is not None
    assert broken.grad is not None
    assert torch.equal(broken.grad[[0, 2]], clean.grad[[0, 2]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_features_are_summed_in_float32(dtype: torch.dtype) -> None:
    # 8192 numbers of 100 overflow a float16 sum
    y = torch.full((2, 8192), 100.0, dtype=dtype, requires_grad=True)
    f = signed_sqrt_l2(y)
    assert f.dtype == dtype
    torch.testing.assert_close(f.float(), torch.full((2, 8192), 8192**-0.5), rtol=0.01, atol=0)
    f.sum().backward()
    assert y.grad is not None
    assert y.grad.dtype == dtype
    assert y.grad.isfinite().all()


def test_autocast_changes_nothing() -> None:
    y = torch.randn(3, 50)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(signed_sqrt_l2(y), signed_sqrt_l2(y.clone()))
        under = signed_sqrt_l2(y)
    assert torch.equal(under, signed_sqrt_l2(y))


def test_empty_batches() -> None:
    assert signed_sqrt_l2(torch.zeros(0, 5)).shape == (0, 5)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"y": torch.ones(2, 3, dtype=torch.long)}, r"real features \(b, d\) but got torch.int64 of shape \(2, 3\)"),
        ({"y": torch.ones(2, 3, dtype=torch.complex64)}, "but got torch.complex64"),
        ({"y": torch.tensor(1.0)}, r"of shape \(\)"),
        ({"y": torch.ones(2, 3), "eps": 0.0}, "takes eps > 0 but got 0.0: the slope at 0 would be infinite"),
        ({"y": torch.ones(2, 3), "damping": -0.1}, "takes damping > 0 but got -0.1"),
        ({"y": torch.ones(2, 3), "eps": float("nan")}, "takes eps > 0 but got nan"),
    ],
)
def test_wrong_input(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        signed_sqrt_l2(**arguments)  # type: ignore[arg-type]
