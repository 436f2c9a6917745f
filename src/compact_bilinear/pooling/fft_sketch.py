"""The Tensor Sketch by Fourier transforms, a block of locations at a time, so that no (b, n, d) tensor is ever in memory."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.fft import irfft, rfft

from ..precision import accumulation_dtype
from .hashes import Hashes, Needed, count_sketch, only_needed, sketch_gradients


def fft_sketch(x: Tensor, z: Tensor | None, weights: Tensor | None, hashes: Hashes, d: int) -> Tensor:
    r"""Convolve two count sketches of each location: a product of spectra (Pham & Pagh, KDD 2013).

    .. math:: y = \mathcal F^{-1} \sum_s a_s\, \mathcal F\Psi(x_s, h_1, s_1) \circ \mathcal F\Psi(z_s, h_2, s_2)
        \qquad
        P_{is} = \Bigl[\mathcal F^{-1}\bigl(\mathcal F g \circ \overline{\mathcal F\Psi(z_s, h_2, s_2)}\bigr)\Bigr]_{h_1(i)}

    The inverse transform is linear, so the spectra are summed and inverted once an image. The backward pass transforms the
    locations again: that costs less than to keep what would be d numbers in place of c for each. P and Q, which is P with
    hashes and inputs exchanged, give all the gradients (:func:`~compact_bilinear.pooling.hashes.sketch_gradients`).

    Args:
        x: (b, c, n).
        z: (b, c2, n), or None for ``x`` again.
        weights: (b, n), or None for ones.
        hashes: buckets and signs.
        d: how many bins.

    Returns:
        (b, d), in float32 or wider. Compiled or exported, all locations are transformed at once.
    """
    sketch: Tensor = _FFTSketch.apply(x, z, weights, *hashes, d)
    return sketch


def spectra(x: Tensor, bucket: Tensor, sign: Tensor, d: int) -> Tensor:
    """The Fourier transform of each location's count sketch: columns (b, c, n) → (b, n, ⌊d/2⌋ + 1)."""
    transformed: Tensor = rfft(count_sketch(x.mT, bucket, sign, d))
    return transformed


class _FFTSketch(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, z: Tensor | None, weights: Tensor | None, h1: Tensor, h2: Tensor, s1: Tensor, s2: Tensor, d: int
    ) -> Tensor:
        x, z, weights, s1, s2 = _widened(x, z, weights, s1, s2)
        left = x if weights is None else x * weights.unsqueeze(1)
        right = x if z is None else z
        # summed as pairs of real numbers: ONNX has no complex ones
        total = left.new_zeros(left.shape[0], d // 2 + 1, 2)
        for block in _blocks(left, d):
            product = spectra(left[..., block], h1, s1, d) * spectra(right[..., block], h2, s2, d)
            total = total + torch.view_as_real(product).sum(1)
        sketch: Tensor = irfft(torch.view_as_complex(total), n=d)
        return sketch

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:-1])
        ctx.d = inputs[-1]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, z, weights, h1, h2, s1, s2 = ctx.saved_tensors
        inputs = x, z, weights, s1, s2
        needed = Needed(*ctx.needs_input_grad[:3], *ctx.needs_input_grad[5:7])
        x, z, weights, wide_s1, wide_s2 = _widened(*inputs)
        right = x if z is None else z
        p = _correlated(g, right, h2, wide_s2, h1, ctx.d) if needed.p else None
        q = _correlated(g, x, h1, wide_s1, h2, ctx.d) if needed.q(one_input=z is None) else None
        gradients = sketch_gradients(p, q, x, z, weights, wide_s1, wide_s2, needed)
        dx, dz, d_weights, d_s1, d_s2 = only_needed(gradients, inputs, needed)
        return dx, dz, d_weights, None, None, d_s1, d_s2, None


def _correlated(g: Tensor, v: Tensor, bucket: Tensor, sign: Tensor, read: Tensor, d: int) -> Tensor:
    """P of :func:`fft_sketch`: g correlated with each location's sketch of v, read at the buckets ``read``."""
    turned = rfft(g).unsqueeze(1)
    columns = [
        irfft(turned * spectra(v[..., block], bucket, sign, d).conj(), n=d).index_select(-1, read).mT for block in _blocks(v, d)
    ]
    return torch.cat(columns, -1)


def _widened(
    x: Tensor, z: Tensor | None, weights: Tensor | None, s1: Tensor, s2: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor, Tensor]:
    dtype = accumulation_dtype(x, z, weights)
    x, s1, s2 = x.to(dtype), s1.to(dtype), s2.to(dtype)
    return x, None if z is None else z.to(dtype), None if weights is None else weights.to(dtype), s1, s2


def _blocks(columns: Tensor, d: int) -> Iterator[slice]:
    """Locations taken at a time: few enough for a CPU's caches, enough to fill a GPU."""
    n = columns.shape[-1]
    if torch.compiler.is_compiling():
        # a loop over blocks would compile the layer anew for each n, and export it for one n only
        yield slice(None)
        return
    size = max(1, (2**17 if columns.device.type == "cpu" else 2**22) // d)
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))
