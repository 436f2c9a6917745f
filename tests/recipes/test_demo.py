"""The demonstration, in a size that takes seconds: what it prints, what it writes, and how it goes on."""

import re
import shutil
from pathlib import Path

import pytest

from compact_bilinear import cli
from compact_bilinear.experiments.records import read_records
from compact_bilinear.recipes import demo
from compact_bilinear.recipes.demo import POOLINGS, TUNED

SMALL = ["--classes", "3", "--images", "8", "--size", "64", "--epochs", "1"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "demo"
    assert cli.main(["demo", "--out", str(out), *SMALL]) == 0
    return out


def test_it_prints_the_table_and_what_to_do_next(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["demo", "--out", str(out), *SMALL]) == 0  # all of it is there: nothing is computed again
    lines = capsys.readouterr().out.splitlines()
    assert {line.removeprefix("▸ ").split()[0] for line in lines[1 : 1 + len(POOLINGS)]} == set(POOLINGS)
    assert any(line.startswith("Take ") for line in lines)
    assert any(line.startswith(f"In 1 epoch of fine-tuning the error of {TUNED} went from ") for line in lines)
    assert f"Look at it: {(out / 'report.html').resolve().as_uri()}" in lines
    assert lines[-1] == "  cbp compare photos --backbone tiny --out comparison"


def test_fine_tuning_says_what_it_changed(out: Path) -> None:
    before, after, change = read_records(out / "model/records.jsonl")
    compared = read_records(out / "comparison/records.jsonl")
    linear = next(each for each in compared if (each.pooling, each.stage, each.measure) == (TUNED, "linear", "error"))
    assert before.value == linear.value
    assert change.value == pytest.approx(after.value - before.value)
    page = (out / "report.html").read_text("utf-8")
    rows = re.findall(r'<tr class="ours">(.*?)</tr>', page, re.DOTALL)[len(POOLINGS) :]
    texts = [re.sub(r"<.*?>|[ \n]+", " ", row).split() for row in rows]
    assert texts[0][:2] == ["linear", f"{100 * before.value:.1f}"]
    assert texts[1][:2] == ["fine-tuned", f"{100 * after.value:.1f}"]


def test_the_model_can_be_used(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    image = next((out / "textures/test").rglob("*.png"))
    assert cli.main(["predict", str(out / "model"), str(image)]) == 0
    assert "texture-0" in capsys.readouterr().out


def test_stopped_before_the_last_step_it_goes_on(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(out, tmp_path / "demo")
    (tmp_path / "demo/model/records.jsonl").unlink()
    (tmp_path / "demo/report.html").unlink()
    of = demo._wrong

    def stopped(*arguments: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_wrong", stopped)
    assert cli.main(["demo", "--out", str(tmp_path / "demo"), *SMALL]) == 130
    monkeypatch.setattr(demo, "_wrong", of)
    assert cli.main(["demo", "--out", str(tmp_path / "demo"), *SMALL]) == 0
    values = [[each.value for each in read_records(some / "model/records.jsonl")] for some in (out, tmp_path / "demo")]
    assert values[0] == values[1]


def test_another_size_in_the_same_folder_is_refused(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["demo", "--out", str(out), *SMALL, "--images", "10"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "30 images of 3 classes" in first
    assert "has 24 of 3" in first
    assert second.startswith("Remove ")


def test_sizes_that_cannot_be_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for more, told in ((["--classes", "1"], "two classes or more"), (["--images", "3"], "four images"), ([], "is a file")):
        out = file if not more else tmp_path / "demo"
        assert cli.main(["demo", "--out", str(out), *more]) == 2
        first, _ = capsys.readouterr().err.splitlines()
        assert told in first
    assert not (tmp_path / "demo").exists()
