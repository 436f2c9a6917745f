"""Records as figures. Each gives a :class:`~compact_bilinear.report.drawing.Drawing`: SVG for a page, files, and words.

A pooling has the same colour and the same mark in all of them; the stage is in the line. Bands are ± one sample standard
deviation of the repetitions. Hollow marks are the paper's numbers.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ..experiments.records import Record, Summary, is_share, summaries
from .drawing import INK, Drawing
from .names import AFTER, BEFORE, FIXED, LEARNED, headings, look, method, place, stage_place
from .table import as_text

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

LEVELS = (*FIXED, "fisher-vector")  # they have one d, which is far from the others: a line in place of a curve
LINES: dict[str, Any] = {BEFORE: (0, (4, 2)), AFTER: "-", LEARNED: (0, (1, 1.3))}


def error_against_dim(records: Iterable[Record], measure: str = "error") -> Drawing:
    """The paper's figure ``dim``: the error of poolings against d, and the lines of those that have one d only.

    Args:
        records: of one data set and one backbone.
        measure: which one.
    """
    found = _of_one_place([each for each in summaries(records) if each.measure == measure and each.stage in LINES])
    curves = _curves([each for each in found if method(each.pooling) not in LEVELS])
    if not curves:
        raise ValueError(
            f"A curve against d needs a pooling whose d can be chosen, but got none with the measure {measure!r}.\n"
            "Measure tensor-sketch:1024 and tensor-sketch:8192, for instance."
        )
    levels = [each for each in found if method(each.pooling) in LEVELS]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for curve in curves:
            _band(axes, [each.d for each in curve], curve, linestyle=LINES[curve[0].stage])
        for level in levels:
            known = look(level.pooling)
            axes.axhline(_shown(level), color=known.light, linewidth=1.2, linestyle=LINES[level.stage])
        axes.set_xscale("log", base=2)
        dims = sorted({each.d for curve in curves for each in curve})
        _ticks(axes, dims)
        axes.set(xlabel="output dimension d", ylabel=_label(measure))
        _legend(figure, [method(each.pooling) for each in found], [each.stage for each in found], _has_paper(found))

    ends = [
        f"{_name(curve)} from {_number(curve[0])} at d = {curve[0].d} to {_number(curve[-1])} at d = {curve[-1].d}"
        for curve in curves
    ]
    ends += [f"{look(level.pooling).name}{_stage(level)} {_number(level)}" for level in levels]
    words = f"{_title(measure)}: {'; '.join(ends)}."
    return Drawing(f"{_title(measure)} against dimension", words, paint, _bands(found))


def few_shot_curves(records: Iterable[Record], measure: str = "mean AP") -> Drawing:
    """A score against the number of training images of each class, ``details["shots"]``.

    Args:
        records: of one data set and one backbone.
        measure: which one.
    """
    found = _of_one_place([each for each in summaries(records) if each.measure == measure and "shots" in each.details])
    found.sort(key=lambda each: (place(each.pooling), _shots(each)))
    curves = [list(curve) for _, curve in groupby(found, lambda each: each.pooling)]
    labels = headings(each.pooling for each in found)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for curve in curves:
            _band(axes, [_shots(each) for each in curve], curve, label=labels[curve[0].pooling])
        axes.set_xscale("log")
        _ticks(axes, sorted({_shots(each) for each in found}))
        axes.set(xlabel="training images of each class", ylabel=_label(measure))
        _legend(figure, [curve[0].pooling for curve in curves], [], _has_paper(found))

    words = [
        f"{labels[first.pooling]} from {_number(first)} with {_shots(first)} to {_number(last)} with {_shots(last)}"
        for first, last in ((curve[0], curve[-1]) for curve in curves)
    ]
    return Drawing(
        f"{_title(measure)} against training images",
        f"{_title(measure)} by training images a class: {'; '.join(words)}.",
        paint,
    )


def cost_bars(records: Iterable[Record], measures: Sequence[str] = ("ms", "MB")) -> Drawing:
    """Bars of time and memory, one panel for each measure, one bar for each pooling.

    Args:
        records: with one number for each pooling and measure.
        measures: which; those that were not measured have no panel.
    """
    found = _of_one_place([each for each in summaries(records) if each.measure in measures])
    panels = [[each for each in found if each.measure == measure] for measure in measures]
    panels = [sorted(panel, key=lambda each: place(each.pooling)) for panel in panels if panel]
    names = headings(each.pooling for each in found)
    words = [f"{panel[0].measure}: " + ", ".join(f"{names[each.pooling]} {_plain(each)}" for each in panel) for panel in panels]

    def paint(figure: Any) -> None:
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _bars(axes, panel, names)
        if _has_paper(found):
            figure.supxlabel("○ the paper’s number", fontsize=9)

    height = 1.1 + 0.3 * max(len(panel) for panel in panels)
    return Drawing("Time and memory", "; ".join(words) + ".", paint, height=height)


def reliability_diagram(confidence: "ArrayLike", right: "ArrayLike", bins: int = 10) -> Drawing:
    """How often a classifier is right where it is so sure: on the diagonal if its probabilities mean what they say.

    Args:
        confidence: (b,) probabilities of the class that was named.
        right: (b,) whether it was the right one.
        bins: of equal width.
    """
    import numpy as np

    sure, hit = np.asarray(confidence, float), np.asarray(right, float)
    if not sure.size or sure.shape != hit.shape or sure.ndim != 1 or sure.min() < 0 or sure.max() > 1:
        raise ValueError(
            "A reliability diagram takes probabilities (b,) and as many answers, of one image or more, but got shapes "
            f"{sure.shape} and {hit.shape}.\n"
            "Pass the probability of the class that was named, from 0 to 1, and whether it was right."
        )
    where = np.clip((sure * bins).astype(int), 0, bins - 1)
    count = np.bincount(where, minlength=bins)
    filled = np.flatnonzero(count)
    said = np.bincount(where, sure, bins)[filled] / count[filled]
    true = np.bincount(where, hit, bins)[filled] / count[filled]
    gap = float(np.sum(count[filled] * np.abs(said - true)) / max(count.sum(), 1))
    color = look("tensor-sketch").light

    def paint(figure: Any) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        above.plot([0, 100], [0, 100], color=INK, linewidth=1, linestyle=(0, (2, 2)))
        above.plot(100 * said, 100 * true, color=color, marker="o")
        above.set(ylabel="right, in %", xlim=(0, 100), ylim=(0, 102))
        below.bar((np.arange(bins) + 0.5) * 100 / bins, count, width=88 / bins, color=color)
        below.set(xlabel="how sure it was, in %", ylabel="images", yticks=[0, int(count.max())])

    mean, share, off = (as_text(100 * each, 1) for each in (float(sure.mean()), float(hit.mean()), gap))
    words = f"Of {sure.size} images {share} % are right; it was {mean} % sure on average; the mean gap is {off} points."
    return Drawing("How sure, and how often right", words, paint, words)


def kernel_error(records: Iterable[Record], measure: str = "kernel error") -> Drawing:
    """The error of the estimated kernel against d, each draw a point, and theory's line from ``details["theory"]``."""
    found = _of_one_place([each for each in summaries(records) if each.measure == measure])
    curves = _curves(found)

    def paint(figure: Any) -> None:
        from matplotlib.ticker import LogLocator, StrMethodFormatter

        axes = figure.subplots()
        for curve in curves:
            known = look(curve[0].pooling)
            for each in curve:
                axes.plot(
                    [each.d] * each.count, list(each.values.values()), known.marker, color=known.light, alpha=0.3, mew=0, ms=4
                )
            theory = [(each.d, float(str(each.details["theory"]))) for each in curve if "theory" in each.details]
            if theory:
                axes.plot(*zip(*theory, strict=True), color=known.light, linewidth=1.2)
            axes.plot([], [], known.marker, ls="-", color=known.light, label=f"{known.name}: draws, and the line of theory")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        _ticks(axes, sorted({each.d for each in found}))
        axes.set(xlabel="output dimension d", ylabel="relative error of the kernel")
        figure.legend(loc="outside upper left")

    words = [
        f"{look(first.pooling).name} from {first.mean:.3g} at d = {first.d} to {last.mean:.3g} at d = {last.d}"
        for first, last in ((curve[0], curve[-1]) for curve in curves)
    ]
    counts = sorted({each.count for each in found})
    caption = f"A mark is one of {' to '.join(str(each) for each in dict.fromkeys((counts[0], counts[-1])))} draws."
    return Drawing(
        "Error of the kernel against dimension", f"Relative error of the kernel: {'; '.join(words)}.", paint, caption
    )


def _curves(found: Iterable[Summary]) -> list[list[Summary]]:
    """The same pooling and stage, by d."""

    def key(each: Summary) -> Any:
        return place(method(each.pooling)), stage_place(each.stage)

    return [list(curve) for _, curve in groupby(sorted(found, key=lambda each: (key(each), each.d)), key)]


def _band(axes: Any, x: Sequence[float], curve: Sequence[Summary], **line: Any) -> None:
    known, y = look(curve[0].pooling), [_shown(each) for each in curve]
    unit = 100 if is_share(curve[0].measure) else 1
    spread = [unit * (each.spread or 0) for each in curve]
    low, high = ([each + sign * wide for each, wide in zip(y, spread, strict=True)] for sign in (-1, 1))
    axes.fill_between(x, low, high, color=known.light, alpha=0.18, linewidth=0)
    axes.plot(x, y, color=known.light, marker=known.marker, **line)
    paper = [(place, unit * each.paper) for place, each in zip(x, curve, strict=True) if each.paper is not None]
    if paper:
        axes.plot(*zip(*paper, strict=True), known.marker, mfc="none", mec=known.light, ms=9, mew=1.1)


def _bands(found: Iterable[Summary]) -> str:
    counts = sorted({each.count for each in found if each.spread is not None})
    if not counts:
        return ""
    some = " to ".join(str(each) for each in dict.fromkeys((counts[0], counts[-1])))
    return f"Bands are ± one sample standard deviation of {some} repetitions."


def _bars(axes: Any, panel: Sequence[Summary], names: dict[str, str]) -> None:
    places = range(len(panel))
    for k, each in zip(places, panel, strict=True):
        axes.barh(k, each.mean, 0.62, color=look(each.pooling).light)
        axes.annotate(
            _plain(each),
            (max(each.mean, each.paper or 0), k),
            (8 if each.paper else 4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
        if each.paper is not None:
            axes.plot(each.paper, k, "o", mfc="none", mec=INK, ms=8, mew=1.1)
    axes.set_yticks(list(places), [names[each.pooling] for each in panel])
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.3 * max(max(each.mean, each.paper or 0) for each in panel))
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    axes.set_title(panel[0].measure)


def _legend(figure: Any, poolings: Iterable[str], stages: Iterable[str], paper: bool) -> None:
    from matplotlib.lines import Line2D

    left, right = [], []
    for each in sorted(set(poolings), key=place):
        marker = "" if method(each) in LEVELS and stages else look(each).marker
        left.append(Line2D([], [], color=look(each).light, marker=marker, label=look(each).name))
    words = {BEFORE: "not fine-tuned", AFTER: "fine-tuned", LEARNED: "fine-tuned, projection learned"}
    used = [stage for stage in LINES if stage in stages]
    right += [Line2D([], [], color=INK, linestyle=LINES[stage], linewidth=1.3, label=words[stage]) for stage in used]
    if paper:
        right.append(Line2D([], [], color=INK, linestyle="", marker="o", mfc="none", ms=8, mew=1.1, label="the paper’s number"))
    longest = max(len(left), len(right) if right else 0)  # a legend is filled column by column
    marks = [*left, *[Line2D([], [], linestyle="", label=" ")] * (longest - len(left)), *right] if right else left
    figure.legend(handles=marks, loc="outside upper left", ncols=2 if right else 1, columnspacing=2.5)


def _has_paper(found: Iterable[Summary]) -> bool:
    return any(each.paper is not None for each in found)


def _ticks(axes: Any, places: Sequence[int]) -> None:
    shown = [places[-1]]
    for each in reversed(places):
        if math.log(shown[-1] / each) > 0.13 * math.log(places[-1] / places[0]):  # else one number would stand in the other
            shown.append(each)
    axes.set_xticks(shown, [as_text(each, 0) for each in shown])
    axes.minorticks_off()


def _of_one_place(found: list[Summary]) -> list[Summary]:
    places = sorted({(each.experiment, each.data, each.backbone) for each in found})
    if len(places) != 1:
        came = "; ".join(" ".join(each) for each in places) or "none"
        raise ValueError(
            f"A figure shows records of one experiment, data set and backbone, but got {came}.\nPass those of one of them."
        )
    return found


def _shots(summary: Summary) -> int:
    return int(str(summary.details["shots"]))


def _shown(summary: Summary) -> float:
    return (100 if is_share(summary.measure) else 1) * summary.mean


def _number(summary: Summary) -> str:
    return f"{as_text(_shown(summary), 1)} %" if is_share(summary.measure) else f"{summary.mean:.3g}"


def _plain(summary: Summary) -> str:
    return as_text(summary.mean, 0) if summary.mean >= 100 else f"{summary.mean:.3g}"


def _name(curve: Sequence[Summary]) -> str:
    return look(curve[0].pooling).name + _stage(curve[0])


def _stage(summary: Summary) -> str:
    return {BEFORE: "", "": ""}.get(summary.stage, f", {summary.stage},")


def _title(measure: str) -> str:
    return measure[:1].upper() + measure[1:]


def _label(measure: str) -> str:
    return f"{measure} in %" if is_share(measure) else measure
