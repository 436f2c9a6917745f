"""A comparison in a terminal: as much of its table as there is room for, and what to take in bold."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..experiments.records import Record
from ..report.names import BEFORE, place
from .choice import Choice
from .table import comparison_table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

# what a narrow terminal does without, the first to go first
DISPENSABLE = ("mean AP", "bytes", "finds", "ms", "5 shots", "1 shot", "above best")
HEADS = {
    "error, %": "error, %",
    "above the best": "above best",
    "mean AP, %": "mean AP",
    "finds, %": "finds",
    "error, % 1 a class": "1 shot",
    "error, % 5 a class": "5 shots",
}


def plain(records: Sequence[Record], choice: Choice) -> str:
    """The table in plain text."""
    rows = _rows(records, choice)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *numbers = (
            text.ljust(width) if place == 0 else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *numbers]).rstrip())
    return "\n".join(lines)


class Printed:
    """The table for rich.

    Args:
        records: of one comparison.
        choice: made from them.
    """

    def __init__(self, records: Sequence[Record], choice: Choice) -> None:
        self.rows, self.choice = _rows(records, choice), choice

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        from rich import box
        from rich.table import Table
        from rich.text import Text

        head, *rows = self.rows
        kept = list(range(len(head)))
        for name in DISPENSABLE:
            if sum(max(len(row[k]) for row in self.rows) + 2 for k in kept) <= options.max_width:
                break
            kept = [k for k in kept if head[k] != name]
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
        for k in kept:
            table.add_column(Text(head[k]), justify="left" if k == 0 else "right", no_wrap=True)
        for row in rows:
            taken = row[0].startswith(TAKEN)
            table.add_row(*(Text(row[k]) for k in kept), style="bold green" if taken else None)
        yield table


TAKEN = "▸ "


def _rows(records: Sequence[Record], choice: Choice) -> list[list[str]]:
    """A heading, and a line for each pooling, under the names that a command line takes."""
    table = comparison_table(records, choice)
    poolings = sorted({each.pooling for each in records if each.stage == BEFORE}, key=place)
    rows = [["pooling", *(HEADS.get(name, name) for name in table.columns)]]
    for pooling, row in zip(poolings, table.rows, strict=True):
        mark = TAKEN if pooling == choice.taken.pooling else "  "
        numbers = [number for (number,) in row.cells]
        few = [number for number, head in zip(numbers, table.columns, strict=True) if "a class" in head]
        texts = [
            f"{number.ours_text} ± {number.spread_text}" if number.spread_text and number not in few else number.ours_text
            for number in numbers
        ]
        rows.append([mark + pooling, *texts])
    return rows
