"""A backbone where it computes: on its device, in its precision, at its size; and before or after its last ReLU."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from . import CustomBackbone, load_backbone, taps_of


class Network(NamedTuple):
    """What :func:`load_network` gives."""

    module: nn.Module
    name: str
    tap: str | None
    before_relu: bool  # it gives descriptors before their last ReLU, and who wants them after it applies it
    channels: int
    size: int  # side of the images
    device: torch.device
    precision: torch.dtype

    def maps(self, pixels: Tensor) -> Tensor:
        """Descriptors of images, which may be pinned on the CPU: the copy does not wait."""
        pixels = pixels.to(self.device, non_blocking=True)
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            maps: Tensor = self.module(pixels)
        return maps


def load_network(
    backbone: str | nn.Module,
    weights: Path | str | None = None,
    tap: str | None = None,
    *,
    before_relu: bool = False,
    size: int = 0,
    device: torch.device,
    precision: torch.dtype = torch.float32,
) -> Network:
    """Load a backbone and bring it to its device, in evaluation mode.

    Args:
        backbone: a name for :func:`~compact_bilinear.descriptors.load_backbone`, or a module.
        weights, tap: with a name.
        before_relu: whether somebody wants descriptors before the ReLU of the tap; given where the backbone has such a tap.
        size: side of the images; 0 is what the backbone is meant for.
        device, precision: where, and in what it computes under autocast.
    """
    module: Any
    early = False
    if isinstance(backbone, str):
        known = taps_of(backbone)
        tap = tap or next(iter(known), None)
        early = before_relu and f"{tap}-pre-relu" in known
        module = load_backbone(backbone, weights, f"{tap}-pre-relu" if early else tap)
    else:
        module = backbone if hasattr(backbone, "channels") else CustomBackbone(backbone)
    size, smallest = size or module.image_size, getattr(module, "smallest", 1)
    if size < smallest:
        raise ValueError(
            f"{module.name} takes images of at least {smallest}×{smallest} pixels, but got size {size}.\n"
            f"Write --size {smallest} or more."
        )
    module = module.eval().to(device, memory_format=torch.channels_last)
    return Network(module, module.name, tap, early, module.channels, size, device, precision)
