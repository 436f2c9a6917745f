"""A small store, for tests to make, to break and to kill."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from compact_bilinear.features import FeatureWriter

COUNT, SHARD = 23, 5
POOLINGS = {"tensor-sketch:7": {"dim": 7, "seed": 0, "sha256": "ab" * 32}, "full-bilinear": {"dim": 9}}
BROKEN = {
    0: "empty",
    11: "not an image",
    15: "cut",
    16: "cut",
    17: "cut",
    18: "cut",
    19: "cut",
    22: "no such file",
}  # 15…19: a shard


def items(count: int = COUNT) -> Any:
    return SimpleNamespace(
        classes=("crow", "wren", "Zaunkönig"),
        paths=tuple(f"folder/{index:02} é.jpg" for index in range(count)),
        labels=tuple(index % 4 - 1 for index in range(count)),
        splits=tuple(("train", "test", "")[index // 2 % 3] for index in range(count)),
    )


def values(index: int, dtype: str = "float32") -> dict[str, np.ndarray]:
    draw = np.random.default_rng(index)
    return {name: draw.standard_normal(int(each["dim"])).astype(dtype) for name, each in POOLINGS.items()}


def begin(folder: Path, **changed: Any) -> FeatureWriter:
    settings = {"backbone": "vgg16", "batch": 2}
    arguments = {"settings": settings, "versions": {"torch": "2.13"}, "dtype": "float32", "shard_size": SHARD} | changed
    return FeatureWriter(folder, arguments.pop("items", items()), arguments.pop("poolings", POOLINGS), **arguments)


def fill(writer: FeatureWriter, batch: int = 2) -> None:
    """Write all that is missing, in batches, as a recipe does."""
    for shard in writer.missing():
        with writer.start(shard) as rows:
            for first in range(shard.first, shard.stop, batch):
                indices = range(first, min(first + batch, shard.stop))
                for index in indices:
                    if index in BROKEN:
                        rows.report(index, BROKEN[index])
                good = [index for index in indices if index not in BROKEN]
                computed = [values(index, writer.dtype) for index in good]
                rows.add(good, {name: np.stack([each[name] for each in computed]) for name in POOLINGS} if good else {})
    writer.complete({"fitted": {"full-bilinear": "cd" * 32}})


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in sorted(folder.iterdir())}
