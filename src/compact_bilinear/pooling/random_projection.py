"""Random projection of the full bilinear feature: the alternative that the paper names, and calls impractical.

Dense, its c²·d Gaussian numbers would fill 8.6 GB at c = 512 and d = 8192. They are drawn anew from their seed, a block of rows
at a time, whenever they are needed, so they cost time in place of memory. Very sparse (Li, Hastie & Church, KDD 2006), only c·d
numbers of the matrix are not zero, and those are kept.
"""

from collections.abc import Iterator
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from ..precision import full_precision
from .gram import gram
from .locations import read_dim, read_one_input, read_seed, read_single_channels

# numbers of the dense matrix drawn at a time; another value draws another matrix
DRAWN = 2**24
# numbers of each image's B that the sparse matrix gathers at a time, where B itself has not more of them
GATHERED = 2**18


def _gaussian_rows(key: Tensor, d: int, size: int, like: Tensor) -> Iterator[Tensor]:
    """The rows of a Gaussian matrix (d, size), block after block: drawn in float32 on the CPU, wherever they go."""
    draw = torch.Generator(device="cpu").manual_seed(int(key))
    rows = max(DRAWN // size, 1)
    for first in range(0, d, rows):
        shape = (min(rows, d - first), size)
        yield torch.randn(shape, generator=draw, dtype=torch.float32, device="cpu").to(like.device, like.dtype)


@torch.library.custom_op("compact_bilinear::gaussian_projection", mutates_args=())
def _gaussian_projection(x: Tensor, key: Tensor, size: int, transposed: bool) -> Tensor:
    """G x for each row of ``x``, or Gᵀ x, of ``size`` numbers. An operator of torch, so that compilers pass the drawing by."""
    with full_precision(x):
        if not transposed:
            return torch.cat([x @ rows.mT for rows in _gaussian_rows(key, size, x.shape[1], x)], 1)
        total = x.new_zeros(len(x), size)
        first = 0
        for rows in _gaussian_rows(key, x.shape[1], size, x):
            total.addmm_(x[:, first : first + len(rows)], rows)
            first += len(rows)
        return total


@_gaussian_projection.register_fake
def _(x: Tensor, key: Tensor, size: int, transposed: bool) -> Tensor:
    return x.new_empty(x.shape[0], size)


@_gaussian_projection.register_vmap
def _(info: Any, in_dims: Any, x: Tensor, key: Tensor, size: int, transposed: bool) -> tuple[Tensor, int]:
    rows = x.movedim(in_dims[0], 0)
    return _gaussian_projection(rows.flatten(0, 1), key, size, transposed).unflatten(0, rows.shape[:2]), 0


class _GaussianProjection(torch.autograd.Function):
    r"""y = G x. Its backward pass is :math:`\partial x = G^\top g`, with G drawn once more in place of kept."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, key: Tensor, size: int, transposed: bool) -> Tensor:
        y: Tensor = _gaussian_projection(x, key, size, transposed)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int, bool], output: Tensor) -> None:
        x, key, _, ctx.transposed = inputs
        ctx.size = x.shape[1]
        ctx.save_for_backward(key)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        (key,) = ctx.saved_tensors
        d_x: Tensor = _GaussianProjection.apply(g, key, ctx.size, not ctx.transposed)
        return d_x, None, None, None


def _sparse_projection(matrix: Tensor, column: Tensor, sign: Tensor) -> Tensor:
    c = column.shape[1]
    place = column + c * torch.arange(c, device=column.device)
    rows = max(GATHERED // c, c)
    return torch.cat(
        [
            (matrix.index_select(1, places.flatten()).unflatten(1, places.shape) * signs).sum(2)
            for places, signs in zip(place.split(rows), sign.to(matrix.dtype).split(rows), strict=True)
        ],
        1,
    )


class RandomProjection(nn.Module):
    r"""A random matrix applied to the whole of vec B: (b, c, h, w) or (b, n, c) → (b, d).

    .. math:: y = P \operatorname{vec} B, \qquad B = \sum_s a_s\, x_s x_s^\top

    - dense, entries of P are drawn from :math:`\mathcal N(0, 1/d)`;
    - ``sparse=True``, each is :math:`\pm\sqrt{s/d}` with probability 1/(2s) and 0 otherwise, with :math:`s = \sqrt{c^2} = c`.
      Li's entries are independent. Here a row of P takes exactly one number from each row of B, at a place drawn uniformly,
      which gives each entry the same distribution, no duplicates, and c·d nonzeros in place of about c·d. The shapes of what is
      kept then do not depend on the seed, and weights can be loaded into any layer of the same size.

    Either way :math:`\mathbb{E}\langle y, y'\rangle = \langle B, B'\rangle`, the kernel of full bilinear pooling. It is here to
    be compared with: the dense one draws c²·d numbers in every forward and every backward pass, two billion at c = 512 and
    d = 8192, where :class:`~compact_bilinear.TensorSketch` draws 4c numbers once.

    Args:
        channels: c.
        dim: d.
        seed: what P is drawn from, on the CPU and in float32 whatever the layer's device and dtype.
        sparse: the very sparse matrix.

    What is saved with the weights is the seed (``key``) of a dense matrix, and the places and signs of a sparse one (``column``
    and ``sign``, both (d, c)). An exported program with a dense one needs this package to be imported where it runs, and ONNX,
    which has no operator that draws the same numbers, takes the sparse one only.

    >>> RandomProjection(16, 1000)(torch.zeros(2, 16, 7, 7)).shape
    torch.Size([2, 1000])
    """

    additive = True
    key: Tensor
    column: Tensor
    sign: Tensor
    _like: Tensor

    def __init__(self, channels: int, dim: int, seed: int = 0, *, sparse: bool = False) -> None:
        super().__init__()
        self.channels = read_single_channels("RandomProjection", channels)
        self.dim = read_dim("RandomProjection", dim)
        self.seed = read_seed("RandomProjection", seed)
        self.sparse = sparse
        # on the CPU whatever the default device is: the same numbers everywhere, of a dense matrix to rounding and for one
        # release of torch, which may draw normal numbers in another way in the next
        if sparse:
            draw = torch.Generator(device="cpu").manual_seed(self.seed)
            shape = (self.dim, self.channels)
            column = torch.randint(self.channels, shape, generator=draw, dtype=torch.int32, device="cpu")
            sign = torch.randint(2, shape, generator=draw, dtype=torch.int8, device="cpu") * 2 - 1
            self.register_buffer("column", column)
            self.register_buffer("sign", sign)
        else:
            self.register_buffer("key", torch.tensor(self.seed, dtype=torch.int64, device="cpu"))
        # holds nothing: it only follows .to() and .double(), so that matrix() knows where to be and in what precision
        self.register_buffer("_like", torch.empty(0), persistent=False)
        self.to(torch.get_default_device())

    def forward(self, x: Tensor, *, weights: Tensor | None = None) -> Tensor:
        columns, weights = read_one_input("RandomProjection", self.channels, x, weights)
        matrix = gram(columns, None, weights).flatten(1)
        if self.sparse:
            return _sparse_projection(matrix, self.column, self.sign) * sqrt(self.channels / self.dim)
        projected: Tensor = _GaussianProjection.apply(matrix, self.key, self.dim, False)
        return projected / sqrt(self.dim)

    def matrix(self) -> Tensor:
        """The definition: ``pool(x) == vec(B(x)) @ pool.matrix().T``."""
        c, d = self.channels, self.dim
        if not self.sparse:
            return torch.cat(list(_gaussian_rows(self.key, d, c * c, self._like))) / sqrt(d)
        value = self.sign.to(self._like.dtype) * sqrt(c / d)
        return self._like.new_zeros(d, c, c).scatter(2, self.column.long().unsqueeze(2), value.unsqueeze(2)).flatten(1)

    def extra_repr(self) -> str:
        return f"channels={self.channels}, dim={self.dim}, sparse={self.sparse}"
