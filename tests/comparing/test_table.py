"""The table shows what the records hold, and marks two rows."""

from dataclasses import replace

import pytest

from compact_bilinear.comparing.choice import choose
from compact_bilinear.comparing.table import comparison_table
from planted_comparison import planted


def test_each_cell_is_its_record() -> None:
    records = planted()
    table = comparison_table(records, choose(records))
    assert [row.stub for row in table.rows] == [
        ("average pooling", ""),
        ("full bilinear, triangle", "best"),
        ("Tensor Sketch", "take"),
    ]
    columns = ("d", "error, %", "above the best", "mean AP, %", "error, % 1 a class", "bytes", "ms", "% of net")
    assert table.columns == columns
    numbers = dict(zip(columns, (number for (number,) in table.rows[2].cells), strict=True))
    assert {name: number.ours for name, number in numbers.items()} == pytest.approx(
        dict(zip(columns, (2048, 11.0, 1.0, 80.0, 55.0, 4096, 1.25, 12.5), strict=True))
    )
    assert numbers["error, %"].spread == pytest.approx(100 * (0.11 * 0.89 / 400) ** 0.5)
    assert numbers["above the best"].spread == pytest.approx(1.2)
    assert numbers["error, % 1 a class"].spread == pytest.approx(100 * 0.1 / 2**0.5)
    assert table.rows[1].cells[2][0].ours is None
    assert "standard error" in table.note


def test_a_seed_is_named() -> None:
    records = [record for record in planted() if record.pooling != "tensor-sketch:2048"]
    seeded = [type(each)(**{**vars(each), "pooling": "tensor-sketch:2048,seed=3"}) for each in planted() if each.d == 2048]
    table = comparison_table([*records, *seeded], choose([*records, *seeded]))
    assert table.rows[2].stub[0] == "Tensor Sketch, seed 3"


def test_what_images_find_has_a_column_where_it_was_measured() -> None:
    of_one = next(each for each in planted() if each.pooling == "tensor-sketch:2048" and each.measure == "mean AP")
    found = [replace(of_one, stage="retrieval", measure="recall@1", value=0.7), replace(of_one, stage="retrieval", value=0.5)]
    records = [*planted(), *found]
    table = comparison_table(records, choose(records))
    assert table.columns[5] == "finds, %"
    assert [row.cells[5][0].ours for row in table.rows] == [None, None, pytest.approx(70.0)]
    assert table.rows[2].cells[3][0].ours == pytest.approx(80.0), "the classifier's mean AP, and not that of the ranks"
