"""A comparison as its users run it: on photographs, again, cut short, stopped, and asked for what cannot be."""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest

import photos
from compact_bilinear import cli
from compact_bilinear.comparing import measure, recorded
from compact_bilinear.experiments.records import read_records
from compact_bilinear.features import FeatureStore
from compact_bilinear.recipes import compare
from compact_bilinear.report.table import as_text

POOLINGS = ("average-pool", "fisher-vector:2", "full-bilinear-triangle", "pca-bilinear:9", "tensor-sketch:64")


def flags(folder: Path, out: Path, *more: str) -> list[str]:
    backbone = ["--backbone", "tiny", "--weights", str(folder / "weights.safetensors"), "--size", str(photos.SIZE)]
    pool = [part for name in POOLINGS for part in ("--pool", name)]
    return ["compare", str(folder / "photos"), "--out", str(out), *backbone, "--workers", "0", "--draws", "2", *pool, *more]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photos.make(tmp_path_factory.mktemp("compare"))


@pytest.fixture(scope="module")
def out(folder: Path) -> Path:
    assert cli.main(flags(folder, folder / "out")) == 0
    return folder / "out"


def numbers(out: Path) -> dict[tuple[object, ...], float]:
    """All records but times, which are never the same."""
    found = read_records(out / "records.jsonl")
    return {
        (each.pooling, each.d, each.stage, each.measure, each.seed, each.details.get("shots")): each.value
        for each in found
        if each.measure not in ("ms", "% of the backbone")
    }


def test_every_pooling_has_every_number(folder: Path, out: Path) -> None:
    store = FeatureStore(out / "features")
    assert tuple(store.poolings) == POOLINGS
    found = read_records(out / "records.jsonl")
    of_errors = {each.pooling: each for each in found if each.stage == "linear" and each.measure == "error"}
    assert {name: each.d for name, each in of_errors.items()} == store.poolings
    labels = store.labels[store.splits == "test"]
    for pooling, each in of_errors.items():
        kept = measure.kept(out / "answers", pooling)
        assert kept is not None
        assert kept.scores.shape == (12, 3)  # of 13 one is broken
        assert each.value == pytest.approx((kept.scores.argmax(1) != labels).mean())
        assert each.details == {"test images": 12, "classes": 3, "lambda": 0.001}
        assert each.made["commit"] or each.made["torch"]
        cells = [(one.stage, one.measure, one.details.get("shots"), one.seed) for one in found if one.pooling == pooling]
        assert len(cells) == len(set(cells))
        few = {(shots, draw) for stage, _, shots, draw in cells if stage == "few-shot"}
        assert few == {(shots, draw) for shots in (1, 2, 5) for draw in (0, 1)}  # every class has five to draw from
        assert {("", "ms", None, 0), ("", "% of the backbone", None, 0), ("", "bytes", None, 0)} < set(cells)
    best = min(each.value for each in of_errors.values())
    above = {each.pooling: each for each in found if each.measure == "error above the best"}
    assert len(above) == len(POOLINGS) - 1
    for pooling, each in above.items():
        assert each.value == pytest.approx(of_errors[pooling].value - best)
    assert all(each.value > 0 for each in found if each.measure == "ms")


def test_numbers_in_the_report_are_those_of_the_records(out: Path) -> None:
    page = (out / "report.html").read_text("utf-8")
    rows = re.findall(r'<tr class="ours">(.*?)</tr>', page, re.DOTALL)
    texts = [re.sub(r"<.*?>|[ \n]+", " ", row) for row in rows[: len(POOLINGS)]]
    found = {
        (each.pooling, each.stage, each.measure): each
        for each in read_records(out / "records.jsonl")
        if "shots" not in each.details
    }
    assert len(texts) == len(POOLINGS)
    for pooling in POOLINGS:
        error, precision = found[pooling, "linear", "error"], found[pooling, "linear", "mean AP"]
        spread = (error.value * (1 - error.value) / 12) ** 0.5
        wanted = [
            as_text(error.d, 0),
            as_text(100 * error.value, 1),
            f" ± {as_text(100 * spread, 1)}",
            as_text(100 * precision.value, 1),
            as_text(2 * error.d, 0),
            as_text(found[pooling, "", "ms"].value, 2),
        ]
        assert any(all(f" {number.strip()} " in f" {text} " for number in wanted) for text in texts), (pooling, wanted, texts)
    assert page.count("<img ") > 20
    assert page.count('alt=""') == 0


def test_the_end_says_what_to_take_and_how_to_train_it(
    folder: Path, out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    assert cli.main(flags(folder, out)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["pooling", "d", "error,"]
    taken = next(line.split()[1] for line in lines if line.startswith("▸ "))
    assert f"Take {taken}: " in "\n".join(lines)
    command = next(line for line in lines if line.startswith("  cbp train "))
    assert f"--pool {taken} --out run" in command
    assert lines[-1] == f"The report: {(out / 'report.html').resolve().as_uri()}"
    monkeypatch.chdir(folder)
    assert cli.main([*command.split()[1:-1], str(folder / "run"), "--workers", "0"]) == 0
    errors = {each.pooling: each.value for each in read_records(out / "records.jsonl") if each.measure == "error"}
    trained = json.loads((folder / "run/evaluation.json").read_text("utf-8"))
    linear = [each for each in read_records(out / "records.jsonl") if (each.measure, each.stage) == ("error", "linear")]
    assert errors
    assert trained["error"] == pytest.approx(next(each.value for each in linear if each.pooling == taken))


def test_as_json(folder: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(flags(folder, out, "--json")) == 0
    assert capsys.readouterr().out == (out / "records.jsonl").read_text("utf-8")


def test_cut_short_anywhere_it_goes_on(folder: Path, out: Path, tmp_path: Path) -> None:
    lines = (out / "records.jsonl").read_bytes().splitlines(keepends=True)
    for kept in (0, 3, len(lines) // 2, len(lines) - 1):
        copy = tmp_path / f"{kept}"
        shutil.copytree(out, copy)
        (copy / "records.jsonl").write_bytes(b"".join(lines[:kept]) + lines[kept][:20])
        (copy / "report.html").unlink()
        if kept == 3:
            shutil.rmtree(copy / "answers")
        assert cli.main(flags(folder, copy)) == 0
        assert numbers(copy) == pytest.approx(numbers(out))
        assert (copy / "report.html").exists()


def test_ctrl_c_says_how_to_go_on(
    folder: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(out / "features", tmp_path / "out/features")
    of = measure.linear
    calls: list[str] = []

    def stopped(store: FeatureStore, pooling: str, lambda_: float) -> measure.Linear:
        calls.append(pooling)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return of(store, pooling, lambda_)

    monkeypatch.setattr(recorded, "linear", stopped)
    assert cli.main(flags(folder, tmp_path / "out")) == 130
    assert "The same command goes on from here: cbp compare" in capsys.readouterr().err
    assert cli.main(flags(folder, tmp_path / "out")) == 0
    assert calls == [*POOLINGS[:3], *POOLINGS[2:]]  # what was done is not done again
    assert numbers(tmp_path / "out") == pytest.approx(numbers(out))


def test_other_settings_do_not_mix(folder: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(flags(folder, out, "--lambda", "0.1")) == 2
    said = capsys.readouterr().err.splitlines()
    assert 'changed are lambda: "0.001" → "0.1"' in said[-2]
    assert said[-1].startswith("Give another folder")


def test_what_cannot_be_is_refused_before_any_work(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = tmp_path / "alone"
    (alone / "moss").mkdir(parents=True)
    shutil.copy(folder / "photos/train/moss/00.jpg", alone / "moss/0.jpg")
    shutil.copy(folder / "photos/train/moss/01.jpg", alone / "moss/1.jpg")
    photographs = str(folder / "photos")
    for arguments, told, remedy in (
        ([str(alone)], "has train images of 1", "Give a folder"),
        ([photographs, "--pool", "full"], "There is no pooling 'full'", "Known are"),
        ([photographs, "--pool", "average-pool"], "two poolings or more", "Name another"),
        ([photographs, "--pool", "fully-connected", "--pool", "average-pool"], "network's own last layers", "Leave it out"),
        ([photographs, "--lambda", "0"], "λ is a number > 0", "Write --lambda"),
        ([photographs, "--draws", "0"], "0 draws", "Write --draws"),
        ([photographs, "--out", photographs + "/out"], "lies inside", "Write --out"),
        ([photographs, "--out", photographs + "/train/moss/00.jpg"], "is a file", "Give a folder"),
    ):
        out = [] if "--out" in arguments else ["--out", str(tmp_path / "out")]
        assert cli.main(["compare", *arguments, *out, "--backbone", "tiny"]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert told in lines[0]
        assert lines[1].startswith(remedy)
        assert len(lines) == 2
    assert not (tmp_path / "out").exists()


def test_lambda_is_found_by_cross_validation(folder: Path, out: Path, tmp_path: Path) -> None:
    shutil.copytree(out / "features", tmp_path / "out/features")
    assert cli.main(flags(folder, tmp_path / "out", "--lambda", "auto")) == 0
    errors = [
        each for each in read_records(tmp_path / "out/records.jsonl") if (each.measure, each.stage) == ("error", "linear")
    ]
    assert all(float(str(each.details["lambda"])) > 0 for each in errors)


def test_a_default_comparison_has_what_a_practitioner_would_try() -> None:
    assert {name.partition(":")[0] for name in compare.POOLINGS} == {
        "average-pool",
        "fisher-vector",
        "full-bilinear-triangle",
        "pca-bilinear",
        "random-maclaurin",
        "tensor-sketch",
    }
