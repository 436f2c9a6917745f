"""Progress: lines where nobody watches, a bar where somebody does."""

import io
import sys
from types import SimpleNamespace

import pytest

from compact_bilinear import progress
from compact_bilinear.progress import counting_bar


def test_a_line_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 10.0, 40.0, 50.0, 60.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with counting_bar("extract", "images", done=100, total=300) as advance:
        for number in range(4):
            advance(50, f"loss {number}" if number == 3 else "")
    assert capsys.readouterr().err.splitlines() == [
        "extract: 200 of 300 images, 2.5 a second, 0.7 minutes left",
        "extract: 300 of 300 images, 3.33 a second; loss 3",
    ]


def test_nothing_to_do_is_nothing_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    with counting_bar("extract", "images", done=5, total=5):
        pass
    assert capsys.readouterr().err == ""


def test_a_bar_with_rate_and_time_left_for_those_who_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with counting_bar("extract", "images", done=2, total=7) as advance:
        for number in range(5):
            advance(1, f"loss {number}")
    shown = terminal.getvalue()
    assert "extract" in shown
    assert "7/7" in shown
    assert "images/s" in shown
    assert "0:00:00" in shown
    assert "loss 4" in shown
