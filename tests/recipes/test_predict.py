"""Predictions, as a person and as another program ask for them."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import models
import photos
from compact_bilinear import cli
from compact_bilinear.images import load_images, read_images
from compact_bilinear.model import load_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.make(tmp_path_factory.mktemp("predict"))


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, list[float]]:
    """Probabilities of each whole image, without anything that is tested here."""
    model, images = load_model(folder / "run"), read_images(folder / "photos")
    (batch,) = load_images(images, model.transform, batch=len(images), workers=0)
    with torch.no_grad():
        rows = model(batch.pixels).softmax(1).tolist()
    return {str(images.file(place)): row for place, row in zip(batch.places.tolist(), rows, strict=True)}


CLASSES = ("bark", "brick", "moss")


def test_lines_for_people(folder: Path, expected: dict[str, list[float]], capsys: pytest.CaptureFixture[str]) -> None:
    file = str(folder / "photos/train/moss/00.jpg")
    assert cli.main(["predict", str(folder / "run"), file, "--top", "2"]) == 0
    ranked = sorted(zip(expected[file], CLASSES, strict=True), reverse=True)[:2]
    assert capsys.readouterr().out == f"{file}: {', '.join(f'{name} {p:.1%}' for p, name in ranked)}\n"


def test_a_folder_as_json_lines(folder: Path, expected: dict[str, list[float]], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", str(folder / "run"), str(folder / "photos"), "--format", "jsonl", "--top", "9"]) == 1
    said = capsys.readouterr()
    records = [json.loads(line) for line in said.out.splitlines()]
    assert [record["path"] for record in records] == sorted(expected)
    for record in records:
        found = {each["class"]: each["probability"] for each in record["classes"]}
        assert [found[name] for name in CLASSES] == pytest.approx(expected[record["path"]], rel=1e-3, abs=1e-5)
        assert list(found.values()) == sorted(found.values(), reverse=True)
    for path, reason in photos.BROKEN.items():
        assert f"left out: {folder / 'photos' / path}: {reason}\n" in said.err
    assert said.err.splitlines()[-2].startswith("2 of 29 files gave no prediction; the first is ")
    assert said.err.splitlines()[-1] == "Mend or remove what is named above; all else is predicted (27)."


def test_a_table_of_names_from_another_program(
    folder: Path, expected: dict[str, list[float]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(folder / "photos/test/moss" / name) for name in ("07.jpg", "05.jpg", "07.jpg")]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join([*names, "", ""])))
    assert cli.main(["predict", str(folder / "run"), "-", "--format", "csv", "--top", "2"]) == 0
    header, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert header == ["path", "class", "probability", "class_2", "probability_2"]
    assert [row[0] for row in rows] == names[:2], "in the order given, each once"
    for row in rows:
        assert float(row[2]) == pytest.approx(max(expected[row[0]]), rel=1e-3)


def test_patterns_are_for_shells_that_have_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", str(folder / "run"), str(folder / "photos/**/moss/0[67].jpg")]) == 0
    assert [Path(line.partition(": ")[0]).name for line in capsys.readouterr().out.splitlines()] == ["06.jpg", "07.jpg"]
    assert cli.main(["predict", str(folder / "run"), "*.nothing"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == "No file matches '*.nothing'."


def test_a_name_with_brackets_is_a_name(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = tmp_path / "moss [1].jpg"
    odd.write_bytes((folder / "photos/train/moss/00.jpg").read_bytes())
    assert cli.main(["predict", str(folder / "run"), str(odd)]) == 0
    assert capsys.readouterr().out.startswith(f"{odd}: ")


def test_the_file_is_whole_even_if_images_are_broken(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    files = [str(folder / "photos/test/bark/04.jpg"), str(folder / "photos/test/bark/05.jpg"), str(tmp_path / "absent.jpg")]
    assert cli.main(["predict", str(folder / "run"), *files, "--format", "csv", "--out", str(out)]) == 1
    assert [row[0] for row in csv.reader(out.read_text().splitlines())] == ["path", files[1]]
    assert [each.name for each in tmp_path.iterdir()] == ["out.csv"]


def test_a_name_that_is_no_text_is_written_all_the_same(folder: Path, tmp_path: Path) -> None:
    odd, out = tmp_path / os.fsdecode(b"moss\xff.jpg"), tmp_path / "out.csv"
    try:
        odd.write_bytes((folder / "photos/train/moss/00.jpg").read_bytes())
    except (OSError, UnicodeError):
        pytest.skip("this file system wants names in UTF-8")
    assert cli.main(["predict", str(folder / "run"), str(odd), "--format", "csv", "--out", str(out)]) == 0
    assert "moss\\udcff.jpg,bark," in out.read_text("utf-8")


def test_a_name_that_cannot_be_costs_no_other_its_prediction(folder: Path) -> None:
    names = [b"no\xff.jpg", b"long" * 100, os.fsencode(folder / "photos/test/moss/05.jpg")]
    done = subprocess.run(
        [sys.executable, "-m", "compact_bilinear", "predict", folder / "run", "-"],
        input=b"\n".join(names),
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},
    )
    assert done.returncode == 1
    assert done.stdout.startswith(names[2] + b": ")
    assert done.stdout.count(b"\n") == 1
    assert done.stderr.count(b"left out: ") == 2


def test_who_reads_may_have_read_enough(folder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "compact_bilinear", "predict", folder / "run", folder / "photos/test/moss"]
    with os.fdopen(write) as pipe:
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_cannot_be_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, photo = str(folder / "run"), str(folder / "photos/train/moss/00.jpg")
    for arguments, told in (
        ([str(tmp_path), photo], "has no model.json"),
        ([run], "but none were given"),
        ([run, photo, "--top", "0"], "but got top=0"),
        ([run, photo, "--device", "abacus"], "There is no device 'abacus'"),
        ([run, photo, "--out", str(tmp_path)], f"{tmp_path} is a folder."),
        ([run, photo, "--out", str(tmp_path / "none/new.csv")], f"there is no folder {tmp_path / 'none'} for it."),
    ):
        assert cli.main(["predict", *arguments]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert told in lines[0]
        assert len(lines) == 2
