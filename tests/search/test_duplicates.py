"""Groups of near-duplicates are the connected components of all pairs above a threshold."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

import clustered
from compact_bilinear.search import IndexWriter, duplicates


def groups_of(x: np.ndarray, threshold: float) -> list[list[int]]:
    same = clustered.unit(x) @ clustered.unit(x).T >= threshold
    _, component = connected_components(same, directed=False)
    members = [np.flatnonzero(component == number).tolist() for number in range(component.max() + 1)]
    return sorted(each for each in members if len(each) > 1)


@pytest.mark.parametrize(
    ("count", "tile", "held"), [(40, 1024, 2**26), (67, 16, 1), (67, 16, 33 * 16 * 2), (64, 8, 33 * 8 * 3)]
)
@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.85])
def test_all_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, tile: int, held: int, threshold: float) -> None:
    monkeypatch.setitem(duplicates.__globals__, "TILE", tile)
    monkeypatch.setitem(duplicates.__globals__, "HELD", held)
    x = clustered.rows(count, 33, classes=19, noise=0.6)
    writer = IndexWriter(tmp_path / "index")
    index = writer.make(clustered.store(tmp_path / "features", x), "tensor-sketch:33", codes="float32").index
    found = duplicates(index, threshold)
    expected = groups_of(x, threshold)
    assert [group.numbers.tolist() for group in found] == expected
    assert len(expected) > 1
    similarities = clustered.unit(x) @ clustered.unit(x).T
    np.fill_diagonal(similarities, -1)
    for group in found:
        # sums of 33 products in float32
        assert np.abs(group.similarities - similarities[group.numbers].max(1)).max() < 1e-6


def test_a_chain_is_one_group_and_deleted_images_break_it(tmp_path: Path) -> None:
    angles = np.deg2rad(np.arange(0, 60, 5))
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    paths = [f"{place}.jpg" for place in range(12)]
    writer = IndexWriter(tmp_path / "index")
    index = writer.make(clustered.store(tmp_path / "features", x, paths=paths), "tensor-sketch:2", codes="float32").index
    threshold = float(np.cos(np.deg2rad(6)))
    assert [group.numbers.tolist() for group in duplicates(index, threshold)] == [list(range(12))]
    index = writer.delete(["4.jpg"]).index
    assert [group.numbers.tolist() for group in duplicates(index, threshold)] == [[0, 1, 2, 3], [5, 6, 7, 8, 9, 10, 11]]
    assert duplicates(index, 0.9999) == []


@pytest.mark.parametrize(("engine", "codes"), [("hnsw", "float16"), ("ivf-pq", "8-bit")])
def test_other_engines_find_planted_twins(tmp_path: Path, engine: str, codes: str) -> None:
    x = clustered.rows(900, 40, classes=900)
    x[100:900:100] = x[7:15] + np.float32(0.01)
    x[300:350] = x[300]  # more than are looked at of each
    index = IndexWriter(tmp_path / "index").make(
        clustered.store(tmp_path / "features", x), "tensor-sketch:40", engine=engine, codes=codes
    ).index  # fmt: skip
    found = [set(group.numbers.tolist()) for group in duplicates(index)]
    assert set(range(300, 350)) in [group - {9} for group in found]
    assert sum({place, 100 * (place - 6)} <= group for group in found for place in range(7, 15)) >= 7


def test_thresholds_that_make_no_sense(tmp_path: Path) -> None:
    index = (
        IndexWriter(tmp_path / "index")
        .make(clustered.store(tmp_path / "features", clustered.rows(9, 33)), "tensor-sketch:33")
        .index
    )
    for threshold in (1.0, 95, -1, float("nan")):
        with pytest.raises(ValueError, match=r"between -1 and 1, but got .*\.\nWrite --threshold 0\.95"):
            duplicates(index, threshold)


@pytest.mark.parametrize("codes", ["float16", "8-bit"])
def test_nothing_is_more_similar_than_the_same(tmp_path: Path, codes: str) -> None:
    x = np.repeat(clustered.rows(40, 33, classes=40), 2, axis=0)
    index = (
        IndexWriter(tmp_path / "index").make(clustered.store(tmp_path / "features", x), "tensor-sketch:33", codes=codes).index
    )
    assert max((index.features(index.numbers) ** 2).sum(1)) > 1, "rounded rows are longer, or this would show nothing"
    found = duplicates(index, 0.98)
    assert len(found) == 40
    assert all(group.similarities.max() <= 1 for group in found)
