r"""Few-shot: a few images of each class are drawn, a classifier is trained on them, and scored on many others; again and again.

Both classifiers here know images by their inner products alone, and m drawn images span no more than m dimensions, whatever d
is. With the Gram matrix :math:`F F^\top = L L^\top` of the drawn features, their coordinates in an orthonormal basis of that
span are the rows of L, and those of another image are :math:`L^{-1} F x`; what is left of x is orthogonal to everything drawn,
and only its length matters. Classifiers see these few coordinates and answer as they would to all d.

Draws are nested: the images of a draw come in rounds, one of each class a round, and two images of each class are the first two
rounds. So are Cholesky factors. One factorisation serves all numbers of images, which are its leading blocks.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.special import log_softmax

from ..device import one_thread, side_by_side
from ..features import FeatureStore
from .inner_products import Doubles, Rows, inner_products, squared_lengths
from .logistic_regression import LogisticRegression
from .metrics import error_rate, mean_average_precision
from .nearest_mean import NearestMean

ClassifierName = Literal["logistic", "one-vs-rest", "nearest-mean"]
CLASSIFIERS: tuple[ClassifierName, ...] = ("logistic", "nearest-mean")  # what is trained if nothing else is asked for
SHOTS = (1, 2, 3, 7, 14)  # the paper's
# What is added to the diagonal of a Gram matrix, relative to it: more than the error of float64, so that two copies of an image
# still give a factor. An image whose squared distance from the span of those before it is below the second number, where this
# can be seen, lies in it. Float16 keeps features no better.
RIDGE, INSIDE = 1e-10, 1e-8


class Score(NamedTuple):
    """How good one classifier is after one draw."""

    classifier: ClassifierName
    shots: int
    """Images of each class it was trained on."""
    draw: int
    mean_average_precision: float
    accuracy: float


@dataclass(frozen=True)
class Draws:
    """Which images of a store are drawn, and which are scored: the same for all its poolings, so that these can be compared.

    With a test split images are drawn from the training split, and all test images are scored. Without one they are drawn from
    all images, and all that are not drawn are scored. Images whose class is not known are neither drawn nor scored.
    """

    drawn: NDArray[np.int64]
    """(draws, shots, k): rows of the store, those of ``[i, :s]`` being draw i of s images of each of k classes."""
    scored: tuple[Rows, ...]
    """For each draw, rows of the store, ascending. They are not drawn, whatever number of images is."""
    labels: NDArray[np.int64]
    """The classes of all rows of the store."""
    test_split: bool
    """Whether it has one."""

    @classmethod
    def of(cls, store: FeatureStore, shots: int, draws: int, seed: int) -> Self:
        """Draw.

        Args:
            store: of images.
            shots: images of each class, the largest number.
            draws: how many.
            seed: what they are drawn from. Draw i is the same for any number of draws, and its beginning for any shots.
        """
        pool = drawn_from(store)
        most = most_shots(store)
        if shots > most:
            smallest = np.bincount(store.labels[pool], minlength=len(store.classes)).argmin()
            raise ValueError(
                f"{shots} images of each class are to be drawn, but {store.folder} has {most} of {store.classes[smallest]} to "
                f"draw from.\nAsk for 1 to {most}, or extract with more images of that class."
            )
        drawn = np.stack([_draw(store.labels, pool, shots, np.random.default_rng([seed, number])) for number in range(draws)])
        test = _labelled(store, "test")
        scored = [test if len(test) else np.setdiff1d(pool, each) for each in drawn]
        return cls(drawn, tuple(scored), store.labels, bool(len(test)))

    @property
    def rows(self) -> Rows:
        """All that are drawn or scored at any time, ascending."""
        return np.unique(np.concatenate([self.drawn.ravel(), *self.scored]))


def drawn_from(store: FeatureStore) -> Rows:
    """The rows that images are drawn from: the training split if there is a test split, and all whose class is known if not."""
    return _labelled(store, "train" if len(_labelled(store, "test")) else None)


def most_shots(store: FeatureStore) -> int:
    """How many images of each class there are to draw; without a test split one image of each has to remain."""
    counts = np.bincount(store.labels[drawn_from(store)], minlength=len(store.classes))
    least = 1 if len(_labelled(store, "test")) else 2
    if len(counts) < 2 or counts.min() < least:
        smallest = f", and {counts.min()} of {store.classes[counts.argmin()]}" if len(counts) > 1 else ""
        raise ValueError(
            f"Few-shot takes two classes or more, with {least} or more images of each to draw from, but {store.folder} has "
            f"{len(counts)}{smallest}.\nExtract images whose classes are known, enough of each class in the training split."
        )
    return int(counts.min()) - least + 1


class Products(NamedTuple):
    """The inner products that few-shot needs: of all images that any draw takes, with all that are taken or scored."""

    rows: Rows
    """All that are taken or scored."""
    columns: Rows
    """All that are taken."""
    products: Doubles
    """(rows, columns)."""
    squares: Doubles
    """(rows,), of each with itself."""

    @classmethod
    def of(
        cls,
        store: FeatureStore,
        pooling: str,
        draws: Draws,
        device: torch.device | str = "cpu",
        advance: Callable[[int], None] = lambda images: None,
    ) -> Self:
        """Multiply the features of one pooling. About 1 GB of them is held at a time.

        Args:
            store: of features.
            pooling: which of them.
            draws: which images.
            device: where to multiply.
            advance: called with a number of images whenever so many more are done, of ``len(draws.rows)``.
        """
        rows, columns = draws.rows, np.unique(draws.drawn)
        products = inner_products(store, pooling, rows, columns, device, advance)
        return cls(rows, columns, products, squared_lengths(store, pooling, rows))

    def between(self, some: Rows, drawn: Rows) -> Doubles:
        """Those of some rows of the store with some that are drawn."""
        return self.products[np.ix_(np.searchsorted(self.rows, some), np.searchsorted(self.columns, drawn))]


def few_shot(
    products: Products,
    draws: Draws,
    shots: Sequence[int],
    classifiers: Sequence[ClassifierName] = CLASSIFIERS,
    lambda_: float = 1e-3,
    advance: Callable[[int], None] = lambda draws: None,
) -> list[Score]:
    """Train and score classifiers on the features of one pooling, several draws at a time.

    Args:
        products: of the features.
        draws: which images.
        shots: numbers of images of each class, none beyond those drawn.
        classifiers: which.
        lambda_: of the logistic regression, λ‖w‖² + Σ losses.
        advance: called with a number of draws whenever so many more are done.

    Returns:
        Scores, a draw after the other.
    """

    def scores(number: int) -> list[Score]:
        return list(_scores_of_draw(products, draws, number, shots, classifiers, lambda_))

    result: list[Score] = []
    threads = torch.get_num_threads()
    with one_thread(), warnings.catch_warnings():
        # as they are meant to be: one image of each class is what was asked for
        warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%", UserWarning)
        with closing(side_by_side(scores, range(len(draws.drawn)), threads)) as all_scores:
            for some in all_scores:
                result += some
                advance(1)
    return result


def _scores_of_draw(
    products: Products, draws: Draws, number: int, shots: Sequence[int], classifiers: Sequence[ClassifierName], lambda_: float
) -> Iterator[Score]:
    k = draws.drawn.shape[2]
    drawn, scored = draws.drawn[number, : max(shots)].ravel(), draws.scored[number]
    seen, others = coordinates(products.between(drawn, drawn), products.between(scored, drawn))
    squares = products.squares[np.searchsorted(products.rows, scored)]
    for count in shots:
        m = count * k
        used = np.flatnonzero(seen.diagonal()[:m])
        inside = others[:, used]
        outside = np.sqrt(np.maximum(squares - np.square(inside).sum(1), 0))
        x, z = np.pad(seen[:m, used], ((0, 0), (0, 1))), np.column_stack([inside, outside])
        for name in classifiers:
            scores = _scores(name, lambda_, x, draws.labels[drawn[:m]], z)
            labels = draws.labels[scored]
            yield Score(name, count, number, mean_average_precision(scores, labels), 1 - error_rate(scores, labels))


def coordinates(gram: Doubles, products: Doubles) -> tuple[Doubles, Doubles]:
    """Coordinates in the span of m features, in which their first s have only s that are not 0.

    A feature in the span of those before it adds no dimension: a column is 0 for all.

    Args:
        gram: (m, m), their inner products with each other.
        products: (t, m), those of other features with them.

    Returns:
        Coordinates of the m features, (m, m), and of the others' projections onto their span, (t, m).

    >>> features, others = np.array([[3.0, 4, 0], [0, 1, 0]]), np.array([[6.0, 8, 5]])
    >>> seen, projected = coordinates(features @ features.T, others @ features.T)
    >>> np.round(seen, 3) + 0, np.round(projected, 3) + 0
    (array([[5. , 0. ],
           [0.8, 0.6]]), array([[10.,  0.]]))
    """
    ridge = RIDGE * gram.diagonal().mean()
    factor = cholesky(gram + ridge * np.eye(len(gram)), lower=True)
    others = solve_triangular(factor, products.T, lower=True).T
    adds_none = np.square(factor.diagonal()) < INSIDE * gram.diagonal().mean()
    factor[:, adds_none] = others[:, adds_none] = 0
    return factor, others


def _scores(name: ClassifierName, lambda_: float, x: Doubles, labels: Rows, z: Doubles) -> Doubles:
    """Scores (t, k) of a classifier trained on ``x``: cosines, log-odds of one against the rest, or log-probabilities."""
    one_vs_rest = name == "one-vs-rest"
    classifier: Any = NearestMean() if name == "nearest-mean" else LogisticRegression(lambda_, one_vs_rest=one_vs_rest)
    scores: Doubles = classifier.fit(x, labels).decision_function(z)
    if scores.ndim == 1:
        scores = np.stack([-scores, scores], 1)
    # the same order in each row; but from one image to another a softmax's scores say the same only as probabilities
    return log_softmax(scores, 1) if name == "logistic" else scores


def _draw(labels: Rows, pool: Rows, shots: int, chance: np.random.Generator) -> Rows:
    """(shots, k) of the pool, a column for each class. All of a class are shuffled: the first do not depend on how many."""
    classes = [pool[labels[pool] == label] for label in range(int(labels.max()) + 1)]
    return np.stack([chance.permutation(rows)[:shots] for rows in classes], axis=1)


def _labelled(store: FeatureStore, split: str | None) -> Rows:
    chosen = store.labels >= 0
    return np.flatnonzero(chosen if split is None else chosen & (store.splits == split))
