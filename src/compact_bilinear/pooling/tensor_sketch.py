"""Tensor Sketch pooling: Algorithm 2 of Gao et al., *Compact Bilinear Pooling*, CVPR 2016.

A count sketch of x zᵀ is the circular convolution of a count sketch of x and one of z (Pham & Pagh, KDD 2013). The paper, and
every implementation after it, convolves at each location and adds up. The sketch is linear, though, so the locations can be
added up first, in one matrix product, and B be sketched once.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fft import irfft

from .fft_sketch import fft_sketch, spectra
from .gram_sketch import gram_sketch
from .hashes import Hashes
from .locations import Locations, is_tensor_or_tensors, read_channels, read_dim, read_locations, read_seed
from .plan import TENSOR_SKETCH, Shape, choose, explain, read_plan, refuse_plan, tensor_sketch_costs


def tensor_sketch(
    x: Tensor,
    bucket: Tensor | Sequence[Tensor],
    sign: Tensor | Sequence[Tensor],
    d: int,
    z: Tensor | None = None,
    *,
    weights: Tensor | None = None,
    plan: str = "auto",
) -> Tensor:
    r"""Sum over locations of the Tensor Sketch of each descriptor.

    .. math:: y_j = \sum_{i,k\,:\;h_1(i)+h_2(k)\,\equiv\,j \!\!\pmod d} s_1(i)\,s_2(k)\, B_{ik},
        \qquad B = \sum_s a_s\, x_s z_s^\top

    With random buckets and signs :math:`\mathbb{E}\langle y, y'\rangle = \langle B, B'\rangle`, the kernel of full bilinear
    pooling, and the error shrinks as :math:`1/\sqrt d`. Differentiable in ``x``, ``z``, ``weights`` and ``sign``.

    Args:
        x: feature map (b, c, h, w) or tokens (b, n, c).
        bucket: h₁ and h₂, integers in [0, d) (the paper counts from 1): a tensor (2, c), or two of lengths c and c2.
        sign: s₁ and s₂, each entry +1 or −1, shaped as ``bucket``.
        d: output dimension.
        z: a second input over the same locations, with c2 channels; None for ``x`` again.
        weights: (b, h, w) or (b, n), one factor a location.
        plan: "gram", "fft" or "auto" (:mod:`~compact_bilinear.pooling.plan`); same numbers, other costs.

    Returns:
        (b, d), in float32 or wider.

    Small enough to check by hand: sketches (1, −1, 0, 0) and (−2, 0, 1, 3), convolved modulo 4.

    >>> x = torch.tensor([[[1.0, 2.0, 3.0]]])
    >>> bucket = torch.tensor([[0, 1, 1], [2, 0, 3]])
    >>> sign = torch.tensor([[1.0, 1.0, -1.0], [1.0, -1.0, 1.0]])
    >>> tensor_sketch(x, bucket, sign, d=4)
    tensor([[-5.,  2.,  1.,  2.]])
    """
    d = read_dim("tensor_sketch", d)
    read_plan("tensor_sketch", plan, TENSOR_SKETCH)
    _check_hashes("tensor_sketch", bucket, sign)
    seen = read_locations("tensor_sketch", (len(bucket[0]), len(bucket[1])), x, z, weights)
    return _pooled(seen, Hashes(bucket[0].long(), bucket[1].long(), sign[0], sign[1]), d, plan)


def _pooled(seen: Locations, hashes: Hashes, d: int, plan: str) -> Tensor:
    if choose(plan, tensor_sketch_costs, Shape.of(seen, d)) == "gram" or _is_empty(seen):
        return gram_sketch(seen.x, seen.z, seen.weights, hashes, d)
    return fft_sketch(seen.x, seen.z, seen.weights, hashes, d)


def _is_empty(seen: Locations) -> bool:
    # without an image or a location the plans agree, and FFT libraries refuse to transform nothing
    return seen.x.shape[0] == 0 or seen.x.shape[2] == 0


def tensor_sketch_matrix(bucket: Tensor | Sequence[Tensor], sign: Tensor | Sequence[Tensor], d: int) -> Tensor:
    """The definition written out: P (d, c·c2) with ``tensor_sketch(x) == vec(B(x)) @ P.T``."""
    row = ((bucket[0].long().unsqueeze(1) + bucket[1]) % d).flatten()
    value = (sign[0].unsqueeze(1) * sign[1]).flatten()
    column = torch.arange(len(row), device=row.device)
    return value.new_zeros(d, len(row)).index_put((row, column), value)


class TensorSketch(nn.Module):
    """:func:`tensor_sketch` as a layer that draws and keeps its buckets and signs: (b, c, h, w) or (b, n, c) → (b, d).

    Args:
        channels: c, or (c, c2) for two different inputs.
        dim: d; "2000 to 8000 is appropriate" (the paper).
        seed: what buckets and signs are drawn from; the same on every machine.
        learnable: train both sign vectors. The buckets stay.
        bucket, sign: given hashes in place of drawn ones, for instance another implementation's.
        plan: "gram", "fft" or "auto". :meth:`explain` says what "auto" takes for an input, and why. For ONNX take "gram", or d
            a power of two: at other lengths onnxruntime's Fourier transform keeps three or four digits.

    ``bucket`` and ``sign`` are (2, c). With two different inputs the row of the narrower one is filled up with zeros. Load them
    into a layer of the same channels and dim: into one of a larger dim they fit as well, and leave its last bins empty.

    >>> TensorSketch(512, 8192)(torch.zeros(2, 512, 7, 7)).shape
    torch.Size([2, 8192])
    """

    additive = True
    bucket: Tensor
    sign: Tensor

    def __init__(
        self,
        channels: int | tuple[int, int],
        dim: int,
        seed: int = 0,
        learnable: bool = False,
        *,
        bucket: Tensor | Sequence[Tensor] | None = None,
        sign: Tensor | Sequence[Tensor] | None = None,
        plan: str = "auto",
    ) -> None:
        super().__init__()
        self.channels = read_channels("TensorSketch", channels)
        self.dim = read_dim("TensorSketch", dim)
        self.seed = read_seed("TensorSketch", seed)
        self.plan = read_plan("TensorSketch", plan, TENSOR_SKETCH)
        # on the CPU whatever the default device is: the numbers are the same everywhere
        draw = torch.Generator("cpu").manual_seed(self.seed)
        drawn_bucket = [torch.randint(self.dim, (c,), generator=draw, device="cpu") for c in self.channels]
        drawn_sign = [torch.randint(2, (c,), generator=draw, device="cpu") * 2.0 - 1.0 for c in self.channels]
        buckets, signs = bucket if bucket is not None else drawn_bucket, sign if sign is not None else drawn_sign
        _check_hashes("TensorSketch", buckets, signs, self.channels, self.dim)
        self.register_buffer("bucket", nn.utils.rnn.pad_sequence(list(buckets), batch_first=True).long())
        padded = nn.utils.rnn.pad_sequence([each.detach() for each in signs], batch_first=True)
        if learnable:
            self.sign = nn.Parameter(padded)
        else:
            self.register_buffer("sign", padded)
        given = next((each for each in (bucket, sign) if each is not None), None)
        self.to(torch.get_default_device() if given is None else given[0].device)
        self.register_load_state_dict_post_hook(_check_loaded)

    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        return _pooled(read_locations("TensorSketch", self.channels, x, z, weights), self._hashes(), self.dim, self.plan)

    def local(self, x: Tensor, z: Tensor | None = None) -> Tensor:
        """Each location's own sketch, not pooled: (b, d, h, w) or (b, n, d)."""
        refuse_plan("TensorSketch.local", self.plan, "gram", "sums over the locations before it sketches", "fft")
        seen = read_locations("TensorSketch", self.channels, x, z)
        h1, h2, s1, s2 = self._hashes()
        x, z = seen.widened()
        if _is_empty(seen):
            return seen.restore(x.new_zeros(x.shape[0], self.dim, x.shape[2]) + 0 * x.sum())
        product = spectra(x, h1, s1, self.dim) * spectra(z, h2, s2, self.dim)
        return seen.restore(irfft(product, n=self.dim).mT)

    def matrix(self) -> Tensor:
        """The definition: ``pool(x) == vec(B(x)) @ pool.matrix().T``."""
        h1, h2, s1, s2 = self._hashes()
        return tensor_sketch_matrix((h1, h2), (s1, s2), self.dim)

    def explain(self, x: Tensor, z: Tensor | None = None) -> str:
        """Which plan runs for this input, and why, in a sentence."""
        seen = read_locations("TensorSketch", self.channels, x, z)
        return explain(self.plan, tensor_sketch_costs, Shape.of(seen, self.dim))

    def _hashes(self) -> Hashes:
        c, c2 = self.channels
        return Hashes(self.bucket[0, :c], self.bucket[1, :c2], self.sign[0, :c], self.sign[1, :c2])

    def extra_repr(self) -> str:
        return f"channels={self.channels}, dim={self.dim}, learnable={isinstance(self.sign, nn.Parameter)}, plan={self.plan!r}"


def _check_loaded(pool: TensorSketch, _: Any) -> None:
    # once, when weights arrive: a bucket beyond d would end in an index error, on a GPU in one that stops the process
    if pool.bucket.device.type == "meta":
        return
    largest = int(pool.bucket.max())
    if largest >= pool.dim:
        raise ValueError(
            f"TensorSketch of d={pool.dim} takes buckets in [0, {pool.dim}) but was given weights with {largest}.\n"
            "Build it with the channels and the dim of the layer that was saved."
        )


def _check_hashes(
    owner: str,
    bucket: Tensor | Sequence[Tensor],
    sign: Tensor | Sequence[Tensor],
    channels: tuple[int, int] | None = None,
    d: int | None = None,
) -> None:
    """Shapes and types; and the numbers themselves where ``d`` is given, which a layer does once and a function never."""
    for name, pair in (("bucket", bucket), ("sign", sign)):
        if not is_tensor_or_tensors(pair):
            raise ValueError(
                f"{owner} takes {name} as a tensor, or two of them, but got {type(pair).__name__}.\n"
                f"Pass `torch.as_tensor({name})`."
            )
        lengths = [tuple(row.shape) for row in pair]
        expected = [(c,) for c in channels] if channels else [(len(row),) for row in bucket]
        if len(lengths) != 2 or lengths != expected:
            wanted = " and ".join(map(str, channels)) if channels else "c and c2, the same for bucket and sign"
            raise ValueError(
                f"{owner} takes {name} as two rows of lengths {wanted}, but got shapes {lengths}.\n"
                f"Pass {name}=(first, second), a tensor each, or one tensor (2, c)."
            )
    for row in bucket:
        if row.is_floating_point() or row.is_complex() or row.dtype == torch.bool:
            raise ValueError(f"{owner} takes integer buckets but got {row.dtype}.\nPass `bucket.long()`.")
        if d is not None and row.device.type != "meta" and not (int(row.min()) >= 0 and int(row.max()) < d):
            raise ValueError(
                f"{owner} takes buckets in [0, {d}) but got {int(row.min())} … {int(row.max())}.\n"
                "If they are counted from 1, as in the paper, pass `bucket - 1`."
            )
    for row in sign:
        if not row.is_floating_point():
            raise ValueError(f"{owner} takes floating-point signs but got {row.dtype}.\nPass `sign.float()`.")
