"""What each engine and each kind of code finds, takes and costs, on somebody's own features."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..features import FeatureStore
from ..features.unit_rows import unit_blocks
from ..progress import note
from .codes import BLOCK, Codes
from .engine import LEAST, Engine, sample_size
from .segment import Near, Segment, items_table
from .segment_writer import SegmentWriter, train

OPTIONS: tuple[tuple[Engine, Codes], ...] = (
    ("flat", "float32"),
    ("flat", "float16"),
    ("flat", "8-bit"),
    ("hnsw", "float16"),
    ("hnsw", "8-bit"),
    ("ivf-pq", "float16"),
    ("ivf-pq", "8-bit"),
    ("ivf-pq", "pq"),
)
NEAREST = 10


class Measured(NamedTuple):
    """One engine with one kind of codes, beside looking at all rows in float32."""

    engine: Engine
    codes: Codes
    bytes_an_image: float  # on the disk: rows, graph, lists, names
    recall_at_1: float  # the part of the queries whose nearest image is the nearest
    recall_at_10: float  # the part of the ten nearest that are among the ten found
    mean_average_precision: float  # of the ten found, the ten nearest being what is to be found: their order counts too
    same_class: float | None  # the part of the ten found that are of the query's class, where there are labels
    milliseconds: float  # a query by itself
    times_faster: float  # than looking at all rows in float32
    seconds_to_build: float


def measure(
    store: FeatureStore, pooling: str, *, images: int = 20_000, queries: int = 200, seed: int = 0
) -> Iterator[Measured]:
    """Build each kind of index of some images of a store, search it with some others, and tell what came of it.

    Args:
        store: whose features.
        pooling: which.
        images: at most so many are indexed, drawn from the seed; 0 for all.
        queries: so many more ask, or a tenth of the store where that is less.
        seed: what both are drawn from.
    """
    rows, labels, asking = _draw(store, pooling, images, queries, seed)
    x, of_x = rows[~asking], labels[~asking]
    q, of_q = rows[asking], labels[asking]
    if not (len(x) and len(q)):
        raise ValueError(
            f"To measure takes features to search in and others that ask, but of those drawn from {store.folder} {len(x)} and "
            f"{len(q)} are neither zero nor infinite.\nExtract them anew, or more of them."
        )
    note(f"measure: {len(x)} images of {store.folder}, which {len(q)} others ask for their neighbours")
    truth: list[Near] = []
    slowest = 0.0
    for engine, codes in OPTIONS:
        if engine == "ivf-pq" and len(x) < LEAST:
            note(f"measure: ivf-pq is left out, which is trained on at least {LEAST} images")
            return
        note(f"measure: {engine} with {codes}")
        with tempfile.TemporaryDirectory() as folder:
            segment, size, seconds = _build(Path(folder), x, engine, codes, seed)
            found, milliseconds = _ask(segment, q)
            del segment  # Windows removes no file that is mapped
        if not truth:
            truth, slowest = found, milliseconds
        yield Measured(
            engine,
            codes,
            size / len(x),
            float(np.mean([near.positions[0] == best.positions[0] for near, best in zip(found, truth, strict=True)])),
            float(np.mean([np.isin(best.positions, near.positions).mean() for near, best in zip(found, truth, strict=True)])),
            float(np.mean([_average_precision(near, best) for near, best in zip(found, truth, strict=True)])),
            _same_class(found, of_q, of_x),
            milliseconds,
            slowest / milliseconds,
            seconds,
        )


def _draw(
    store: FeatureStore, pooling: str, images: int, queries: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_]]:
    """Rows, labels, and which of them ask."""
    count = len(store)
    asked = min(queries, count // 10)
    if asked < 1:
        raise ValueError(
            f"To measure takes at least 10 images, but {store.folder} has {count}.\n"
            "Extract more of them, or take flat: it is exact."
        )
    drawn = np.random.default_rng(seed).permutation(count)[: images + asked if images else count]
    wanted, asks = np.zeros(count, bool), np.zeros(count, bool)
    wanted[drawn], asks[drawn[:asked]] = True, True
    parts = [block.rows[wanted[block.first :][: len(block.kept)][block.kept]] for block in unit_blocks(store, pooling)]
    kept = np.concatenate([block.kept for block in unit_blocks(store, pooling)]) & wanted
    return np.concatenate(parts), store.labels[kept], asks[kept]


def _build(folder: Path, x: NDArray[np.float32], engine: Engine, codes: Codes, seed: int) -> tuple[Segment, int, float]:
    """An index as `cbp index` makes it, its bytes, and the seconds that it took."""
    start = time.perf_counter()
    drawn = np.random.default_rng(seed).permutation(len(x))[: sample_size(x.shape[1])]
    with SegmentWriter(folder, 1, engine, train(engine, codes, x[np.sort(drawn)], seed)) as writer:
        size = max(1, BLOCK // x.shape[1])
        for first in range(0, len(x), size):
            writer.add(x[first : first + size])
        facts, files = writer.finish(items_table([""] * len(x), np.zeros(len(x), np.int64), [""] * len(x), -1))
    seconds = time.perf_counter() - start
    return Segment(folder, facts, 0, np.zeros(len(x), bool)), sum(each["bytes"] for each in files.values()), seconds


def _ask(segment: Segment, q: NDArray[np.float32]) -> tuple[list[Near], float]:
    """What each query finds, and the middle of the milliseconds that they take, one after the other."""
    found, times = [], []
    next(segment.search(q[:1], NEAREST, None))  # the first touches the file
    for place in range(len(q)):
        start = time.perf_counter()
        found.append(next(segment.search(q[place : place + 1], NEAREST, None)))
        times.append(time.perf_counter() - start)
    return found, median(times) * 1e3


def _average_precision(near: Near, best: Near) -> float:
    right = np.isin(near.positions, best.positions)
    return float((right * np.cumsum(right) / np.arange(1, len(right) + 1)).sum() / len(best.positions))


def _same_class(found: Sequence[Near], asking: NDArray[np.int64], inside: NDArray[np.int64]) -> float | None:
    shares = [np.mean(inside[near.positions] == label) for near, label in zip(found, asking, strict=True) if label >= 0]
    return float(np.mean(shares)) if shares else None


def as_record(measured: Measured) -> dict[str, Any]:
    """With the names that tables have."""
    numbers = measured._asdict()
    renamed = {"recall_at_1": "recall@1", "recall_at_10": "recall@10", "mean_average_precision": "mAP"}
    return {renamed.get(name, name): value for name, value in numbers.items()}
