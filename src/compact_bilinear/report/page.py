"""One page of HTML that holds a whole report: sections in an order that the caller decides, and nothing from elsewhere.

A :class:`Report` is data, made of the sections below; :func:`html` makes text of it, and :func:`write_report` a file. The same
report is the same bytes: no time and no path gets in that is not given.

>>> from compact_bilinear.experiments.records import Record
>>> from compact_bilinear.report.tables import data_table
>>> cell = ("compare", "bark", "tiny", "tensor-sketch:8192", 8192, "linear", "error")
>>> records = [Record(*cell, 0.12, seed=0), Record(*cell, 0.13, seed=1)]
>>> page = html(Report("Bark", ["Tensor Sketch errs in 12.5 %."], [TableSection("All poolings", data_table(records))]))
>>> "12.50<span" in page
True
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

from ..whole_file import write_whole
from .claims import Finding
from .drawing import DARK, Drawing
from .pictures import BOUND, Picture, embed
from .table import Table, as_text
from .typeset import environment


@dataclass(frozen=True)
class TableSection:
    """A table, with what is to be said of it."""

    title: str
    table: Table
    text: str = ""
    kind: ClassVar[str] = "table"


@dataclass(frozen=True)
class FigureSection:
    """One figure or several, side by side where there is room. Their alternatives are their captions."""

    title: str
    drawings: Sequence[Drawing]
    text: str = ""
    kind: ClassVar[str] = "figures"


class Pair(NamedTuple):
    """Two images side by side, and what is to be said of both."""

    left: Picture
    right: Picture
    caption: str = ""


@dataclass(frozen=True)
class PairSection:
    """Images two by two: what was confused, beside an image of the class it was taken for."""

    title: str
    pairs: Sequence[Pair]
    text: str = ""
    kind: ClassVar[str] = "pairs"

    @property
    def pictures(self) -> Iterator[Picture]:
        """All of its images, in their order."""
        return (picture for pair in self.pairs for picture in (pair.left, pair.right))


@dataclass(frozen=True)
class GallerySection:
    """Rows of images, each row under a heading: the most confident, the least confident."""

    title: str
    rows: Mapping[str, Sequence[Picture]]
    text: str = ""
    kind: ClassVar[str] = "gallery"

    @property
    def pictures(self) -> Iterator[Picture]:
        """All of its images, in their order."""
        return (picture for row in self.rows.values() for picture in row)


@dataclass(frozen=True)
class EvidenceSection:
    """Images beside themselves with their ``evidence`` laid over: where in them it lies."""

    title: str
    images: Sequence[Picture]
    text: str = ""
    kind: ClassVar[str] = "evidence"

    @cached_property
    def pairs(self) -> Sequence[Pair]:
        """Each image as it is, and with its evidence."""
        return [Pair(Picture(each.image, each.label), each) for each in self.images]

    @property
    def pictures(self) -> Iterator[Picture]:
        """All of its images, in their order."""
        return (picture for pair in self.pairs for picture in (pair.left, pair.right))


@dataclass(frozen=True)
class StripSection:
    """What a search found: an image that was asked for, and its neighbours, the nearest first, marked right or wrong."""

    title: str
    strips: Sequence[tuple[Picture, Sequence[Picture]]]
    text: str = ""
    kind: ClassVar[str] = "strips"

    @property
    def pictures(self) -> Iterator[Picture]:
        """All of its images, in their order."""
        return (picture for query, neighbours in self.strips for picture in (query, *neighbours))


@dataclass(frozen=True)
class ClaimSection:
    """Sentences of the paper, and what this run says to each."""

    title: str
    findings: Sequence[Finding]
    text: str = ""
    kind: ClassVar[str] = "claims"


@dataclass(frozen=True)
class CommandSection:
    """A command to copy: what to do next."""

    title: str
    command: str
    text: str = ""
    kind: ClassVar[str] = "command"


@dataclass(frozen=True)
class SettingSection:
    """Names and values under headings: the configuration, the versions."""

    title: str
    groups: Mapping[str, Mapping[str, object]]
    text: str = ""
    kind: ClassVar[str] = "settings"


Section = (
    TableSection
    | FigureSection
    | PairSection
    | GallerySection
    | EvidenceSection
    | StripSection
    | ClaimSection
    | CommandSection
    | SettingSection
)


@dataclass(frozen=True)
class Report:
    """A whole report.

    Args:
        title: what was done, to what.
        lead: the main result, in a sentence or two, each a paragraph.
        sections: in the order in which they are read.
        bound: bytes that all images together may take.
    """

    title: str
    lead: Sequence[str]
    sections: Sequence[Section] = field(default_factory=tuple)
    bound: int = BOUND


def html(report: Report) -> str:
    """The page: needs nothing but a browser, light or dark as the reader's system is, wide or narrow, printable."""
    pictures = [picture for section in report.sections for picture in getattr(section, "pictures", ())]
    embedded = embed(pictures, report.bound)
    template = environment().get_template("page.html.jinja")
    return template.render(
        report=report,
        shown=embedded,
        dark=DARK,
        errors=_standard_errors,
    )


def write_report(report: Report, file: Path) -> Path:
    """Write the page, whole or not at all.

    Args:
        report: what it holds.
        file: its folder is there already.

    Returns:
        The file.
    """
    write_whole(file, html(report))
    return file


def _standard_errors(finding: Finding) -> str:
    if finding.standard_errors is None:
        return "–"
    if abs(finding.standard_errors) > 99:
        return "> 99" if finding.standard_errors > 0 else "< −99"
    return as_text(finding.standard_errors, 1, signed=True)
