"""What an index finds is what brute force finds; whatever the engine, the codes, the sizes and the ties."""

from pathlib import Path

import numpy as np
import pytest

import clustered
from compact_bilinear.search import Index, IndexWriter
from compact_bilinear.search.engine import Candidates, Flat
from compact_bilinear.search.layout import MANIFEST

EXACT = [("flat", "float32"), ("flat", "float16"), ("flat", "8-bit")]
NEARLY = [("hnsw", "float32"), ("hnsw", "float16"), ("hnsw", "8-bit"), ("ivf-pq", "float16"), ("ivf-pq", "8-bit")]


def make(folder: Path, x: np.ndarray, engine: str = "flat", codes: str = "float32") -> Index:
    store = clustered.store(folder / "features", x)
    return IndexWriter(folder / "index").make(store, next(iter(store.poolings)), engine=engine, codes=codes).index


@pytest.mark.parametrize(("engine", "codes"), EXACT)
@pytest.mark.parametrize(("count", "d", "top"), [(1, 33, 1), (5, 32, 10), (23, 7, 4), (301, 257, 3), (40, 16384, 5)])
def test_exact_engines_are_brute_force(tmp_path: Path, engine: str, codes: str, count: int, d: int, top: int) -> None:
    x, queries = clustered.rows(count, d), clustered.rows(6, d, seed=1)
    index = make(tmp_path, x, engine, codes)
    kept = index.features(index.numbers)  # what brute force has to look at are the rows as they are kept
    similarities = (clustered.unit(queries) @ kept.astype(np.float64).T).round(6)
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :top]
    for query, found in enumerate(index.search(queries, top)):
        assert found.numbers.tolist() == order[query].tolist()
        # queries are rounded to float32, and similarities to six digits
        assert np.abs(found.similarities - similarities[query][order[query]].clip(-1, 1)).max() < 2e-6


@pytest.mark.parametrize(("engine", "codes"), [*NEARLY, ("ivf-pq", "pq")])
def test_other_engines_find_most_of_it(tmp_path: Path, engine: str, codes: str) -> None:
    x = clustered.rows(2011, 48, classes=61, noise=0.7)
    index = make(tmp_path, x[11:], engine, codes)
    truth, _ = clustered.nearest(x[11:], x[:11], 10)
    found = [found.numbers for found in index.search(x[:11], 10)]
    recall = np.mean([np.isin(a, b).mean() for a, b in zip(truth, found, strict=True)])
    # 6 bytes tell 33 rows of a cluster hardly apart, though they tell the cluster
    assert recall > (0.3 if codes == "pq" else 0.93)
    if codes == "pq":
        clusters = [(numbers + 11) % 61 for numbers in found]
        assert np.mean([(near == query % 61).mean() for query, near in enumerate(clusters)]) > 0.9


@pytest.mark.parametrize(("engine", "codes"), [*EXACT, *NEARLY])
def test_ties_are_in_the_order_of_the_index(tmp_path: Path, engine: str, codes: str) -> None:
    x = clustered.rows(400, 40, classes=3)
    x[5:300:7] = x[5]  # 43 that are one and the same
    index = make(tmp_path, x, engine, codes)
    same = list(range(5, 300, 7))
    (found,) = index.search(x[5:6], 20)
    if engine == "flat":
        assert found.numbers.tolist() == same[:20]
    else:
        assert found.numbers.tolist() == sorted(set(found.numbers.tolist()) & set(same))
    assert len(set(found.similarities.tolist())) == 1


@pytest.mark.parametrize("top", [1, 3, 40, 200])
def test_ties_that_the_engine_finds_in_another_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, top: int) -> None:
    x = clustered.rows(400, 40, classes=3)
    same = np.flatnonzero(np.arange(400) % 3)  # 266
    x[same] = x[5]
    index = make(tmp_path, x, "flat", "float32")
    real = Flat.candidates

    def backwards(self: Flat, queries: np.ndarray, k: int, effort: int, alive: object) -> Candidates:
        similarities, positions = real(self, queries, 400, effort, alive)
        # FAISS's sums may differ in their last digits, too, wherever a row lies
        similarities = similarities + positions.astype(np.float32) * np.float32(1e-9)
        order = np.lexsort((-positions, -similarities))[:, :k]
        return Candidates(np.take_along_axis(similarities, order, 1), np.take_along_axis(positions, order, 1))

    monkeypatch.setattr(Flat, "candidates", backwards)
    assert index.search(x[5:6], top)[0].numbers.tolist() == same[:top].tolist()


@pytest.mark.parametrize("batch", [1, 2, 19, 64])
def test_a_query_finds_the_same_alone_and_among_others(tmp_path: Path, batch: int) -> None:
    x, queries = clustered.rows(500, 40), clustered.rows(64, 40, seed=1)
    index = make(tmp_path, x, "flat", "float32")
    alone = [index.search(query[None], 7)[0] for query in queries[:batch]]
    for one, other in zip(alone, index.search(queries[:batch], 7), strict=True):
        assert np.array_equal(one.numbers, other.numbers)
        assert np.array_equal(one.similarities, other.similarities)


def test_the_length_of_queries_and_rows_changes_nothing(tmp_path: Path) -> None:
    x, queries = clustered.rows(50, 33), clustered.rows(3, 33, seed=1)
    one = make(tmp_path / "one", x).search(queries)
    other = make(tmp_path / "other", x * np.float32(64)).search(queries / np.float32(1024))
    for a, b in zip(one, other, strict=True):
        assert np.array_equal(a.numbers, b.numbers)
        assert np.array_equal(a.similarities, b.similarities)


@pytest.mark.parametrize(("engine", "codes"), [("flat", "float16"), ("hnsw", "8-bit"), ("ivf-pq", "pq")])
def test_one_that_is_inside_does_not_find_itself(tmp_path: Path, engine: str, codes: str) -> None:
    x = clustered.rows(300, 40)
    index = make(tmp_path, x, engine, codes)
    number = index.find("4/0011 é.jpg")
    assert number == 11
    found = index.neighbours(number, 5)
    assert len(found.numbers) == 5
    assert 11 not in found.numbers
    assert (found.numbers % 7 == 4).mean() > 0.7, "neighbours are of its cluster"


def test_what_is_known_of_an_item(tmp_path: Path) -> None:
    store = clustered.store(tmp_path / "features", clustered.rows(9, 33), labels=[3, -1, *range(7)])
    done = IndexWriter(tmp_path / "index").make(store, "tensor-sketch:33", images=tmp_path / "photos")
    index = Index(str(tmp_path / "index"))
    assert index.item(0)[:5] == (0, "0/0000 é.jpg", 3, "gull", "train")
    assert index.item(0).file == tmp_path / "photos" / "0" / "0000 é.jpg"
    assert index.item(1)[2:5] == (-1, "", "test")
    assert str(done.index) == f"{tmp_path / 'index'}: 9 images of 7 classes, tensor-sketch:33 (d=33) in float16, flat"
    assert (len(index), index.d, index.pooling, index.model) == (9, 33, "tensor-sketch:33", None)


def test_wrong_questions(tmp_path: Path) -> None:
    index = make(tmp_path, clustered.rows(9, 33))
    for queries, told in (
        (np.ones((2, 32)), r"\(b, d=33\) but got \(2, 32\)\.\nPool the images as .* tensor-sketch:33"),
        (np.ones(33), r"\(b, d=33\) but got \(33,\)"),
        (np.array([[1.0] * 33, [0.0] * 33]), r"query 1 of 2 is zero or not finite\.\nLeave it out"),
        (np.array([[np.nan] * 33]), r"query 0 of 1 is zero"),
    ):
        with pytest.raises(ValueError, match=told):
            index.search(queries)
    with pytest.raises(ValueError, match=r"top=0, effort=None\.\nWrite top=10"):
        index.search(np.ones((1, 33)), top=0)
    with pytest.raises(ValueError, match=r"has no image wren\.jpg\.\n.*inside: 0/0000 é\.jpg"):
        index.find("wren.jpg")
    for ask in (index.item, index.neighbours, lambda number: index.features([0, number])):
        for number in (-1, 9):
            with pytest.raises(ValueError, match=r"items 0 to 8, but got .*\n.*`numbers`"):
                ask(number)
    assert index.search(np.empty((0, 33))) == []
    assert index.features([]).shape == (0, 33)


@pytest.mark.parametrize(("engine", "codes"), [("flat", "float32"), ("hnsw", "float16"), ("ivf-pq", "8-bit")])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "longer"])
def test_damage_is_named(tmp_path: Path, engine: str, codes: str, damage: str) -> None:
    index = make(tmp_path, clustered.rows(300, 40), engine, codes)
    files = list(index.manifest["files"])
    del index
    assert len(files) == {"flat": 2, "hnsw": 3, "ivf-pq": 3}[engine]
    for name in [*files, MANIFEST]:
        file = tmp_path / "index" / name
        whole = file.read_bytes()
        middle = len(whole) // 2
        if damage == "gone":
            file.unlink()
        elif damage == "cut":
            file.write_bytes(whole[:-2])
        elif damage == "longer":
            file.write_bytes(whole + b" ")
        else:
            file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :])
        if (name, damage) == (MANIFEST, "longer"):  # JSON may end with a space
            assert len(Index(tmp_path / "index")) == 300
        else:
            told = "_manifest.json" if name == MANIFEST and damage != "gone" else name
            with pytest.raises(ValueError, match=rf"{told}.*\n.*index"):
                Index(tmp_path / "index")
        file.write_bytes(whole)
    Index(tmp_path / "index").verify()


def test_damage_in_large_files_is_found_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compact_bilinear.search.layout.CHEAP", 1000)
    index = make(tmp_path, clustered.rows(300, 40))
    index.verify()
    file = tmp_path / "index" / "rows-00001.faiss"
    whole = file.read_bytes()
    file.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    opened = Index(tmp_path / "index")  # of the right size
    with pytest.raises(ValueError, match=r"rows-00001\.faiss is damaged: its checksum does not fit\.\nCopy"):
        opened.verify()


def test_what_a_writer_has_removed_since_is_not_called_damaged(tmp_path: Path) -> None:
    store = clustered.store(tmp_path / "features", clustered.rows(9, 33))
    writer = IndexWriter(tmp_path / "index")
    before = writer.make(store, "tensor-sketch:33").index
    after = writer.make(store, "tensor-sketch:33", replace=True).index
    with pytest.raises(ValueError, match=r"index was changed after it was opened.*\nOpen and verify it"):
        before.verify()
    after.verify()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells how much memory is resident")
@pytest.mark.parametrize(("engine", "codes"), [("flat", "float32"), ("ivf-pq", "float32")])
def test_opening_reads_next_to_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, codes: str) -> None:
    def resident() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])

    monkeypatch.setattr("compact_bilinear.search.layout.CHEAP", 1000)
    monkeypatch.setattr("compact_bilinear.search.engine.SAMPLE", 2**17)
    x = clustered.rows(1024, 257)
    folder = make(tmp_path, np.tile(x, (16, 1)), engine, codes).folder  # 17 MB of rows
    Index(folder)
    before = resident()
    index = Index(folder)
    assert resident() - before < 2**21
    assert index.search(x[1023:], 1)[0].numbers.tolist() == [1023]


def test_a_folder_that_is_no_index(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent does not exist\.\nCheck its name, or write `cbp index FEATURES --out "):
        Index(tmp_path / "absent")
    with pytest.raises(ValueError, match=r"has no _manifest\.json\.\n"):
        Index(tmp_path)
    clustered.store(tmp_path / "features", clustered.rows(9, 33))
    with pytest.raises(ValueError, match=r"says 'compact-bilinear features', version 1\.\n"):
        Index(tmp_path / "features")
