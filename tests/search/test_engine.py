"""Which engine when, and that each finds what is there."""

from pathlib import Path

import faiss
import numpy as np
import pytest

import clustered
from compact_bilinear.search import engine
from compact_bilinear.search.codes import RowsWriter, empty_rows, open_rows
from compact_bilinear.search.engine import Flat, Hnsw, IvfPq, choose_engine, empty_graph, empty_lists, empty_lists_like


@pytest.fixture
def x() -> np.ndarray:
    return clustered.unit(clustered.rows(700, 40, classes=31)).astype(np.float32)


def graph_over(x: np.ndarray, folder: Path, kind: str) -> Hnsw:
    empty = empty_rows(kind, x.shape[1], x)  # type: ignore[arg-type]
    writer, graph = RowsWriter(folder / "rows", empty), empty_graph(empty)
    for start in range(0, len(x), 300):
        writer.add(x[start : start + 300])
        graph.add(x[start : start + 300])
    writer.commit()
    engine.write_engine(graph, folder / "graph")
    return Hnsw(open_rows(folder / "rows", len(x)), folder / "graph")


@pytest.mark.parametrize(
    ("count", "d", "chosen"),
    [
        (1, 32, "flat"),
        (2**23, 32, "flat"),
        (2**23 + 1, 32, "hnsw"),
        (2**14, 16384, "flat"),
        (2**14 + 1, 16384, "hnsw"),
        (2**18, 16384, "hnsw"),
        (2**18 + 1, 16384, "ivf-pq"),
    ],
)
def test_the_rule(count: int, d: int, chosen: str) -> None:
    name, why = choose_engine(count, d)
    assert name == chosen
    assert why.startswith(f"{count} × {d} numbers are ")


@pytest.mark.parametrize("kind", ["float32", "float16", "8-bit"])
def test_a_graph_finds_what_is_near(tmp_path: Path, x: np.ndarray, kind: str) -> None:
    hnsw = graph_over(x, tmp_path, kind)
    exact = Flat(hnsw.rows).candidates(x[:50], 10, 0, None)
    found = hnsw.candidates(x[:50], 10, 64, None)
    shares = [len(set(a) & set(b)) / 10 for a, b in zip(exact.positions, found.positions, strict=True)]
    assert np.mean(shares) > 0.97
    # the graph's file holds the graph alone, at least 32 links of 4 bytes a row, and not the rows again
    assert 128 * len(x) < (tmp_path / "graph").stat().st_size < 200 * len(x)


def test_more_effort_finds_more(tmp_path: Path) -> None:
    x = clustered.unit(np.random.default_rng(0).standard_normal((3060, 40))).astype(np.float32)  # no clusters: hard
    hnsw, queries = graph_over(x[60:], tmp_path, "float32"), x[:60]
    exact = Flat(hnsw.rows).candidates(queries, 10, 0, None).positions

    def recall(effort: int) -> float:
        found = hnsw.candidates(queries, 10, effort, None).positions
        return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact, found, strict=True)]))

    assert recall(10) < recall(40) < recall(400)
    assert recall(400) > 0.98


def test_lists_find_what_is_near(tmp_path: Path, x: np.ndarray) -> None:
    lists = empty_lists(x, seed=3)
    assert (lists.nlist, lists.pq.M, lists.code_size) == (10, 5, 5)
    for start in range(0, 700, 300):
        lists.add(x[start : start + 300])
    engine.write_engine(lists, tmp_path / "lists")
    opened = IvfPq(tmp_path / "lists", 700)
    found = opened.candidates(x[:50], 30, 10, None).positions
    exact = np.argsort(-(x[:50] @ x.T), axis=1, kind="stable")[:, :3]
    assert np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)]) > 0.9
    own = np.einsum("md,md->m", opened.decode(np.arange(50)), x[:50])
    assert own.mean() > 0.9, "codes are of the rows that were added"


def test_lists_trained_alike(x: np.ndarray) -> None:
    lists = empty_lists(x, seed=3)
    lists.add(x)
    empty = empty_lists_like(lists)
    assert (empty.ntotal, lists.ntotal) == (0, 700)
    empty.add(x)
    for one, other in zip(empty.search(x[:9], 5), lists.search(x[:9], 5), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(("d", "size"), [(32, 4), (33, 3), (7, 1), (37, 1), (512, 64), (30, 3)])
def test_eight_numbers_or_a_few_more_become_a_byte(d: int, size: int) -> None:
    x = clustered.unit(clustered.rows(300, d)).astype(np.float32)
    lists = empty_lists(x, 0)
    assert (lists.d, lists.pq.M) == (d, size)


def test_seeds(x: np.ndarray) -> None:
    one, again, other = ([faiss.serialize_index(empty_lists(x, seed))] for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_deleted_rows_are_not_found(tmp_path: Path, x: np.ndarray) -> None:
    alive = np.arange(700) % 3 > 0
    selector = faiss.IDSelectorBitmap(np.packbits(alive, bitorder="little"))
    hnsw = graph_over(x, tmp_path, "float16")
    lists = empty_lists(x, 0)
    lists.add(x)
    engine.write_engine(lists, tmp_path / "lists")
    for each in (Flat(hnsw.rows), hnsw, IvfPq(tmp_path / "lists", 700)):
        found = each.candidates(x[:20], 10, 64, selector).positions
        assert alive[found[found >= 0]].all()
        assert (found >= 0).mean() > 0.99


def test_a_foreign_file_is_refused(tmp_path: Path, x: np.ndarray) -> None:
    hnsw = graph_over(x, tmp_path, "float16")
    with pytest.raises(ValueError, match="rows is damaged: it is no graph over these rows"):
        Hnsw(hnsw.rows, tmp_path / "rows")
    with pytest.raises(ValueError, match="graph is damaged: it has no lists of 700 rows"):
        IvfPq(tmp_path / "graph", 700)
    (tmp_path / "graph").write_bytes((tmp_path / "graph").read_bytes()[:-5])
    with pytest.raises(ValueError, match="graph is damaged"):
        Hnsw(hnsw.rows, tmp_path / "graph")
