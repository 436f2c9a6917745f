"""Full bilinear pooling: every product of two channels, summed over the locations (Lin et al., ICCV 2015)."""

from math import sqrt

import torch
from torch import Tensor, nn

from .gram import gram
from .locations import Locations, read_channels, read_locations


def full_bilinear(x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None, triangle: bool = False) -> Tensor:
    r"""The Gram matrix :math:`B(X) = \sum_s a_s\, x_s z_s^\top` as a vector.

    With one input B is symmetric. ``triangle=True`` keeps its upper triangle and multiplies what stands off the diagonal by √2:
    c(c+1)/2 numbers in place of c², with the same inner products :math:`\langle B(X), B(Y)\rangle = \sum_{s,u}\langle x_s,
    y_u\rangle^2`.

    Args:
        x: feature map (b, c, h, w) or tokens (b, n, c).
        z: a second input over the same locations, with c2 channels.
        weights: (b, h, w) or (b, n), one factor a location.
        triangle: keep c(c+1)/2 numbers; one input only.

    Returns:
        (b, c·c2) or (b, c(c+1)/2), in float32 or wider.

    >>> full_bilinear(torch.tensor([[[1.0, 2.0], [0.0, 3.0]]]))
    tensor([[ 1.,  2.,  2., 13.]])
    """
    return _pooled(read_locations("full_bilinear", (None, None), x, z, weights), triangle)


def _pooled(seen: Locations, triangle: bool) -> Tensor:
    if not triangle:
        return gram(*seen[:3]).flatten(1)
    _refuse_two_inputs(seen)
    return upper_triangle(gram(*seen[:3]))


def _refuse_two_inputs(seen: Locations) -> None:
    if seen.z is not None:
        raise ValueError(
            "Full bilinear pooling takes triangle=True with one input only, because x zᵀ is not symmetric, but got two.\n"
            "Leave out z, or write triangle=False."
        )


def upper_triangle(matrix: Tensor) -> Tensor:
    """Symmetric (b, c, c) as (b, c(c+1)/2) with the same inner products: √2 times what stands off the diagonal."""
    c = matrix.shape[-1]
    row, column, scale = triangle_entries(c, matrix)
    return matrix.flatten(1).index_select(1, row * c + column) * scale


def triangle_entries(c: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and factor (1 or √2) of each number of the upper triangle, row by row, as ``like`` is placed and typed."""
    row, column = torch.triu_indices(c, c, device=like.device).unbind()
    return row, column, like.new_full((len(row),), sqrt(2.0)).masked_fill(row == column, 1.0)


def full_bilinear_matrix(c: int, c2: int, *, triangle: bool = False, like: Tensor) -> Tensor:
    """The identity, or the matrix that takes vec B to its scaled upper triangle."""
    if not triangle:
        return torch.eye(c * c2, dtype=like.dtype, device=like.device)
    row, column, scale = triangle_entries(c, like)
    entry = torch.arange(len(row), device=like.device)
    matrix = like.new_zeros(len(row), c * c)
    # B is symmetric: half of a number off the diagonal comes from each of its two places
    matrix[entry, row * c + column] += scale / 2
    matrix[entry, column * c + row] += scale / 2
    return matrix


class FullBilinear(nn.Module):
    """:func:`full_bilinear` as a layer: (b, c, h, w) or (b, n, c) → (b, c²), or (b, c(c+1)/2) with ``triangle=True``.

    >>> FullBilinear(512)(torch.zeros(2, 512, 7, 7)).shape
    torch.Size([2, 262144])
    """

    additive = True
    _like: Tensor

    def __init__(self, channels: int | tuple[int, int], *, triangle: bool = False) -> None:
        super().__init__()
        self.channels = read_channels("FullBilinear", channels)
        if triangle and self.channels[0] != self.channels[1]:
            raise ValueError(
                f"FullBilinear takes triangle=True with one input only, but channels are {self.channels}.\n"
                "Write triangle=False: x zᵀ is not symmetric."
            )
        self.triangle = triangle
        c, c2 = self.channels
        self.dim = c * (c + 1) // 2 if triangle else c * c2
        # holds nothing: it only follows .to() and .double(), so that matrix() knows where to be and in what precision
        self.register_buffer("_like", torch.empty(0), persistent=False)

    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        return _pooled(read_locations("FullBilinear", self.channels, x, z, weights), self.triangle)

    def local(self, x: Tensor, z: Tensor | None = None) -> Tensor:
        """Each location's own products, not pooled: (b, d, h, w) or (b, n, d)."""
        seen = read_locations("FullBilinear", self.channels, x, z)
        x, z = seen.widened()
        products = x.unsqueeze(2) * z.unsqueeze(1)  # (b, c, c2, n)
        if not self.triangle:
            return seen.restore(products.flatten(1, 2))
        _refuse_two_inputs(seen)
        row, column, scale = triangle_entries(self.channels[0], products)
        return seen.restore(products[:, row, column] * scale.unsqueeze(1))

    def matrix(self) -> Tensor:
        """The definition: ``pool(x) == vec(B(x)) @ pool.matrix().T``."""
        return full_bilinear_matrix(*self.channels, triangle=self.triangle, like=self._like)

    def extra_repr(self) -> str:
        return f"channels={self.channels}, dim={self.dim}, triangle={self.triangle}"
