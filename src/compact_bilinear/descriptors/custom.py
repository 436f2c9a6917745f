"""Any module as a backbone: what a pooling has to know of it is found out by asking it once."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .standardize import per_channel, standardized


class Seen(NamedTuple):
    """What a backbone gives for one image."""

    channels: int
    grid: tuple[int, int] | None  # (h, w) of a map, None for tokens
    locations: int


class CustomBackbone(nn.Module):
    """A module that maps images to a map (b, c, h, w) or to tokens (b, n, c), with all that a backbone has.

    Args:
        module: takes images from which the mean was subtracted and which were divided by the scale.
        name: for messages and records.
        mean, scale: of red, green and blue, for images from 0 to 1. With the default the module sees them from 0 to 1.
        image_size: the side of the images that it is meant for. It is asked once, for a black image of that size, what it
            gives.

    Attributes:
        channels: c.
        stride: how many pixels apart the descriptors of a map are; None for tokens.
        tap: None; it has one output.

    >>> backbone = CustomBackbone(torch.nn.Conv2d(3, 24, kernel_size=4, stride=4), image_size=64)
    >>> backbone
    CustomBackbone(
      custom, channels=24, stride=4
      (module): Conv2d(3, 24, kernel_size=(4, 4), stride=(4, 4))
    )
    >>> backbone(torch.zeros(2, 3, 64, 48)).shape
    torch.Size([2, 24, 16, 12])
    """

    mean: Tensor
    scale: Tensor
    tap: str | None = None

    def __init__(
        self,
        module: nn.Module,
        name: str = "custom",
        *,
        mean: Sequence[float] | Tensor = (0.0, 0.0, 0.0),
        scale: Sequence[float] | Tensor = (1.0, 1.0, 1.0),
        image_size: int = 224,
    ) -> None:
        super().__init__()
        self.name, self.image_size = name, image_size
        device = next((parameter.device for parameter in module.parameters()), None)
        self.register_buffer("mean", per_channel(name, "mean", mean).to(device))
        self.register_buffer("scale", per_channel(name, "scale", scale).to(device))
        self.module = module
        seen = look(self, image_size)
        self.channels = seen.channels
        self.stride = None if seen.grid is None else image_size // seen.grid[0]

    def forward(self, images: Tensor) -> Tensor:
        descriptors: Tensor = self.module(standardized(self.name, images, self.mean, self.scale))
        return descriptors

    def extra_repr(self) -> str:
        return f"{self.name}, channels={self.channels}, stride={self.stride}"


def look(backbone: nn.Module, image_size: int = 224) -> Seen:
    """Hand one black image to any module and say what comes out, or refuse it if that cannot be pooled.

    >>> look(torch.nn.Conv2d(3, 24, kernel_size=4, stride=4))
    Seen(channels=24, grid=(56, 56), locations=3136)
    """
    name = getattr(backbone, "name", type(backbone).__name__)
    some = next(backbone.parameters(), torch.zeros(()))
    image = torch.zeros(1, 3, image_size, image_size, dtype=some.dtype, device=some.device)
    training = {module: module.training for module in backbone.modules()}
    backbone.eval()  # batch normalisation would take the black image into its statistics
    try:
        with torch.no_grad():
            y = backbone(image)
    finally:
        for module, was in training.items():
            module.training = was
    if isinstance(y, Tensor) and y.is_floating_point() and y.ndim in (3, 4) and len(y) == 1:
        if y.ndim == 4:
            return Seen(y.shape[1], (y.shape[2], y.shape[3]), y.shape[2] * y.shape[3])
        return Seen(y.shape[2], None, y.shape[1])
    if isinstance(y, Tensor):
        came = f"a tensor {tuple(y.shape)} of {y.dtype} for one image"
        remedy = "Take what comes before its pooling and its classifier."
    else:
        came = type(y).__name__
        remedy = "Wrap it in a module whose forward picks one tensor out."
    raise ValueError(f"A backbone gives a map (b, c, h, w) or tokens (b, n, c) but {name} gives {came}.\n{remedy}")
