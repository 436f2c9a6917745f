"""Tensor Sketch and Random Maclaurin for scikit-learn: features whose inner products are those of a quadratic kernel."""

from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..pooling.random_maclaurin import RandomMaclaurin
from ..pooling.tensor_sketch import TensorSketch

Floats = NDArray[np.floating[Any]]

METHODS = {"tensor-sketch": TensorSketch, "random-maclaurin": RandomMaclaurin}
DTYPES = [np.float64, np.float32]  # what is neither becomes the first


class QuadraticKernelMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # no types
    r"""Map rows so that their inner products are about those of the homogeneous polynomial kernel of degree 2.

    .. math:: \mathbb{E}\,\langle \varphi(x), \varphi(y) \rangle = \langle x, y \rangle^2

    over the seed, with an error that shrinks as :math:`1/\sqrt d`. A linear model after it is a quadratic one, at a cost that
    grows with the number of rows, not with its square. The map is the package's own pooling layer of that name on a single
    location: nothing is learned but the number of columns.

    Args:
        dim: d, the number of features.
        method: "tensor-sketch" or "random-maclaurin". The first costs c + d log d for a row of c numbers, the second c·d.
        seed: what the map is drawn from, the same as the layer's; the same on every machine.

    Attributes:
        layer_: the :class:`~compact_bilinear.TensorSketch` or :class:`~compact_bilinear.RandomMaclaurin`.
        n_features_in_: c.

    >>> rows = np.eye(3)
    >>> QuadraticKernelMap(dim=64).fit_transform(rows).shape
    (3, 64)
    """

    layer_: TensorSketch | RandomMaclaurin

    def __init__(
        self, dim: int = 8192, method: Literal["tensor-sketch", "random-maclaurin"] = "tensor-sketch", seed: int = 0
    ) -> None:
        self.dim = dim
        self.method = method
        self.seed = seed

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Draw the map for rows of as many numbers as these have.

        Args:
            X: (m, c).
            y: not looked at.
        """
        if self.method not in METHODS:
            raise ValueError(f"QuadraticKernelMap has no method {self.method!r}.\nWrite one of {', '.join(METHODS)}.")
        rows: Floats = validate_data(self, X, dtype=DTYPES)
        # a single location: to form its matrix of c² products first would be the slower way
        plan = {"tensor-sketch": "fft", "random-maclaurin": "direct"}[self.method]
        with torch.device("cpu"):
            self.layer_ = METHODS[self.method](rows.shape[1], self.dim, self.seed, plan=plan)
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Map the rows.

        Args:
            X: (m, c).

        Returns:
            (m, d), in float32 if X is, and in float64 otherwise.
        """
        check_is_fitted(self)
        rows: Floats = validate_data(self, X, dtype=DTYPES, reset=False)
        with torch.inference_mode():
            mapped: Floats = self.layer_.local(torch.tensor(rows)[None])[0].numpy()
        return mapped

    @property
    def _n_features_out(self) -> int:  # what get_feature_names_out() counts to
        return self.layer_.dim

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
