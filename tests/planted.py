"""A store whose features are planted, so that one knows what can be learned from them."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from compact_bilinear.features import FeatureStore, FeatureWriter

Features = Callable[[np.ndarray, int], np.ndarray]  # of labels (m,) and d: features (m, d)
CLASSES = ("crow", "jay", "owl", "wren", "Zaunkönig")
K = len(CLASSES)
DIMS = {"full-bilinear": 64, "tensor-sketch:31": 31}


def clear(labels: np.ndarray, d: int) -> np.ndarray:
    """Each class has an axis of its own, and a little noise."""
    return np.eye(K, d)[labels % K] + 0.01 * noise(labels, d)


def noise(labels: np.ndarray, d: int) -> np.ndarray:
    """The classes have no part in it."""
    return np.random.default_rng(d).standard_normal((len(labels), d)) / np.sqrt(d)


def blurred(labels: np.ndarray, d: int) -> np.ndarray:
    """Something between the two, positive as features of networks are."""
    return np.abs(0.3 * np.eye(K, d)[labels % K] + noise(labels, d))


def plant(
    folder: Path,
    features: Features = blurred,
    *,
    train: int | tuple[int, ...] = 9,
    test: int = 6,
    dims: dict[str, int] | None = None,
    dtype: str = "float32",
    unknown: int = 0,
) -> FeatureStore:
    """Write a store and read it.

    Args:
        folder: for it.
        features: what is planted.
        train, test: images of each class; ``train`` may be a number for each, also for fewer classes. Without test images there
            is no split.
        dims: poolings and their d.
        dtype: of the store.
        unknown: images more whose class is not known, half of them for training.
    """
    counts = (train,) * K if isinstance(train, int) else train
    k = len(counts)
    labels = np.concatenate([np.repeat(np.arange(k), counts), np.tile(np.arange(k), test), np.full(unknown, -1)])
    split = ["train" if test else ""] * sum(counts) + ["test"] * (k * test) + ["train", "test"] * (unknown // 2)
    order = np.random.default_rng(0).permutation(len(labels))
    labels, split = labels[order], [split[place] for place in order]
    items = SimpleNamespace(
        classes=CLASSES[:k],
        paths=tuple(f"{place:03}.jpg" for place in range(len(labels))),
        labels=tuple(labels.tolist()),
        splits=tuple(split),
    )
    dims = dims or DIMS
    writer = FeatureWriter(
        folder,
        items,
        {name: {"dim": d, "seed": 0, "sha256": "ab" * 32} for name, d in dims.items()},
        settings={},
        versions={},
        dtype=dtype,
        shard_size=17,
    )
    arrays = {name: features(labels, d).astype(dtype) for name, d in dims.items()}
    for shard in writer.missing():
        with writer.start(shard) as rows:
            places = list(range(shard.first, shard.stop))
            rows.add(places, {name: array[places] for name, array in arrays.items()})
    writer.complete()
    return FeatureStore(folder)
