"""Results as text: to be read, as CSV, or as JSON, an object a line."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Format = Literal["text", "csv", "jsonl"]
Row = Mapping[str, Any]


def as_text(rows: Sequence[Row], style: Format) -> str:
    """Rows with the same names, with a line that names them.

    >>> print(as_text([{"engine": "flat", "mAP": 1.0}, {"engine": "hnsw", "mAP": 0.98765}], "text"))
    engine  mAP
    flat    1.000
    hnsw    0.988
    """
    if style == "jsonl":
        return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    if style == "csv":
        return _csv(rows, header=True)
    return "\n".join(_columns([dict(zip(rows[0], rows[0], strict=True)), *rows]))


def group_as_text(title: Row, name: str, rows: Sequence[Row], style: Format, *, first: bool) -> str:
    """Rows that belong together.

    Args:
        title: what is to be said of all of them, one thing.
        name: of the rows, in JSON.
        rows: with the same names.
        style: how.
        first: whether this is the first group: CSV names its columns once.

    >>> print(group_as_text({"query": "a.jpg"}, "neighbours", [{"rank": 1, "path": "b.jpg"}], "text", first=True))
    a.jpg
      1  b.jpg
    >>> print(group_as_text({"query": "a.jpg"}, "neighbours", [{"rank": 1, "path": "b.jpg"}], "jsonl", first=True))
    {"query": "a.jpg", "neighbours": [{"rank": 1, "path": "b.jpg"}]}
    """
    if style == "jsonl":
        return json.dumps({**title, name: rows}, ensure_ascii=False)
    if style == "csv":
        return _csv([{**title, **row} for row in rows], header=first)
    return "\n".join([*map(str, title.values()), *(f"  {line}" for line in _columns(rows))])


def _csv(rows: Sequence[Row], *, header: bool) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().removesuffix("\n")


def _columns(rows: Sequence[Row]) -> list[str]:
    cells = [[_short(value) for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _short(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"
    return str(value)
