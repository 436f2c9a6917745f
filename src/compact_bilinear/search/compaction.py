"""Making one segment of many: what was not deleted, with the codes that it has."""

from collections.abc import Iterator, Sequence
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..progress import counting_bar
from .codes import BLOCK, codes_of
from .engine import LEAST, Engine, IvfPq, empty_lists_like, sample_size
from .index import Index
from .segment import Segment
from .segment_writer import SegmentWriter, Trained, train, trained_as


def retrained(index: Index, engine: Engine) -> Trained:
    """Lists for as many rows as there are now. Codes stay what they are; so do lists of codes alone, and those of few rows."""
    kept = trained_as(index.segments)
    if kept.rows is None:
        return kept
    if engine != "ivf-pq":
        return Trained(kept.rows, None)
    numbers, size, seed = index.numbers, sample_size(index.d), index.manifest["seed"]
    if len(numbers) < LEAST:
        return kept
    if len(numbers) > size:
        numbers = numbers[np.sort(np.random.default_rng(seed).choice(len(numbers), size, replace=False))]
    return Trained(kept.rows, train(engine, "pq", index.features(numbers), seed).lists)


def fill(writer: SegmentWriter, index: Index) -> None:
    """Write the rows that are left of an index."""
    if all(segment.rows is None for segment in index.segments):
        writer.take(merged(index.segments))
        return
    with counting_bar("compact", "images", 0, len(index)) as advance:
        for segment, positions in _left(index):
            writer.add(segment.decode(positions), codes_of(segment.rows)[positions])
            advance(len(positions))


def items_left(index: Index) -> pa.Table:
    """The items that are left."""
    return pa.concat_tables([segment.items.filter(pa.array(~segment.dead)) for segment in index.segments]).combine_chunks()


def merged(segments: Sequence[Segment]) -> Any:
    """The lists of segments with the same training as one, without what was deleted, codes as they are."""
    whole: Any = None
    before = 0
    for segment in segments:
        assert isinstance(segment.engine, IvfPq)
        lists = segment.engine.lists
        whole = whole or empty_lists_like(lists)
        now = before + np.cumsum(~segment.dead) - 1  # the position of each row that stays
        for number in range(lists.nlist):
            size = lists.invlists.list_size(number)
            if not size:
                continue
            ids = faiss.rev_swig_ptr(lists.invlists.get_ids(number), size)
            codes = faiss.rev_swig_ptr(lists.invlists.get_codes(number), size * lists.code_size).reshape(size, -1)
            stay = ~segment.dead[ids]
            if stay.any():
                ids, codes = now[ids[stay]].astype(np.int64), np.ascontiguousarray(codes[stay])
                whole.invlists.add_entries(number, len(ids), faiss.swig_ptr(ids), faiss.swig_ptr(codes))
        before += int((~segment.dead).sum())
    whole.ntotal = before
    return whole


def _left(index: Index) -> Iterator[tuple[Segment, NDArray[np.int64]]]:
    """Positions that were not deleted, some at a time."""
    size = max(1, BLOCK // index.d)
    for segment in index.segments:
        positions = np.flatnonzero(~segment.dead)
        for start in range(0, len(positions), size):
            yield segment, positions[start : start + size]
