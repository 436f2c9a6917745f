"""How good scores are: errors, average precision, confusions, calibration.

Everywhere ``scores`` are (m, k), of m images for k classes, higher for the likelier class, and ``labels`` are (m,), each a
place in 0 ... k − 1. The class that is predicted has the highest score, the first of them where several have.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]


def error_rate(scores: ArrayLike, labels: ArrayLike) -> float:
    """The share of images whose predicted class is not theirs.

    >>> error_rate([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]], [0, 1, 1])
    0.3333333333333333
    """
    scores, labels = _read("error_rate", scores, labels)
    return float((scores.argmax(1) != labels).mean())


def top_k_accuracy(scores: ArrayLike, labels: ArrayLike, top: int = 5) -> float:
    """The share of images whose class is among the ``top`` with the highest scores.

    Of classes with equal scores the first counts as the higher, so that ``top=1`` is one minus the error rate.

    >>> top_k_accuracy([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]], [1, 2], top=2)
    0.5
    """
    scores, labels = _read("top_k_accuracy", scores, labels)
    k = scores.shape[1]
    if not 1 <= top <= k:
        raise ValueError(
            f"top_k_accuracy takes top from 1 to k={k} classes, but got {top}.\nWrite top={min(5, k)}, for instance."
        )
    own = scores[np.arange(len(labels)), labels][:, None]
    before = (scores > own) | ((scores == own) & (np.arange(k) < labels[:, None]))
    return float((before.sum(1) < top).mean())


def per_class_accuracy(scores: ArrayLike, labels: ArrayLike) -> Floats:
    """For each class the share of its images that are predicted to be of it.

    Returns:
        (k,), NaN for classes without images.

    >>> per_class_accuracy([[0.9, 0.1, 0], [0.2, 0.8, 0], [0.7, 0.3, 0]], [0, 1, 1])
    array([1. , 0.5, nan])
    """
    matrix = confusion_matrix(*_read("per_class_accuracy", scores, labels))
    images = matrix.sum(1)
    return np.where(images > 0, matrix.diagonal() / np.maximum(images, 1), np.nan)


def average_precision(scores: ArrayLike, labels: ArrayLike) -> Floats:
    r"""For each class how well its score puts its own images before all others.

    .. math:: \mathrm{AP} = \frac1P \sum_{i \text{ of the class}}
        \frac{\#\{j \text{ of the class} : s_j \ge s_i\}}{\#\{j : s_j \ge s_i\}}

    over its P images: the precision at each of them, averaged. It is what scikit-learn's ``average_precision_score`` gives,
    class by class, and sorts each column of scores once.

    Returns:
        (k,), NaN for classes without images.

    >>> average_precision([[0.9, 0], [0.8, 0], [0.7, 0]], [0, 1, 0])
    array([0.83333333, 0.33333333])
    """
    scores, labels = _read("average_precision", scores, labels)
    result = np.full(scores.shape[1], np.nan)
    for label in np.unique(labels):
        everything, own = np.sort(scores[:, label]), np.sort(scores[labels == label, label])
        above, of_them = (len(some) - np.searchsorted(some, own) for some in (everything, own))
        result[label] = (of_them / above).mean()
    return result


def mean_average_precision(scores: ArrayLike, labels: ArrayLike) -> float:
    """The mean of :func:`average_precision` over classes, which is the paper's score for few images.

    Classes without images have no average precision, and are left out of the mean.
    """
    return float(np.nanmean(average_precision(*_read("mean_average_precision", scores, labels))))


def confusion_matrix(scores: ArrayLike, labels: ArrayLike) -> Labels:
    """How many images of the class of a row are predicted to be of the class of a column, (k, k).

    >>> confusion_matrix([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]], [0, 1, 1])
    array([[1, 0],
           [1, 1]])
    """
    scores, labels = _read("confusion_matrix", scores, labels)
    k = scores.shape[1]
    return np.bincount(labels * k + scores.argmax(1), minlength=k * k).reshape(k, k).astype(np.int64, copy=False)


class Confusion(NamedTuple):
    """So many images of one class are taken for another."""

    true: int
    predicted: int
    images: int


def most_confused(scores: ArrayLike, labels: ArrayLike, limit: int = 10) -> list[Confusion]:
    """The pairs of classes that are confused most often, no more than ``limit``; those that never are have no place here.

    >>> most_confused([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]], [0, 1, 1])
    [Confusion(true=1, predicted=0, images=1)]
    """
    matrix = confusion_matrix(*_read("most_confused", scores, labels))
    np.fill_diagonal(matrix, 0)
    pairs = np.argsort(-matrix, axis=None, kind="stable")[: min(limit, np.count_nonzero(matrix))]
    return [
        Confusion(int(true), int(predicted), int(matrix[true, predicted]))
        for true, predicted in zip(*np.unravel_index(pairs, matrix.shape), strict=True)
    ]


class Reliability(NamedTuple):
    """How often predictions of about the same probability are right, with an entry for each bin of probabilities.

    Bins that no image falls into have NaN for confidence and accuracy.
    """

    lower: Floats
    """Where each bin begins; this probability is not in it."""
    upper: Floats
    """Where it ends; this one is."""
    images: Labels
    """How many images are in it."""
    confidence: Floats
    """The mean probability of their predicted classes."""
    accuracy: Floats
    """The share that is right."""


def reliability(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> Reliability:
    """Sort images by the probability of their predicted class into bins of equal width, and see how often each bin is right.

    Args:
        probabilities: (m, k), rows that sum to 1.
        labels: (m,).
        bins: how many between 0 and 1.
    """
    probabilities, labels = _read("reliability", probabilities, labels, probable=True)
    if bins < 1:
        raise ValueError(f"reliability takes at least one bin, but got bins={bins}.\nWrite bins=15.")
    confidence = probabilities.max(1).astype(np.float64)
    right = probabilities.argmax(1) == labels
    edges = np.linspace(0, 1, bins + 1)
    # rounding may have brought a probability a little above 1
    place = np.clip(np.searchsorted(edges, confidence) - 1, 0, bins - 1)
    images, summed, hits = (np.bincount(place, each, bins) for each in (None, confidence, right))
    some = np.where(images > 0, images, np.nan)
    return Reliability(edges[:-1], edges[1:], images.astype(np.int64, copy=False), summed / some, hits / some)


def expected_calibration_error(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    r"""How far probabilities are from how often they are right, in the mean.

    .. math:: \sum_b \frac{m_b}{m}\, \lvert \mathrm{accuracy}_b - \mathrm{confidence}_b \rvert

    over bins of m_b of the m images. 0 is a classifier that is right as often as it says. Arguments and bins are those of
    :func:`reliability`.

    >>> expected_calibration_error([[0.75, 0.25]] * 4, [0, 0, 0, 1])
    0.0
    """
    table = reliability(*_read("expected_calibration_error", probabilities, labels, probable=True), bins)
    return float(np.nansum(table.images * np.abs(table.accuracy - table.confidence)) / table.images.sum())


def negative_log_likelihood(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """The mean of −log of the probability that each image's own class was given.

    A probability of 0 counts as the smallest that makes a difference to 1 in its precision, as in scikit-learn's ``log_loss``:
    otherwise a single image would make the whole infinite.

    >>> negative_log_likelihood([[0.5, 0.5], [0.5, 0.5]], [0, 1])
    0.6931471805599453
    """
    probabilities, labels = _read("negative_log_likelihood", probabilities, labels, probable=True)
    own = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(own, np.finfo(own.dtype).eps), dtype=np.float64).mean())


def _read(owner: str, scores: ArrayLike, labels: ArrayLike, probable: bool = False) -> tuple[Floats, Labels]:
    scores, labels = np.asarray(scores), np.asarray(labels)
    what = "probabilities" if probable else "scores"
    if scores.ndim != 2 or labels.shape != scores.shape[:1] or not scores.size:
        raise ValueError(
            f"{owner} takes {what} (m, k) of m ≥ 1 images for k ≥ 1 classes and labels (m,), but got {scores.shape} and "
            f"{labels.shape}.\nGive each image a row and a label; of two classes give both columns, np.stack([-s, s], 1)."
        )
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"{owner} takes integer labels, places of columns, but got {labels.dtype}.\n"
            "Of other labels make places first: classes, labels = np.unique(labels, return_inverse=True)."
        )
    k = scores.shape[1]
    unknown = np.flatnonzero((labels < 0) | (labels >= k))
    if len(unknown):
        raise ValueError(
            f"{owner} takes labels in 0 ... {k - 1}, but {len(unknown)} of {len(labels)} are not, {labels[unknown[0]]} for "
            "one; -1 says that a class is not known.\nLeave such images out: known = labels >= 0; scores[known], labels[known]."
        )
    if not np.issubdtype(scores.dtype, np.floating):
        scores = scores.astype(np.float64)
    if np.isnan(scores).any():
        raise ValueError(
            f"{owner} takes {what} that are numbers, but {np.isnan(scores).any(1).sum()} of {len(scores)} rows have NaN.\n"
            "Look where they come from: features or a classifier were not finite."
        )
    if probable:
        _check_probabilities(owner, scores)
    return scores, labels.astype(np.int64, copy=False)


def _check_probabilities(owner: str, probabilities: Floats) -> None:
    # half precision sums 200 classes to within a hundredth
    sums = probabilities.sum(1, dtype=np.float64)
    if probabilities.min() < 0 or np.abs(sums - 1).max() > 0.01:
        raise ValueError(
            f"{owner} takes probabilities, rows ≥ 0 that sum to 1, but the smallest is {probabilities.min():.3g} and the sums "
            f"go from {sums.min():.3g} to {sums.max():.3g}.\nGive what predict_proba returns, not what decision_function does."
        )
