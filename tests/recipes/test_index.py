"""``cbp index`` as its users run it: made, changed, looked after; and everything that is written wrongly."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import clustered
import photos
from compact_bilinear import cli
from compact_bilinear.features import FeatureStore
from compact_bilinear.model import load_model
from compact_bilinear.search import Index
from compact_bilinear.search.layout import LOCK, MANIFEST


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that a real model made, with weights of its own."""
    folder = photos.make(tmp_path_factory.mktemp("index"))
    assert cli.main(photos.flags(folder, folder / "features", "--pool", "tensor-sketch:64", "--pool", "average-pool")) == 0
    return folder / "features"


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What a command prints that does what it is told."""
    capsys.readouterr()
    code = cli.main([str(word) for word in words])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out


def test_a_life_of_an_index(features: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, weights = tmp_path / "birds", features.parent / "weights.safetensors"
    store = FeatureStore(features)
    made = said(
        capsys, "index", features, "--out", out, "--pool", "tensor-sketch:64", "--weights", weights, "--images",
        features.parent / "photos",
    )  # fmt: skip
    assert made.splitlines() == [
        "engine: flat; 27 × 64 numbers are few enough to look at all of them (up to 268,435,456)",
        f"{out}: 27 images of 3 classes, tensor-sketch:64 (d=64) in float16, flat",
    ]
    index = Index(out)
    assert index.model == out / "model-00001"
    assert load_model(index.model).pooling.dim == 64
    assert [index.item(number).path for number in index.numbers] == store.paths
    assert all(Path(str(index.item(number).file)).is_file() for number in index.numbers)

    deleted = said(capsys, "index", "--out", out, "--delete", *store.paths[:2])
    assert deleted.splitlines() == [
        f"deleted from {out}: 2 of 27 images",
        f"{out}: 25 images of 3 classes, tensor-sketch:64 (d=64) in float16, flat",
        "deleted or replaced: 2 of 27 rows; parts: 1; --compact makes one of what is left",
    ]
    added = said(capsys, "index", features, "--out", out, "--add")
    assert added.splitlines()[0] == f"added to {out}: 2 images; replaced: 25"
    assert len(said(capsys, "index", "--out", out, "--compact").splitlines()) == 2
    assert said(capsys, "index", "--out", out, "--verify").splitlines()[1] == "all 4 files are what they were"
    index = Index(out)
    assert [index.item(number).path for number in index.numbers] == store.paths
    said(
        capsys, "index", features, "--out", out, "--pool", "average-pool", "--engine", "hnsw", "--codes", "8-bit",
        "--no-model", "--replace",
    )  # fmt: skip
    index = Index(out)
    assert (index.pooling, index.model, index.segments[0].facts["engine"]) == ("average-pool", None, "hnsw")
    assert {each.name for each in out.iterdir()} == {MANIFEST, LOCK, *index.manifest["files"]}


def test_broken_rows_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = clustered.rows(30, 33)
    x[4:16] = np.nan
    clustered.store(tmp_path / "features", x, paths=[f"{n}.jpg" for n in range(30)])
    assert cli.main(["index", str(tmp_path / "features"), "--out", str(tmp_path / "out"), "--no-model"]) == 0
    told = capsys.readouterr().err.splitlines()[-1]
    assert told == (
        "left out for features that are zero or not finite, 12 in all: 4.jpg, 5.jpg, 6.jpg, 7.jpg, 8.jpg, 9.jpg, 10.jpg, "
        "11.jpg, 12.jpg, 13.jpg, ..."
    )
    assert len(Index(tmp_path / "out")) == 18


def test_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clustered.store(tmp_path / "features", clustered.rows(300, 33))
    flags = ("index", tmp_path / "features", "--measure", "--measure-queries", 9)
    lines = said(capsys, *flags).splitlines()
    assert lines[0].split()[:6] == ["engine", "codes", "bytes_an_image", "recall@1", "recall@10", "mAP"]
    assert [line.split()[:2] for line in lines[1:4]] == [["flat", "float32"], ["flat", "float16"], ["flat", "8-bit"]]
    records = [json.loads(line) for line in said(capsys, *flags, "--format", "jsonl").splitlines()]
    table = list(csv.DictReader(said(capsys, *flags, "--format", "csv").splitlines()))
    assert len(lines) - 1 == len(records) == len(table) == 8
    assert [record["recall@10"] for record in records] == [float(row["recall@10"]) for row in table]
    assert records[0]["recall@1"] == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["features"]


def test_what_is_written_wrongly_is_told_in_two_lines(
    features: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    clustered.store(tmp_path / "clustered", clustered.rows(9, 33))
    assert cli.main(["index", str(tmp_path / "clustered"), "--out", str(out), "--no-model"]) == 0
    ours, theirs = str(features), str(tmp_path / "clustered")
    new = str(tmp_path / "new")
    for flags, told, remedy in (
        ([ours, "--out", new], "An index is of one pooling, but", "Write --pool average-pool, for instance."),
        (
            [ours, "--out", new, "--pool", "fisher-vector:64"],
            "has no features 'fisher-vector:64'.",
            "It has average-pool, tensor",
        ),
        ([ours, "--out", new, "--pool", "average-pool"], "was made with other weights of tiny", "Or write --no-model"),
        ([theirs, "--out", str(out)], "has an index already.", "Write --add"),
        ([theirs, "--out", new, "--engine", "ivf-pq", "--no-model"], "at least 256 images", "--engine flat"),
        ([theirs, "--out", new, "--engine", "flat", "--codes", "pq", "--no-model"], "PQ codes belong", "--codes 8-bit"),
        ([str(tmp_path / "absent"), "--out", new], "absent does not exist.", "Check its name"),
        ([theirs], "needs the folder of the index.", "Write --out INDEX."),
        (["--out", new], "but none were named.", "Write `cbp index FEATURES --out INDEX`."),
        (["--out", new, "--compact"], "new does not exist.", "cbp index FEATURES --out"),
        (["--out", str(out), "--compact", "--verify"], "but got --compact and --verify.", "one after the other"),
        ([theirs, "--out", str(out), "--compact"], "--compact takes no features", "Write `cbp index --out"),
        (["--out", str(out), "--delete", "wren.jpg"], "has no image wren.jpg.", "inside: 0/0000 é.jpg"),
        ([ours, "--out", str(out), "--add"], "holds tensor-sketch:33, but", "Extract with --pool tensor-sketch:33."),
        ([theirs, "--measure"], "takes at least 10 images", "Extract more"),
        ([theirs, "--measure", "--measure-queries", "0"], "measure_queries ≥ 1", "Leave them out"),
    ):
        capsys.readouterr()
        assert cli.main(["index", *flags]) == 2, flags
        printed = capsys.readouterr()
        assert printed.out == ""
        first, second = printed.err.splitlines()
        assert told in first
        assert remedy in second
    assert len(Index(out)) == 9
    assert not Path(new).exists(), "what is refused leaves no folder"


SLOW = """
import sys, time
from compact_bilinear import cli
from compact_bilinear.search.segment_writer import SegmentWriter

finish = SegmentWriter.finish

def slowly(self, items):
    done = finish(self, items)
    sys.stderr.write("written\\n")
    sys.stderr.flush()
    time.sleep(60)
    return done

SegmentWriter.finish = slowly
sys.exit(cli.main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is no signal there")
def test_ctrl_c_leaves_the_old_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clustered.store(tmp_path / "features", clustered.rows(9, 33))
    out = tmp_path / "out"
    flags = ["index", str(tmp_path / "features"), "--out", str(out)]
    said(capsys, *flags, "--no-model")
    before = Index(out).manifest
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *flags, "--add"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    while not (out / "rows-00002.faiss").exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    printed, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert printed == ""
    assert told.splitlines()[-1] == f"Stopped. The same command goes on from here: cbp {' '.join(flags)} --add"
    assert Index(out).manifest == before
    assert {each.name for each in out.iterdir()} == {MANIFEST, LOCK, *before["files"]}
    said(capsys, *flags, "--add")


def test_help_and_wrong_input_import_nothing_heavy() -> None:
    code = (
        "import sys\nfrom compact_bilinear import cli\n"
        "try:\n    cli.main(['index', '--help'])\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write(' '.join({'faiss', 'pyarrow', 'scipy', 'numpy.ma'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_without_faiss_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in sys.modules if name.startswith("compact_bilinear.search")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert cli.main(["index", "features", "--out", "out", "--compact"]) == 2
    assert cli.main(["search", "out", "a.jpg"]) == 2
    assert capsys.readouterr().err.endswith('faiss cannot be imported.\nWrite `pip install "compact-bilinear[road,search]"`.\n')
