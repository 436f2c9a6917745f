"""PCA-bilinear pooling: the paper's baseline, full bilinear pooling of descriptors that PCA has made short."""

from math import isqrt
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..precision import accumulation_dtype, full_precision
from .gram import gram
from .locations import read_descriptors, read_dim, read_one_input, read_single_channels

# descriptors whose covariance is added up at a time: a float64 copy of all of them would be larger than they are
ROWS = 2**16


def pca_bilinear(x: Tensor, projection: Tensor, bias: Tensor, *, weights: Tensor | None = None) -> Tensor:
    r"""Project each descriptor to k channels, then sum all their products.

    .. math:: B = \sum_s a_s\, p_s p_s^\top, \qquad p_s = P x_s + \beta

    With the leading principal components as rows of P and :math:`\beta = -P\,\mathbb{E}[x]` the descriptors are centred and as
    much of their variance is kept as k numbers can hold. Differentiable in ``x``, ``weights``, ``projection`` and ``bias``.

    Args:
        x: feature map (b, c, h, w) or tokens (b, n, c).
        projection: P, (k, c).
        bias: β, (k,).
        weights: (b, h, w) or (b, n), one factor a location.

    Returns:
        (b, k²), in float32 or wider.

    One descriptor, projected to (2, −1):

    >>> projection = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> pca_bilinear(torch.tensor([[[1.0, 2.0, 3.0]]]), projection, torch.tensor([1.0, -3.0]))
    tensor([[ 4., -2., -2.,  1.]])
    """
    _check_projection("pca_bilinear", projection, bias)
    return _pooled(*read_one_input("pca_bilinear", projection.shape[1], x, weights), projection, bias)


def _pooled(x: Tensor, weights: Tensor | None, projection: Tensor, bias: Tensor) -> Tensor:
    dtype = accumulation_dtype(x, weights)
    with full_precision(x):
        projected = projection.to(dtype) @ x.to(dtype) + bias.to(dtype).unsqueeze(1)
    return gram(projected, None, weights).flatten(1)


def principal_components(descriptors: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The projection (k, c) and the bias (k,) of PCA, in float64, from descriptors (m, c).

    The components are the leading eigenvectors of the covariance, the largest variance first. Each is turned so that its entry
    of largest size is positive: an eigenvector's sign would otherwise be up to the machine.
    """
    mean = descriptors.mean(0, dtype=torch.float64)
    covariance = torch.zeros_like(torch.outer(mean, mean))
    for rows in descriptors.split(ROWS):
        centred = rows.double() - mean
        covariance += centred.mT @ centred
    _, ascending = torch.linalg.eigh(covariance)
    components = ascending.mT.flip(0)[:k]
    peak = components.gather(1, components.abs().argmax(1, keepdim=True))
    projection = components * peak.sign()
    return projection, -projection @ mean


class PCABilinear(nn.Module):
    """:func:`pca_bilinear` as a layer that finds its projection with :meth:`fit`: (b, c, h, w) or (b, n, c) → (b, d).

    Args:
        channels: c.
        dim: d = k², the square of the number of components k ≤ c.
        learnable: train the projection and its bias from there on, as the paper does when it fine-tunes.
        projection, bias: given ones, (k, c) and (k,), in place of fitted ones.

    Until :meth:`fit`, or weights of a fitted layer, the projection is zero and the layer refuses to run. It has no
    ``matrix()``: its bias adds terms which are not of second order.

    >>> descriptors = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    >>> pool = PCABilinear(8, 16).fit(descriptors)
    >>> pool(torch.zeros(2, 8, 7, 7)).shape
    torch.Size([2, 16])
    """

    additive = True
    projection: Tensor
    bias: Tensor

    def __init__(
        self,
        channels: int,
        dim: int,
        learnable: bool = True,
        *,
        projection: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.channels = read_single_channels("PCABilinear", channels)
        self.dim = read_dim("PCABilinear", dim)
        self.components = _root(self.dim, self.channels)
        self.fitted = projection is not None or bias is not None
        if not self.fitted:
            projection, bias = torch.zeros(self.components, self.channels), torch.zeros(self.components)
        projection, bias = _check_projection("PCABilinear", projection, bias, (self.components, self.channels))
        for name, value in (("projection", projection), ("bias", bias)):
            copy = value.detach().clone()
            if learnable:
                self.register_parameter(name, nn.Parameter(copy))
            else:
                self.register_buffer(name, copy)
        self.register_load_state_dict_post_hook(_note_whether_fitted)

    @torch.no_grad()
    def fit(self, descriptors: Tensor) -> Self:
        """PCA of descriptors (m, c), or of all those in maps (b, c, h, w) or tokens (b, n, c); computed in float64."""
        rows = read_descriptors("PCABilinear", descriptors, self.channels)
        if len(rows) < self.components:
            fewer = f", or write PCABilinear({self.channels}, dim={len(rows) ** 2})" if len(rows) else ""
            raise ValueError(
                f"PCABilinear.fit takes at least k={self.components} descriptors, one a component, but got {len(rows)}.\n"
                f"Pass the descriptors of more images{fewer}."
            )
        projection, bias = principal_components(rows, self.components)
        self.projection.copy_(projection)
        self.bias.copy_(bias)
        self.fitted = True
        return self

    def forward(self, x: Tensor, *, weights: Tensor | None = None) -> Tensor:
        if not self.fitted:
            raise ValueError(
                "PCABilinear projects to principal components, but has not been fitted.\n"
                "Call `.fit(descriptors)` with descriptors (m, c) of training images, or load the weights of a fitted layer."
            )
        return _pooled(*read_one_input("PCABilinear", self.channels, x, weights), self.projection, self.bias)

    def extra_repr(self) -> str:
        learnable = isinstance(self.projection, nn.Parameter)
        return f"channels={self.channels}, dim={self.dim}, learnable={learnable}, fitted={self.fitted}"


def _note_whether_fitted(pool: PCABilinear, _: Any) -> None:
    # once, when weights arrive: a look at the numbers in forward() would stop torch.compile and torch.export
    pool.fitted = bool(pool.projection.any())


def _root(d: int, c: int) -> int:
    """K with k² = d, as the user's ``dim``."""
    k = isqrt(d)
    if k * k == d and k <= c:
        return k
    nearest = sorted({min(k, c), min(k + 1, c)})
    squares = " or ".join(f"dim={each**2} (k={each})" for each in nearest)
    raise ValueError(
        f"PCABilinear takes dim = k², the square of a number of components k ≤ c={c}, but got dim={d}.\nWrite {squares}."
    )


def _check_projection(
    owner: str, projection: Tensor | None, bias: Tensor | None, shape: tuple[int, int] | None = None
) -> tuple[Tensor, Tensor]:
    if projection is None or bias is None:
        raise ValueError(
            f"{owner} takes projection and bias together, but got one of them.\n"
            "Pass bias=-projection @ mean to centre the descriptors, or zeros not to."
        )
    if not (isinstance(projection, Tensor) and isinstance(bias, Tensor)):
        raise ValueError(
            f"{owner} takes projection and bias as tensors, but got {type(projection).__name__} and {type(bias).__name__}.\n"
            "Pass `torch.as_tensor(projection)` and `torch.as_tensor(bias)`."
        )
    fits = projection.ndim == 2 and bias.shape == projection.shape[:1] and shape in (None, tuple(projection.shape))
    if not fits:
        k, c = ("k", "c") if shape is None else shape
        raise ValueError(
            f"{owner} takes a projection ({k}, {c}) and a bias ({k},), but got {tuple(projection.shape)} "
            f"and {tuple(bias.shape)}.\n"
            "The components are the rows: pass `components`, not `components.T`, and one number of bias each."
        )
    if not (projection.is_floating_point() and bias.is_floating_point()):
        raise ValueError(
            f"{owner} takes a floating-point projection and bias, but got {projection.dtype} and {bias.dtype}.\n"
            "Pass `projection.float()` and `bias.float()`."
        )
    return projection, bias
