"""Stores of features with a known structure: clusters, some rows that are broken, and none of it needs an image."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from compact_bilinear.features import FeatureStore, FeatureWriter

SETTINGS = {
    "data": "clustered",
    "backbone": "tiny",
    "weights sha256": "ab" * 32,
    "tap": None,
    "size": 40,
    "fit": "stretch",
    "normalize": True,
    "batch": 4,
}


def rows(count: int, d: int = 32, classes: int = 7, noise: float = 0.5, seed: int = 0) -> np.ndarray:
    """Rows around as many centres as there are classes, row i around centre i modulo their number; of all lengths."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((classes, d))
    x = centres[np.arange(count) % classes] + noise * draw.standard_normal((count, d))
    return (x * draw.uniform(0.5, 2, (count, 1))).astype(np.float32)


def store(
    folder: Path,
    x: np.ndarray,
    *,
    paths: Sequence[str] | None = None,
    labels: Sequence[int] | None = None,
    splits: Sequence[str] | None = None,
    classes: Sequence[str] = ("auk", "coot", "crow", "gull", "jay", "rook", "wren"),
    dtype: str = "float32",
    settings: Mapping[str, object] = SETTINGS,
    pooling: str | None = None,
) -> FeatureStore:
    """A store of rows (m, d), as ``cbp extract`` would have made it."""
    count, d = x.shape
    items = SimpleNamespace(
        classes=tuple(classes),
        paths=tuple(paths or (f"{index % 7}/{index:04} é.jpg" for index in range(count))),
        labels=tuple(labels if labels is not None else (index % len(classes) for index in range(count))),
        splits=tuple(splits or (("train", "test")[index % 2] for index in range(count))),
    )
    pooling = pooling or f"tensor-sketch:{d}"
    writer = FeatureWriter(
        folder, items, {pooling: {"dim": d, "seed": 0}}, settings=settings, dtype=dtype, shard_size=max(1, count // 3)
    )
    for shard in writer.missing():
        with writer.start(shard) as part:
            part.add(range(shard.first, shard.stop), {pooling: x[shard.first : shard.stop]})
    writer.complete()
    return FeatureStore(folder)


def unit(x: np.ndarray) -> np.ndarray:
    """Rows of length 1, in float64."""
    wide = x.astype(np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


def nearest(x: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Brute force: the k most similar rows of each query, ties in their order, and their similarities."""
    similarities = (unit(queries) @ unit(x).T).round(9)
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(similarities, order, axis=1)
