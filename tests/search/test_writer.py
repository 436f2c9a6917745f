"""Making, adding, deleting, compacting: what is found afterwards is what an index made of the rest at once would find."""

import threading
from pathlib import Path

import numpy as np
import pytest

import clustered
from compact_bilinear.features import FeatureStore
from compact_bilinear.search import Index, IndexWriter
from compact_bilinear.search.layout import LOCK, MANIFEST

KINDS = [("flat", "float16"), ("hnsw", "float32"), ("hnsw", "8-bit"), ("ivf-pq", "8-bit"), ("ivf-pq", "pq")]
D = 33


def named(index: Index, queries: np.ndarray, top: int = 8) -> list[list[tuple[str, float]]]:
    """What queries find, by path: numbers change where something is deleted."""
    return [
        [(index.item(number).path, similarity) for number, similarity in zip(*found[::-1], strict=True)]
        for found in index.search(queries, top, effort=10_000)
    ]


def contents(index: Index) -> dict[str, bytes]:
    return {index.item(number).path: index.features([number]).tobytes() for number in index.numbers}


@pytest.mark.parametrize(("engine", "codes"), KINDS)
def test_add_delete_compact(tmp_path: Path, engine: str, codes: str) -> None:
    x, queries = clustered.rows(900, D, classes=31), clustered.rows(13, D, classes=31, seed=5)
    paths = [f"{index}.jpg" for index in range(900)]
    first = clustered.store(tmp_path / "first", x[:500], paths=paths[:500])
    second = clustered.store(tmp_path / "second", x[500:], paths=paths[500:])
    writer = IndexWriter(tmp_path / "index")
    writer.make(first, f"tensor-sketch:{D}", engine=engine, codes=codes)
    writer.add(second)
    gone = [*range(3, 900, 4), 0, 898]
    done = writer.delete([paths[index] for index in gone])
    assert done.line == f"deleted from {tmp_path / 'index'}: {len(gone)} of 900 images"
    index = done.index
    stay = sorted(set(range(900)) - set(gone))
    assert len(index) == len(stay)
    assert [index.item(number).path for number in index.numbers] == [paths[number] for number in stay]
    if (engine, codes) == ("flat", "float16"):
        order, _ = clustered.nearest(x[stay].astype(np.float16), queries, 8)
        assert [[path for path, _ in found] for found in named(index, queries)] == [
            [paths[stay[place]] for place in row] for row in order
        ]
    before, kept = named(index, queries), contents(index)
    compacted = writer.compact().index
    assert len(compacted.segments) == 1
    assert compacted.manifest["deleted"] is None
    assert contents(compacted) == kept, "codes are copied as they are"
    if engine == "ivf-pq" and codes == "8-bit":  # its lists are trained anew
        same = [
            len({path for path, _ in a} & {path for path, _ in b})
            for a, b in zip(before, named(compacted, queries), strict=True)
        ]
        assert np.mean(same) > 7.5
    else:
        assert named(compacted, queries) == before
    assert index.search(queries, 3), "who opened it before still has what it opened"
    on_disk = {each.name for each in (tmp_path / "index").iterdir()}
    assert on_disk == {MANIFEST, LOCK, *compacted.manifest["files"]}


def test_labels_of_another_list_of_classes(tmp_path: Path) -> None:
    x = clustered.rows(20, D)
    first = clustered.store(tmp_path / "a", x[:10], classes=("crow", "wren"))
    labels = [0, 1, 2, -1, 0, 1, 2, -1, 0, 1]
    second = clustered.store(
        tmp_path / "b", x[10:], classes=("auk", "wren", "gull"), labels=labels, paths=[f"{n}.png" for n in range(10)]
    )
    writer = IndexWriter(tmp_path / "index")
    writer.make(first, f"tensor-sketch:{D}", images=tmp_path / "one")
    index = writer.add(second, images=tmp_path / "two").index
    assert index.classes == ("crow", "wren", "auk", "gull")
    assert [index.item(number).name for number in range(8, 14)] == ["crow", "wren", "auk", "wren", "gull", ""]
    compacted = writer.compact().index
    assert [compacted.item(number)[1:] for number in compacted.numbers] == [index.item(number)[1:] for number in index.numbers]
    assert (compacted.item(0).file, compacted.item(10).file) == (tmp_path / "one/0/0000 é.jpg", tmp_path / "two/0.png")


def test_a_path_that_is_inside_is_replaced(tmp_path: Path) -> None:
    x = clustered.rows(30, D)
    first = clustered.store(tmp_path / "a", x[:20])
    second = clustered.store(tmp_path / "b", x[10:], paths=[*first.paths[:5], *(f"{n}.png" for n in range(15))])
    writer = IndexWriter(tmp_path / "index")
    writer.make(first, f"tensor-sketch:{D}")
    for times in (1, 2):  # the second time, all of it is replaced by the same
        done = writer.add(second)
        assert (
            done.line == f"added to {tmp_path / 'index'}: {15 if times == 1 else 0} images; replaced: {5 if times == 1 else 20}"
        )
        assert len(done.index) == 35
        number = done.index.find(first.paths[0])
        assert number == 20 * times
        assert done.index.search(x[10:11], 2)[0].numbers.tolist() == [10, number], "its features are the new ones"


def test_rows_without_a_direction_are_left_out_by_name(tmp_path: Path) -> None:
    x = clustered.rows(12, D)
    x[3], x[7, 5], x[11, 0] = 0, np.nan, 1e30  # float16 makes that infinite
    with np.errstate(over="ignore"):
        store = clustered.store(tmp_path / "features", x, dtype="float16")
    done = IndexWriter(tmp_path / "index").make(store, f"tensor-sketch:{D}")
    assert done.skipped == tuple(store.paths[row] for row in (3, 7, 11))
    assert [done.index.item(number).path for number in done.index.numbers] == [
        path for path in store.paths if path not in done.skipped
    ]
    assert done.index.item(4).label == 5


@pytest.mark.parametrize("codes", ["float16", "8-bit"])
def test_an_index_of_nothing_is_refused(tmp_path: Path, codes: str) -> None:
    store = clustered.store(tmp_path / "features", np.zeros((5, D), np.float32))
    with pytest.raises(ValueError, match=r"all 5 rows of .*features are zero or not finite\.\nExtract them anew"):
        IndexWriter(tmp_path / "index").make(store, f"tensor-sketch:{D}", codes=codes)
    assert [each.name for each in (tmp_path / "index").iterdir()] == [LOCK], "and leaves nothing behind"


def test_what_is_there_is_not_lost(tmp_path: Path) -> None:
    store = clustered.store(tmp_path / "features", clustered.rows(9, D))
    writer = IndexWriter(tmp_path / "index")
    writer.make(store, f"tensor-sketch:{D}")
    with pytest.raises(ValueError, match=r"index has an index already\.\nWrite --add .*--replace"):
        writer.make(store, f"tensor-sketch:{D}")
    other = clustered.store(tmp_path / "others", clustered.rows(5, D))
    assert len(writer.make(other, f"tensor-sketch:{D}", replace=True).index) == 5
    for replace in (False, True):
        with pytest.raises(ValueError, match=r"features has _manifest\.json\.\nGive another folder"):
            IndexWriter(tmp_path / "features").make(store, f"tensor-sketch:{D}", replace=replace)
    assert len(FeatureStore(tmp_path / "features")) == 9
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(ValueError, match=r"mine has thesis\.txt\.\nGive another folder"):
        IndexWriter(tmp_path / "mine").make(store, f"tensor-sketch:{D}")
    with pytest.raises(ValueError, match=r"thesis\.txt is a file\.\n"):
        IndexWriter(tmp_path / "mine" / "thesis.txt").make(store, f"tensor-sketch:{D}")


def test_files_of_somebody_else_are_not_taken_for_an_index(tmp_path: Path) -> None:
    store = clustered.store(tmp_path / "features", clustered.rows(9, D))
    folder = tmp_path / "checkpoints"
    (folder / "model-00010").mkdir(parents=True)
    for name in ("model-00010/weights.bin", "model-00011.pt", "rows-00001.csv"):
        (folder / name).write_text("of a week")
    before = sorted(folder.rglob("*"))
    writer = IndexWriter(folder)
    for change in (lambda: writer.add(store), lambda: writer.delete([store.paths[0]]), writer.compact):
        with pytest.raises(ValueError, match=r"checkpoints has no _manifest\.json\.\n"):
            change()
    for replace in (False, True):
        with pytest.raises(ValueError, match=r"checkpoints has model-00010\.\nGive another folder"):
            writer.make(store, f"tensor-sketch:{D}", replace=replace)
    assert sorted(folder.rglob("*")) == before


def test_a_damaged_index_can_be_replaced_and_nothing_else(tmp_path: Path) -> None:
    store = clustered.store(tmp_path / "features", clustered.rows(9, D))
    writer = IndexWriter(tmp_path / "index")
    writer.make(store, f"tensor-sketch:{D}")
    for damaged in ("rows-00001.faiss", MANIFEST):
        (tmp_path / "index" / damaged).write_bytes(b"{}")
        for change in (lambda: writer.add(store), lambda: writer.delete([store.paths[0]]), writer.compact):
            with pytest.raises(ValueError, match=damaged):
                change()
        index = writer.make(store, f"tensor-sketch:{D}", replace=True).index
        assert len(index) == 9
        assert {each.name for each in (tmp_path / "index").iterdir()} == {MANIFEST, LOCK, *index.manifest["files"]}
        (tmp_path / "index" / MANIFEST).rename(tmp_path / "manifest")
        for name in index.manifest["files"]:
            (tmp_path / "index" / name).unlink()
        writer.make(store, f"tensor-sketch:{D}")


def test_other_features_are_refused(tmp_path: Path) -> None:
    x = clustered.rows(9, D)
    writer = IndexWriter(tmp_path / "index")
    writer.make(clustered.store(tmp_path / "a", x), f"tensor-sketch:{D}")
    other = clustered.store(tmp_path / "b", x, settings=clustered.SETTINGS | {"size": 64, "batch": 8, "data": "others"})
    with pytest.raises(ValueError, match=r"b was made otherwise than .*index: size: 40 → 64\.\nExtract with the same settings"):
        writer.add(other)
    with pytest.raises(ValueError, match=r"index holds tensor-sketch:33, but .* has tensor-sketch:32\.\nExtract with --pool"):
        writer.add(clustered.store(tmp_path / "c", x[:, :32]))


def test_deletes_all_or_nothing(tmp_path: Path) -> None:
    store = clustered.store(tmp_path / "features", clustered.rows(9, D))
    writer = IndexWriter(tmp_path / "index")
    writer.make(store, f"tensor-sketch:{D}")
    with pytest.raises(ValueError, match=r"has no image absent\.jpg\.\n"):
        writer.delete([store.paths[0], "absent.jpg"])
    with pytest.raises(ValueError, match=r"at least one image, but these are all .*\.\nRemove the folder"):
        writer.delete(store.paths)
    assert len(Index(tmp_path / "index")) == 9
    writer.delete([store.paths[0], store.paths[0], store.paths[4]])
    with pytest.raises(ValueError, match="has no image 0/0000"):
        writer.delete([store.paths[0]])


def test_a_pooling_that_is_not_there(tmp_path: Path) -> None:
    store = clustered.store(tmp_path / "features", clustered.rows(9, D))
    with pytest.raises(ValueError, match=r"has no features 'average-pool'\.\nIt has tensor-sketch:33"):
        IndexWriter(tmp_path / "index").make(store, "average-pool")


@pytest.mark.parametrize(
    ("engine", "codes", "told"),
    [
        ("flat", "pq", r"PQ codes belong to the engine ivf-pq, but got flat\.\nWrite --engine ivf-pq"),
        ("hnsw", "pq", r"but got hnsw\.\n"),
        ("tree", "auto", r"has no engine 'tree'\.\nWrite auto, flat or hnsw or ivf-pq"),
        ("auto", "int8", r"has no codes 'int8'\.\nWrite auto, float32"),
        ("ivf-pq", "float16", r"trained on at least 256 images, but there are 9\.\nWrite --engine flat"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, engine: str, codes: str, told: str) -> None:
    store = clustered.store(tmp_path / "features", clustered.rows(9, D))
    with pytest.raises(ValueError, match=told):
        IndexWriter(tmp_path / "index").make(store, f"tensor-sketch:{D}", engine=engine, codes=codes)


def test_writers_take_turns_and_readers_see_whole_states(tmp_path: Path) -> None:
    x, count = clustered.rows(120, D), 6
    stores = [
        clustered.store(tmp_path / f"{n}", x[20 * n : 20 * n + 20], paths=[f"{n}/{each}.jpg" for each in range(20)])
        for n in range(count)
    ]
    folder = tmp_path / "index"
    IndexWriter(folder).make(stores[0], f"tensor-sketch:{D}")
    seen: list[int] = []
    faults: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                index = Index(folder)
                seen.append(len(index))
                assert len(index.search(x[:3], 5)) == 3
        except BaseException as fault:
            faults.append(fault)

    def write(n: int) -> None:
        try:
            IndexWriter(folder).add(stores[n])
            IndexWriter(folder).compact()
        except BaseException as fault:
            faults.append(fault)

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(n,)) for n in range(1, count)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert not faults
    assert set(seen) <= {20 * n for n in range(1, count + 1)}
    assert len(Index(folder)) == 120


def test_the_same_features_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    store = clustered.store(tmp_path / "features", clustered.rows(400, D))
    for engine, codes in (("flat", "8-bit"), ("ivf-pq", "8-bit")):
        manifests = [
            IndexWriter(tmp_path / f"{engine}{n}").make(store, f"tensor-sketch:{D}", engine=engine, codes=codes).index.manifest
            for n in range(2)
        ]
        assert manifests[0] == manifests[1]
