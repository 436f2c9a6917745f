"""Tables as text: the same bytes from the same records, and nothing that a name could break out of."""

import csv
import io
import random
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import planted_records as planted
from compact_bilinear.report.tables import Table, data_table, few_shot_table, pooling_table
from compact_bilinear.report.typeset import to_csv, to_html, to_latex, to_markdown, write_table

HOSTILE = r"""a|b <script>alert("1")</script> & 100% $x$ #_{y}~^ \input{z} *`[c](d)"""
FORMS = (to_markdown, to_latex, to_csv, to_html)


def without_paper() -> Table:
    return few_shot_table([replace(record, paper=None) for record in planted.table6()])


def hostile() -> Table:
    return data_table([replace(record, data=HOSTILE) for record in planted.table4() if record.data == "DTD"])


@pytest.mark.parametrize("form", FORMS)
def test_the_same_records_make_the_same_bytes(form) -> None:  # type: ignore[no-untyped-def]
    records = planted.table4()
    expected = form(data_table(records))
    for seed in range(3):
        assert form(data_table(random.Random(seed).sample(records, len(records)))) == expected


def test_markdown_has_as_many_cells_in_every_line() -> None:
    lines = to_markdown(data_table(planted.table4())).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 3 * 3
    assert {line.count("|") for line in table} == {9}
    assert table[0] == "| data | net |  | FC | Fisher | FB | RM | TS |"
    assert table[3] == "|  |  | paper | 49.90 / 42.03 | 52.73 / – | 29.41 / 22.44 | 36.42 / 23.96 | 31.53 / 23.06 |"
    assert lines[-1] == "Error in %, before / after fine-tuning. ± is the sample standard deviation of 3 repetitions."
    plain = to_markdown(without_paper()).splitlines()
    assert plain[0] == "| pooling | 1 | 2 | 3 | 7 | 14 |"
    assert len(plain) == 2 + 2 + 2


def test_rows_of_which_the_paper_has_nothing_are_one_line() -> None:
    records = planted.table4() + [replace(r, data="bark", paper=None) for r in planted.table4() if r.data == "DTD"]
    table = [line for line in to_markdown(data_table(records)).splitlines() if line.startswith("|")]
    assert len(table) == 2 + 3 * 3 + 1
    assert table[-1].startswith("| bark | VGG-D | ours | 39.77 ± ")
    assert {line.count("|") for line in table} == {9}


def test_csv_is_as_precise_as_the_records() -> None:
    table = data_table(planted.table4())
    read = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert {float(line["ours"]) for line in read} == {float(f"{n.ours:.10g}") for n in table.numbers if n.ours is not None}
    assert all(
        float(line["difference"]) == pytest.approx(float(line["ours"]) - float(line["paper"]), abs=1e-7) for line in read
    )
    assert {line["part"] for line in read} == {"before", "after"}
    assert len(to_csv(hostile()).splitlines()) == 1 + 9


def test_latex_is_balanced_and_escaped() -> None:
    for table in (data_table(planted.table4()), without_paper(), hostile()):
        text = to_latex(table)
        bare = text
        for escaped in (r"\{", r"\}", r"\&", r"\%", r"\#", r"\_", r"\$"):
            bare = bare.replace(escaped, "")
        assert bare.count("{") == bare.count("}")
        assert bare.count("$") % 2 == 0
        rows = [line for line in bare.splitlines() if line.endswith(r"\\")]
        assert {line.count("&") for line in rows} == {len(table.stub) + len(table.columns) - 1 + table.has_paper}
        assert "%" not in bare
        assert r"\input" not in text
    assert text.isprintable() or "\n" in text
    assert r"\toprule" in text
    assert "20.50 / 16.00" in to_latex(data_table(planted.table4()))


def test_html_is_well_formed_escaped_and_says_what_its_headings_head() -> None:
    for table in (data_table(planted.table4()), without_paper(), hostile(), pooling_table(planted.costs())):
        tree = ElementTree.fromstring(to_html(table))
        assert tree.findall(".//script") == []
        rows = tree.findall(".//tbody/tr")
        numbers = [cell.text or "" for row in rows for cell in row.findall("td")]
        assert [each for each in numbers if each.strip() == ""] == []
        assert len(numbers) == sum((3 if row.has_paper else 1) * len(row.cells) * len(table.parts) for row in table.rows)
        assert all(head.get("scope") for head in tree.findall(".//th"))
    assert HOSTILE in ["".join(head.itertext()) for head in ElementTree.fromstring(to_html(hostile())).findall(".//th")]


def test_hostile_names_stay_in_their_cell_of_markdown() -> None:
    table = [line for line in to_markdown(hostile()).splitlines() if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in table} == {9}
    assert r"\<script\>" in table[2]


def test_files_hold_what_the_forms_say(tmp_path: Path) -> None:
    table = data_table(planted.table4())
    files = write_table(table, tmp_path, "table4")
    assert [each.name for each in files] == ["table4.md", "table4.tex", "table4.csv"]
    assert [each.read_text(encoding="utf-8") for each in files] == [to_markdown(table), to_latex(table), to_csv(table)]
