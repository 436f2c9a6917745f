"""Logistic regression as the paper has it: the exact optimum, at a cost that hardly depends on how many features there are."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from ..device import find_device, one_thread
from ..processes import Processes
from .calibration import median_calibration
from .gram_matrix import Read, gram_matrix, read_whole, weighted_sum
from .lambda_path import cross_validate
from .losses import SigmoidLoss, SoftmaxLoss
from .newton import Stop, leading, minimise
from .spaces import Primal, Span

Array = NDArray[Any]

PATH = tuple(10.0 ** (exponent / 2) for exponent in range(2, -11, -1))
FOLDS = 5
SMALL = 1000  # images up to which one thread is as fast as several
# the tolerance while λ is being chosen: losses differ by far more from fold to fold
ROUGHLY = 1e-4
# the score of a class that no example was seen of: less than any score, and finite also in half precision
UNSEEN = -1e4


class LogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    r"""Multinomial or one-vs-rest logistic regression with an :math:`\ell_2` penalty, as a scikit-learn classifier.

    .. math:: \min_{W, b}\; \lambda \|W\|^2 + \sum_i l(W x_i + b, y_i)

    A sum of losses, not their mean; no ½ before the penalty; b is not penalised. scikit-learn's ``C`` is 1/(2λ). The loss l is
    that of a softmax over all classes, or with ``one_vs_rest`` for each class a logistic loss by itself. Two classes have a
    single w, with which the second is told from the first.

    ``docs/learning.md`` says how the optimum is found, and what each way costs.

    Args:
        lambda_: λ. The paper's is 0.001. "auto" chooses the λ of ``path`` with the least loss in cross-validation.
        one_vs_rest: for each class a problem by itself, as the authors' code has it.
        calibrate: shift and scale the scores of each class so that in training the median of the others is 0 and that of its
            own is 1. Of two classes the single score is the difference of both: medians are −1 and 1. Scores are then no
            logarithms of odds, and probabilities say no more than the order of classes.
        tolerance: stop when the objective, of each problem with one-vs-rest, is so near to its optimum, relative to itself.
            This is known from the norm of its gradient: the gap is at most ‖∇‖²/4λ.
        max_iterations: steps of Newton's method. If they do not suffice a ``ConvergenceWarning`` says so.
        solve: "span" for weights that are sums of training images, "primal" for weights as they are, or "auto".
        precision: "float32", "float64", or "auto": that of the features, and float64 if float32 does not reach ``tolerance``.
        path: what "auto" chooses from.
        device: "cpu", "cuda", ... or "auto".

    Attributes:
        classes_: (k,), sorted.
        coef_: (k, d), or (1, d) for two classes.
        intercept_: (k,) or (1,).
        lambda_used_: λ, as given or as chosen.
        lambda_path_: with "auto", arrays "lambda", "loss" and "error" of the held-out images, and the spread of both.
        n_iter_: steps of Newton's method.
        converged_: whether ``tolerance`` was reached.
        gap_: what is known of the gap at the end.

    >>> x = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 3.0], [3.0, 2.0]])
    >>> model = LogisticRegression().fit(x, ["wren", "crow", "wren", "crow"])
    >>> model.predict([[0.0, 0.5]]).tolist()
    ['wren']
    """

    def __init__(
        self,
        lambda_: float | str = 1e-3,
        *,
        one_vs_rest: bool = False,
        calibrate: bool = False,
        tolerance: float = 1e-6,
        max_iterations: int = 200,
        solve: Literal["auto", "span", "primal"] = "auto",
        precision: Literal["auto", "float32", "float64"] = "auto",
        path: Sequence[float] = PATH,
        device: str = "cpu",
    ) -> None:
        self.lambda_ = lambda_
        self.one_vs_rest = one_vs_rest
        self.calibrate = calibrate
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.solve = solve
        self.precision = precision
        self.path = path
        self.device = device

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Find the optimum.

        Args:
            X: features (m, d), in float16, float32 or float64.
            y: (m,), labels of any kind.
        """
        self._check()
        x, labels = validate_data(self, X, y, dtype=[np.float64, np.float32, np.float16])
        places = self._read_labels(labels)
        return self._fit(_Whole(x), places, x.shape[1], x.dtype)

    def fit_blocks(self, read: Read, y: ArrayLike) -> Self:
        """Find the optimum for features that are not held as a whole, unless they are no larger than the Gram matrix would be.

        Args:
            read: called without arguments, gives a new iterator over blocks (rows, d), every time the same rows in the same
                order: ``functools.partial(store.blocks, "full-bilinear", "train")``. It is called a few times.
            y: (m,), labels of any kind.
        """
        self._check()
        places = self._read_labels(column_or_1d(y, warn=True))
        first = next(iter(read()), None)
        if first is None or first.ndim != 2:
            found = "nothing" if first is None else f"one of shape {first.shape}"
            raise ValueError(
                f"Features come in blocks (rows, d), but there came {found}.\n"
                "Give a function that begins anew each time it is called: functools.partial(store.blocks, pooling, split)."
            )
        self.n_features_in_ = first.shape[1]
        return self._fit(read, places, first.shape[1], first.dtype)

    def _fit(self, read: Read, places: NDArray[np.intp], d: int, kind: np.dtype[Any]) -> Self:
        # threads wait for each other at every small product, and beside other programs they wait long
        with one_thread() if len(places) <= SMALL else nullcontext():
            return self._find(read, places, d, kind)

    def _find(self, read: Read, places: NDArray[np.intp], d: int, kind: np.dtype[Any]) -> Self:
        primal = self.solve == "primal" or (self.solve == "auto" and prefers_primal(len(places), d))
        device = find_device(self.device, Processes())
        several = len(self.classes_) > 2
        loss = SigmoidLoss if self.one_vs_rest or not several else SoftmaxLoss
        stop = Stop(self.tolerance, self.max_iterations)
        roughly = Stop(max(self.tolerance, ROUGHLY), self.max_iterations)
        for dtype in self._precisions(kind):
            of_class = torch.from_numpy(places).to(device)
            targets = (
                torch.nn.functional.one_hot(of_class, len(self.classes_)).to(dtype) if several else of_class.to(dtype)[:, None]
            )
            data = read_whole(read, len(places), dtype, device) if primal else gram_matrix(read, len(places), dtype, device)
            if self.lambda_ == "auto":
                folds = min(FOLDS, int(np.bincount(places).min()))
                path = sorted(self.path, reverse=True)
                self.lambda_path_ = cross_validate(
                    data, not primal, targets, places, loss, path, d=d, folds=folds, stop=roughly
                )
                self.lambda_used_ = float(path[int(self.lambda_path_["loss"].argmin())])
            else:
                self.lambda_used_ = float(self.lambda_)
            space = Primal(data) if primal else Span(data)
            eigen = leading(space, targets, d)
            solution = minimise(space, loss(targets), self.lambda_used_, eigen, stop)
            if solution.converged:
                break
        if isinstance(space, Primal):
            weights, intercept = space.weights(solution.vector)
        else:
            coefficients, intercept = space.coefficients(solution.vector)
            weights = weighted_sum(read, coefficients)
        self.n_iter_ = max(solution.iterations, 1)
        self.converged_ = solution.converged
        self.gap_ = solution.gap
        if not self.converged_:
            warnings.warn(
                f"The objective may be {self.gap_:.1e} of itself above its optimum, not tolerance={self.tolerance:g}, after "
                f"{self.n_iter_} steps.\nRaise max_iterations or tolerance, or scale the features.",
                ConvergenceWarning,
                stacklevel=4,
            )
        if self.calibrate:
            scale, shift = _both(median_calibration(solution.vector.scores, targets), several)
            weights, intercept = weights * scale.to(weights).unsqueeze(1), intercept * scale.to(weights) + shift.to(weights)
        as_given = np.float64 if kind == np.float64 else np.float32
        self.coef_: NDArray[np.floating] = weights.cpu().numpy().astype(as_given)
        self.intercept_: NDArray[np.floating] = intercept.cpu().numpy().astype(as_given)
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Scores (m, k), or (m,) for two classes: positive for the second."""
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=[np.float64, np.float32, np.float16])
        x = x.astype(np.float32) if x.dtype == np.float16 else x
        scores: Array = x @ self.coef_.T + self.intercept_
        return scores if len(self.classes_) > 2 else scores[:, 0]

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities (m, k) of all classes. Those of one-vs-rest are divided by their sum."""
        scores = torch.from_numpy(self.decision_function(X))
        if scores.ndim == 1:
            second = scores.sigmoid()
            probabilities = torch.stack([1 - second, second], 1)
        elif self.one_vs_rest:
            # relative to the largest: far from all classes each probability alone may be too small for a number
            probabilities = torch.nn.functional.logsigmoid(scores).softmax(1)
        else:
            probabilities = scores.softmax(1)
        result: Array = probabilities.numpy()
        return result

    def predict(self, X: ArrayLike) -> Array:
        """The class of each row."""
        scores = self.decision_function(X)
        places = scores.argmax(1) if scores.ndim == 2 else (scores > 0).astype(np.intp)
        labels: Array = self.classes_[places]
        return labels

    def linear(self, k: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Weights (k, d) and biases (k,) of a linear layer that scores the labels 0 … k − 1.

        A softmax of its scores is :meth:`predict_proba`; with one-vs-rest of more than two classes, a sigmoid of each of them.
        Two classes share their score, half of it each. A label of which there was no example has zero weights, and a bias so
        low that it is not predicted.

        Args:
            k: how many labels there are; those seen are integers below.
        """
        check_is_fitted(self)
        seen = self.classes_
        if not np.issubdtype(seen.dtype, np.integer) or seen[0] < 0 or seen[-1] >= k:
            raise ValueError(
                f"A linear layer of {k} scores has the labels 0 to {k - 1}, but those seen are {seen.tolist()[0]!r} to "
                f"{seen.tolist()[-1]!r}.\n"
                "Fit with labels that are places in a list of classes, and give the length of the list."
            )
        weights, intercepts = self.coef_, self.intercept_
        if len(seen) == 2:
            weights, intercepts = (np.concatenate([-0.5 * each, 0.5 * each]) for each in (weights, intercepts))
        weight, bias = np.zeros((k, weights.shape[1]), np.float32), np.full(k, UNSEEN, np.float32)
        weight[seen], bias[seen] = weights, intercepts
        return weight, bias

    def __sklearn_is_fitted__(self) -> bool:
        # scikit-learn takes any name that ends like lambda_ for something learned
        return hasattr(self, "coef_")

    def _read_labels(self, y: Array) -> NDArray[np.intp]:
        """Note the classes, and give the place of each label among them."""
        check_classification_targets(y)
        self.classes_, places = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"Logistic regression tells two or more classes apart, but all {len(y)} labels are of one class, "
                f"{self.classes_.tolist()[0]!r}.\nAdd images of another class."
            )
        if self.lambda_ == "auto" and np.bincount(places).min() < 2:
            rare = self.classes_.tolist()[np.bincount(places).argmin()]
            raise ValueError(
                f"lambda_='auto' holds out images of each class, but of {rare!r} there is only one.\n"
                "Write lambda_=1e-3, or add images of that class."
            )
        return places

    def _check(self) -> None:
        automatic = isinstance(self.lambda_, str) and self.lambda_ == "auto"
        if not automatic and (not isinstance(self.lambda_, Real) or not 0 < float(self.lambda_) < np.inf):
            raise ValueError(
                f"LogisticRegression takes a number lambda_ > 0, or 'auto', but got {self.lambda_!r}.\n"
                "Write lambda_=1e-3, the paper's; that is C=500 in scikit-learn."
            )
        if not 0 < self.tolerance < 1:
            raise ValueError(
                f"LogisticRegression takes a tolerance between 0 and 1, but got {self.tolerance!r}.\nWrite tolerance=1e-6."
            )
        if self.solve not in ("auto", "span", "primal") or self.precision not in ("auto", "float32", "float64"):
            raise ValueError(
                "LogisticRegression takes solve='auto', 'span' or 'primal' and precision='auto', 'float32' or 'float64', but "
                f"got {self.solve!r} and {self.precision!r}.\nWrite 'auto' for both."
            )
        if automatic and (not len(self.path) or not all(0 < each < np.inf for each in self.path)):
            raise ValueError(
                f"LogisticRegression chooses from a path of numbers > 0, but got {self.path!r}.\n"
                "Write path=(1.0, 0.1, 0.01), or leave it out."
            )

    def _precisions(self, kind: np.dtype[Any]) -> list[torch.dtype]:
        """What is tried, one after the other."""
        if self.precision == "auto":
            return [torch.float64] if kind == np.float64 else [torch.float32, torch.float64]
        return [torch.float32 if self.precision == "float32" else torch.float64]


def prefers_primal(m: int, d: int) -> bool:
    """Whether weights are found as they are, for m images and d features; in their span otherwise.

    Where there are more images than features, features take no more memory than the Gram matrix would, and that has no inverse.
    Where there are fewer, a pass in the span costs at most half of one with features.

    >>> prefers_primal(5994, 8192), prefers_primal(5994, 512)
    (False, True)
    """
    return m > d


class _Whole:
    """A single block, as often as it is asked for."""

    def __init__(self, x: Array) -> None:
        self.x = x

    def __call__(self) -> Iterator[Array]:
        return iter([self.x])


def _both(calibration: tuple[Tensor, Tensor], several: bool) -> tuple[Tensor, Tensor]:
    """Of two classes the scores are s and 1 − s, calibrated; their difference is decided by its sign, as it is without."""
    scale, shift = calibration
    return (scale, shift) if several else (2 * scale, 2 * shift - 1)
