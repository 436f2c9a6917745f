"""The door of every backbone: images come in as they were decoded, and leave as its first layer wants them.

Networks were trained on images from which a mean was subtracted and which were divided by a scale, each network on its own.
A backbone does that itself, so that the same images can be handed to any of them, and bytes can travel to the GPU as bytes.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def standardized(owner: str, images: Tensor, mean: Tensor, scale: Tensor, smallest: int = 1) -> Tensor:
    """Check RGB images and return ``(images − mean) / scale`` in the dtype of ``mean``.

    Args:
        owner: the name of the backbone, for messages.
        images: (b, 3, h, w), uint8 from 0 to 255 or floating-point from 0 to 1.
        mean: (3, 1, 1), or a mean image (3, h, w), which is resized to that of the images; from 0 to 1.
        scale: (3, 1, 1).
        smallest: the least h and w.
    """
    _check(owner, images, smallest)
    x = images.to(mean.dtype)
    if images.dtype == torch.uint8:
        x = x / 255
    if mean.shape[1:] != (1, 1) and mean.shape[1:] != images.shape[2:]:
        # with antialias the kernel is that of MATLAB's imresize, with which the paper's authors resized their mean image
        mean = F.interpolate(mean[None], images.shape[2:], mode="bicubic", antialias=True)[0]
    return (x - mean) / scale


def per_channel(owner: str, name: str, numbers: Tensor | Sequence[float]) -> Tensor:
    """Three numbers, or a mean image (3, h, w), as a tensor that broadcasts over images."""
    tensor = torch.as_tensor(numbers, dtype=torch.float32)
    if tensor.shape != (3,) and (tensor.ndim != 3 or len(tensor) != 3):
        raise ValueError(
            f"{owner} takes {name} as three numbers, of red, green and blue, or (3, h, w), but got {tuple(tensor.shape)}.\n"
            f"Pass {name}=(0.485, 0.456, 0.406), for instance, for images from 0 to 1."
        )
    return tensor.clone().reshape(3, *(tensor.shape[1:] or (1, 1)))


def _check(owner: str, images: Tensor, smallest: int) -> None:
    if not isinstance(images, Tensor):
        raise ValueError(
            f"{owner} takes a tensor of images (b, 3, h, w) but got {type(images).__name__}.\n"
            "Pass `torch.as_tensor(array).permute(0, 3, 1, 2)` for an array (b, h, w, 3)."
        )
    if images.ndim != 4 or images.shape[1] != 3:
        if images.ndim == 3 and images.shape[0] == 3:
            remedy = "This is one image: pass `images[None]`."
        elif images.ndim == 4 and images.shape[3] == 3:
            remedy = "Channels come second: pass `images.permute(0, 3, 1, 2)`."
        elif images.ndim == 4 and images.shape[1] == 1:
            remedy = "These are grey: pass `images.expand(-1, 3, -1, -1)`."
        else:
            remedy = "Red, green and blue come second, and all images of a batch have one size."
        raise ValueError(f"{owner} takes images (b, 3, h, w) but got {tuple(images.shape)}.\n{remedy}")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ValueError(
            f"{owner} takes images as uint8 from 0 to 255 or floating-point from 0 to 1 but got {images.dtype}.\n"
            "Pass `images.to(torch.uint8)`, or `images / maximum`."
        )
    if min(images.shape[2:]) < smallest:
        raise ValueError(
            f"{owner} takes images of at least {smallest}×{smallest} pixels but got {images.shape[2]}×{images.shape[3]}.\n"
            "Resize them, or leave them out."
        )
