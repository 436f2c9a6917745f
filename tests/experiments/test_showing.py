"""From records to what is read."""

from dataclasses import replace
from pathlib import Path

import pytest

import planted_records
from compact_bilinear.experiments import table4
from compact_bilinear.experiments.showing import OTHER_CELLS, OTHER_IMAGES, in_columns, write_files, write_page
from compact_bilinear.recipes.reproduce import load
from compact_bilinear.report.tables import data_table
from compact_bilinear.report.typeset import to_markdown

NAMES = ("table3", "table4", "fig-dim", "table6")
PLANTED = {
    "table3": planted_records.table3,
    "table4": planted_records.table4,
    "fig-dim": planted_records.fig_dim,
    "table6": planted_records.table6,
}


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_has_its_table_in_three_forms(name: str, tmp_path: Path) -> None:
    records = PLANTED[name]()
    said = write_files(tmp_path, load(name), records)
    files = {file.name for file in tmp_path.iterdir()}
    assert {f"{name}.md", f"{name}.tex", f"{name}.csv"} <= files
    assert OTHER_IMAGES not in said
    assert any(file.endswith(".svg") for file in files) == (name != "table4")
    without = write_files(tmp_path, load(name), [replace(record, paper=None) for record in records])
    assert OTHER_CELLS in without
    of_bark = [replace(record, paper=None, data="bark") for record in records if record.data == "CUB"]
    others = write_files(tmp_path, load(name), of_bark)
    assert OTHER_IMAGES in others


def test_what_is_only_of_mit_is_said_of_mit_alone() -> None:
    records = planted_records.table4()
    assert "diverged" not in table4.EXPERIMENT.text(records)
    assert "diverged" in table4.EXPERIMENT.text([replace(record, data="MIT") for record in records])


def test_the_page_has_everything_and_depends_on_records_alone(tmp_path: Path) -> None:
    records = [record for name in NAMES for record in PLANTED[name]()]
    experiments = {name: load(name) for name in (*NAMES, "kernel")}
    first = write_page(tmp_path, experiments, records, {"size": 448}).read_bytes()
    assert write_page(tmp_path, experiments, records[::-1], {"size": 448}).read_bytes() == first
    page = first.decode()
    for name in NAMES:
        assert experiments[name].title in page
    assert experiments["kernel"].title not in page, "it has no records"
    for text in ("What the paper says", "cbp reproduce fig-dim", "2.13.0", "448", "images: CUB, DTD"):
        assert text in page


def test_what_two_experiments_share_counts_once(tmp_path: Path) -> None:
    records = planted_records.table4()
    twice = [*records, *(replace(record, experiment="fig-dim") for record in records)]
    experiments = {"table4": load("table4")}
    once, both = (write_page(tmp_path, experiments, some, {}).read_text() for some in (records, twice))

    def claims(page: str) -> str:
        return page[page.index("What the paper says, and") : page.index(experiments["table4"].title, page.index("<section"))]

    assert claims(once) == claims(both)


def test_a_table_for_a_terminal() -> None:
    table = data_table(planted_records.table4())
    text = in_columns(to_markdown(table))
    lines = text.split("\n")
    assert "\\" not in text
    assert len({len(line.rstrip()) for line in lines[1:4]}) <= 3
    assert lines[0].split() == ["data", "net", "FC", "Fisher", "FB", "RM", "TS"]
    assert [line for line in lines if line.strip().startswith("paper")]
