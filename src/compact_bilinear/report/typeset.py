"""A table as Markdown, LaTeX, CSV and HTML.

Where the paper has numbers, a row is three lines: ours, the paper's, the difference. CSV is for programs: a line a number.
"""

import csv
import io
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..whole_file import write_whole
from .table import Cell, Number, Row, Table

if TYPE_CHECKING:
    from jinja2 import Environment

UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
LINES = ("ours", "paper", "difference")
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "−": "$-$",
        "–": "--",
        "±": r"$\pm$",
        "×": r"$\times$",
        "\u202f": r"\,",
    }
)


def to_markdown(table: Table) -> str:
    """A table for GitHub and its like, with its caption below."""
    heads = [*table.stub, *_line_heading(table), *table.columns]
    marks = ["---"] * (len(heads) - len(table.columns)) + ["--:"] * len(table.columns)
    lines = [_markdown_row(heads), f"|{'|'.join(marks)}|"]
    lines += [_markdown_row(cells) for row in table.rows for cells in _lines(table, row)]
    return "\n".join([*lines, "", _in_markdown(_sentences(table))]) + "\n"


def to_latex(table: Table) -> str:
    """A table environment that wants the package ``booktabs``."""
    heads = [*table.stub, *_line_heading(table), *table.columns]
    left = len(heads) - len(table.columns)
    body = []
    for row in table.rows:
        lines = [" & ".join(cell.translate(LATEX) for cell in cells) + r" \\" for cells in _lines(table, row)]
        body.append("\n".join(lines))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_sentences(table).translate(LATEX)}}}",
            rf"\begin{{tabular}}{{{'l' * left}{'r' * len(table.columns)}}}",
            r"\toprule",
            " & ".join(head.translate(LATEX) for head in heads) + r" \\",
            r"\midrule",
            ("\n\\addlinespace\n" if table.has_paper else "\n").join(body),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def to_csv(table: Table) -> str:
    """A line for each number that is not missing, as precise as it is known."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*table.stub, "column", "part", "ours", "spread", "repetitions", "paper", "difference"])
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            for part, number in zip(table.parts, cell, strict=True):
                if number.ours is not None or number.paper is not None:
                    numbers = (number.ours, number.spread, number.count, number.paper, number.difference)
                    written = ["" if each is None else f"{each:.10g}" for each in numbers]
                    lines.writerow([*row.stub, column, part, *written])
    return text.getvalue()


def to_html(table: Table) -> str:
    """A fragment to put into a page, as the report does."""
    return environment().get_template("table.html.jinja").render(table=table)


def write_table(table: Table, folder: Path, name: str) -> list[Path]:
    """Write a table as NAME.md, NAME.tex and NAME.csv, each whole or not at all.

    Args:
        table: which.
        folder: is there already.
        name: of the files, without ending.

    Returns:
        The files.
    """
    texts = {"md": to_markdown(table), "tex": to_latex(table), "csv": to_csv(table)}
    files = [folder / f"{name}.{ending}" for ending in texts]
    for file, text in zip(files, texts.values(), strict=True):
        write_whole(file, text)
    return files


@cache
def environment() -> "Environment":
    """Where the templates are; whatever they are filled with is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("compact_bilinear", "report")
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_printable
    )


def _printable(value: Any) -> Any:
    """Names of files may hold what no page may: control characters, half characters, and what turns the text round."""
    from markupsafe import Markup

    return UNPRINTABLE.sub("\ufffd", value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _lines(table: Table, row: Row) -> list[list[str]]:
    if not row.has_paper:
        return [[*row.stub, *(["ours"] if table.has_paper else []), *(_ours(cell) for cell in row.cells)]]
    texts = [[_ours(cell), _slashed(cell, "paper_text"), _slashed(cell, "difference_text")] for cell in row.cells]
    blank = [""] * len(row.stub)
    return [[*(blank if k else row.stub), name, *(text[k] for text in texts)] for k, name in enumerate(LINES)]


def _line_heading(table: Table) -> list[str]:
    return [""] if table.has_paper else []


def _ours(cell: Cell) -> str:
    return " / ".join(_with_spread(number) for number in cell)


def _with_spread(number: Number) -> str:
    return f"{number.ours_text} ± {number.spread_text}" if number.spread_text else number.ours_text


def _slashed(cell: Cell, text: str) -> str:
    return " / ".join(getattr(number, text) for number in cell)


def _sentences(table: Table) -> str:
    return " ".join(filter(None, [f"{table.caption}.", table.note]))


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(_in_markdown(cell) for cell in cells)} |"


def _in_markdown(text: str) -> str:
    for sign in "\\|*_`<>[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split("\n"))
