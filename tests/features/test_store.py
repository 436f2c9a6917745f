"""What was written is what is read, by our reader and by those of others; and what is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import torch

from compact_bilinear.features import MANIFEST, FeatureStore, writer
from stores import BROKEN, COUNT, POOLINGS, begin, contents, fill, items, values

GOOD = [index for index in range(COUNT) if index not in BROKEN]


@pytest.fixture(params=["float32", "float16"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    fill(begin(tmp_path / "store", dtype=request.param))
    return tmp_path / "store"


def test_round_trip(folder: Path) -> None:
    store, images = FeatureStore(folder), items()
    assert store.poolings == {"tensor-sketch:7": 7, "full-bilinear": 9}
    assert store.classes == images.classes
    assert len(store) == len(GOOD)
    assert store.indices.tolist() == GOOD
    assert store.labels.tolist() == [images.labels[index] for index in GOOD]
    assert store.paths == [images.paths[index] for index in GOOD]
    assert store.splits.tolist() == [images.splits[index] for index in GOOD]
    for name in POOLINGS:
        features = store.read(name)
        assert features.dtype == store.dtype
        assert np.array_equal(features, np.stack([values(index, store.dtype)[name] for index in GOOD]))
        assert torch.equal(store.tensor(name), torch.from_numpy(features))


def test_one_split(folder: Path) -> None:
    store = FeatureStore(folder)
    for split in ("train", "test", ""):
        rows = store.rows(split)
        assert set(store.splits[rows]) == {split}
        assert np.array_equal(store.read("full-bilinear", split), store.read("full-bilinear")[rows])


@pytest.mark.parametrize("split", [None, "train", "test"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 100])
def test_blocks_are_what_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str, rows: int) -> None:
    monkeypatch.setattr(writer, "GROUP", 2 * 16 * 4)  # row groups of two rows
    fill(begin(tmp_path))
    store = FeatureStore(tmp_path)
    assert pq.read_metadata(tmp_path / "shard-00001-of-00005.parquet").num_row_groups == 3
    blocks = list(store.blocks("tensor-sketch:7", split, rows))
    assert {len(block) for block in blocks[:-1]} <= {rows}
    assert 0 < len(blocks[-1]) <= rows
    assert np.array_equal(np.concatenate(blocks), store.read("tensor-sketch:7", split))
    for block in blocks:
        torch.from_numpy(block).mul_(2)  # would warn if it were not ours to write to


def test_a_block_is_the_memory_that_parquet_was_read_into(folder: Path) -> None:
    _, block, *_ = FeatureStore(folder).blocks("tensor-sketch:7", rows=2)
    base = block
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    assert isinstance(base, (pa.Buffer, memoryview))


def test_broken_items_are_counted_and_named(folder: Path) -> None:
    store = FeatureStore(folder)
    assert store.manifest["broken"] == len(BROKEN)
    assert store.manifest["rows"] + store.manifest["broken"] == COUNT
    reported = store.broken
    assert {each["index"]: each["reason"] for each in reported} == BROKEN
    assert all(each["path"] == items().paths[each["index"]] for each in reported)
    assert str(store).splitlines() == [
        f"{folder}: tensor-sketch:7 (d=7), full-bilinear (d=9) of 15 images of 3 classes, in {store.dtype}",
        "8 broken images have no features, the first is folder/00 é.jpg (empty); _broken-*.jsonl there name them all",
    ]
    assert [name for name in contents(folder) if name.startswith("_broken")] == [
        f"_broken-0000{number}-of-00005.jsonl" for number in (0, 2, 3, 4)
    ]


def test_others_read_the_folder_as_parquet(folder: Path) -> None:
    table = pa.dataset.dataset(folder).to_table()
    assert table.column_names == ["index", "path", "label", "split", "tensor-sketch:7", "full-bilinear"]
    assert table["index"].to_pylist() == GOOD
    store = FeatureStore(folder)
    kind = pa.float16() if store.dtype == "float16" else pa.float32()
    assert table.schema.field("full-bilinear").type == pa.list_(pa.field("element", kind, nullable=False), 9)
    read = np.stack(table["full-bilinear"].to_numpy())
    assert np.array_equal(read, store.read("full-bilinear"))
    assert pq.read_table(folder, columns=["path"])["path"].to_pylist() == store.paths


def test_nothing_in_the_files_tells_when_or_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(begin(tmp_path / "first"))
    monkeypatch.setattr("time.time", lambda: 0.0)
    fill(begin(tmp_path / "elsewhere" / "second"), batch=5)
    assert contents(tmp_path / "first") == contents(tmp_path / "elsewhere" / "second")


def test_rows_have_an_order_and_none_is_lost(tmp_path: Path) -> None:
    writer = begin(tmp_path)
    three = {name: np.zeros((3, each["dim"]), "float32") for name, each in POOLINGS.items()}
    for indices, told in (
        ([1, 2, 3], "but got 1"),
        ([0, 0, 1], "but got 0"),
        ([2, 1, 3], "but got 2"),
        ([5, 6, 7], "but got 5"),
    ):
        rows = writer.start(writer.shards[0])
        with pytest.raises(ValueError, match=told + r"\.\nReport what has no features"):
            rows.add(indices, three)
    rows = writer.start(writer.shards[1])
    rows.add([5, 6, 7], three)
    with pytest.raises(ValueError, match="but got 10"):
        rows.finish()
    assert list(contents(tmp_path)) == [MANIFEST]


def test_complete_means_all_shards(tmp_path: Path) -> None:
    writer = begin(tmp_path)
    with pytest.raises(ValueError, match=r"5 are missing, shard-00000-of-00005.parquet for one"):
        writer.complete()
    with pytest.raises(ValueError, match=r"0 of 5 shards so far.\n.*run the same command again"):
        FeatureStore(tmp_path)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"settings": {"backbone": "vgg16", "batch": 4}}, r"batch: 2 → 4\."),
        ({"settings": {"backbone": "tiny", "batch": 3}}, r'backbone: "vgg16" → "tiny"; batch: 2 → 3\.'),
        ({"settings": {"backbone": "vgg16", "batch": 2, "size": 8}}, r"size: not there → 8\."),
        ({"dtype": "float16"}, r'dtype: "float32" → "float16"\.'),
        ({"versions": {"torch": "2.14"}}, r'versions torch: "2.13" → "2.14"\.'),
        ({"shard_size": 4}, r"shards count: 5 → 6; shards size: 5 → 4\."),
        ({"items": items(22)}, r"items count: 23 → 22; items sha256: [0-9a-f]{12} → [0-9a-f]{12}\."),
        ({"poolings": {"full-bilinear": {"dim": 9}}}, r"pooling tensor-sketch:7: yes → no\."),
        ({"poolings": POOLINGS | {"full-bilinear": {"dim": 8}}}, r"poolings full-bilinear dim: 9 → 8\."),
    ],
)
@pytest.mark.parametrize("complete", [False, True])
def test_a_changed_setting_is_refused_with_the_difference(tmp_path: Path, changed: dict, told: str, complete: bool) -> None:
    fill(begin(tmp_path))
    if not complete:
        (tmp_path / "shard-00003-of-00005.parquet").unlink()
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=rf"made otherwise; changed are {told}") as refused:
        begin(tmp_path, **changed)
    assert "Give another folder for the new settings, or the old settings to go on" in str(refused.value)
    assert contents(tmp_path) == before


def test_another_split_or_class_is_a_change(tmp_path: Path) -> None:
    fill(begin(tmp_path))
    images = items()
    images.splits = ("train",) * COUNT
    with pytest.raises(ValueError, match=r"items sha256"):
        begin(tmp_path, items=images)
    images = items()
    images.classes = ("crow", "wren", "owl", "tit")
    with pytest.raises(ValueError, match=r"classes: 3 names → 4 names"):
        begin(tmp_path, items=images)


def test_settings_may_change_as_long_as_there_are_no_shards(tmp_path: Path) -> None:
    changed = {"settings": {"backbone": "vgg16", "batch": 4}}
    early = begin(tmp_path)
    of_early = [tmp_path / name for name in ("_fitted.safetensors", ".maps", "_broken-00000-of-00005.jsonl")]
    of_early[0].touch()
    of_early[1].mkdir()
    of_early[2].touch()
    begin(tmp_path)
    assert all(each.exists() for each in of_early), "the same settings"
    late = begin(tmp_path, **changed)
    assert list(contents(tmp_path)) == [MANIFEST]
    with pytest.raises(ValueError, match=r"made otherwise; changed are batch: 4 → 2"):
        fill(early)  # it still runs, and must not mix in
    assert list(contents(tmp_path)) == [MANIFEST]
    fill(late)
    assert len(FeatureStore(tmp_path)) == len(GOOD)


def test_others_wait_for_the_manifest_of_the_same_settings(tmp_path: Path) -> None:
    begin(tmp_path)
    said = []

    def wait(until: Callable[[], bool]) -> None:
        said.append(until())
        begin(tmp_path, shard_size=4)
        said.append(until())

    begin(tmp_path, shard_size=4, wait=wait)
    assert said == [False, True]


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    store = begin(tmp_path)
    fill(store)
    (tmp_path / "shard-00001-of-00005.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match=r"shard-00001-of-00005.parquet is damaged: .*\nRemove it, and run the same"):
        store.complete()


def test_the_same_again_changes_nothing(tmp_path: Path) -> None:
    fill(begin(tmp_path))
    before = contents(tmp_path)
    again = begin(tmp_path)
    assert again.missing() == []
    fill(again)
    assert contents(tmp_path) == before


def test_a_shard_that_was_removed_is_written_again(tmp_path: Path) -> None:
    fill(begin(tmp_path))
    before = contents(tmp_path)
    (tmp_path / "shard-00002-of-00005.parquet").unlink()
    with pytest.raises(ValueError, match=r"shard-00002-of-00005.parquet should have \d+ bytes, but has none.\nCopy it anew"):
        FeatureStore(tmp_path)
    again = begin(tmp_path)
    assert [shard.number for shard in again.missing()] == [2]
    fill(again)
    assert contents(tmp_path) == before


def test_what_is_not_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent does not exist.\nCheck its name"):
        FeatureStore(tmp_path / "absent")
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(ValueError, match=rf"has no {MANIFEST}"):
        FeatureStore(tmp_path)
    with pytest.raises(ValueError, match=r"holds photo.jpg.\nGive another folder."):
        begin(tmp_path)
    for text, told in (("{", "JSONDecodeError"), ("[]", "TypeError"), ('{"format": "a"}', "KeyError")):
        (tmp_path / MANIFEST).write_text(text)
        with pytest.raises(ValueError, match=rf"no manifest of a feature store: {told}"):
            FeatureStore(tmp_path)
    (tmp_path / MANIFEST).write_text('{"format": "compact-bilinear features", "format_version": 2}')
    with pytest.raises(ValueError, match=r"format version 1 can be read.* version 2"):
        FeatureStore(tmp_path)


def test_a_truncated_copy_is_refused(folder: Path) -> None:
    file = folder / "shard-00001-of-00005.parquet"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"should have (\d+) bytes, but has \d+.\nCopy it anew"):
        FeatureStore(folder)


def test_unknown_poolings_splits_and_rows_are_told_the_known_ones(folder: Path) -> None:
    store = FeatureStore(folder)
    for ask in (store.read, store.tensor, store.blocks):
        with pytest.raises(ValueError, match=r"no features 'fisher'.\nIt has tensor-sketch:7, full-bilinear"):
            ask("fisher")
    with pytest.raises(
        ValueError, match=r"no rows of the split 'val'.\nAsk for one of these: '' \(\d\), 'test' \(\d\), 'train'"
    ):
        store.read("full-bilinear", "val")
    with pytest.raises(ValueError, match="at least one row"):
        store.blocks("full-bilinear", rows=0)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"items": items(0)}, "at least one item"),
        ({"poolings": {}}, "at least one pooling"),
        ({"dtype": "bfloat16"}, "float16 or float32, but got dtype='bfloat16'"),
        ({"shard_size": 0}, "at least one item"),
    ],
)
def test_impossible_stores_are_refused_before_anything_is_made(tmp_path: Path, changed: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        begin(tmp_path / "store", **changed)
    assert not (tmp_path / "store").exists()


def test_a_store_of_broken_items_alone_can_be_read(tmp_path: Path) -> None:
    made = begin(tmp_path, items=items(2), shard_size=1)
    for shard in made.missing():
        with made.start(shard) as rows:
            rows.report(shard.first, "broken")
    made.complete()
    store = FeatureStore(tmp_path)
    assert len(store) == 0
    assert store.read("full-bilinear").shape == (0, 9)
    assert list(store.blocks("full-bilinear")) == []
    assert store.labels.tolist() == store.paths == store.splits.tolist() == []
