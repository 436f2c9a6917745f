"""What a pooling gets right: a linear classifier on its features, and classifiers from a few images of each class."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..classify.few_shot import Draws, Products, drawn_from, few_shot
from ..classify.head import labelled
from ..classify.logistic_regression import LogisticRegression
from ..device import one_thread
from ..features import FeatureStore
from ..progress import note
from ..whole_file import WholeFile, undamaged

Scores = NDArray[np.float32]
SHOTS = (1, 2, 5, 10)
SMALL = 2000  # training images up to which several threads would wait for each other longer than they compute
FEW_SHOT_LAMBDA = 1e-3  # a few images are too few to find another by cross-validation


class Linear(NamedTuple):
    """What a logistic regression says to the test images."""

    scores: Scores  # (m, k)
    lambda_: float  # as given, or as found


def linear(store: FeatureStore, pooling: str, lambda_: float | Literal["auto"]) -> Linear:
    """Learn from the training images, and score the test images whose class is known.

    Args:
        store: of features with both splits.
        pooling: which of them.
        lambda_: of the logistic regression; "auto" finds it by cross-validation.
    """
    read, labels = labelled(store, pooling, "train")
    alone = one_thread() if len(labels) <= SMALL else nullcontext()
    with warnings.catch_warnings(record=True) as warned, alone:
        warnings.simplefilter("always")
        classifier = LogisticRegression(lambda_).fit_blocks(read, labels)
    for each in warned:
        note(f"compare, {pooling}: {str(each.message).splitlines()[0]}")
    weight, bias = classifier.linear(len(store.classes))
    read, _ = labelled(store, pooling, "test")
    scores = np.concatenate([block.astype(np.float32) @ weight.T + bias for block in read()])
    return Linear(scores, classifier.lambda_used_)


def keep(folder: Path, pooling: str, found: Linear) -> None:
    """Write what a classifier said into a folder, which is made if need be."""
    from safetensors.numpy import save

    folder.mkdir(parents=True, exist_ok=True)
    with WholeFile(_file(folder, pooling)) as part:
        part.write_bytes(save({"scores": found.scores, "lambda": np.array([found.lambda_])}))


def kept(folder: Path, pooling: str) -> Linear | None:
    """What :func:`keep` wrote; None if nothing."""
    from safetensors.numpy import load_file

    file = _file(folder, pooling)
    if not file.exists():
        return None
    with undamaged(file):
        tensors: dict[str, Any] = load_file(file)
        return Linear(tensors["scores"], float(tensors["lambda"][0]))


class FewShots(NamedTuple):
    """The same draws for all poolings."""

    draws: Draws | None  # None where a class has no training image
    shots: Sequence[int]

    @classmethod
    def of(cls, store: FeatureStore, draws: int, seed: int) -> "FewShots":
        """As many images of each class as ``SHOTS`` says and the smallest class has.

        Args:
            store: of features.
            draws: how often they are drawn anew.
            seed: what from.
        """
        smallest = int(np.bincount(store.labels[drawn_from(store)], minlength=len(store.classes)).min())
        shots = [count for count in SHOTS if count <= smallest]
        if not shots:
            note("compare: a class has no training image, and so nothing is learned from a few images of each")
            return cls(None, ())
        return cls(Draws.of(store, max(shots), draws, seed), shots)

    def errors(self, store: FeatureStore, pooling: str, device: torch.device) -> Iterator[tuple[int, int, float]]:
        """(images of each class, draw, error) of logistic regression for all draws."""
        if self.draws is None:
            return
        products = Products.of(store, pooling, self.draws, device)
        for score in few_shot(products, self.draws, self.shots, ("logistic",), FEW_SHOT_LAMBDA):
            yield score.shots, score.draw, 1 - score.accuracy


def _file(folder: Path, pooling: str) -> Path:
    return folder / f"{pooling.replace(':', '-').replace(',', '-')}.safetensors"
