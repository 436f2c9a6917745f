"""The table in a terminal: no line is broken, and what is dropped goes in its order."""

import io

import pytest

from compact_bilinear.comparing.choice import choose
from compact_bilinear.comparing.printed import Printed, plain
from planted_comparison import planted


def test_plain_text_has_every_column() -> None:
    records = planted()
    lines = plain(records, choose(records)).splitlines()
    assert lines[0].split("  ")[0] == "pooling"
    assert lines[0].endswith("above best  mean AP  1 shot   bytes    ms  % of net")
    assert " ".join(lines[1].split()) == "average-pool 192 30.0 ± 2.3 20.0 ± 1.2 80.0 55.0 384 1.25 12.5"
    assert lines[2].split(" ", 2)[2].startswith("full-bilinear-triangle  18\u202f528  10.0 ± 1.5           –")
    assert lines[3].startswith("▸ tensor-sketch:2048 ")


@pytest.mark.parametrize(
    ("width", "head"),
    [(60, "pooling d error, % % of net"), (120, "pooling d error, % above best mean AP 1 shot bytes ms % of net")],
)
def test_a_narrow_terminal_has_fewer_columns(width: int, head: str) -> None:
    from rich.console import Console

    records = planted()
    text = io.StringIO()
    Console(file=text, width=width).print(Printed(records, choose(records)))
    lines = text.getvalue().splitlines()
    assert " ".join(next(line for line in lines if "pooling" in line).split()) == head
    assert all(len(line) <= width for line in lines)
    assert sum("±" in line for line in lines) == 3  # and none is broken in two
