"""The one matrix that every sum pooling here is a linear map of: B = Σ_s a_s x_s z_sᵀ."""

from typing import Any

import torch
from torch import Tensor

from ..precision import accumulation_dtype, full_precision


def gram(x: Tensor, z: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
    r"""The Gram matrix of an image's descriptors, :math:`B = X \operatorname{diag}(a) Z^\top`.

    With one input it is symmetric, and its backward pass is one matrix product where autograd would make two:

    .. math:: \partial X = (G + G^\top)\, X \operatorname{diag}(a)
        \qquad\qquad
        \partial a_s = x_s^\top G\, x_s

    With two, :math:`\partial X = G Z \operatorname{diag}(a)`, :math:`\partial Z = G^\top X \operatorname{diag}(a)` and
    :math:`\partial a_s = x_s^\top G z_s`.

    Args:
        x: (b, c, n).
        z: (b, c2, n), or None for ``x`` again.
        weights: (b, n), or None for ones.

    Returns:
        (b, c, c2), in float32 or wider.
    """
    matrix: Tensor = _Gram.apply(x, z, weights)
    return matrix


class _Gram(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, z: Tensor | None, weights: Tensor | None) -> Tensor:
        with full_precision(x):
            x, z, weights = _widened(x, z, weights)
            left = x if weights is None else x * weights.unsqueeze(1)
            right = x if z is None else z
            return left @ right.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor | None, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, z, weights = ctx.saved_tensors
        dtypes = [None if t is None else t.dtype for t in (x, z, weights)]
        dx = dz = dweights = None
        with full_precision(g):
            x, z, weights = _widened(x, z, weights)
            scale = None if weights is None else weights.unsqueeze(1)
            if ctx.needs_input_grad[0] or ctx.needs_input_grad[2]:
                product = g @ z if z is not None else _symmetric_product(g, x)
                dx = product if scale is None else product * scale
                if ctx.needs_input_grad[2]:
                    dweights = (x * product).sum(1)
                    # x occurs on both sides of one Gram matrix, so that product holds it twice
                    dweights = dweights / 2 if z is None else dweights
            if z is not None and ctx.needs_input_grad[1]:
                dz = _transposed_product(g, x if scale is None else x * scale)
        wanted = zip((dx, dz, dweights), dtypes, ctx.needs_input_grad, strict=True)
        dx, dz, dweights = (t.to(dtype) if t is not None and need else None for t, dtype, need in wanted)
        return dx, dz, dweights


def _symmetric_product(g: Tensor, x: Tensor) -> Tensor:
    """(G + Gᵀ) x. With few columns a second product costs less than to write and read the sum of two large matrices."""
    return torch.baddbmm(_transposed_product(g, x), g, x) if _is_narrow(x) else (g + g.mT) @ x


def _transposed_product(g: Tensor, x: Tensor) -> Tensor:
    """Gᵀ x. With few columns the large matrix is read along its rows, and the small result is turned."""
    return (x.mT @ g).mT if _is_narrow(x) else g.mT @ x


def _is_narrow(x: Tensor) -> bool:
    return 8 * x.shape[2] < x.shape[1]


def _widened(x: Tensor, z: Tensor | None, weights: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
    dtype = accumulation_dtype(x, z, weights)
    return x.to(dtype), None if z is None else z.to(dtype), None if weights is None else weights.to(dtype)
