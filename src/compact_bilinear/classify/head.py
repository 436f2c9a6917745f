"""The head of a model, fitted to the features of a store: the first of the paper's two stages."""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..features import FeatureStore
from ..features.reader import Features
from ..model import Link, Model
from .logistic_regression import LogisticRegression

Read = Callable[[], Iterator[Features]]
Labels = NDArray[np.int64]

ROWS = 256  # of features in memory at a time


def labelled(store: FeatureStore, pooling: str, split: str, without: Collection[int] = ()) -> tuple[Read, Labels]:
    """What reads the features of a split's images whose class is known, block by block, and their classes.

    Args:
        store, pooling, split: which features.
        without: places in the list of images, which are left out.
    """
    rows = store.rows(split)
    labels = store.labels[rows]
    known = labels >= 0
    if without:
        known &= ~np.isin(store.indices[rows], list(without))
    if known.all():
        return partial(store.blocks, pooling, split, ROWS), labels

    def read() -> Iterator[Features]:
        first = 0
        for block in store.blocks(pooling, split, ROWS):
            kept = known[first : first + len(block)]
            first += len(block)
            if kept.any():
                yield block[kept]

    return read, labels[known]


def fit_head(
    model: Model,
    store: FeatureStore,
    pooling: str,
    *,
    lambda_: float | Literal["auto"] = 1e-3,
    one_vs_rest: bool = False,
    calibrate: bool = False,
    without: Collection[int] = (),
) -> LogisticRegression:
    """Fit a logistic regression to training images, and give it to a model as its head.

    Args:
        model: with the store's classes.
        store, pooling: features that the model would compute.
        lambda_, one_vs_rest, calibrate: as :class:`LogisticRegression` takes them.
        without: places in the list of images that are not seen, because something will be measured on them.

    Returns:
        The classifier, which knows how it went.
    """
    read, labels = labelled(store, pooling, "train", without)
    counts = np.bincount(labels, minlength=len(store.classes))
    several = np.count_nonzero(counts)
    if several < 2:
        raise ValueError(
            f"A classifier tells at least two classes apart, but {store.folder} has training images of {several}.\n"
            "Give a folder with a folder of images for each class."
        )
    if lambda_ == "auto" and 1 in counts:
        rare = store.classes[counts.tolist().index(1)]
        raise ValueError(
            f"λ is found by holding out training images of each class, but of {rare!r} there is only one in {store.folder}.\n"
            "Give λ a number, 0.001 for instance, or add images of that class."
        )
    classifier = LogisticRegression(lambda_, one_vs_rest=one_vs_rest, calibrate=calibrate).fit_blocks(read, labels)
    weight, bias = classifier.linear(len(store.classes))
    # two classes share one score, whose probability is that of a softmax over its halves
    link: Link = "sigmoid" if one_vs_rest and several > 2 else "softmax"
    model.set_head(torch.as_tensor(weight), torch.as_tensor(bias), link)
    return classifier


@torch.inference_mode()
def scores_of(model: Model, store: FeatureStore, pooling: str, split: str = "test") -> tuple[Tensor, Tensor]:
    """What a model's head says to stored features (m, k), and the classes that they are of (m,)."""
    read, labels = labelled(store, pooling, split)
    parts = [model.scores(torch.from_numpy(block)) for block in read()]
    return torch.cat(parts) if parts else torch.empty(0, len(store.classes)), torch.from_numpy(labels)
