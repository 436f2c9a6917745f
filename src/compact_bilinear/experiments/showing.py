"""From records to what is read: tables as text, Markdown, LaTeX and CSV, figures as SVG and PNG, and one report.

All of it is made from the records alone, and the same records make the same bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..report.claims import findings
from ..report.drawing import Drawing
from ..report.page import (
    ClaimSection,
    CommandSection,
    FigureSection,
    Report,
    Section,
    SettingSection,
    TableSection,
    write_report,
)
from ..report.table import Table
from ..report.typeset import to_markdown, write_table
from .records import Record
from .setting import Experiment
from .sources import PAPER
from .stores import slug

REPORT = "report.html"
OTHER_IMAGES = "These are not the paper’s images, so the paper’s numbers do not stand beside them."

OTHER_CELLS = "The paper has no numbers for these networks, poolings and dimensions."


def write_files(folder: Path, experiment: Experiment, records: Sequence[Record]) -> str:
    """Write the tables and figures of one experiment.

    Args:
        folder: where to.
        experiment: which.
        records: its own.

    Returns:
        The tables, for a terminal.
    """
    said = []
    for name, table in experiment.tables(records).items():
        write_table(table, folder, slug(name))
        said.append(f"{experiment.title}\n\n{in_columns(to_markdown(table))}")
    for name, drawing in experiment.drawings(records).items():
        drawing.write(folder, slug(name))
    notes = [text for text in [experiment.text(records)] if text]
    if experiment.images:
        notes += without_paper(records)
    return "\n\n".join([*said, *notes])


def write_page(
    folder: Path, experiments: Mapping[str, Experiment], records: Sequence[Record], settings: Mapping[str, object]
) -> Path:
    """Write the report of everything that a folder has records of.

    Args:
        folder: where to.
        experiments: by name; those without records are left out.
        records: all of them.
        settings: those of the runs.
    """
    sections: list[Section] = []
    done = []
    for name, experiment in experiments.items():
        mine = [record for record in records if record.experiment == name]
        if mine:
            done.append(name)
            sections += _sections(experiment, mine)
    errors = [record for record in records if record.measure in ("error", "mean AP")]
    said = [finding for finding in findings(_once(errors)) if finding.difference is not None]
    if said:
        sections.insert(0, ClaimSection("What the paper says, and what this run says to it", said))
    commands = "\n".join(f"cbp reproduce {name} --out {folder.name}" for name in done)
    text = "With the same --data and the other flags that are listed below; what is there is not measured again."
    sections += [CommandSection("To go on", commands, text), SettingSection("How it was made", _origins(records, settings))]
    names = ", ".join(sorted({record.data for record in records if record.data and record.backbone != "none"}))
    lead = [f"{len(records)} numbers of {', '.join(done)}" + (f"; images: {names}." if names else ".")]
    lead += without_paper(errors)
    return write_report(Report("The paper, measured again", lead, sections), folder / REPORT)


def without_paper(records: Sequence[Record]) -> list[str]:
    """Why the paper's numbers do not stand beside ours, if none does."""
    if not records or any(record.paper is not None for record in records):
        return []
    return [OTHER_CELLS if all(record.data in PAPER.values() for record in records) else OTHER_IMAGES]


def in_columns(markdown: str) -> str:
    """A table in Markdown as columns that stand below each other, as a terminal shows it.

    >>> print(in_columns(chr(10).join(["| a | long |", "|---|--:|", "| b | 1.5 |", "", "What it is."])))
    a  long
    b   1.5
    <BLANKLINE>
    What it is.
    """
    lines = markdown.rstrip().split("\n")
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    right = [mark.endswith(":") for mark in next(line for line in lines if line.startswith("|--")).strip("|").split("|")]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]
    text = [line.replace("\\", "") for line in lines if not line.startswith("|")]
    return "\n".join([line.replace("\\", "") for line in shown] + text)


def _once(records: Sequence[Record]) -> list[Record]:
    """What two experiments share was measured once, and counts once."""
    found: dict[object, Record] = {}
    for record in sorted(records, key=lambda record: record.experiment):
        shared = replace(record, experiment="")
        found.setdefault((shared.cell, shared.draw), shared)
    return list(found.values())


def _sections(experiment: Experiment, records: Sequence[Record]) -> list[Section]:
    tables: Sequence[Table] = list(experiment.tables(records).values())
    drawings: Sequence[Drawing] = list(experiment.drawings(records).values())
    found: list[Section] = [TableSection(experiment.title, table, experiment.text(records)) for table in tables]
    return [*found, *([FigureSection(f"{experiment.title}, drawn", drawings)] if drawings else [])]


def _origins(records: Sequence[Record], settings: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """What the records say of their origin: every value that there is, and the time that it took."""
    names = ("date", "device", "torch", "python", "compact-bilinear", "commit")
    of = {name: ", ".join(sorted({str(record.made[name]) for record in records if record.made.get(name)})) for name in names}
    seconds = sum(float(record.made.get("seconds", 0)) for record in records)
    versions = {name: version for record in records for name, version in record.made.get("versions", {}).items()}
    measured: dict[str, object] = {name: value for name, value in of.items() if value}
    return {
        "Measured": measured | {"minutes, without extraction": round(seconds / 60, 1)},
        "Versions": dict(sorted(versions.items())),
        "Settings": dict(settings),
    }
