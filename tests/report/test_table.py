"""Numbers as they are printed, and what a table knows of its cells."""

from compact_bilinear.report.table import Number, Row, Table, as_text


def test_numbers_as_text() -> None:
    assert [as_text(value, 1, signed=True) for value in (0.04, -0.04, 0.06, -12345.67, None)] == [
        "0.0", "0.0", "+0.1", "−12\u202f345.7", "–",
    ]  # fmt: skip


def test_difference_is_that_of_what_is_measured_not_of_what_is_printed() -> None:
    number = Number(20.449, 0.2, 3, 20.5, digits=1)
    assert (number.ours_text, number.paper_text, number.difference_text) == ("20.4", "20.5", "−0.1")
    assert (Number(3.0).difference_text, Number(paper=3.0).ours_text, Number(3.0).spread_text) == ("–", "–", "")


def test_a_table_knows_how_wide_spreads_are_and_of_how_many_repetitions() -> None:
    cells = ((Number(1.0, 0.5, 3),), (Number(2.0),)), ((Number(10.0, 12.25, 5),), (Number(3.0, paper=2.0),))
    table = Table("Numbers", ("row",), ("a", "b"), tuple(Row((str(k),), row) for k, row in enumerate(cells)))
    assert table.slots == (len(" ± 12.25"), 0)
    assert table.note == "± is the sample standard deviation of 3 to 5 repetitions."
    assert [row.has_paper for row in table.rows] == [False, True]
    assert table.has_paper
    assert Table("None", (), (), ()).note == ""
