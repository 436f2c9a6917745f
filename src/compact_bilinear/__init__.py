"""Compact bilinear pooling: second-order image features that fit in a few thousand numbers."""

from .normalize import signed_sqrt_l2
from .pooling import FullBilinear, RandomMaclaurin, TensorSketch

__version__ = "0.1.0"

__all__ = [
    "FullBilinear",
    "RandomMaclaurin",
    "TensorSketch",
    "signed_sqrt_l2",
]
