"""The log: a line is there at once, none is there twice, and TensorBoard gets the same numbers."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from compact_bilinear.finetuning.log import Log


def steps(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_line_is_there_at_once(tmp_path: Path) -> None:
    with Log(tmp_path, 0, 0) as log:
        log.write("step", 1, {"loss": 0.5, "broken": ["é.jpg"]})
        line = (tmp_path / "log.jsonl").read_text(encoding="utf-8")
    assert line == '{"event": "step", "step": 1, "loss": 0.5, "broken": ["é.jpg"]}\n'


def test_what_came_after_the_checkpoint_is_cut_off(tmp_path: Path) -> None:
    with Log(tmp_path, 0, 0) as log:
        for step in (1, 2, 3):
            log.write("step", step, {})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"event": "st')  # killed in the middle of a line
    with Log(tmp_path, 2, 2) as log:
        assert log.lines == 2
        log.write("step", 3, {})
    assert steps(tmp_path) == [1, 2, 3]
    with Log(tmp_path, 0, 0):
        assert steps(tmp_path) == []


def test_a_log_that_lost_its_end_goes_on(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"event": "step", "step": 1}\n{"eve')
    with Log(tmp_path, 5, 5) as log:
        log.write("step", 6, {})
        assert log.lines == 2
    assert steps(tmp_path) == [1, 6]


def test_only_the_first_process_writes(tmp_path: Path) -> None:
    with Log(None, 3, 3) as log:
        log.write("step", 4, {})
    assert log.lines == 3
    assert not list(tmp_path.iterdir())


def test_tensorboard_gets_the_numbers_if_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int) -> None:
            told.append((folder, purge_step))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            told.append((name, value, step))

        def close(self) -> None:
            told.append("closed")

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    with Log(tmp_path, 0, 8) as log:
        log.write("step", 9, {"loss": 0.5, "broken": ["a.jpg"]})
    assert told == [(str(tmp_path / "tensorboard"), 9), ("step/loss", 0.5, 9), "closed"]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # as if it were not
    with Log(tmp_path, 0, 0) as log:
        log.write("step", 1, {"loss": 0.5})
