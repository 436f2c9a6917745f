"""Shards written by threads: the same bytes as without, and failures that come to light."""

import threading
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from compact_bilinear.features import FeatureWriter
from compact_bilinear.features.background import WAITING, BackgroundWriter, Batch, Rows, batches
from compact_bilinear.features.layout import MANIFEST, cut
from stores import BROKEN, POOLINGS, begin, contents, fill, values


def rows_of(batch: Batch) -> Rows:
    good = [place for place in batch.places if place not in BROKEN]
    features = {name: np.stack([values(place)[name] for place in good]) for name in POOLINGS} if good else {}
    return Rows(good, features, {place: BROKEN[place] for place in batch.places if place in BROKEN})


def write_all(writer: FeatureWriter, lanes: int, size: int = 2) -> None:
    with BackgroundWriter(writer, lanes) as writing:
        for batch in batches(writer.missing(), size, lanes):
            writing.write(batch, lambda batch=batch: rows_of(batch))


@pytest.mark.parametrize("lanes", [1, 2, 3, 9])
def test_threads_change_nothing(tmp_path: Path, lanes: int) -> None:
    fill(begin(tmp_path / "plain"))
    writer = begin(tmp_path / "threads")
    write_all(writer, lanes)
    writer.complete({"fitted": {"full-bilinear": "cd" * 32}})
    assert contents(tmp_path / "threads") == contents(tmp_path / "plain")


@pytest.mark.parametrize("lanes", [1, 2, 3, 5, 7])
@pytest.mark.parametrize(("count", "shard", "size"), [(23, 5, 2), (20, 5, 5), (3, 5, 2), (23, 5, 100), (7, 1, 3)])
def test_batches_hold_every_item_once_and_stay_in_their_shards(lanes: int, count: int, shard: int, size: int) -> None:
    shards = cut(count, shard)
    made = list(batches(shards, size, lanes))
    assert sorted(place for batch in made for place in batch.places) == list(range(count))
    for each in shards:
        own = [batch for batch in made if batch.shard == each]
        assert [place for batch in own for place in batch.places] == list(range(each.first, each.stop))
        assert len({batch.lane for batch in own}) == 1
        assert all(0 < len(batch.places) <= size for batch in own)
    open_shards: set[int] = set()
    for batch in made:
        open_shards.add(batch.shard.number)
        assert len(open_shards) <= lanes
        if batch.places.stop == batch.shard.stop:
            open_shards.remove(batch.shard.number)


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("place", [0, 6, 22])
def test_what_fails_while_rows_are_computed_comes_to_light(tmp_path: Path, lanes: int, place: int) -> None:
    writer = begin(tmp_path)

    def compute(batch: Batch) -> Rows:
        if place in batch.places:
            raise RuntimeError("no rows today")
        return rows_of(batch)

    def run() -> None:
        with BackgroundWriter(writer, lanes) as writing:
            for batch in batches(writer.missing(), 2, lanes):
                writing.write(batch, lambda batch=batch: compute(batch))

    with pytest.raises(RuntimeError, match="no rows today"):
        run()
    assert not list(tmp_path.glob(".*"))
    write_all(begin(tmp_path), lanes)


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_full_disk_is_said_once_and_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(OSError, match=r"could not be written .*: No space left on device.\n"):
        write_all(begin(tmp_path), lanes)
    assert list(contents(tmp_path)) == [MANIFEST]


def test_an_interruption_abandons_what_was_begun(tmp_path: Path) -> None:
    writer = begin(tmp_path)

    def run() -> None:
        with BackgroundWriter(writer, 2) as writing:
            for batch in batches(writer.missing(), 2, 2):
                writing.write(batch, lambda batch=batch: rows_of(batch))
                if batch.places.start == 2:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert list(contents(tmp_path)) == [MANIFEST]


def test_few_batches_wait(tmp_path: Path) -> None:
    writer, handed, go = begin(tmp_path), [], threading.Event()

    def compute(batch: Batch) -> Rows:
        go.wait()
        return rows_of(batch)

    def hand_over() -> None:
        with BackgroundWriter(writer, 1) as writing:
            for batch in batches(writer.missing(), 1, 1):
                writing.write(batch, lambda batch=batch: compute(batch))
                handed.append(batch)

    thread = threading.Thread(target=hand_over)
    thread.start()
    thread.join(0.3)
    assert len(handed) == WAITING + 1, "more would be in memory at once"
    go.set()
    thread.join()
    assert len(handed) == 23
