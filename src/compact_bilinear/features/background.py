"""Shards written by threads of their own, while the next features are computed.

Compressing nothing, Parquet still takes a core for every few hundred megabytes a second, and full bilinear features on a GPU
come faster than that. So several shards are written at once: their batches come by turns, and each shard has a thread.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .layout import Shard
from .writer import FeatureWriter, ShardWriter

# batches that may wait to be written in each thread; they are all in memory
WAITING = 2


class Batch(NamedTuple):
    """Items of one shard that are computed together."""

    shard: Shard
    lane: int
    places: range


class Rows(NamedTuple):
    """What was computed of a batch: rows for some of its items, and reasons why others have none."""

    indices: Sequence[int]
    features: Mapping[str, NDArray[np.floating]]
    broken: Mapping[int, str]


def batches(shards: Sequence[Shard], size: int, lanes: int) -> Iterator[Batch]:
    """All items of some shards in batches of which none reaches over the end of its shard, ``lanes`` shards by turns.

    >>> from compact_bilinear.features.layout import cut
    >>> [(batch.shard.number, batch.places) for batch in batches(cut(7, 3), size=2, lanes=2)]
    [(0, range(0, 2)), (1, range(3, 5)), (0, range(2, 3)), (1, range(5, 6)), (2, range(6, 7))]
    """
    for first in range(0, len(shards), lanes):
        by_shard = [
            [Batch(shard, lane, range(start, min(start + size, shard.stop))) for start in range(shard.first, shard.stop, size)]
            for lane, shard in enumerate(shards[first : first + lanes])
        ]
        for turn in zip_longest(*by_shard):
            yield from (batch for batch in turn if batch is not None)


class BackgroundWriter:
    """Hand it the rows of each batch of :func:`batches`, in that order; at the end of the context all shards are finished.

    Should anything fail, here or in a thread, the shards that were begun are abandoned.

    Args:
        writer: of the store.
        lanes: how many threads, as many as :func:`batches` was given.
    """

    def __init__(self, writer: FeatureWriter, lanes: int) -> None:
        self._writer = writer
        self._threads = [ThreadPoolExecutor(1, f"shards-{lane}") for lane in range(lanes)]
        self._waiting: list[list[Future[None]]] = [[] for _ in range(lanes)]
        self._open: dict[int, ShardWriter] = {}

    def write(self, batch: Batch, compute: Callable[[], Rows]) -> None:
        """Write the rows of a batch, soon.

        Args:
            batch: which.
            compute: gives the rows, in the thread that writes them: it may wait for a GPU.
        """
        waiting = self._waiting[batch.lane]
        if len(waiting) > WAITING:
            waiting.pop(0).result()
        waiting.append(self._threads[batch.lane].submit(self._write, batch, compute))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                for waiting in self._waiting:
                    for each in waiting:
                        each.result()
        finally:
            for thread in self._threads:
                thread.shutdown(cancel_futures=True)
            for rows in self._open.values():
                rows.abandon()

    def _write(self, batch: Batch, compute: Callable[[], Rows]) -> None:
        if batch.places.start == batch.shard.first:
            self._open[batch.lane] = self._writer.start(batch.shard)
        shard, rows = self._open[batch.lane], compute()
        for index, reason in rows.broken.items():
            shard.report(index, reason)
        shard.add(rows.indices, rows.features)
        if batch.places.stop == batch.shard.stop:
            shard.finish()
            del self._open[batch.lane]
