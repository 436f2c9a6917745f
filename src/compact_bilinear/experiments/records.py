"""Records: what an experiment measured, one JSON object a line, and what repetitions of it say together.

A record is one number with everything that tells it from other numbers, and with how it was made. Records that differ in
nothing but their draw (the seed, the split) are repetitions of one cell: :func:`summaries` makes one :class:`Summary` of them.
Nothing depends on the order in which records come.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ..lock import alone

Detail = str | int | float | bool | None
Draw = tuple[int, str]  # the seed and the split of one repetition

SHARES = ("error", "accuracy", "mean AP", "precision", "recall", "calibration error")  # between 0 and 1; shown in percent
# details that say how a number came about; all others say which number it is
EXPLAINING = frozenset({"split", "images", "train images", "test images", "classes", "lambda", "epochs", "theory", "note"})


@dataclass(frozen=True)
class Record:
    """One number.

    Args:
        experiment: what it was measured for: "table4", "fig-dim", "compare", ...
        data: "CUB", "MIT", "DTD", or the name of another folder.
        backbone: as the package calls it: "vgg16", "vgg-m", "tiny", ...
        pooling: as on the command line, but for the seed: "tensor-sketch:8192", "full-bilinear", ...
        d: numbers that a feature has.
        stage: "linear", "fine-tuned", "fine-tuned, projection learned", "few-shot", or "" where none applies.
        measure: "error", "mean AP", "ms", "MB", "parameters", ...
        value: of an error or a mean AP as a share, from 0 to 1.
        paper: the paper's number for this cell, in the same unit; None where it has none.
        seed: what was drawn from it: hashes, splits, few-shot images.
        details: what else tells this number from others (shots), or explains it (those named in ``EXPLAINING``).
        made: versions, device, commit, date, seconds, command.
    """

    experiment: str
    data: str
    backbone: str
    pooling: str
    d: int
    stage: str
    measure: str
    value: float
    paper: float | None = None
    seed: int = 0
    details: Mapping[str, Detail] = field(default_factory=dict)
    made: Mapping[str, Any] = field(default_factory=dict)

    @property
    def draw(self) -> Draw:
        """What tells it from the other repetitions of its cell."""
        return self.seed, str(self.details.get("split", ""))

    @property
    def cell(self) -> tuple[Any, ...]:
        """What it has in common with the other repetitions of its cell."""
        apart = sorted((name, str(value)) for name, value in self.details.items() if name not in EXPLAINING)
        return self.experiment, self.data, self.backbone, self.pooling, self.d, self.stage, self.measure, tuple(apart)


@dataclass(frozen=True)
class Summary:
    """One cell: what its repetitions say together.

    Args:
        experiment, data, backbone, pooling, d, stage, measure, paper: as in :class:`Record`.
        details: those that all repetitions share.
        values: the number of each draw.
    """

    experiment: str
    data: str
    backbone: str
    pooling: str
    d: int
    stage: str
    measure: str
    paper: float | None
    details: Mapping[str, Detail]
    values: Mapping[Draw, float]

    @property
    def count(self) -> int:
        """How many repetitions there are."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """Their mean."""
        return fmean(self.values.values())

    @property
    def spread(self) -> float | None:
        """Their sample standard deviation; None of a single one."""
        return stdev(self.values.values()) if self.count > 1 else None

    @property
    def difference(self) -> float | None:
        """Our mean less the paper's number, in the unit of both; None where the paper has none."""
        return None if self.paper is None else self.mean - self.paper

    @property
    def points(self) -> float | None:
        """The difference in points, which are hundredths of a share; None where it is no share, or the paper has no number."""
        return None if self.difference is None or not is_share(self.measure) else 100 * self.difference

    @property
    def standard_errors(self) -> float | None:
        """The difference in standard errors of our mean; None without the paper's number, or without any spread."""
        return None if self.difference is None or not self.spread else self.difference / self.spread * math.sqrt(self.count)


def is_share(measure: str) -> bool:
    """Whether a measure is a share, which is shown in percent.

    >>> is_share("error"), is_share("recall@10"), is_share("ms")
    (True, True, False)
    """
    return measure.partition("@")[0] in SHARES


def append_record(file: Path, record: Record) -> None:
    """Add one line to a file, which is made if need be: the whole line, or after a power cut none of it.

    Args:
        file: its folder is there already.
        record: what to add.
    """
    _check(record)
    line = json.dumps(asdict(record), ensure_ascii=False, allow_nan=False).encode() + b"\n"
    with alone(file), file.open("r+b") as lines:
        before = lines.read()
        lines.truncate(before.rfind(b"\n") + 1)  # what a process that was killed has left of its line
        lines.seek(0, os.SEEK_END)
        lines.write(line)
        lines.flush()
        os.fsync(lines.fileno())


def read_records(file: Path) -> list[Record]:
    """All records of a file. A last line that was cut short is none."""
    found = []
    *lines, _ = file.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            record = Record(**json.loads(line))
            _check(record)
        except (ValueError, TypeError) as fault:  # not JSON, not an object, other fields
            names = ", ".join(each.name for each in fields(Record))
            raise ValueError(
                f"{file} holds records, a JSON object with {names} a line, but line {number} is another: "
                f"{str(line[:60])[1:]}.\n"
                "Remove that line, or name a file that an experiment wrote."
            ) from fault
        found.append(record)
    return found


def summaries(records: Iterable[Record]) -> list[Summary]:
    """One summary for each cell, in an order that does not depend on that of the records.

    Args:
        records: those that differ in their seed, their split and what explains them, but in nothing else, are repetitions.

    >>> cell = ("table4", "CUB", "vgg16", "tensor-sketch:8192", 8192, "linear", "error")
    >>> (summary,) = summaries([Record(*cell, 0.20, 0.25, seed=0), Record(*cell, 0.40, 0.25, seed=1)])
    >>> print(f"{summary.mean:.2f} ± {summary.spread:.2f}, the paper {summary.paper}: {summary.standard_errors:+.1f} s.e.")
    0.30 ± 0.14, the paper 0.25: +0.5 s.e.
    """
    cells: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        cells.setdefault(record.cell, []).append(record)
    return [_summary(cells[cell]) for cell in sorted(cells)]


def _summary(records: list[Record]) -> Summary:
    first = records[0]
    values: dict[Draw, float] = {}
    for record in records:
        if values.setdefault(record.draw, record.value) != record.value:
            low, high = sorted((values[record.draw], record.value))
            raise ValueError(
                f"A cell has one number for each draw, but {_name(record)} has {low:g} and {high:g} for seed {record.seed}.\n"
                "Remove one of the two records, or tell them apart by a detail."
            )
    papers = sorted({record.paper for record in records if record.paper is not None})
    if len(papers) > 1:
        raise ValueError(
            f"A cell has one number of the paper, but {_name(first)} has {papers[0]:g} and {papers[-1]:g}.\n"
            "Correct the records."
        )
    shared = {
        name: value for name, value in sorted(first.details.items()) if all(r.details.get(name) == value for r in records)
    }
    return Summary(
        first.experiment,
        first.data,
        first.backbone,
        first.pooling,
        first.d,
        first.stage,
        first.measure,
        papers[0] if papers else None,
        shared,
        dict(sorted(values.items())),
    )


def _name(record: Record) -> str:
    of = (record.experiment, record.data, record.backbone, record.pooling, record.stage, record.measure)
    return " · ".join(part for part in of if part)


def _check(record: Record) -> None:
    texts = (record.experiment, record.data, record.backbone, record.pooling, record.stage, record.measure)
    numbers = (record.value, *([] if record.paper is None else [record.paper]))
    if not (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each) for each in numbers)
        and all(isinstance(each, int) and not isinstance(each, bool) for each in (record.d, record.seed))
        and isinstance(record.details, Mapping)
        and isinstance(record.made, Mapping)
    ):
        raise ValueError(
            "A record has texts, finite numbers, whole d and seed, and mappings for details and made, but got "
            f"{record}.\nCheck what was measured: NaN is no result."
        )
    if is_share(record.measure) and not 0 <= record.value <= 1:
        raise ValueError(f"{record.measure} is a share between 0 and 1, but got {record.value:g}.\nDivide percent by 100.")
