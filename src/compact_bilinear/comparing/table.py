"""The table of a comparison, made of its records: for the page, and for the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..experiments.records import Record, Summary, summaries
from ..report.names import BEFORE, look, place
from ..report.table import Number, Row, Table
from .choice import Choice

FEW = (1, 5)  # images of each class that have a column
RETRIEVAL = "retrieval"  # a stage: images rank each other, and nothing is learned

KINDS = (
    "± is the standard error; with 1 or 5 training images a class it is the sample standard deviation from one draw of them to "
    "another. Of errors above the best, both are of the difference on the same images. What finds is the share of test images "
    "whose nearest other one is of their class, without any classifier. Bytes are those of a stored feature; ms are of pooling "
    "one image, and their share of what the network takes."
)


@dataclass(frozen=True)
class SaidTable(Table):
    """A table that says itself what its ± are."""

    said: str = ""

    @property
    def note(self) -> str:
        """What each ± is."""
        return self.said


def comparison_table(records: Sequence[Record], choice: Choice) -> SaidTable:
    """Poolings as rows; what was measured of them as columns.

    Args:
        records: of one comparison.
        choice: made from them.
    """
    found = {(each.pooling, each.measure, _shots(each)): each for each in summaries(records) if each.stage != RETRIEVAL}
    ranked = {(each.pooling, each.measure): each for each in summaries(records) if each.stage == RETRIEVAL}
    poolings = sorted({(place(each.pooling), each.pooling, each.d) for each in records if each.stage == BEFORE})
    few = [shots for shots in FEW if any(key[2] == shots for key in found)]
    learned = ["d", "error, %", "above the best", "mean AP, %", *(_few(shots) for shots in few)]
    columns = [*learned, *(["finds, %"] if ranked else []), "bytes", "ms", "% of net"]
    rows = []
    for _, pooling, d in poolings:
        error = found[pooling, "error", 0]
        images = int(str(error.details["test images"]))
        cells = [
            Number(d, digits=0),
            _percent(error.mean, (error.mean * (1 - error.mean) / images) ** 0.5),
            _above(found.get((pooling, "error above the best", 0))),
            _percent(found[pooling, "mean AP", 0].mean),
            *(_drawn(found.get((pooling, "error", shots))) for shots in few),
            *([_drawn(ranked.get((pooling, "recall@1")))] if ranked else []),
            Number(found[pooling, "bytes", 0].mean, digits=0),
            _time(found.get((pooling, "ms", 0))),
            _time(found.get((pooling, "% of the backbone", 0)), 1),
        ]
        rows.append(Row((_name(pooling), _mark(pooling, choice)), tuple((cell,) for cell in cells)))
    return SaidTable(
        "What each pooling gets wrong, and what it costs", ("pooling", ""), tuple(columns), tuple(rows), said=KINDS
    )


def _mark(pooling: str, choice: Choice) -> str:
    if pooling == choice.taken.pooling:
        return "take"
    return "best" if pooling == choice.best.pooling else ""


def _name(pooling: str) -> str:
    options = pooling.partition(",")[2]
    return look(pooling).name + (f", {options.replace('=', ' ')}" if options else "")


def _few(shots: int) -> str:
    return f"error, % {shots} a class"


def _shots(summary: Summary) -> int:
    return int(str(summary.details.get("shots", 0)))


def _percent(share: float, spread: float | None = None) -> Number:
    return Number(100 * share, None if spread is None else 100 * spread, 1, digits=1)


def _above(summary: Summary | None) -> Number:
    if summary is None:
        return Number(digits=1)
    return _percent(summary.mean, float(str(summary.details["standard error"])))


def _drawn(summary: Summary | None) -> Number:
    return Number(digits=1) if summary is None else _percent(summary.mean, summary.spread)


def _time(summary: Summary | None, digits: int = 2) -> Number:
    return Number(digits=digits) if summary is None else Number(summary.mean, digits=digits)
