"""Writing a segment: rows as they come into codes, a graph or lists; and what is trained before."""

from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .codes import CODES, Codes, Rows, RowsWriter, empty_like, empty_rows
from .engine import ENGINES, LEAST, Engine, IvfPq, choose_engine, empty_graph, empty_lists, empty_lists_like, write_engine
from .layout import facts_of, name_of
from .segment import Segment, write_items


class Trained(NamedTuple):
    """What encodes rows, without any: of codes, None where only PQ's are kept; and of lists, None where there are none."""

    rows: Rows | None
    lists: Any | None


def train(engine: Engine, codes: Codes, sample: NDArray[np.float32], seed: int) -> Trained:
    """Learn from a sample (m, d) what codes and lists are to be like."""
    if engine == "ivf-pq":
        _require_enough(len(sample))
    rows = None if codes == "pq" else empty_rows(codes, sample.shape[1], sample)
    return Trained(rows, empty_lists(sample, seed) if engine == "ivf-pq" else None)


def trained_as(segments: list[Segment]) -> Trained:
    """What the segments of an index were encoded with."""
    rows = next((empty_like(segment.rows) for segment in segments if segment.rows is not None), None)
    engines = (segment.engine for segment in segments)
    return Trained(rows, next((empty_lists_like(each.lists) for each in engines if isinstance(each, IvfPq)), None))


def settle(engine: str, codes: str, count: int, d: int) -> tuple[Engine, Codes, str]:
    """Engine and codes, where one or the other may be "auto", and why the engine is taken."""
    for name, value, known in (("engine", engine, ENGINES), ("codes", codes, CODES)):
        if value not in ("auto", *known):
            raise ValueError(f"An index has no {name} {value!r}.\nWrite auto, {' or '.join(known)}.")
    kept: Any = "float16" if codes == "auto" else codes
    chosen, why = resolve(engine, kept, count, d)
    if kept == "pq" and chosen != "ivf-pq":
        raise ValueError(
            f"PQ codes belong to the engine ivf-pq, but got {chosen}.\n"
            "Write --engine ivf-pq, or --codes 8-bit, which are small too."
        )
    if chosen == "ivf-pq":
        _require_enough(count)
    return chosen, kept, why


def resolve(engine: Any, codes: str, count: int, d: int) -> tuple[Engine, str]:
    """The engine for so many rows, where it may be "auto", and why it is taken."""
    if engine != "auto":
        return engine, "as was asked for"
    return ("ivf-pq", "PQ codes are its own") if codes == "pq" else choose_engine(count, d)


def _require_enough(count: int) -> None:
    if count < LEAST:
        raise ValueError(
            f"ivf-pq is trained on at least {LEAST} images, but there are {count}.\nWrite --engine flat: they are few."
        )


class SegmentWriter:
    """A segment that is being written: :meth:`add` rows, then :meth:`finish`; as a context it leaves nothing if it was not.

    Args:
        folder: of the index.
        generation: what its files are numbered with.
        engine: of the three.
        trained: for it.
    """

    def __init__(self, folder: Path, generation: int, engine: Engine, trained: Trained) -> None:
        self.engine, self.count = engine, 0
        self._files = {"items": name_of("items", generation, ".arrow")}
        self._folder = folder
        self._rows: RowsWriter | None = None
        self._index: Any = None
        if trained.rows is not None:
            self._files["rows"] = name_of("rows", generation, ".faiss")
            self._rows = RowsWriter(folder / self._files["rows"], trained.rows)
        if engine == "hnsw":
            self._files["graph"] = name_of("graph", generation, ".faiss")
            self._index = empty_graph(trained.rows)
        elif engine == "ivf-pq":
            self._files["lists"] = name_of("lists", generation, ".faiss")
            self._index = trained.lists

    def add(self, block: NDArray[np.float32], codes: NDArray[np.uint8] | None = None) -> None:
        """Add rows (m, d) of length 1; ``codes`` are what they are encoded to, if that is known."""
        self.count += len(block)
        if self._index is not None:
            self._index.add(block)
        if self._rows is not None and codes is not None:
            self._rows.add_codes(codes)
        elif self._rows is not None:
            self._rows.add(block)

    def take(self, lists: Any) -> None:
        """Take lists that are filled already."""
        self._index, self.count = lists, lists.ntotal

    def finish(self, items: pa.Table) -> tuple[dict[str, Any], dict[str, Any]]:
        """Give the files their names.

        Returns:
            What the manifest says of the segment, and of each of its files.
        """
        if self._rows is not None:
            self._rows.commit()
        if self._index is not None:
            write_engine(self._index, self._folder / self._files["graph" if self.engine == "hnsw" else "lists"])
        write_items(self._folder / self._files["items"], items)
        facts = {"engine": self.engine, "count": self.count, "files": self._files}
        return facts, {name: facts_of(self._folder / name) for name in self._files.values()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._rows is not None:
            self._rows.abandon()
