"""The two hashes of a Tensor Sketch, and what both of its plans need of them."""

from typing import NamedTuple

from torch import Tensor


class Hashes(NamedTuple):
    """Buckets in [0, d) and signs, of lengths c and c2."""

    h1: Tensor
    h2: Tensor
    s1: Tensor
    s2: Tensor


def count_sketch(x: Tensor, bucket: Tensor, sign: Tensor, d: int) -> Tensor:
    r"""Each number goes into one of d bins, with a sign: :math:`\Psi(x)_j = \sum_{i:\,h(i)=j} s(i)\, x_i`.

    Args:
        x: (..., c).
        bucket: (c,), integers in [0, d).
        sign: (c,).
        d: how many bins.

    Returns:
        (..., d).

    >>> count_sketch(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 1, 1]), torch.tensor([1.0, 1.0, -1.0]), d=4)
    tensor([ 1., -1.,  0.,  0.])
    """
    return x.new_zeros(*x.shape[:-1], d).index_add(-1, bucket, x * sign.to(x.dtype))


class Needed(NamedTuple):
    """Which gradients autograd asks for."""

    x: bool
    z: bool
    weights: bool
    s1: bool
    s2: bool

    @property
    def p(self) -> bool:
        return self.x or self.weights or self.s1

    def q(self, one_input: bool) -> bool:
        return self.z or self.s2 or (one_input and self.x)


def sketch_gradients(
    p: Tensor | None,
    q: Tensor | None,
    x: Tensor,
    z: Tensor | None,
    weights: Tensor | None,
    s1: Tensor,
    s2: Tensor,
    needed: Needed,
) -> tuple[Tensor | None, ...]:
    r"""Every gradient of a pooled Tensor Sketch from two tables.

    The derivative by what location s puts into the bin of channel i is

    .. math:: P_{is} = \sum_k s_2(k)\, g_{(h_1(i)+h_2(k)) \bmod d}\, z_{ks}

    and Q is the same with hashes and inputs exchanged. Then

    .. math:: \partial x_{is} = s_1(i)\, a_s\, P_{is} \qquad \partial s_1(i) = \sum_s a_s\, x_{is}\, P_{is}
        \qquad \partial a_s = \sum_i s_1(i)\, x_{is}\, P_{is}

    and likewise for z and s₂ with Q. One input in both places collects both.

    Args:
        p: (b, c, n), None where nothing needs it.
        q: (b, c2, n), likewise.
        x: (b, c, n).
        z: (b, c2, n), or None for ``x`` again.
        weights: (b, n), or None for ones.
        s1, s2: signs, (c,) and (c2,).
        needed: which gradients to compute.

    Returns:
        Gradients of x, z, weights, s1, s2, None where not needed.
    """
    dx = dz = d_weights = d_s1 = d_s2 = None
    if p is not None:
        signed = p * s1.unsqueeze(1)
        dx = _weighted(signed, weights) if needed.x else None
        d_weights = (x * signed).sum(1) if needed.weights else None
        d_s1 = (_weighted(x, weights) * p).sum((0, 2)) if needed.s1 else None
    if q is not None:
        dz = _weighted(q * s2.unsqueeze(1), weights) if needed.z or (z is None and needed.x) else None
        d_s2 = (_weighted(x if z is None else z, weights) * q).sum((0, 2)) if needed.s2 else None
    if z is None and dx is not None and dz is not None:
        dx, dz = dx + dz, None
    return dx, dz, d_weights, d_s1, d_s2


def only_needed(gradients: tuple[Tensor | None, ...], inputs: tuple[Tensor | None, ...], needed: Needed) -> list[Tensor | None]:
    """Each gradient in the dtype of its input, and None where nobody asked."""
    return [
        gradient.to(tensor.dtype) if need and gradient is not None and tensor is not None else None
        for gradient, tensor, need in zip(gradients, inputs, needed, strict=True)
    ]


def _weighted(columns: Tensor, weights: Tensor | None) -> Tensor:
    return columns if weights is None else columns * weights.unsqueeze(1)
