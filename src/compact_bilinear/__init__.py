"""Compact bilinear pooling: second-order image features that fit in a few thousand numbers."""

from .normalize import signed_sqrt_l2
from .pooling import (
    AveragePool,
    FisherVector,
    FullBilinear,
    PCABilinear,
    RandomMaclaurin,
    RandomProjection,
    SpatialPyramid,
    TensorSketch,
)

__version__ = "0.1.0"

__all__ = [
    "AveragePool",
    "FisherVector",
    "FullBilinear",
    "PCABilinear",
    "RandomMaclaurin",
    "RandomProjection",
    "SpatialPyramid",
    "TensorSketch",
    "signed_sqrt_l2",
]
