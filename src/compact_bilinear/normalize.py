"""Signed square root and ℓ₂, the two steps between every pooling and every classifier, as one function."""

from typing import Any

import torch
from torch import Tensor

from .precision import accumulation_dtype, full_precision


def signed_sqrt_l2(y: Tensor, eps: float = 1e-4, damping: float | None = None) -> Tensor:
    r"""Signed square root of each number, then each row scaled to unit length.

    With :math:`N = \|y\|_1` the two steps are one, because :math:`\|\operatorname{sign}(y)\sqrt{|y|}\|_2 = \sqrt N`:

    .. math:: f_i = \operatorname{sign}(y_i)\,\sqrt{|y_i| / N}
        \qquad\qquad
        \frac{\partial L}{\partial y_i} = \frac{g_i - f_i\,\langle g, f\rangle}{2 N \max(|f_i|, \varepsilon)}

    The true slope is infinite at 0. Here it is exact wherever :math:`|f_i| \ge \varepsilon` and bounded below that: at
    :math:`y_i = 0` the gradient is :math:`g_i / (2 N \varepsilon)`. Where the bound sets in does not depend on the scale of
    ``y``: f(αy) = f(y), and the gradient falls as 1/α. In rows so small that the denominator would leave the range of its
    dtype, it is held at about 1e-30 (in float32), so that the gradient stays finite. A row of zeros gives zeros and a zero
    gradient.

    The paper's authors damp the slope instead, on the absolute scale of ``y``. With ``damping=δ`` the backward pass is theirs,

    .. math:: \frac{\partial L}{\partial y_i} = \frac{g_i - f_i\,\langle g, f\rangle}{\sqrt N + 10^{-10}}
        \cdot \frac{0.5}{\sqrt{|y_i|} + \delta}

    with δ = 0.1 in their first release and δ = 0.03 in the second. It is not the derivative of the forward pass; fine-tuning
    that is to match theirs depends on it.

    Args:
        y: (b, d) pooled features; any leading axes. The last axis is normalised.
        eps: where the slope stops growing, as a share of the unit length of a row. Not used when ``damping`` is given.
        damping: the authors' δ.

    Returns:
        The shape and dtype of ``y``, computed in float32 or wider.

    >>> signed_sqrt_l2(torch.tensor([[9.0, -16.0, 0.0]]))
    tensor([[ 0.6000, -0.8000,  0.0000]])
    """
    if not isinstance(y, Tensor):
        raise ValueError(f"signed_sqrt_l2 takes a tensor but got {type(y).__name__}.\nPass `torch.as_tensor(y)`.")
    if not y.is_floating_point() or y.ndim == 0:
        raise ValueError(
            f"signed_sqrt_l2 takes real features (b, d) but got {y.dtype} of shape {tuple(y.shape)}.\n"
            "Pass pooled features, for instance `signed_sqrt_l2(pool(x))`."
        )
    for name, value in (("eps", eps), ("damping", damping)):
        if value is not None and not value > 0:
            raise ValueError(
                f"signed_sqrt_l2 takes {name} > 0 but got {value}: the slope at 0 would be infinite.\n"
                f"Leave {name} out, or pass a small positive number."
            )
    root, _ = _SignedSqrtL2.apply(y, eps, damping)
    result: Tensor = root
    return result


class _SignedSqrtL2(torch.autograd.Function):
    # written by hand because torch's chain of sign, abs, sqrt, norm and divide keeps five tensors and makes twenty passes
    generate_vmap_rule = True

    @staticmethod
    def forward(y: Tensor, eps: float, damping: float | None) -> tuple[Tensor, Tensor]:
        with full_precision(y):
            wide = y.to(accumulation_dtype(y))
            size = wide.abs()
            total = size.sum(-1, keepdim=True)
            root = size.div_(_never_zero(total)).sqrt_()
            # one pass, but ONNX has no such function
            signed = root * wide.sign() if torch.compiler.is_compiling() else root.copysign_(wide)
            return signed.to(y.dtype), total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, float | None], output: tuple[Tensor, Tensor]) -> None:
        # both are outputs, so that a second derivative finds its way through them
        ctx.save_for_backward(*output)
        ctx.set_materialize_grads(False)
        _, ctx.eps, ctx.damping = inputs

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, g_total: Tensor | None) -> tuple[Tensor | None, None, None]:
        f, total = ctx.saved_tensors
        gradient = None
        if g is not None:
            with full_precision(g):
                wide_g, wide_f = g.to(total.dtype), f.to(total.dtype)
                along = torch.linalg.vecdot(wide_g, wide_f).unsqueeze(-1)
                across = torch.addcmul(wide_g, wide_f, along, value=-1)
                if ctx.damping is None:
                    scale = 2 * total
                    # above the smallest numbers by as much as gradients need to stay below the largest
                    least = (ctx.eps * scale).clamp_min(torch.finfo(total.dtype).tiny ** 0.8)
                    least = torch.where(total == 0, torch.inf, least)
                    steepness = wide_f.abs().mul_(scale).clamp_min_(least)
                else:
                    norm = total.sqrt()
                    steepness = (wide_f.abs() * norm).add_(ctx.damping).mul_(2 * (_never_zero(norm) + 1e-10))
                gradient = across.div_(steepness)
        if g_total is not None:  # only in a second derivative: ∂N/∂y = sign(y)
            of_total = g_total * f.sign()
            gradient = of_total if gradient is None else gradient + of_total
        return None if gradient is None else gradient.to(f.dtype), None, None


def _never_zero(total: Tensor) -> Tensor:
    # a row of zeros divides by infinity: its value and its gradient become 0
    return torch.where(total == 0, torch.inf, total)
