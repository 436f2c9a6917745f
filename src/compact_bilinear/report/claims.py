"""What a run says to sentences of the paper: borne out, refuted, or undecided, in standard errors.

Each claim is a function of records. It takes a difference of two means whose sign the claim predicts. Where both were measured
with the same draws (seed and split), differences are taken draw by draw, and what the draws share cancels; where they were not,
the variances of both means are added. Several data sets and backbones weigh the same. Below two standard errors nothing is
decided, and so it is where there are no two repetitions.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from ..experiments.records import Record, Summary, summaries
from .names import AFTER, BEFORE, FIXED, look, method, place
from .table import THIN, as_text

Verdict = Literal["borne out", "refuted", "undecided"]
DECIDED = 2.0  # standard errors
MARGIN = 1.0  # points that count as reaching, or as close
LEAST, MOST = 0.015, 0.032  # of full bilinear's dimensions, for "3 %": 8192 of 262 144 are 3.1 %
LOW, HIGH = 512, 2000  # the paper names d = 32, 128 and 512 as low; above 2000 it finds the order reversed


@dataclass(frozen=True)
class Finding:
    """What records say to one claim.

    Args:
        claim: the paper's sentence.
        verdict: "borne out", "refuted" or "undecided".
        difference: in points, positive where it speaks for the claim; None where nothing was measured.
        standard_errors: the same in standard errors; None where there is no spread.
        sentence: the numbers.
    """

    claim: str
    verdict: Verdict
    difference: float | None
    standard_errors: float | None
    sentence: str


@dataclass(frozen=True)
class _Contrast:
    """How much larger one mean is than another, over all pairs of cells."""

    larger: float  # the means, in percent
    smaller: float
    error: float | None  # standard error of their difference; None if a pair has no two repetitions
    pairs: int
    paired: bool

    @property
    def difference(self) -> float:
        return self.larger - self.smaller

    def beyond(self, amount: float) -> float | None:
        """Standard errors by which a number of points is more than nought."""
        if self.error is None:
            return None
        return amount / self.error if self.error else math.copysign(math.inf, amount) if amount else 0.0

    @property
    def how(self) -> str:
        pairs = "" if self.pairs == 1 else f"{self.pairs} pairs, "
        if self.error is None:
            return f"{pairs}one repetition, which has no spread"
        return f"{pairs}± {as_text(self.error)}, {'draw by draw' if self.paired else 'independent draws'}"


def reaches_full_bilinear(records: Iterable[Record]) -> Finding:
    """Tensor Sketch at a thirty-second of full bilinear's dimensions errs no more than a point more.

    Taken without fine-tuning where that was measured, else with; at the largest d from ``LEAST`` to ``MOST``.
    """
    claim = "Tensor Sketch reaches full bilinear’s error at 3 % of its dimensions"
    found = _errors(records)
    for stage in (BEFORE, AFTER):
        pairs = []
        for full in _those(found, "full-bilinear", stage):
            beside = [each for each in _beside(found, full, "tensor-sketch") if LEAST * full.d <= each.d <= MOST * full.d]
            pairs += [(max(beside, key=_by_d), full)] if beside else []
        if pairs:
            of = sorted({(sketch.d, full.d) for sketch, full in pairs})
            dims = " and ".join(f"{as_text(d, 0)} of {as_text(all_of_them, 0)}" for d, all_of_them in of)
            return _within(claim, pairs, f"With {dims} dimensions{_words(stage)}, Tensor Sketch", "full bilinear pooling")
    return _nothing(claim, "Tensor Sketch at 3 % of full bilinear’s dimensions beside it")


def pca_lags(records: Iterable[Record]) -> Finding:
    """At the largest d that both were measured with, PCA errs more than Tensor Sketch; fine-tuned where that was measured."""
    claim = "PCA does not use larger d well"
    found = _errors(records)
    for stage in (AFTER, BEFORE):
        pairs = [
            (pca, same) for pca in _those(found, "pca-bilinear", stage) for same in _beside(found, pca, "tensor-sketch", pca.d)
        ]
        largest = max((pca.d for pca, _ in pairs), default=0)
        pairs = [(pca, sketch) for pca, sketch in pairs if pca.d == largest]
        if pairs:
            return _ahead(
                claim, pairs, f"At d = {as_text(largest, 0)}{_words(stage)}, PCA bilinear errs in", "Tensor Sketch in"
            )
    return _nothing(claim, "PCA and Tensor Sketch at the same d")


def maclaurin_crosses(records: Iterable[Record]) -> Finding:
    """Random Maclaurin errs less than Tensor Sketch at d ≤ 512, and more at d > 2000: both, or the claim does not hold."""
    claim = "Random Maclaurin is ahead of Tensor Sketch at low d, and behind above 2000"
    found = _errors(records)
    low, high = [], []
    for stage in (BEFORE, AFTER):
        for maclaurin in _those(found, "random-maclaurin", stage):
            for sketch in _beside(found, maclaurin, "tensor-sketch", maclaurin.d):
                if maclaurin.d <= LOW:
                    low.append((sketch, maclaurin))
                elif maclaurin.d > HIGH:
                    high.append((maclaurin, sketch))
    if not low or not high:
        return _nothing(claim, f"random Maclaurin and Tensor Sketch at the same d, both up to {LOW} and above {HIGH}")
    halves = [
        _ahead(claim, low, f"At d ≤ {LOW} Tensor Sketch errs in", "random Maclaurin in"),
        _ahead(claim, high, f"At d > {HIGH} random Maclaurin errs in", "Tensor Sketch in"),
    ]
    # one half that is refuted refutes it; otherwise the one that is less certain decides
    order = ("refuted", "undecided", "borne out")
    weakest = min(halves, key=lambda half: (order.index(half.verdict), half.standard_errors or 0.0))
    sentence = " ".join(half.sentence for half in halves)
    return Finding(claim, weakest.verdict, weakest.difference, weakest.standard_errors, sentence)


def compact_wins_at_one_shot(records: Iterable[Record]) -> Finding:
    """With one training image of each class, Tensor Sketch has the higher mean average precision than full bilinear pooling."""
    claim = "Compact features win where there is one training image of each class"
    found = [each for each in summaries(records) if each.measure == "mean AP" and each.details.get("shots") == 1]
    pairs = []
    for full in found:
        if method(full.pooling) == "full-bilinear":
            beside = _beside(found, full, "tensor-sketch")
            pairs += [(max(beside, key=_by_d), full)] if beside else []
    if not pairs:
        return _nothing(claim, "mean AP of Tensor Sketch and full bilinear pooling with one image of each class")
    larger = f"With one image of each class Tensor Sketch, {_dims(pairs)}, has a mean AP of"
    return _ahead(claim, pairs, larger, "full bilinear pooling of")


def fine_tuning_helps(records: Iterable[Record]) -> Finding:
    """Fine-tuned, poolings err less than they do as they come; averaged over all of which both were measured."""
    claim = "Fine-tuning helps"
    found = _errors(records)
    pairs = [
        (before, after)
        for before in found
        for after in found
        if before.stage == BEFORE
        and after.stage == AFTER
        and _place(before) == _place(after)
        and before.pooling == after.pooling
    ]
    if not pairs:
        return _nothing(claim, "the same pooling before and after fine-tuning")
    names = ", ".join(dict.fromkeys(look(pooling).name for pooling in sorted({each.pooling for each, _ in pairs}, key=place)))
    return _ahead(claim, pairs, f"Over {names}, the error is without fine-tuning", "with it")


def close_after_fine_tuning(records: Iterable[Record]) -> Finding:
    """Fine-tuned, Tensor Sketch with at most 16 384 dimensions is within a point of full bilinear pooling, on either side."""
    claim = "Compact pooling is close to full bilinear pooling after fine-tuning"
    found = _errors(records)
    pairs = []
    for full in _those(found, "full-bilinear", AFTER):
        beside = [each for each in _beside(found, full, "tensor-sketch") if each.d <= 16384 and each.d < full.d]
        pairs += [(max(beside, key=_by_d), full)] if beside else []
    if not pairs:
        return _nothing(claim, "fine-tuned Tensor Sketch and full bilinear pooling")
    return _within(claim, pairs, f"Fine-tuned, Tensor Sketch, {_dims(pairs)},", "full bilinear pooling", both_sides=True)


CLAIMS: tuple[Callable[[Iterable[Record]], Finding], ...] = (
    reaches_full_bilinear,
    close_after_fine_tuning,
    maclaurin_crosses,
    pca_lags,
    fine_tuning_helps,
    compact_wins_at_one_shot,
)


def findings(records: Iterable[Record]) -> list[Finding]:
    """What records say to every claim, in the order of ``CLAIMS``."""
    kept = list(records)
    return [claim(kept) for claim in CLAIMS]


def _ahead(claim: str, pairs: Sequence[tuple[Summary, Summary]], larger: str, smaller: str) -> Finding:
    """The first of each pair is claimed to be larger."""
    contrast = _contrast(pairs)
    errors = contrast.beyond(contrast.difference)
    sentence = (
        f"{larger} {_percent(contrast.larger)}, {smaller} {_percent(contrast.smaller)}: a difference of "
        f"{as_text(contrast.difference, signed=True)} points ({contrast.how})."
    )
    return Finding(claim, _verdict(errors), contrast.difference, errors, sentence)


def _within(
    claim: str, pairs: Sequence[tuple[Summary, Summary]], ours: str, other: str, *, both_sides: bool = False
) -> Finding:
    """The first of each pair is claimed to be no more than ``MARGIN`` larger; nor, on both sides, that much smaller."""
    contrast = _contrast(pairs)
    room = MARGIN - (abs(contrast.difference) if both_sides else contrast.difference)
    errors = contrast.beyond(room)
    sentence = (
        f"{ours} errs in {_percent(contrast.larger)}, {other} in {_percent(contrast.smaller)}: a difference of "
        f"{as_text(contrast.difference, signed=True)} points ({contrast.how}), where up to {as_text(MARGIN, 0)} is as good."
    )
    return Finding(claim, _verdict(errors), room, errors, sentence)


def _contrast(pairs: Sequence[tuple[Summary, Summary]]) -> _Contrast:
    errors = [_error(one, other) for one, other in pairs]
    known = [error for error, _ in errors if error is not None]
    together = math.hypot(*known) / len(pairs) if len(known) == len(pairs) else None
    larger, smaller = (100 * fmean(pair[k].mean for pair in pairs) for k in (0, 1))
    return _Contrast(larger, smaller, together, len(pairs), all(paired for _, paired in errors))


def _error(one: Summary, other: Summary) -> tuple[float | None, bool]:
    """Standard error of the difference of two means, in points, and whether it was taken draw by draw."""
    for by_draw, same in ((one.values, other.values), (_by_split(one), _by_split(other))):
        if len(by_draw) > 1 and by_draw.keys() == same.keys():
            differences = [by_draw[draw] - same[draw] for draw in by_draw]  # type: ignore[index]
            return 100 * stdev(differences) / math.sqrt(len(differences)), True
    variances = [_variance(one, other), _variance(other, one)]
    known = [each for each in variances if each is not None]
    return (100 * math.sqrt(sum(known)), False) if len(known) == 2 and any(known) else (None, False)


def _by_split(summary: Summary) -> dict[str, float]:
    """The mean of each split, over its seeds: what has no seed was measured once a split."""
    splits: dict[str, list[float]] = {}
    for (_, split), value in summary.values.items():
        splits.setdefault(split, []).append(value)
    return {split: fmean(values) for split, values in splits.items()}


def _variance(summary: Summary, beside: Summary) -> float | None:
    """Of the mean. What draws nothing and is not trained is the same every time: on the same split, once is enough."""
    if summary.spread is not None:
        return summary.spread**2 / summary.count
    same = (
        method(summary.pooling) in FIXED and summary.stage == BEFORE and _by_split(summary).keys() == _by_split(beside).keys()
    )
    return 0.0 if same else None


def _verdict(errors: float | None) -> Verdict:
    if errors is None or abs(errors) < DECIDED:
        return "undecided"
    return "borne out" if errors > 0 else "refuted"


def _nothing(claim: str, wanted: str) -> Finding:
    return Finding(claim, "undecided", None, None, f"This run has no records of {wanted}.")


def _errors(records: Iterable[Record]) -> list[Summary]:
    return [each for each in summaries(records) if each.measure == "error"]


def _those(found: Iterable[Summary], name: str, stage: str) -> list[Summary]:
    return [each for each in found if method(each.pooling) == name and each.stage == stage]


def _beside(found: Iterable[Summary], one: Summary, name: str, d: int | None = None) -> list[Summary]:
    """What was measured of another pooling in the same place and stage."""
    where = one.stage, _place(one)
    same = [each for each in found if method(each.pooling) == name and (each.stage, _place(each)) == where]
    return [each for each in same if d is None or each.d == d]


def _place(summary: Summary) -> tuple[Any, ...]:
    return summary.experiment, summary.data, summary.backbone


def _by_d(summary: Summary) -> int:
    return summary.d


def _dims(pairs: Sequence[tuple[Summary, Summary]]) -> str:
    return f"d = {' and '.join(as_text(d, 0) for d in sorted({one.d for one, _ in pairs}))}"


def _percent(value: float) -> str:
    return f"{as_text(value)}{THIN}%"


def _words(stage: str) -> str:
    return " after fine-tuning" if stage == AFTER else " without fine-tuning"
