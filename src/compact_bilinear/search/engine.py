"""How neighbours are found: by looking at every row, by following HNSW's graph, or among IVF-PQ's lists; and which when.

====== ================================================= ================================
flat   every row is looked at                            exact
hnsw   a graph from neighbour to neighbour is followed   rows stay, the graph is made once
ivf-pq the nearest of many lists are looked at, in which trained on a sample; a sixteenth of
       eight numbers are one byte                        float16, and rows only to rank again
====== ================================================= ================================
"""

from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple, get_args

import faiss
import numpy as np
from numpy.typing import NDArray

from ..whole_file import WholeFile, undamaged
from .codes import Rows

Engine = Literal["flat", "hnsw", "ivf-pq"]
ENGINES: tuple[Engine, ...] = get_args(Engine)

# Numbers (rows × d) up to which every row is looked at: half a gigabyte in float16, some tens of milliseconds a query.
FLAT = 2**28
# Numbers up to which a graph is made: 8 GB in float16, which are in memory until it is.
GRAPH = 2**32

LINKS = 16  # M of HNSW: neighbours a row has in the graph, and twice as many in its lowest layer
CARE = 64  # efConstruction: rows that are looked at to find them
SAMPLE = 2**26  # numbers of the rows that IVF-PQ and 8-bit codes are trained on, 256 MB
TRAINED_ON = 65536  # rows of that sample at most,
LEAST = 256  # and at least: a byte tells as many centroids apart
EFFORT: dict[Engine, int] = {"flat": 0, "hnsw": 64, "ivf-pq": 16}  # rows HNSW keeps in sight; lists IVF-PQ looks into


class Candidates(NamedTuple):
    """For each query what was found, best first; position -1 where there is nothing more."""

    similarities: NDArray[np.float32]  # (b, k)
    positions: NDArray[np.int64]  # (b, k)


def choose_engine(count: int, d: int) -> tuple[Engine, str]:
    """The engine for so many rows, and why: the one place where this is decided.

    >>> choose_engine(5_000, 8192)[0], choose_engine(100_000, 8192)[0], choose_engine(10_000_000, 8192)[0]
    ('flat', 'hnsw', 'ivf-pq')
    """
    numbers = f"{count} × {d} numbers are"
    if count * d <= FLAT:
        return "flat", f"{numbers} few enough to look at all of them (up to {FLAT:,})"
    if count * d <= GRAPH:
        return (
            "hnsw",
            f"{numbers} too many to look at all of them, and few enough to hold while a graph is made (up to {GRAPH:,})",
        )
    return "ivf-pq", f"{numbers} too many to hold while a graph is made (up to {GRAPH:,})"


def sample_size(d: int) -> int:
    """Rows to train on."""
    return max(LEAST * 8, min(TRAINED_ON, SAMPLE // d))


class Flat:
    """Every row.

    Args:
        rows: mapped.
    """

    exact = True

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def candidates(self, queries: NDArray[np.float32], k: int, effort: int, alive: Any) -> Candidates:
        """The k best rows of each query, ``alive`` being None or FAISS's selector of those that count."""
        return Candidates(*self.rows.search(queries, k, params=faiss.SearchParameters(sel=alive) if alive else None))


class Hnsw:
    """A graph over rows.

    Args:
        rows: mapped.
        file: the graph.
    """

    exact = False

    def __init__(self, rows: Rows, file: Path) -> None:
        with undamaged(file):
            self.graph = faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC)
            if not isinstance(self.graph, faiss.IndexHNSW) or (self.graph.ntotal, self.graph.d) != (rows.ntotal, rows.d):
                raise ValueError("it is no graph over these rows")
        self.rows = rows  # the graph only borrows them
        self.graph.storage, self.graph.own_fields = rows, False

    def candidates(self, queries: NDArray[np.float32], k: int, effort: int, alive: Any) -> Candidates:
        """See :meth:`Flat.candidates`; ``effort`` is efSearch."""
        settings = faiss.SearchParametersHNSW(sel=alive, efSearch=max(effort, k))
        return Candidates(*self.graph.search(queries, k, params=settings))


def empty_graph(rows: Rows) -> Any:
    """An HNSW index without rows, that encodes those it is given as ``rows`` does."""
    if isinstance(rows, faiss.IndexFlat):
        graph = faiss.IndexHNSWFlat(rows.d, LINKS, faiss.METRIC_INNER_PRODUCT)
    else:
        graph = faiss.IndexHNSWSQ(rows.d, rows.sq.qtype, LINKS, faiss.METRIC_INNER_PRODUCT)
        storage = faiss.downcast_index(graph.storage)
        storage.sq, storage.is_trained, graph.is_trained = rows.sq, True, True
    graph.hnsw.efConstruction = CARE
    return graph


class IvfPq:
    """Lists of PQ codes, mapped.

    Args:
        file: the lists.
        count: of the rows that are in them.
    """

    exact = False

    def __init__(self, file: Path, count: int) -> None:
        with undamaged(file):
            self.lists = faiss.read_index(str(file), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
            if not isinstance(self.lists, faiss.IndexIVFPQ) or self.lists.ntotal != count:
                raise ValueError(f"it has no lists of {count} rows")
        self._placing, self._placed = Lock(), False

    def candidates(self, queries: NDArray[np.float32], k: int, effort: int, alive: Any) -> Candidates:
        """See :meth:`Flat.candidates`; ``effort`` is how many lists are looked into."""
        settings = faiss.SearchParametersIVF(sel=alive, nprobe=min(effort, self.lists.nlist))
        return Candidates(*self.lists.search(queries, k, params=settings))

    def decode(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows as their codes have them."""
        with self._placing:
            if not self._placed:  # where each row is; reads all the lists, which a search does not
                self.lists.make_direct_map(True)
                self._placed = True
        decoded: NDArray[np.float32] = self.lists.reconstruct_batch(np.ascontiguousarray(positions, np.int64))
        return decoded


def empty_lists(sample: NDArray[np.float32], seed: int) -> Any:
    """An IVF-PQ index without rows, trained on some.

    Args:
        sample: (m, d), m ≥ 256; there are m/64 lists.
        seed: what k-means begins with.
    """
    m, d = sample.shape
    together = next(size for size in range(min(8, d), d + 1) if d % size == 0)  # numbers that become a byte
    lists = _lists(faiss.IndexFlatIP(d), max(1, m // 64), d // together)
    for clustering in (lists.cp, lists.pq.cp):
        clustering.seed, clustering.min_points_per_centroid = seed, 1  # or FAISS would warn, of what is chosen here
    lists.train(sample)
    return lists


def empty_lists_like(lists: Any) -> Any:
    """An IVF-PQ index without rows that is trained as another one is."""
    empty = _lists(faiss.clone_index(lists.quantizer), lists.nlist, lists.pq.M)
    empty.pq, empty.is_trained = lists.pq, True
    return empty


def _lists(coarse: Any, count: int, size: int) -> Any:
    return faiss.IndexIVFPQ(coarse, coarse.d, count, size, 8, faiss.METRIC_INNER_PRODUCT)


def write_engine(index: Any, file: Path) -> None:
    """Write a graph without the rows under it, or lists."""
    with WholeFile(file) as part:
        faiss.write_index(index, str(part), faiss.IO_FLAG_SKIP_STORAGE)
