"""One segment of many: engines that fit what there is now, and codes that are what they were."""

from pathlib import Path

import numpy as np
import pytest

import clustered
from compact_bilinear.search import Index, IndexWriter
from compact_bilinear.search.compaction import merged

D = 33


def test_growing_changes_the_engine_when_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compact_bilinear.search.engine.FLAT", 400 * D)
    monkeypatch.setattr("compact_bilinear.search.writer.FLAT", 400 * D)
    monkeypatch.setattr("compact_bilinear.search.engine.GRAPH", 900 * D)
    x = clustered.rows(1200, D, classes=31)
    writer = IndexWriter(tmp_path / "index")
    engines = []
    for n in range(3):
        paths = [f"{n}/{each}.jpg" for each in range(400)]
        store = clustered.store(tmp_path / f"{n}", x[400 * n : 400 * n + 400], paths=paths)
        writer.add(store) if n else writer.make(store, f"tensor-sketch:{D}")
        engines.append(writer.compact().index.segments[0].facts["engine"])
    assert engines == ["flat", "hnsw", "ivf-pq"]
    found = Index(tmp_path / "index").search(x[:5], 1)
    assert [int(each.numbers[0]) for each in found] == list(range(5))


@pytest.mark.parametrize("codes", ["float32", "float16", "8-bit"])
def test_codes_are_what_they_were_however_often(tmp_path: Path, codes: str) -> None:
    x = clustered.rows(60, D)
    paths = [f"{number}.jpg" for number in range(60)]
    writer = IndexWriter(tmp_path / "index")
    writer.make(clustered.store(tmp_path / "first", x[:40], paths=paths[:40]), f"tensor-sketch:{D}", codes=codes)
    index = writer.add(clustered.store(tmp_path / "second", x[40:] * 3, paths=paths[40:])).index
    before = index.features(index.numbers)
    for _ in range(3):
        index = writer.compact().index
        assert np.array_equal(index.features(index.numbers), before)


def test_merged_lists_are_those_of_the_rest(tmp_path: Path) -> None:
    x = clustered.rows(700, D)
    paths = [f"{number}.jpg" for number in range(700)]
    writer = IndexWriter(tmp_path / "index")
    first = clustered.store(tmp_path / "first", x[:400], paths=paths[:400])
    writer.make(first, f"tensor-sketch:{D}", engine="ivf-pq", codes="pq")
    writer.add(clustered.store(tmp_path / "second", x[400:], paths=paths[400:]))
    index = writer.delete([*paths[::3], *paths[:20]]).index
    numbers = index.numbers
    lists = merged(index.segments)
    assert lists.ntotal == len(numbers)
    lists.make_direct_map(True)
    assert np.array_equal(lists.reconstruct_batch(np.arange(len(numbers))), index.features(numbers))
    assert len(Index(tmp_path / "index")) == len(numbers)


@pytest.mark.parametrize("codes", ["pq", "8-bit"])
def test_lists_of_few_rows_stay_what_they_are(tmp_path: Path, codes: str) -> None:
    x = clustered.rows(310, D)
    paths = [f"{number}.jpg" for number in range(310)]
    writer = IndexWriter(tmp_path / "index")
    store = clustered.store(tmp_path / "first", x[:300], paths=paths[:300])
    writer.make(store, f"tensor-sketch:{D}", engine="ivf-pq", codes=codes)
    writer.add(clustered.store(tmp_path / "second", x[300:], paths=paths[300:]))
    before = writer.delete(paths[:200]).index
    index = writer.compact().index
    assert index.segments[0].facts["engine"] == "ivf-pq"
    assert np.array_equal(index.features(index.numbers), before.features(before.numbers))
    near = index.search(x[300:], 5, effort=100)
    assert np.mean([(each.numbers + 200) % 7 == place % 7 for place, each in enumerate(near, start=300)]) > 0.9
