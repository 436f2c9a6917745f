"""The images behind the numbers: what was confused, what was certain, where the evidence lies, and what looks alike."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ..classify import metrics
from ..evidence import evidence
from ..features import FeatureStore
from ..features.reader import Features
from ..images import ImageList, load_images
from ..model import Model
from ..report.page import Pair
from ..report.pictures import Picture

Rows = NDArray[np.int64]
Similarities = NDArray[np.float32]
SHOWN = 8  # images in a row
PAIRS = 6
NEIGHBOURS = 7


class Examples:
    """Test images, and what one pooling makes of them.

    Args:
        store: of features.
        images: from which it was made.
        pooling: one of the store's.
        scores: (m, k) of its test images whose class is known.
    """

    def __init__(self, store: FeatureStore, images: ImageList, pooling: str, scores: NDArray[np.float32]) -> None:
        self.store, self.images, self.pooling, self.scores = store, images, pooling, scores
        self.rows = _known(store, "test")
        self.labels = store.labels[self.rows]
        self.guesses = scores.argmax(1)
        odds = np.exp(scores.astype(np.float64) - scores.max(1, keepdims=True))
        self.confidence = (odds / odds.sum(1, keepdims=True)).max(1)
        self.right = self.guesses == self.labels

    def confused(self) -> list[Pair]:
        """Of each pair of classes that are confused most often the surest mistake, beside the training image most like it."""
        pairs = []
        for true, other, count in metrics.most_confused(self.scores, self.labels, PAIRS):
            mistakes = np.flatnonzero((self.labels == true) & (self.guesses == other))
            worst = int(mistakes[self.confidence[mistakes].argmax()])
            pairs.append((worst, other, f"{self._class(true)} taken for {self._class(other)}: {_times(count)}"))
        likeness = self._similarities([worst for worst, _, _ in pairs])
        found = []
        for (worst, other, caption), alike in zip(pairs, likeness, strict=True):
            of_other = np.flatnonzero(self.store.labels[self._training] == other)
            if len(of_other):
                nearest = self._training[of_other[alike[of_other].argmax()]]
                beside = Picture(self._file(nearest), self._class(other), "the most similar training image of it")
                found.append(Pair(self._picture(worst), beside, caption))
        return found

    def by_confidence(self) -> dict[str, list[Picture]]:
        """The images that it was surest and least sure of."""
        order = np.argsort(-self.confidence, kind="stable")
        rows = {
            "Surest, and right": order[self.right[order]][:SHOWN],
            "Surest, and wrong": order[~self.right[order]][:SHOWN],
            "Least sure": order[::-1][:SHOWN],
        }
        return {name: [self._picture(each) for each in places] for name, places in rows.items() if len(places)}

    def evidence(self, model: Model) -> list[Picture]:
        """Where the evidence lies for what it said: an image of each of several classes.

        Args:
            model: that gave the scores.
        """
        chosen = self._one_of_each(PAIRS)
        (batch,) = load_images(
            self.images,
            model.transform,
            batch=len(chosen),
            order=self.store.indices[self.rows[chosen]].tolist(),
            workers=0,
        )
        with torch.inference_mode(False):
            maps = evidence(model, batch.pixels, torch.from_numpy(self.guesses[chosen])).numpy()
        found = []
        for each, of_image in zip(chosen, maps, strict=True):
            label, named = (self._class(int(of[each])) for of in (self.labels, self.guesses))
            found.append(Picture(self._file(self.rows[each]), label, f"for {named}", bool(self.right[each]), of_image))
        return found

    def neighbours(self) -> list[tuple[Picture, list[Picture]]]:
        """Test images, each of another class, and the training images that are most similar, whatever their classes."""
        chosen = self._one_of_each(PAIRS)
        strips = []
        for each, alike in zip(chosen, self._similarities(chosen), strict=True):
            nearest = np.argsort(-alike, kind="stable")[:NEIGHBOURS]
            label = int(self.labels[each])
            found = [
                Picture(
                    self._file(row),
                    self._class(int(self.store.labels[row])),
                    f"cosine {alike[place]:.2f}",
                    bool(self.store.labels[row] == label),
                )
                for place, row in zip(nearest, self._training[nearest], strict=True)
            ]
            strips.append((Picture(self._file(self.rows[each]), self._class(label), "a test image"), found))
        return strips

    @cached_property
    def _training(self) -> Rows:
        return _known(self.store, "train")

    def _one_of_each(self, most: int) -> list[int]:
        """The first test image of each of some classes, which lie as far apart in the list of classes as they can."""
        classes = np.unique(self.labels)
        some = classes[np.unique(np.linspace(0, len(classes) - 1, min(most, len(classes))).round().astype(int))]
        return [int(np.flatnonzero(self.labels == label)[0]) for label in some]

    def _similarities(self, places: Sequence[int]) -> Similarities:
        """Cosines (q, training images) of some test images; no more than a block of features is in memory."""
        if not places:
            return np.empty((0, len(self._training)), np.float32)
        wanted = self.rows[list(places)]
        features: dict[int, Similarities] = {}
        for first, block in self._blocks():
            mine = wanted[(wanted >= first) & (wanted < first + len(block))]
            features |= dict(zip(mine.tolist(), _unit(block[mine - first].astype(np.float32)), strict=True))
        queries = np.stack([features[row] for row in wanted.tolist()])
        parts = []
        for first, block in self._blocks():
            mine = self._training[(self._training >= first) & (self._training < first + len(block))] - first
            parts.append(queries @ _unit(block[mine].astype(np.float32)).T)
        return np.concatenate(parts, 1)

    def _blocks(self) -> Iterator[tuple[int, Features]]:
        """All features, and the row of the first of them."""
        first = 0
        for block in self.store.blocks(self.pooling, rows=256):
            yield first, block
            first += len(block)

    def _picture(self, place: int) -> Picture:
        label, guess = int(self.labels[place]), int(self.guesses[place])
        percent = 100 * self.confidence[place]
        said = f"{percent:.0f}\u00a0%\u00a0sure" if percent < 99.5 else "over 99\u00a0%\u00a0sure"  # nothing is certain
        note = said if label == guess else f"taken for {self._class(guess)}, {said}"
        return Picture(self._file(self.rows[place]), self._class(label), note, label == guess)

    def _file(self, row: int) -> Path:
        return self.images.file(int(self.store.indices[row]))

    def _class(self, label: int) -> str:
        return self.store.classes[label]


def _known(store: FeatureStore, split: str) -> Rows:
    return np.flatnonzero((store.splits == split) & (store.labels >= 0))


def _unit(x: Similarities) -> Similarities:
    length = np.sqrt(np.square(x).sum(1, keepdims=True))
    unit: Similarities = x / np.maximum(length, np.finfo(np.float32).tiny)
    return unit


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"
