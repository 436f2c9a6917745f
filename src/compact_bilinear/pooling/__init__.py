"""One file a method: the function, its dense matrix, and a thin module that holds the drawn numbers.

Letters everywhere: b images, n locations, c channels, d output dimension.
"""

from .average_pool import AveragePool, average_pool
from .fisher_vector import FisherVector, fisher_vector
from .full_bilinear import FullBilinear, full_bilinear, full_bilinear_matrix
from .hashes import count_sketch
from .pca_bilinear import PCABilinear, pca_bilinear
from .random_maclaurin import RandomMaclaurin, random_maclaurin, random_maclaurin_matrix
from .random_projection import RandomProjection
from .spatial_pyramid import SpatialPyramid
from .tensor_sketch import TensorSketch, tensor_sketch, tensor_sketch_matrix

__all__ = [
    "AveragePool",
    "FisherVector",
    "FullBilinear",
    "PCABilinear",
    "RandomMaclaurin",
    "RandomProjection",
    "SpatialPyramid",
    "TensorSketch",
    "average_pool",
    "count_sketch",
    "fisher_vector",
    "full_bilinear",
    "full_bilinear_matrix",
    "pca_bilinear",
    "random_maclaurin",
    "random_maclaurin_matrix",
    "tensor_sketch",
    "tensor_sketch_matrix",
]
