"""Tables: the right number in the right place, whatever the order; nothing shown twice, nothing invented."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

import planted_records as planted
from compact_bilinear.experiments.records import Record, summaries
from compact_bilinear.report.table import Table
from compact_bilinear.report.tables import (
    cost_table,
    data_table,
    dimension_table,
    few_shot_table,
    pooling_table,
    sizes_table,
)

TABLES: list[tuple[Callable[[list[Record]], Table], list[Record]]] = [
    (data_table, planted.table4()),
    (dimension_table, planted.table3()),
    (few_shot_table, planted.table6()),
    (cost_table, planted.costs()),
    (pooling_table, [record for record in planted.table4() if record.data == "CUB"]),
]


def cell(table: Table, stub: tuple[str, ...], column: str) -> tuple[str, ...]:
    (row,) = [row for row in table.rows if row.stub == stub]
    return tuple(
        f"{number.ours_text}±{number.spread_text} {number.paper_text} {number.difference_text}"
        for number in row.cells[table.columns.index(column)]
    )


@pytest.mark.parametrize(("make", "records"), TABLES, ids=lambda each: getattr(each, "__name__", ""))
def test_the_order_of_records_does_not_matter(make: Callable[[list[Record]], Table], records: list[Record]) -> None:
    expected = make(records)
    for seed in range(3):
        assert make(random.Random(seed).sample(records, len(records))) == expected


@pytest.mark.parametrize(("make", "records"), TABLES, ids=lambda each: getattr(each, "__name__", ""))
def test_every_number_is_one_of_the_records(make: Callable[[list[Record]], Table], records: list[Record]) -> None:
    known = {each.mean * (100 if each.measure in ("error", "mean AP") else 1) for each in summaries(records)}
    known |= {record.d for record in records} | {4 * record.d for record in records}
    shown = {number.ours for number in make(records).numbers if number.ours is not None}
    assert shown <= known
    assert len(shown) > 5


def test_table_4_is_laid_out_as_the_paper_s() -> None:
    records = [record for record in planted.table4() if record.seed == 0]
    table = data_table([replace(each, value=each.paper + 0.01) for each in records if each.paper is not None])
    assert table.columns == ("FC", "Fisher", "FB", "RM", "TS")
    assert [row.stub for row in table.rows] == [("CUB", "VGG-M"), ("CUB", "VGG-D"), ("DTD", "VGG-D")]
    assert table.parts == ("before", "after")
    assert cell(table, ("CUB", "VGG-D"), "TS") == ("21.50± 20.50 +1.00", "17.00± 16.00 +1.00")
    assert cell(table, ("CUB", "VGG-M"), "Fisher") == ("53.73± 52.73 +1.00", "–± – –")
    assert table.note == ""


def test_columns_of_the_paper_are_there_without_numbers() -> None:
    table = data_table([record for record in planted.table4() if record.pooling.startswith("tensor")])
    assert table.columns == ("FC", "Fisher", "FB", "RM", "TS")
    assert cell(table, ("DTD", "VGG-D"), "RM") == ("–± – –", "–± – –")


def test_table_3_and_6() -> None:
    table = dimension_table(planted.table3())
    assert table.columns == ("256", "1024", "4096", "16\u202f384")
    assert [row.stub for row in table.rows] == [("PCA",), ("TS",)]
    assert [number.paper_text for number in table.rows[1].cells[2]] == ["33.9", "23.2"]
    table = few_shot_table(planted.table6())
    assert table.columns == ("1", "2", "3", "7", "14")
    assert table.parts == ("",)
    assert [cell[0].paper_text for cell in table.rows[0].cells] == ["12.7", "21.5", "27.4", "41.7", "53.9"]
    assert table.note == "± is the sample standard deviation of 3 repetitions."


def test_table_5_counts() -> None:
    cells = [
        ("CUB", "train images", 5994),
        ("CUB", "classes", 200),
        ("DTD", "train images", 1880),
        ("DTD", "test images", 3760),
    ]
    records = [Record("table5", data, "", "", 0, "", measure, count, count) for data, measure, count in cells]
    table = sizes_table(records)
    assert table.columns == ("train images", "test images", "classes")
    assert cell(table, ("DTD",), "train images") == ("1880± 1880 0",)
    assert cell(table, ("DTD",), "classes") == ("–± – –",)


def test_costs_have_three_digits_that_count() -> None:
    table = cost_table(planted.costs())
    assert table.columns == ("FB", "RM", "TS")
    assert cell(table, ("parameters",), "RM") == ("8\u202f388\u202f608± – –",)
    assert cell(table, ("ms",), "FB") == ("0.785±0.015 0.770 +0.015",)


def test_poolings_as_rows_begin_with_what_is_known_of_them() -> None:
    records = [record for record in planted.table4() if (record.data, record.backbone) == ("CUB", "vgg16")]
    several = [
        replace(each, experiment="x", pooling="tensor-sketch:512", d=512, measure="ms", value=v, stage="", paper=None)
        for each, v in zip(records[:1], (312.0,), strict=True)
    ]
    several += [replace(several[0], pooling="full-bilinear", d=262144, value=0.771)]
    table = pooling_table([*records, *several])
    assert table.columns == ("d", "bytes", "error in %", "error in %, fine-tuned", "ms")
    assert [row.stub for row in table.rows][-2:] == [("Tensor Sketch",), ("Tensor Sketch",)], "two dimensions, two rows"
    assert [row.cells[0][0].ours for row in table.rows][-2:] == [512, 8192]
    assert [row.cells[-1][0].ours_text for row in table.rows] == ["–", "–", "0.77", "–", "312.00", "–"]


def test_two_numbers_for_one_place_are_refused() -> None:
    records = planted.table4()
    with pytest.raises(ValueError, match=r"row CUB, VGG-M, column FC has those of table4 .* and x .*\nPass the records of one"):
        data_table([*records, replace(records[0], experiment="x")])
    with pytest.raises(ValueError, match=r"got none for: .*\nCheck which file was read"):
        few_shot_table(records)
