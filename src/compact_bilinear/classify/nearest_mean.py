"""The nearest class mean, as a classifier with scikit-learn's interface."""

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

Floats = NDArray[np.floating[Any]]


class NearestMean(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    r"""Predict the class whose mean points most nearly where an image points.

    .. math:: \mu_j = \sum_{i\,:\,y_i = j} \frac{x_i}{\lVert x_i\rVert},
        \qquad s_j(x) = \Bigl\langle \frac{x}{\lVert x\rVert}, \frac{\mu_j}{\lVert\mu_j\rVert} \Bigr\rangle

    There is nothing to choose and nothing to solve, which makes it a yardstick for few images. Scores are cosines and no
    log-odds, so there are no probabilities. A row of zeros has the score 0 for every class.

    Attributes:
        classes_: (k,), sorted.
        means_: (k, d), of length 1.
        n_features_in_: d.

    >>> NearestMean().fit([[1, 0], [2, 0], [0, 3]], ["crow", "crow", "wren"]).predict([[5, 1], [0.1, 0.2]])
    array(['crow', 'wren'], dtype='<U4')
    """

    classes_: NDArray[Any]
    means_: Floats

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Take the means.

        Args:
            X: (m, d). Rows need not be normalised.
            y: (m,), of at least two classes.
        """
        rows, labels = validate_data(self, X, y, dtype=[np.float64, np.float32])
        with warnings.catch_warnings():
            # an image of each class is not many classes, but few images
            warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%", UserWarning)
            check_classification_targets(labels)
        self.classes_, place = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"NearestMean tells classes apart and takes at least two, but got one class, {self.classes_[0]}.\n"
                "Give images of another class as well."
            )
        units = _unit(rows)
        self.means_ = _unit(np.stack([units[place == label].mean(0) for label in range(len(self.classes_))]))
        return self

    def decision_function(self, X: ArrayLike) -> Floats:
        """Cosines (m, k); of two classes, as scikit-learn wants it, how far the second's is above the first's, (m,)."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        cosines = _unit(rows) @ self.means_.T
        return cosines[:, 1] - cosines[:, 0] if len(self.classes_) == 2 else cosines

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class with the highest score, (m,)."""
        scores = self.decision_function(X)
        predicted: NDArray[Any] = self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)]
        return predicted


def _unit(rows: Floats) -> Floats:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1).astype(rows.dtype)
