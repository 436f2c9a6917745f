"""The paper's tables as their users measure them: whole, in part, interrupted, and on the wrong folder."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import reproductions
from compact_bilinear import cli
from compact_bilinear.experiments import protocol, sources, table2
from compact_bilinear.experiments.records import Record, read_records
from compact_bilinear.recipes.reproduce import Name, load
from reproductions import flags, measure, numbers

SHOWN = (".md", ".tex", ".csv", ".svg", ".png", ".html")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reproductions.make(tmp_path_factory.mktemp("reproduce"))


@pytest.fixture(scope="module")
def paper(folder: Path) -> Iterator[list[str]]:
    """Flags; while it lasts miniatures are taken for the paper's data sets, and a small network for VGG-M."""
    with pytest.MonkeyPatch.context() as patch:
        yield [*reproductions.as_in_paper(folder, patch), "--out", str(folder / "out")]


def of(folder: Path, name: str) -> list[Record]:
    return [record for record in read_records(folder / "out" / "records.jsonl") if record.experiment == name]


def cells(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def shown(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(out.iterdir()) if file.suffix in SHOWN}


def test_table4_has_the_papers_numbers_beside_ours(folder: Path, paper: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", "table4", "--data", str(folder / "birds"), *paper]) == 0
    said = capsys.readouterr().out
    found = {(record.pooling, record.stage): record for record in of(folder, "table4")}
    assert found["tensor-sketch:8192", "fine-tuned"].paper == 0.2306
    assert found["fully-connected", "linear"].paper == 0.4990
    assert found["fully-connected", "linear"].d == 10
    assert found["fisher-vector:64", "linear"].d == 2 * 64 * 16
    assert ("fisher-vector:64", "fine-tuned") not in found
    assert len(of(folder, "table4")) == 3 * 2 + 2 + 4 * 2, "draws before fine-tuning, two without, four poolings after"
    rows = {(row["column"], row["part"]): row for row in cells(folder / "out" / "table4.csv")}
    assert rows["TS", "after"]["paper"] == "23.06"
    mean = 100 * sum(r.value for r in of(folder, "table4") if (r.pooling, r.stage) == ("tensor-sketch:8192", "fine-tuned")) / 2
    assert float(rows["TS", "after"]["ours"]) == pytest.approx(mean)
    assert float(rows["TS", "after"]["difference"]) == pytest.approx(mean - 23.06)
    assert "31.53 / 23.06" in said
    assert "not the paper’s images" not in said
    assert (folder / "out" / "report.html").read_text().count("<section") >= 3


def test_table3_measures_pca_beside_tensor_sketch(folder: Path, paper: list[str]) -> None:
    assert cli.main(["reproduce", "table3", "--data", str(folder / "birds"), "--dims", "16", "256", *paper]) == 0
    papers = {(record.pooling, record.stage): record.paper for record in of(folder, "table3")}
    assert papers["pca-bilinear:256", "linear"] == 0.725
    assert papers["pca-bilinear:256", "fine-tuned"] == 0.429
    assert papers["tensor-sketch:16", "linear"] is None
    assert cli.main(["reproduce", "table3", "--data", str(folder / "birds"), "--dims", "17", *paper]) == 2


def test_fig_dim_has_three_curves_and_a_figure(folder: Path, paper: list[str]) -> None:
    assert cli.main(["reproduce", "fig-dim", "--data", str(folder / "birds"), "--dims", "8", "512", *paper]) == 0
    found = {(record.pooling.partition(":")[0], record.stage) for record in of(folder, "fig-dim")}
    stages = ("linear", "fine-tuned", "fine-tuned, projection learned")
    expected = {(name, stage) for name in ("random-maclaurin", "tensor-sketch") for stage in stages}
    assert found == expected | {("full-bilinear", "linear"), ("full-bilinear", "fine-tuned")}
    (at_512,) = {r.paper for r in of(folder, "fig-dim") if (r.pooling, r.stage) == ("tensor-sketch:512", "fine-tuned")}
    assert at_512 == 0.2554
    for ending in ("svg", "png"):
        assert (folder / "out" / f"fig-dim-cub-vgg-m.{ending}").stat().st_size > 1000


def test_table6_draws_images_anew(folder: Path, paper: list[str]) -> None:
    assert cli.main(["reproduce", "table6", "--data", str(folder / "birds"), *paper]) == 0
    found = of(folder, "table6")
    assert {record.details["shots"] for record in found} == {1, 2, 3}, "no class has seven images"
    assert {record.paper for record in found if record.pooling == "full-bilinear"} == {0.127, 0.215, 0.274}
    assert {record.seed for record in found} == {0, 1}


def test_alternatives_have_errors_and_sizes(folder: Path, paper: list[str]) -> None:
    assert cli.main(["reproduce", "alternatives", "--data", str(folder / "birds"), "--dims", "32", *paper]) == 0
    sizes = {record.pooling: record.value for record in of(folder, "alternatives") if record.measure == "projection kB"}
    assert sizes["random-projection:32"] == 16 * 16 * 32 * 4 / 1e3
    assert sizes["random-projection:32,sparse"] < sizes["random-projection:32"]
    assert len(of(folder, "alternatives")) == 3 * 2 + 3


def test_table5_counts_and_says_why_mit_differs(folder: Path, paper: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--data", str(folder / "birds"), "--data", str(folder / "rooms")]
    assert cli.main(["reproduce", "table5", *given, *paper]) == 0
    said = capsys.readouterr().out
    assert "5360 and 1340" in said
    found = {(record.data, record.measure): (record.value, record.paper) for record in of(folder, "table5")}
    assert found["CUB", "train images"] == (12, 5994)
    assert found["MIT", "test images"] == (9, 1339)
    assert found["MIT", "classes"] == (3, 67)


def test_dtd_runs_too(folder: Path, tmp_path: Path) -> None:
    records = measure("table4", folder, tmp_path, "--no-finetune", "--only", "TS,FB", "--dims", "8", data="textures", part=True)
    assert {record.data for record in records} == {"DTD, a part"}
    assert {record.paper for record in records} == {None}, "a part of a data set is not the paper's"
    assert {record.stage for record in records} == {"linear"}
    assert len(records) == 3


def test_without_images_everything_is_out_of_formulas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sources, "TEXTURES", {"classes": 2, "images_per_class": 6, "size": 32})
    monkeypatch.setattr(table2, "C", 16)
    monkeypatch.chdir(tmp_path)
    small = ["--size", "40", "--dims", "16", "--seeds", "2", "--workers", "0", "--device", "cpu"]
    assert cli.main(["reproduce", "all", "--no-finetune", *small]) == 0
    out = tmp_path / "reproduced"
    records = read_records(out / "records.jsonl")
    names = [name for name in get_args(Name) if name != "all"]
    assert list(dict.fromkeys(record.experiment for record in records)) == names
    learned = [record for record in records if record.measure in ("error", "mean AP")]
    assert {(record.data, record.backbone) for record in learned} == {("textures", "tiny")}
    for name in names:
        assert (out / f"{name}.md").stat().st_size
    said = capsys.readouterr().out
    assert said.count("These are not the paper’s images") == 6
    assert said.endswith("the report is reproduced/report.html.\n")
    mine = {record.experiment: record for record in learned if (record.pooling, record.seed) == ("tensor-sketch:16", 0)}
    first, second = mine["table3"], mine["table4"]
    assert (first.value, first.made) == (second.value, second.made), "measured once"


def test_the_same_command_again_measures_nothing_and_writes_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    first = numbers(measure("table3", folder, tmp_path / "out", "--dims", "4"))
    before = shown(tmp_path / "out")
    assert {"table3.md", "table3.tex", "table3.csv", "report.html"} <= before.keys()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "linear_error", lambda *_: pytest.fail("it is known"))
        patch.setattr(protocol, "tuned_error", lambda *_: pytest.fail("it is known"))
        assert numbers(measure("table3", folder, tmp_path / "out", "--dims", "4")) == first
    assert shown(tmp_path / "out") == before
    # in whichever order they were measured
    file = tmp_path / "out" / "records.jsonl"
    file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
    assert cli.main(flags("table3", folder, tmp_path / "out", "--dims", "4")) == 0
    assert shown(tmp_path / "out") == before


def test_what_fails_in_the_middle_goes_on_there(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = numbers(measure("table3", folder, tmp_path / "whole", "--dims", "4"))
    for stage, times in (("linear_error", 3), ("fine_tune", 2)):
        calls = 0
        run = getattr(protocol, stage)

        def fails(*given: Any, run: Any = run, times: int = times, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == times:
                raise OSError("the disk is full")
            return run(*given, **more)

        with monkeypatch.context() as patch:
            patch.setattr(protocol, stage, fails)
            assert cli.main(flags("table3", folder, tmp_path / stage, "--dims", "4")) == 1
        there = len(read_records(tmp_path / stage / "records.jsonl"))
        assert 0 < there < len(whole)
        assert numbers(measure("table3", folder, tmp_path / stage, "--dims", "4")) == whole


def test_killed_at_work_it_comes_to_the_same_numbers(folder: Path, tmp_path: Path) -> None:
    whole = numbers(measure("table3", folder, tmp_path / "whole", "--dims", "4"))
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "compact_bilinear", *flags("table3", folder, out, "--dims", "4")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as child:
        while child.poll() is None and not (out / "records.jsonl").exists():
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL, "it was killed before it was done"
    assert len(read_records(out / "records.jsonl")) < len(whole)
    assert numbers(measure("table3", folder, out, "--dims", "4")) == whole


def test_only_what_is_asked_for(folder: Path, tmp_path: Path) -> None:
    part = ["--dims", "4", "9", "--no-finetune", "--only", "bark-and-brick/tiny/TS:9"]
    records = measure("table3", folder, tmp_path, *part)
    assert {(record.pooling, record.stage) for record in records} == {("tensor-sketch:9", "linear")}
    more = measure("table3", folder, tmp_path, "--dims", "4", "9", "--no-finetune")
    assert more[: len(records)] == records
    assert len(more) == 4 * 2


def test_repetitions_are_splits_where_there_are_several(folder: Path, tmp_path: Path) -> None:
    rows = flags("table3", folder, tmp_path, "--dims", "4", "--no-finetune")
    rows[rows.index("--seeds") + 1] = "0"
    assert cli.main(rows) == 0
    assert {(r.seed, r.details["split"]) for r in read_records(tmp_path / "records.jsonl")} == {(0, "split0"), (1, "split1")}


def test_other_settings_are_not_mixed_in(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure("table3", folder, tmp_path, "--dims", "4", "--no-finetune")
    before = (tmp_path / "records.jsonl").read_bytes()
    for more, told in (
        (["--lambda", "0.1"], "changed are lambda: 0.001 → 0.1."),
        (["--one-vs-rest"], "changed are one_vs_rest: false → true."),
        (["--size", "48"], "changed are size: 40 → 48."),
    ):
        assert cli.main(flags("table3", folder, tmp_path, "--dims", "4", "--no-finetune", *more)) == 2
        assert told in capsys.readouterr().err.splitlines()[-2]
    (folder / "others.safetensors").write_bytes((folder / "weights.safetensors").read_bytes() + b" ")
    other = ["--weights", str(folder / "others.safetensors")]
    assert cli.main(flags("table3", folder, tmp_path, "--dims", "4", "--no-finetune", *other)) == 2
    assert "weights of tiny: " in capsys.readouterr().err
    assert (tmp_path / "records.jsonl").read_bytes() == before


def test_the_wrong_folder_is_told_by_its_name(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for data, more, told, remedy in (
        ("rooms", ["--only", "CUB"], "--only asks for CUB, but ", "Give the folder of CUB with --data; `cbp fetch cub"),
        ("textures", [], "DTD has 40 images of every class", "If this is a part of it on purpose"),
        ("nowhere", [], "does not exist", "Check its name"),
        ("bark-and-brick", ["--only", "birch"], "got 'birch', which is none of them", "bark-and-brick; backbones VGG-M"),
        ("bark-and-brick", ["--only", "FC"], "leaves nothing of it that can be measured", "Name other parts"),
    ):
        assert cli.main(flags("table4", folder, tmp_path / "out", *more, data=data)) == 2
        first, second = capsys.readouterr().err.splitlines()[-2:]
        assert told in first
        assert remedy in second
    assert cli.main(flags("table4", folder, tmp_path / "out", "--only", "CUB", data="rooms", part=True)) == 2
    assert "rooms looks like MIT, a part" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--seeds", "-1"], r"takes seeds ≥ 0, but got -1"),
        (["--dims", "0"], r"takes dimensions ≥ 1, but got 0"),
        (["--tune.hold-out", "0.2"], r"on all training images, as in the paper, but got --tune.hold-out 0.2"),
        (["--lambda", "0"], r"takes λ > 0, but got 0"),
        (["--backbone", "vgg16"], r"Weights are of one backbone, but with --weights there are 2"),
    ],
)
def test_what_cannot_be_is_refused(
    folder: Path, tmp_path: Path, more: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(flags("table3", folder, tmp_path, *more)) == 2
    assert told in capsys.readouterr().err


def test_results_do_not_go_among_the_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(flags("table3", folder, folder / "bark-and-brick" / "out")) == 2
    assert "Results go beside the images" in capsys.readouterr().err


def test_experiments_run_in_one_process(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    assert cli.main(flags("table3", folder, tmp_path)) == 2
    assert "torchrun started 2" in capsys.readouterr().err


def test_a_record_says_how_it_was_made(folder: Path, tmp_path: Path) -> None:
    for record in measure("table3", folder, tmp_path, "--dims", "4", "--only", "TS"):
        assert record.made.keys() >= {"date", "device", "torch", "python", "commit", "compact-bilinear", "seconds", "versions"}
        assert record.made["config"]["size"] == reproductions.SIZE
        assert record.made["config"]["weights"] == "weights.safetensors"
        assert ("tuning" in record.made["config"]) == (record.stage == "fine-tuned")
        assert json.dumps(record.made)


@pytest.mark.parametrize("name", [name for name in get_args(Name) if name != "all"])
def test_the_docstring_of_an_experiment_is_its_claim(name: str) -> None:
    module = sys.modules[load(name).measure.__module__]
    text = str(module.__doc__)
    assert f"    cbp reproduce {name}" in text
    for word in ("Claim", "Cost: ", "paper"):
        assert word in text
