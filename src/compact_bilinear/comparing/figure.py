"""The error of all poolings against d, with the rule drawn in."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ..experiments.records import Record
from ..report.drawing import INK, Drawing
from ..report.names import BEFORE, look, method, place
from ..report.table import as_text
from .choice import Choice


def error_with_rule(records: Sequence[Record], choice: Choice) -> Drawing:
    """Errors with their standard errors, and the band in which poolings count as equally good.

    Args:
        records: of one comparison.
        choice: made from them.
    """
    errors = [each for each in records if each.measure == "error" and each.stage == BEFORE]
    errors.sort(key=lambda each: (place(method(each.pooling)), each.d))
    curves = [list(curve) for _, curve in groupby(errors, lambda each: method(each.pooling))]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        axes.axhspan(100 * choice.best.error, 100 * choice.limit, color=look("tensor-sketch").light, alpha=0.13, linewidth=0)
        for curve in curves:
            known = look(curve[0].pooling)
            spread = [100 * (each.value * (1 - each.value) / int(str(each.details["test images"]))) ** 0.5 for each in curve]
            axes.errorbar(
                [each.d for each in curve],
                [100 * each.value for each in curve],
                spread,
                color=known.light,
                marker=known.marker,
                elinewidth=0.9,
                label=known.name,
            )
        axes.plot(choice.taken.d, 100 * choice.taken.error, "o", ms=15, mfc="none", mec=INK, mew=1.2)
        axes.set_xscale("log", base=2)
        axes.set_xticks(_apart(sorted({each.d for each in errors})), minor=False)
        axes.xaxis.set_major_formatter(lambda d, _: as_text(d, 0))
        axes.minorticks_off()
        axes.set(xlabel="numbers in a feature, d", ylabel="error in %")
        figure.legend(loc="outside upper left", ncols=2)

    words = "; ".join(f"{each.pooling} {as_text(100 * each.value, 1)} % at d = {each.d}" for each in errors)
    return Drawing(
        "Error against the length of a feature",
        f"Error: {words}. Taken is {choice.taken.pooling}.",
        paint,
        "Lines are ± one standard error. In the band are errors within one standard error of the smallest; the ring is around "
        "the shortest feature among them.",
    )


def _apart(dims: Sequence[int]) -> list[int]:
    """So many of ascending numbers that none stands in another's way."""
    shown = list(dims[-1:])
    for each in reversed(dims):
        if shown[-1] / each > (dims[-1] / dims[0]) ** 0.11:
            shown.append(each)
    return shown
