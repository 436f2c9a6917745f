"""One file a method: the function, its dense matrix, and a thin module that holds the drawn numbers.

Letters everywhere: b images, n locations, c channels, d output dimension.
"""

from .full_bilinear import FullBilinear, full_bilinear, full_bilinear_matrix
from .hashes import count_sketch
from .random_maclaurin import RandomMaclaurin, random_maclaurin, random_maclaurin_matrix
from .tensor_sketch import TensorSketch, tensor_sketch, tensor_sketch_matrix

__all__ = [
    "FullBilinear",
    "RandomMaclaurin",
    "TensorSketch",
    "count_sketch",
    "full_bilinear",
    "full_bilinear_matrix",
    "random_maclaurin",
    "random_maclaurin_matrix",
    "tensor_sketch",
    "tensor_sketch_matrix",
]
