"""Records as tables, in the layouts of the paper: ours ± spread, the paper's number, the difference.

What is here decides which number stands where; ``table`` is what comes out, and ``typeset`` writes it as Markdown, LaTeX, CSV
or HTML. The same records make the same table, in whichever order they come.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..experiments.records import Record, Summary, is_share, summaries
from .names import AFTER, BACKBONES, BEFORE, backbone_place, data_place, headings, look, method, place, stage_place
from .table import Cell, Number, Row, Table, as_text

COUNTS = ("dimension", "parameters", "bytes", "train images", "test images", "images", "classes")
MEASURES = ("dimension", "parameters", "computation", "bytes", "MB", "ms")  # in which order they come, and then all others
PAPER_POOLINGS = ("fully-connected", "fisher-vector:64", "full-bilinear", "random-maclaurin:8192", "tensor-sketch:8192")


def data_table(records: Iterable[Record], measure: str = "error", digits: int = 2) -> Table:
    """The paper's table 4: data sets and backbones against poolings, before/after fine-tuning.

    Args:
        records: those of other measures and stages are passed over. Of each data set, backbone, pooling and stage there is one
            cell; the paper's five poolings have a column whether they were measured or not.
        measure: which one.
        digits: after the point.
    """
    found = _only(records, measure, (BEFORE, AFTER))
    measured = {each.pooling for each in found}
    known = {method(pooling) for pooling in measured}
    labels = headings([*measured, *(pooling for pooling in PAPER_POOLINGS if method(pooling) not in known)])
    return _arrange(
        found,
        _caption(measure, found),
        ("data", "net"),
        row=lambda s: ((data_place(s.data), backbone_place(s.backbone)), (s.data, BACKBONES.get(s.backbone, s.backbone))),
        column=lambda s: (place(s.pooling), labels[s.pooling]),
        columns=[(place(pooling), label) for pooling, label in labels.items()],
        digits=digits,
    )


def dimension_table(
    records: Iterable[Record],
    methods: Sequence[str] = ("pca-bilinear", "tensor-sketch"),
    measure: str = "error",
    digits: int = 1,
) -> Table:
    """The paper's table 3: poolings against d, before/after fine-tuning.

    Args:
        records: of one data set and one backbone, or each gets rows of its own.
        methods: which poolings, without their dimension.
        measure: which one.
        digits: after the point.
    """
    found = [each for each in _only(records, measure, (BEFORE, AFTER)) if method(each.pooling) in methods]
    of = _Several(found)
    return _arrange(
        found,
        _caption(measure, found, "against d"),
        (*of.names, "pooling"),
        row=lambda s: ((of.place(s), list(methods).index(method(s.pooling))), (*of(s), look(s.pooling).short)),
        column=lambda s: (s.d, as_text(s.d, 0)),
        digits=digits,
    )


def few_shot_table(records: Iterable[Record], measure: str = "mean AP", digits: int = 1) -> Table:
    """The paper's table 6: poolings against the number of training images of each class, ``details["shots"]``."""
    found = [each for each in _only(records, measure, ("few-shot",)) if "shots" in each.details]
    labels, of = headings(each.pooling for each in found), _Several(found)
    return _arrange(
        found,
        _caption(measure, found, "against the number of training images of each class"),
        (*of.names, "pooling"),
        row=lambda s: ((of.place(s), place(s.pooling)), (*of(s), labels[s.pooling])),
        column=lambda s: (int(str(s.details["shots"])), str(s.details["shots"])),
        digits=digits,
    )


def cost_table(records: Iterable[Record]) -> Table:
    """The paper's table 2: what is counted and measured against poolings."""
    found = [each for each in summaries(records) if not is_share(each.measure)]
    labels, of = headings(each.pooling for each in found), _Several(found)
    return _arrange(
        found,
        "What poolings cost, counted and measured",
        (*of.names, "measure"),
        row=lambda s: ((of.place(s), _measure_place(s.measure)), (*of(s), s.measure)),
        column=lambda s: (place(s.pooling), labels[s.pooling]),
    )


def sizes_table(records: Iterable[Record]) -> Table:
    """The paper's table 5: data sets against what is counted of them."""
    found = [each for each in summaries(records) if each.measure in COUNTS]
    return _arrange(
        found,
        "How many images and classes there are",
        ("data",),
        row=lambda s: (data_place(s.data), (s.data,)),
        column=lambda s: (COUNTS.index(s.measure), s.measure),
    )


def pooling_table(records: Iterable[Record], digits: int = 2) -> Table:
    """Poolings as rows, and everything that was measured of them as columns: whatever the experiment.

    Before them come d and the bytes of a feature in float32. Measures at several numbers of shots get a column each.
    """
    measured = summaries(records)
    known: dict[tuple[str, ...], Summary] = {}
    for each in measured:
        for measure, value in (("dimension", each.d), ("bytes", 4 * each.d)):
            of_pooling = replace(
                each, experiment="", stage="", measure=measure, paper=None, details={}, values={(0, ""): value}
            )
            known[each.data, each.backbone, each.pooling, str(each.d), measure] = of_pooling
    of = _Several(measured)
    table = _arrange(
        [*known.values(), *(each for each in measured if each.measure not in ("dimension", "bytes"))],
        "What was measured of each pooling",
        (*of.names, "pooling"),
        row=lambda s: ((of.place(s), place(s.pooling), s.d), (*of(s), look(s.pooling).name)),
        column=lambda s: (_column_place(s), _column_title(s)),
        parted=False,
        digits=digits,
    )
    columns = [_aligned([row.cells[k] for row in table.rows]) for k in range(len(table.columns))]
    return replace(
        table, rows=tuple(Row(row.stub, cells) for row, cells in zip(table.rows, zip(*columns, strict=True), strict=True))
    )


def _arrange(
    found: Sequence[Summary],
    caption: str,
    stub: tuple[str, ...],
    *,
    row: Callable[[Summary], tuple[Any, tuple[str, ...]]],
    column: Callable[[Summary], tuple[Any, str]],
    columns: Sequence[tuple[Any, str]] = (),
    parted: bool = True,
    digits: int = 2,
) -> Table:
    """Put each summary into its place.

    Args:
        found: what goes into the table.
        caption, stub: as in :class:`Table`.
        row, column: of a summary a key to sort by, and the heading.
        columns: those that are there even if nothing is in them.
        parted: a cell holds what was before fine-tuning, and what after.
        digits: of shares.
    """
    if not found:
        raise ValueError(
            f"A table needs records, but got none for: {caption}.\nCheck which file was read, and which measures it has."
        )
    stages = [stage for stage in (BEFORE, AFTER) if parted and any(each.stage == stage for each in found)]
    parts = ("before", "after") if len(stages) == 2 else ("",)
    placed: dict[tuple[Any, Any, int], Summary] = {}
    for each in found:
        where = row(each), column(each), parts.index("after") if len(parts) == 2 and each.stage == AFTER else 0
        other = placed.setdefault(where, each)
        if other is not each:
            raise ValueError(
                f"A cell of a table takes one number, but row {', '.join(where[0][1])}, column {where[1][1]} has those of "
                f"{_origin(other)} and {_origin(each)}.\nPass the records of one of them."
            )
    rows, heads = sorted({where[0] for where in placed}), sorted({*(where[1] for where in placed), *columns})

    def cell(line: Any, head: Any) -> Cell:
        return tuple(_number(placed.get((line, head, part)), digits) for part in range(len(parts)))

    return Table(
        caption,
        stub,
        tuple(head[1] for head in heads),
        tuple(Row(line[1], tuple(cell(line, head) for head in heads)) for line in rows),
        parts,
    )


def _number(summary: Summary | None, digits: int) -> Number:
    if summary is None:
        return Number(digits=digits)
    share = is_share(summary.measure)
    unit = 100 if share else 1
    spread = None if summary.spread is None else unit * summary.spread
    paper = None if summary.paper is None else unit * summary.paper
    if not share:
        digits = 0 if summary.measure in COUNTS else _three(summary.mean)
    return Number(unit * summary.mean, spread, summary.count, paper, digits)


def _three(value: float) -> int:
    """Digits after the point of which three count."""
    return min(6, max(0, 2 - math.floor(math.log10(abs(value))))) if value else 0


def _aligned(cells: Sequence[Cell]) -> list[Cell]:
    """One column whose numbers have the same digits after the point, so that the points stand in line."""
    digits = {number.digits for cell in cells for number in cell if number.ours is not None}
    if len(digits) < 2:
        return list(cells)
    return [tuple(replace(number, digits=min(2, max(digits))) for number in cell) for cell in cells]


def _only(records: Iterable[Record], measure: str, stages: Sequence[str]) -> list[Summary]:
    return [each for each in summaries(records) if each.measure == measure and each.stage in stages]


def _origin(summary: Summary) -> str:
    details = [f"{name} {value}" for name, value in summary.details.items()]
    return " ".join([summary.experiment, summary.pooling, summary.stage, *details])


class _Several:
    """Whatever of data and backbone there are several of, which a row then has to name."""

    def __init__(self, found: Sequence[Summary]) -> None:
        self.by_data, self.by_backbone = len({each.data for each in found}) > 1, len({each.backbone for each in found}) > 1
        self.names = ("data",) * self.by_data + ("net",) * self.by_backbone

    def __call__(self, summary: Summary) -> tuple[str, ...]:
        backbone = BACKBONES.get(summary.backbone, summary.backbone)
        return (summary.data,) * self.by_data + (backbone,) * self.by_backbone

    def place(self, summary: Summary) -> Any:
        return data_place(summary.data), backbone_place(summary.backbone)


def _column_place(summary: Summary) -> Any:
    shots = summary.details.get("shots")
    group = 0 if summary.measure in COUNTS else 1 if is_share(summary.measure) else 2
    return group, stage_place(summary.stage), _measure_place(summary.measure), int(str(shots or 0))


def _column_title(summary: Summary) -> str:
    shots = summary.details.get("shots")
    stage = {BEFORE: "", "": "", "few-shot": ""}.get(summary.stage, summary.stage)
    return ", ".join(filter(None, [_title(summary.measure), f"{shots} a class" if shots else "", stage]))


def _measure_place(measure: str) -> tuple[int, str]:
    return MEASURES.index(measure) if measure in MEASURES else len(MEASURES), measure


def _title(measure: str) -> str:
    if measure == "dimension":
        return "d"
    return f"{measure} in %" if is_share(measure) else measure


def _caption(measure: str, found: Sequence[Summary], more: str = "") -> str:
    both = {each.stage for each in found} >= {BEFORE, AFTER}
    title = _title(measure)
    return ", ".join(filter(None, [title[:1].upper() + title[1:], more, "before / after fine-tuning" if both else ""]))
