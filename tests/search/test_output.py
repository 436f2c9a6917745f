"""Text, CSV and JSON of the same rows, whatever is in them."""

import csv
import json

from compact_bilinear.search.output import as_text, group_as_text

ROWS = [{"path": 'a, "b" é.jpg', "similarity": 0.25, "class": ""}, {"path": "c.jpg", "similarity": 1.0, "class": "wren"}]


def test_rows() -> None:
    assert as_text(ROWS, "text").splitlines() == [
        "path          similarity  class",
        'a, "b" é.jpg  0.250',
        "c.jpg         1.000       wren",
    ]
    read = list(csv.DictReader(as_text(ROWS, "csv").splitlines()))
    assert read == [{name: str(value) for name, value in row.items()} for row in ROWS]
    assert [json.loads(line) for line in as_text(ROWS, "jsonl").splitlines()] == ROWS


def test_groups() -> None:
    groups = [({"query": "x,y"}, ROWS), ({"query": "z"}, ROWS[:1])]
    table = [group_as_text(title, "found", rows, "csv", first=place == 0) for place, (title, rows) in enumerate(groups)]
    read = list(csv.DictReader("\n".join(table).splitlines()))
    assert [(row["query"], row["path"]) for row in read] == [("x,y", ROWS[0]["path"]), ("x,y", "c.jpg"), ("z", ROWS[0]["path"])]
    lines = [group_as_text(title, "found", rows, "jsonl", first=False) for title, rows in groups]
    assert [json.loads(line) for line in lines] == [{**title, "found": rows} for title, rows in groups]
    assert group_as_text({"query": "z"}, "found", ROWS[:1], "text", first=True).splitlines() == ["z", '  a, "b" é.jpg  0.250']
    assert group_as_text({"query": "z"}, "found", [], "text", first=True) == "z"


def test_numbers_that_nobody_has() -> None:
    assert as_text([{"same": None, "bytes": 1234.5}], "text").splitlines()[1] == "–     1234"
