"""The Tensor Sketch of the Gram matrix B, a block of rows of B at a time, so that B is never whole in memory.

One input makes B symmetric: its blocks below the diagonal are not computed, and what stands above is counted in two bins. The
products then cost little more than half of what B itself costs.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..precision import accumulation_dtype, full_precision
from .hashes import Hashes, Needed, only_needed, sketch_gradients


def gram_sketch(x: Tensor, z: Tensor | None, weights: Tensor | None, hashes: Hashes, d: int) -> Tensor:
    r"""Put every entry of :math:`B = \sum_s a_s x_s z_s^\top`, signed, into its bin; and back.

    .. math::
        y_j = \sum_{i,k\,:\;h_1(i)+h_2(k)\,\equiv\,j} s_1(i)\,s_2(k)\, B_{ik}
        \qquad
        G_{ik} = \frac{\partial L}{\partial B_{ik}} = s_1(i)\,s_2(k)\; g_{(h_1(i)+h_2(k)) \bmod d}

    The gradient of a single input is one gather and one matrix product, :math:`\partial X = (G + G^\top)\, X
    \operatorname{diag}(a)`, and :math:`\partial a_s = x_s^\top G\, x_s` is half of what that product holds. With two inputs, or
    signs that learn, the gathers are multiplied one by one into the tables P and Q of
    :func:`~compact_bilinear.pooling.hashes.sketch_gradients`.

    Args:
        x: (b, c, n).
        z: (b, c2, n), or None for ``x`` again.
        weights: (b, n), or None for ones.
        hashes: buckets and signs.
        d: how many bins.

    Returns:
        (b, d), in float32 or wider.
    """
    sketch: Tensor = _GramSketch.apply(x, z, weights, *hashes, d)
    return sketch


class _GramSketch(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, z: Tensor | None, weights: Tensor | None, h1: Tensor, h2: Tensor, s1: Tensor, s2: Tensor, d: int
    ) -> Tensor:
        dtype = accumulation_dtype(x, z, weights)
        s1, s2 = s1.to(dtype), s2.to(dtype)
        with full_precision(x):
            left = x.to(dtype)
            right = left if z is None else z.to(dtype)
            if weights is not None:
                left = left * weights.to(dtype).unsqueeze(1)
            # h1 + h2 < 2d: taking it modulo d waits until the bins are full, and is then one addition
            y = left.new_zeros(x.shape[0], 2 * d)
            for start, stop in _blocks(left.shape[1], left.device):
                first = start if z is None else 0
                rows = left[:, start:stop] @ right[:, first:].mT
                y = _scatter(y, rows, h1[start:stop], h2[first:], s1[start:stop], s2[first:])
                if z is None and stop < left.shape[1]:
                    mirrored = rows[:, :, stop - start :]
                    y = _scatter(y, mirrored, h2[start:stop], h1[stop:], s2[start:stop], s1[stop:])
            return y[:, :d] + y[:, d:]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:-1])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, z, weights, h1, h2, s1, s2 = ctx.saved_tensors
        needed = Needed(*ctx.needs_input_grad[:3], *ctx.needs_input_grad[5:7])
        signs = s1.to(g.dtype), s2.to(g.dtype)
        left = x.to(g.dtype)
        right = None if z is None else z.to(g.dtype)
        scale = None if weights is None else weights.to(g.dtype)
        bins = torch.cat([g, g], dim=1)
        gradients: tuple[Tensor | None, ...]
        with full_precision(g):
            if z is None and not (needed.s1 or needed.s2):
                product = _symmetric_product(bins, h1, h2, *signs, left)
                # x stands on both sides of B, so the product holds each term twice
                d_weights = (left * product).sum(1) / 2 if needed.weights else None
                gradients = (product if scale is None else product * scale.unsqueeze(1), None, d_weights, None, None)
            else:
                p = _product(bins, h1, h2, signs[1], left if right is None else right) if needed.p else None
                q = _product(bins, h2, h1, signs[0], left) if needed.q(one_input=z is None) else None
                gradients = sketch_gradients(p, q, left, right, scale, *signs, needed)
        dx, dz, d_weights, d_s1, d_s2 = only_needed(gradients, (x, z, weights, s1, s2), needed)
        return dx, dz, d_weights, None, None, d_s1, d_s2, None


def _scatter(y: Tensor, entries: Tensor, own: Tensor, other: Tensor, own_sign: Tensor, other_sign: Tensor) -> Tensor:
    value = own_sign.unsqueeze(1) * other_sign
    return y.index_add(1, (own.unsqueeze(1) + other).flatten(), (entries * value).flatten(1))


def _gather(bins: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """(b, len(own), len(other)): what stands in the bin of each pair."""
    entries = bins.index_select(1, (own.unsqueeze(1) + other).flatten())
    table: Tensor = entries.unflatten(1, (len(own), len(other)))
    return table


def _symmetric_product(bins: Tensor, h1: Tensor, h2: Tensor, s1: Tensor, s2: Tensor, x: Tensor) -> Tensor:
    """(G + Gᵀ) x, a block of rows of G at a time."""
    rows = []
    for start, stop in _blocks(x.shape[1], x.device):
        block = slice(start, stop)
        table = _gather(bins, h1[block], h2) * (s1[block].unsqueeze(1) * s2)
        table = table + _gather(bins, h2[block], h1) * (s2[block].unsqueeze(1) * s1)
        rows.append(table @ x)
    return torch.cat(rows, dim=1)


def _product(bins: Tensor, own: Tensor, other: Tensor, other_sign: Tensor, v: Tensor) -> Tensor:
    """P of :func:`~compact_bilinear.pooling.hashes.sketch_gradients`, (b, len(own), n)."""
    v = v * other_sign.unsqueeze(1)
    return torch.cat([_gather(bins, own[start:stop], other) @ v for start, stop in _blocks(len(own), own.device)], dim=1)


def _blocks(c: int, device: torch.device) -> Iterator[tuple[int, int]]:
    """Start and end of each block of c rows: small enough for a CPU's caches, large enough to fill a GPU."""
    size = 128 if device.type == "cpu" else 1024
    for start in range(0, c, size):
        yield start, min(start + size, c)
