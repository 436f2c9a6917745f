"""Average pooling: the mean descriptor of an image, first-order, the simplest baseline there is."""

import torch
from torch import Tensor, nn

from ..precision import accumulation_dtype, full_precision
from .locations import read_one_input, read_single_channels


def average_pool(x: Tensor, *, weights: Tensor | None = None) -> Tensor:
    r"""The mean over the locations, or their weighted mean.

    .. math:: y = \frac{\sum_s a_s\, x_s}{\sum_s a_s}

    Where the weights of an image sum to zero, for instance because a mask leaves nothing of it, ``y`` is zero and so is its
    gradient; an image without locations gives zeros too. Differentiable in ``x`` and ``weights``.

    Args:
        x: feature map (b, c, h, w) or tokens (b, n, c).
        weights: (b, h, w) or (b, n), one factor a location.

    Returns:
        (b, c), in float32 or wider.

    >>> x = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]])
    >>> average_pool(x)
    tensor([[2., 4.]])
    >>> average_pool(x, weights=torch.tensor([[3.0, 1.0]]))
    tensor([[1.5000, 3.0000]])
    """
    return _pooled(*read_one_input("average_pool", None, x, weights))


def _pooled(x: Tensor, weights: Tensor | None) -> Tensor:
    dtype = accumulation_dtype(x, weights)
    with full_precision(x):
        if weights is None:
            return x.sum(2, dtype=dtype) / max(x.shape[2], 1)
        return (x.to(dtype) @ shares(weights.to(dtype)).unsqueeze(2)).squeeze(2)


def shares(weights: Tensor) -> Tensor:
    """Weights (b, n) divided by their sum over each image; zeros, without a gradient, where the sum is zero."""
    total = weights.sum(1, keepdim=True)
    return weights / torch.where(total == 0, torch.inf, total)


class AveragePool(nn.Module):
    """:func:`average_pool` as a layer: (b, c, h, w) or (b, n, c) → (b, c).

    Args:
        channels: c, which the input is then checked for; None for any number.

    >>> AveragePool()(torch.zeros(2, 512, 7, 7)).shape
    torch.Size([2, 512])
    """

    def __init__(self, channels: int | None = None) -> None:
        super().__init__()
        self.channels = None if channels is None else read_single_channels("AveragePool", channels)
        self.dim = self.channels

    def forward(self, x: Tensor, *, weights: Tensor | None = None) -> Tensor:
        return _pooled(*read_one_input("AveragePool", self.channels, x, weights))

    def extra_repr(self) -> str:
        return f"channels={self.channels}"
