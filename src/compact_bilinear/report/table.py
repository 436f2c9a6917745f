"""What a table is: rows and columns of cells, with ours ± spread, the paper's number, and the difference."""

from dataclasses import dataclass

MISSING = "–"
THIN = "\u202f"  # a space that does not break, between thousands


@dataclass(frozen=True)
class Number:
    """What stands in one place of a table, in the unit in which it is shown: shares are percent.

    Args:
        ours: the mean of our repetitions; None where there are none.
        spread: their sample standard deviation.
        count: how many they are.
        paper: the paper's number.
        digits: after the point.
    """

    ours: float | None = None
    spread: float | None = None
    count: int = 0
    paper: float | None = None
    digits: int = 2

    @property
    def ours_text(self) -> str:
        """Our mean."""
        return as_text(self.ours, self.digits)

    @property
    def spread_text(self) -> str:
        """The spread, empty where there is none."""
        return "" if self.spread is None else as_text(self.spread, self.digits)

    @property
    def paper_text(self) -> str:
        """The paper's number."""
        return as_text(self.paper, self.digits)

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, None without one of them."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper

    @property
    def difference_text(self) -> str:
        """The difference, with its sign."""
        return as_text(self.difference, self.digits, signed=True)


Cell = tuple[Number, ...]  # one for each part of the table


@dataclass(frozen=True)
class Row:
    """What the row is about, and its cells."""

    stub: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def has_paper(self) -> bool:
        """Whether the paper has a number for any of its cells."""
        return any(number.paper is not None for cell in self.cells for number in cell)


@dataclass(frozen=True)
class Table:
    """Rows and columns of cells.

    Args:
        caption: what the numbers are, in a sentence.
        stub: headings of the columns that say what a row is about.
        columns: headings of the columns of numbers.
        rows: each with as many cells as there are columns.
        parts: what a cell holds: ("",) for one number, or ("before", "after").
    """

    caption: str
    stub: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    parts: tuple[str, ...] = ("",)

    @property
    def numbers(self) -> list[Number]:
        """All numbers, row by row."""
        return [number for row in self.rows for cell in row.cells for number in cell]

    @property
    def has_paper(self) -> bool:
        """Whether the paper has a number for any cell."""
        return any(row.has_paper for row in self.rows)

    @property
    def slots(self) -> tuple[int, ...]:
        """Letters that the widest "± spread" of each column takes, 0 where there is none."""
        columns = zip(*(row.cells for row in self.rows), strict=True)
        widest = [max(len(number.spread_text) for cell in cells for number in cell) for cells in columns]
        return tuple(width + len(" ± ") if width else 0 for width in widest)

    @property
    def note(self) -> str:
        """What ± is, and of how many repetitions."""
        counts = sorted({number.count for number in self.numbers if number.spread is not None})
        if not counts:
            return ""
        some = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        return f"± is the sample standard deviation of {some} repetitions."


def as_text(value: float | None, digits: int = 2, *, signed: bool = False) -> str:
    """A number as it is printed: thousands apart, a real minus, a dash for none.

    Args:
        value: in the unit in which it is shown.
        digits: after the point.
        signed: with a + as well.

    >>> as_text(20.499), as_text(8192, 0), as_text(-0.5, 1, signed=True), as_text(-0.004), as_text(None)
    ('20.50', '8192', '−0.5', '0.00', '–')
    """
    if value is None:
        return MISSING
    text = f"{value:,.{digits}f}"
    text = text.replace(",", THIN if abs(value) >= 10_000 else "")
    if not any(figure in text for figure in "123456789"):
        return text.lstrip("-")  # there is no minus nought
    return f"+{text}" if signed and value > 0 else text.replace("-", "−")
