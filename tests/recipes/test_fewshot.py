"""The command `cbp fewshot` as its users run it."""

import json
import re
import sys
from pathlib import Path
from statistics import mean, stdev

import pytest

from compact_bilinear import cli
from compact_bilinear.recipes.fewshot import FewShot, FewShotTable, run
from planted import DIMS, K, blurred, clear, plant


def records(folder: Path, *flags: str, capsys: pytest.CaptureFixture[str]) -> list[dict]:
    assert cli.main(["fewshot", str(folder), "--json", *flags]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant(tmp_path / "store", clear)
    assert cli.main(["fewshot", str(tmp_path / "store"), "--shots", "2", "1", "2"]) == 0
    said = capsys.readouterr()
    title, *lines = said.out.splitlines()
    drawn = "1, 2 images of each of 5 classes, drawn 5 times from the training images, scored on 30 test images"
    assert title == f"{tmp_path / 'store'}: {drawn}"
    head = ["pooling", "classifier", "1", "2"]
    rows = [[pooling, name, *["100.0 ± 0.0"] * 2] for pooling in DIMS for name in ("logistic", "nearest-mean")]
    apart = [["tensor-sketch:31", name, *["+0.0 ± 0.0"] * 2] for name in ("logistic", "nearest-mean")]
    expected = [[""], ["mean average precision, %"], head, *rows, [""], ["accuracy, %"], head, *rows]
    expected += [[""], ["mean average precision, %, less that of full-bilinear in the same draws"], head, *apart]
    assert [re.split(r" {2,}", line) for line in lines] == expected
    assert len({line.index("100.0") for line in lines if "100.0" in line}) == 1, "columns are aligned"
    assert "5 of 5 draws" in said.err


def test_json_has_the_scores_of_each_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant(tmp_path / "store")
    found = records(tmp_path / "store", "--shots", "1", "4", "--draws", "3", "--seed", "7", "--lambda", "0.01", capsys=capsys)
    assert [(each["pooling"], each["classifier"], each["shots"]) for each in found] == [
        (pooling, classifier, shots) for pooling in DIMS for classifier in ("logistic", "nearest-mean") for shots in (1, 4)
    ]
    for each in found:
        assert (each["d"], each["classes"], each["draws"], each["seed"]) == (DIMS[each["pooling"]], K, 3, 7)
        assert (each["scored"], each["scored_on"]) == (30, "test")
        assert each.get("lambda") == (0.01 if each["classifier"] == "logistic" else None)
        for key in ("mean_average_precision", "accuracy"):
            by_draw = each[f"{key}_by_draw"]
            assert len(by_draw) == 3
            assert each[key] == pytest.approx(mean(by_draw))
            assert each[f"{key}_sd"] == pytest.approx(stdev(by_draw))
            assert 0 <= min(by_draw) <= max(by_draw) <= 1
    assert len({each["mean_average_precision"] for each in found}) == len(found), "all of them differ"


def test_draws_are_the_same_for_all_poolings_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # the same features under two names
    plant(tmp_path / "store", dims={"random-maclaurin:40": 40, "tensor-sketch:40": 40})
    both = records(tmp_path / "store", "--shots", "1", "3", capsys=capsys)
    assert [each | {"pooling": ""} for each in both[:4]] == [each | {"pooling": ""} for each in both[4:]]
    alone = records(tmp_path / "store", "--pool", "tensor-sketch:40", "--shots", "3", "--classifier", "logistic", capsys=capsys)
    assert alone == [both[5]]
    other = records(tmp_path / "store", "--shots", "1", "3", "--seed", "1", capsys=capsys)
    assert other[0]["accuracy_by_draw"] != both[0]["accuracy_by_draw"]


def test_one_draw_has_no_spread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant(tmp_path / "store", clear)
    (found, *_) = records(tmp_path / "store", "--draws", "1", "--shots", "1", capsys=capsys)
    assert found["accuracy_sd"] is None
    cli.main(["fewshot", str(tmp_path / "store"), "--draws", "1", "--shots", "1"])
    said = capsys.readouterr().out
    assert "drawn once from the training images" in said
    assert "±" not in said


def test_numbers_of_images_that_the_store_has_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant(tmp_path / "store", train=(9, 8, 7, 9, 9))
    found = records(tmp_path / "store", "--draws", "2", capsys=capsys)
    assert [each["shots"] for each in found[:4]] == [1, 2, 3, 7]
    cli.main(["fewshot", str(tmp_path / "store"), "--draws", "2"])
    assert "left out are 14 images of each class: the smallest class has 7 to draw from\n" in capsys.readouterr().err
    # but what somebody asked for is not left out without a word
    assert cli.main(["fewshot", str(tmp_path / "store"), "--shots", "1", "8"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"8 images of each class are to be drawn, but {tmp_path / 'store'} has 7 of owl to draw from.",
        "Ask for 1 to 7, or extract with more images of that class.",
    ]


def test_without_a_test_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant(tmp_path / "store", clear, test=0)
    (found, *_) = records(tmp_path / "store", "--shots", "3", capsys=capsys)
    assert (found["scored"], found["scored_on"]) == (6 * K, "not drawn")
    cli.main(["fewshot", str(tmp_path / "store"), "--shots", "3"])
    assert "drawn 5 times from all images, scored on 30 images that are not drawn\n" in capsys.readouterr().out


def test_images_without_a_class_are_told_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant(tmp_path / "store", unknown=4)
    (found, *_) = records(tmp_path / "store", "--shots", "3", capsys=capsys)
    assert found["scored"] == 30
    cli.main(["fewshot", str(tmp_path / "store"), "--shots", "3"])
    assert "4 images whose class is not known are neither drawn nor scored\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--pool", "fisher-vector:64"], "has no features 'fisher-vector:64'.\nIt has full-bilinear, tensor-sketch:31"),
        (["--shots", "0"], "at least one image of each class, but got 0.\nWrite --shots 1 2 3."),
        (["--draws", "0"], "at least one draw, but got 0.\nWrite --draws 5."),
        (["--seed", "-1"], "a seed ≥ 0, but got -1.\nWrite --seed 0."),
        (["--lambda", "0"], "λ > 0, but got 0.0.\nWrite --lambda 1e-3"),
        (["--lambda", "nan"], "λ > 0, but got nan.\n"),
        (["--device", "abacus"], "no device 'abacus'.\nWrite cpu, cuda or auto."),
    ],
)
def test_what_cannot_be_meant_is_told_in_two_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], told: str
) -> None:
    plant(tmp_path / "store")
    assert cli.main(["fewshot", str(tmp_path / "store"), *flags]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert told in said.err
    assert len(said.err.splitlines()) == 2


def test_a_folder_that_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fewshot", str(tmp_path)]) == 2
    assert re.fullmatch(r"A feature store is a folder .*\nCheck its name.*\n", capsys.readouterr().err)


def test_a_person_sees_the_table_of_rich(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(tmp_path / "store", clear)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    arguments = ["fewshot", str(tmp_path / "store"), "--shots", "1", "--pool", "full-bilinear"]
    assert cli.main(arguments) == 0
    watched = capsys.readouterr().out
    assert "┃" in watched
    assert "nearest-mean" in watched
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert cli.main(arguments) == 0
    assert "┃" not in capsys.readouterr().out


def test_from_python(tmp_path: Path) -> None:
    plant(tmp_path / "store", blurred)
    table = run(FewShot(tmp_path / "store", shots=(1,), draws=2, classifier="logistic"))
    assert isinstance(table, FewShotTable)
    full, sketched = (record["mean_average_precision_by_draw"] for record in table.records)
    apart = [100 * (one - another) for one, another in zip(sketched, full, strict=True)]
    assert str(table).splitlines()[-1].endswith(f"  {mean(apart):+.1f} ± {stdev(apart):.1f}")
    text = run(FewShot(tmp_path / "store", shots=(1,), draws=2, classifier="logistic", json=True))
    assert [json.loads(line) for line in str(text).splitlines()] == list(table.records)
