"""Backbones: networks that turn images into local descriptors, (b, 3, h, w) → (b, c, h', w') or (b, n, c).

A backbone takes RGB images as they were decoded, uint8 from 0 to 255 or floating-point from 0 to 1, and subtracts its own mean.
All have the attributes ``name``, ``tap``, ``channels``, ``stride``, ``image_size``, ``mean`` and ``scale``.
``docs/backbones.md`` says where weights come from and how to add a backbone.
"""

from .vgg import VGG, VGG_D, VGG_M, Architecture, Conv, Norm, Pool
from .weights import cache_folder, find_weights, load_vgg

__all__ = [
    "VGG",
    "VGG_D",
    "VGG_M",
    "Architecture",
    "Conv",
    "Norm",
    "Pool",
    "cache_folder",
    "load_vgg",
]
