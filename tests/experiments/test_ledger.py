"""What is there is known again, and other settings are refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from compact_bilinear.experiments.ledger import RECORDS, Ledger
from compact_bilinear.experiments.records import Record

RECORD = Record("table4", "CUB", "vgg16", "tensor-sketch:8192", 8192, "linear", "error", 0.205, None, 1, {"split": "split1"})


def test_a_number_is_known_by_its_cell_and_its_draw(tmp_path: Path) -> None:
    Ledger(tmp_path / "new" / "out").keep(RECORD)
    again = Ledger(tmp_path / "new" / "out")
    assert again.records == [RECORD]
    assert again.has(replace(RECORD, value=0.0, d=0, paper=0.2, made={"seconds": 3}))
    explained = dict(RECORD.details) | {"train images": 7, "classes": 2}
    assert again.has(replace(RECORD, details=explained)), "what explains a number does not tell it from others"
    others = [
        replace(RECORD, seed=0),
        replace(RECORD, stage="fine-tuned"),
        replace(RECORD, experiment="table3"),
        replace(RECORD, details={"split": "split0"}),
        replace(RECORD, details=dict(RECORD.details) | {"shots": 1}),
    ]
    for other in others:
        assert not again.has(other)


def test_another_experiment_may_have_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.keep(RECORD)
    assert ledger.elsewhere(replace(RECORD, experiment="fig-dim", value=0.0, d=0)) == RECORD
    assert ledger.elsewhere(replace(RECORD, experiment="fig-dim", seed=0)) is None


def test_a_line_that_was_cut_is_measured_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.keep(RECORD)
    ledger.keep(replace(RECORD, seed=2))
    file = tmp_path / RECORDS
    file.write_bytes(file.read_bytes()[:-9])
    again = Ledger(tmp_path)
    assert again.has(RECORD)
    assert not again.has(replace(RECORD, seed=2))
    again.keep(replace(RECORD, seed=2))
    assert len(Ledger(tmp_path).records) == 2


def test_settings_may_be_added_and_not_changed(tmp_path: Path) -> None:
    Ledger(tmp_path).agree({"size": 448, "weights of vgg16": None})
    Ledger(tmp_path).agree({"size": 448, "images of CUB": "ab" * 32})
    Ledger(tmp_path).agree({})
    with pytest.raises(ValueError, match=r"changed are size: 448 → 224; images of CUB: abababababab… → cdcdcdcdcdcd…\.\n"):
        Ledger(tmp_path).agree({"size": 224, "images of CUB": "cd" * 32})
    with pytest.raises(ValueError, match="weights of vgg16: null → "):
        Ledger(tmp_path).agree({"weights of vgg16": "ab" * 32})
    Ledger(tmp_path).agree({"size": 448})


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"is a file\.\nGive a folder: --out reproduced"):
        Ledger(tmp_path / "file")
