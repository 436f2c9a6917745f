"""A segment: what one command put into an index, rows and all; an index is a few of them, one behind the other."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..whole_file import WholeFile, undamaged
from .codes import BLOCK, decode, open_rows
from .engine import EFFORT, Flat, Hnsw, IvfPq

# Candidates beyond those asked for: rows that are as similar to six digits are told apart by their place, and not by chance.
MARGIN = 16
MOST = 1024  # where still more rows are as similar as the last, an engine's own order decides
AGAIN = 10  # candidates of PQ codes, for each that is asked for, that are ranked again by their rows,
LEAST = 100  # and at least so many
COLUMNS = ["path", "label", "split", "place"]
DIGITS = 6  # of a similarity: what float32 has, whatever the order of the sum was


class Near(NamedTuple):
    """The nearest rows of one query, best first, and where as good, in their order."""

    similarities: NDArray[np.float64]  # (k,)
    positions: NDArray[np.int64]  # (k,)


class Segment:
    """Rows, items, and an engine, opened by memory map.

    Args:
        folder: of the index.
        facts: what its manifest says of the segment.
        first: how many items are in the segments before.
        dead: for each item whether it was deleted.

    Attributes:
        decode: positions to rows as they are kept, (k,) to (k, d).
    """

    def __init__(self, folder: Path, facts: dict[str, Any], first: int, dead: NDArray[np.bool_]) -> None:
        files = facts["files"]
        self.facts, self.first, self.dead = facts, first, dead
        self.count: int = facts["count"]
        self.rows = open_rows(folder / files["rows"], self.count) if "rows" in files else None
        self.engine: Flat | Hnsw | IvfPq
        if facts["engine"] == "ivf-pq":
            lists = self.engine = IvfPq(folder / files["lists"], self.count)
        elif facts["engine"] == "hnsw":
            self.engine = Hnsw(self.rows, folder / files["graph"])
        else:
            self.engine = Flat(self.rows)
        self.decode: Callable[[NDArray[np.int64]], NDArray[np.float32]] = (
            lists.decode if self.rows is None else partial(decode, self.rows)
        )
        self.items = read_items(folder / files["items"], self.count)
        self._alive = faiss.IDSelectorBitmap(np.packbits(~dead, bitorder="little")) if dead.any() else None

    def search(self, queries: NDArray[np.float32], top: int, effort: int | None) -> Iterator[Near]:
        """The nearest rows of each query that were not deleted."""
        effort = EFFORT[self.facts["engine"]] if effort is None else effort
        if self.rows is None:
            found = self.engine.candidates(queries, min(top + MARGIN, self.count), effort, self._alive)
            for similarities, positions in zip(*found, strict=True):
                yield _best(similarities.astype(np.float64), positions, top)
            return
        more = max(LEAST, AGAIN * top) if isinstance(self.engine, IvfPq) else top + MARGIN
        found = self.engine.candidates(queries, min(more, self.count), effort, self._alive)
        for query, similarities, positions in zip(queries, *found, strict=True):
            found_too = self._with_all_as_good(query, similarities, positions, top) if self.engine.exact else positions
            there = found_too[found_too >= 0]
            yield _best(self._similarities(query, there), there, top)

    def find(self, path: str) -> int | None:
        """The position of an item that was not deleted."""
        positions = np.flatnonzero(pc.equal(self.items["path"], path).to_numpy())
        return next((int(position) for position in positions if not self.dead[position]), None)

    def _with_all_as_good(
        self, query: NDArray[np.float32], similarities: NDArray[np.float32], positions: NDArray[np.int64], top: int
    ) -> NDArray[np.int64]:
        """The positions found, or more of them, until those that are left out are worse than the last that is asked for."""
        most = min(self.count, top + MOST)
        while len(positions) < most and positions[-1] >= 0 and similarities[-1] > similarities[top - 1] - 2 * 10**-DIGITS:
            k = min(most, 4 * len(positions))
            similarities, positions = (each[0] for each in self.engine.candidates(query[None], k, 0, self._alive))
        return positions

    def _similarities(self, query: NDArray[np.float32], positions: NDArray[np.int64]) -> NDArray[np.float64]:
        # in float64, so that equal rows are equally similar wherever they lie
        wide, size = query.astype(np.float64), max(1, BLOCK // len(query))
        parts = [self.decode(positions[start : start + size]) @ wide for start in range(0, len(positions), size)]
        return np.concatenate(parts) if parts else np.empty(0)


def _best(similarities: NDArray[np.float64], positions: NDArray[np.int64], top: int) -> Near:
    there = positions >= 0
    similarities, positions = similarities[there].round(DIGITS), positions[there]
    order = np.lexsort((positions, -similarities))[:top]
    return Near(similarities[order], positions[order])


def items_table(paths: Sequence[str], labels: NDArray[np.integer], splits: Sequence[str], place: int) -> pa.Table:
    """Items as they are written: the name of each image, its class, its split, and in which of the folders it lies, or -1."""
    columns = [pa.array(paths, pa.large_string()), pa.array(labels, pa.int32()), pa.array(splits, pa.string())]
    return pa.table([*columns, pa.array(np.full(len(paths), place), pa.int32())], names=COLUMNS)


def write_items(file: Path, items: pa.Table) -> None:
    """Write them as Arrow, which needs no decoding to be looked at."""
    with WholeFile(file) as part, pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, items.schema) as writer:
        writer.write_table(items)


def read_items(file: Path, count: int) -> pa.Table:
    """Items, mapped into memory."""
    with undamaged(file):
        with pa.memory_map(str(file)) as mapped:
            items = pa.ipc.open_file(mapped).read_all()
        if items.num_rows != count or items.column_names != COLUMNS:
            raise ValueError(f"it has {items.num_rows} items where {count} should be")
    return items
