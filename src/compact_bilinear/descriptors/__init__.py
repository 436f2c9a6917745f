"""Backbones: networks that turn images into local descriptors, (b, 3, h, w) → (b, c, h', w') or (b, n, c).

A backbone takes RGB images as they were decoded, uint8 from 0 to 255 or floating-point from 0 to 1, and subtracts its own mean.
All have the attributes ``name``, ``tap``, ``channels``, ``stride``, ``image_size``, ``mean`` and ``scale``.
``docs/backbones.md`` says where weights come from and how to add a backbone.
"""

from pathlib import Path

import torch

from .custom import CustomBackbone, look
from .timm_bridge import empty_timm, load_timm
from .tiny import TINY, WEIGHTS
from .vgg import VGG, VGG_D, VGG_M, Architecture, Conv, Norm, Pool
from .weights import cache_folder, find_weights, load_vgg

__all__ = [
    "TINY",
    "VGG",
    "VGG_D",
    "VGG_M",
    "Architecture",
    "Conv",
    "CustomBackbone",
    "Norm",
    "Pool",
    "cache_folder",
    "empty_backbone",
    "load_backbone",
    "load_timm",
    "load_vgg",
    "look",
    "taps_of",
]

# vgg-d is what the paper calls it, vgg16 everybody else
VGGS = {"vgg16": VGG_D, "vgg-d": VGG_D, "vgg-m": VGG_M}


def load_backbone(name: str, weights: Path | str | None = None, tap: str | None = None) -> VGG | CustomBackbone:
    """A backbone with its weights, in evaluation mode.

    Args:
        name: "vgg16" (or "vgg-d"), "vgg-m", "tiny", or "timm:<name>".
        weights: a file; None for the published ones, which are downloaded the first time and kept in :func:`cache_folder`.
            A published file's name is taken too, "imagenet-vgg-verydeep-16.mat" for VGG-16 as the paper had it.
        tap: "conv5", "conv5-pre-relu", "fc6" or "fc7" of the VGGs, "conv4" or "conv4-pre-relu" of tiny; None for the first of
            these. timm's models have one output only.

    >>> load_backbone("alexnet")
    Traceback (most recent call last):
    ValueError: There is no backbone 'alexnet'.
    Known are vgg16, vgg-d, vgg-m, tiny and timm:<name>; any other module becomes one as CustomBackbone(module).
    """
    if name in VGGS:
        architecture = VGGS[name]
        return load_vgg(architecture, find_weights(architecture.name, weights), tap)
    if name == "tiny":
        return load_vgg(TINY, WEIGHTS if weights is None else find_weights("tiny", weights), tap)
    return load_timm(_of_timm(name, tap), weights)


def empty_backbone(name: str, tap: str | None = None) -> VGG | CustomBackbone:
    """A backbone whose weights are still to come, by ``load_state_dict(state, assign=True)``; nothing is read or downloaded.

    Args:
        name, tap: as :func:`load_backbone` takes them.
    """
    if name == "tiny" or name in VGGS:
        with torch.device("meta"):
            return VGG(VGGS.get(name, TINY), tap).eval()
    return empty_timm(_of_timm(name, tap))


def _of_timm(name: str, tap: str | None) -> str:
    """What timm calls it."""
    kind, _, model = name.partition(":")
    if kind != "timm" or not model:
        raise ValueError(
            f"There is no backbone {name!r}.\n"
            f"Known are {', '.join(VGGS)}, tiny and timm:<name>; any other module becomes one as CustomBackbone(module)."
        )
    if tap is not None:
        raise ValueError(f"{name} has no tap {tap!r}: it gives its last features.\nLeave tap out.")
    return model


def taps_of(name: str) -> tuple[str, ...]:
    """The taps that :func:`load_backbone` takes for a name, the default one first; none for those that have one output only.

    >>> taps_of("vgg16")
    ('conv5', 'conv5-pre-relu', 'fc6', 'fc7')
    """
    architecture = TINY if name == "tiny" else VGGS.get(name)
    return () if architecture is None else tuple(architecture.taps)
