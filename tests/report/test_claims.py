"""Claims on planted records: one that is true, one that is false, one that cannot be decided, for each."""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from compact_bilinear.experiments.records import Record
from compact_bilinear.report.claims import (
    CLAIMS,
    Finding,
    close_after_fine_tuning,
    compact_wins_at_one_shot,
    findings,
    fine_tuning_helps,
    maclaurin_crosses,
    pca_lags,
    reaches_full_bilinear,
)

SHARED = (1.0, -1.0, 0.4)  # points that a draw adds to every method
OWN = (0.1, 0.0, -0.1)
OTHER = (-0.1, 0.1, 0.0)


def cell(
    pooling: str, d: int, stage: str, percent: float, own: Sequence[float], measure: str = "error", **details: int
) -> list[Record]:
    """Three repetitions: what the draws share, and what they do not."""
    return [
        Record("x", "CUB", "vgg16", pooling, d, stage, measure, (percent + SHARED[s] + own[s]) / 100, None, s, details)
        for s in range(3)
    ]


def full(stage: str, percent: float) -> list[Record]:
    return cell("full-bilinear", 262144, stage, percent, OWN)


def sketch(stage: str, percent: float, d: int = 8192, wide: float = 1) -> list[Record]:
    return cell(f"tensor-sketch:{d}", d, stage, percent, [wide * each for each in OTHER])


def maclaurin(percent: float, d: int) -> list[Record]:
    return cell(f"random-maclaurin:{d}", d, "linear", percent, OWN)


def few_shot(compact: float, exact: float, wide: float = 1, shots: int = 1) -> list[Record]:
    own = [wide * each for each in OTHER]
    return [
        *cell("tensor-sketch:8192", 8192, "few-shot", compact, own, "mean AP", shots=shots),
        *cell("full-bilinear", 262144, "few-shot", exact, OWN, "mean AP", shots=shots),
    ]


def pca(at_4096: float, sketch_at_4096: float, wide: float = 1) -> list[Record]:
    low = cell("pca-bilinear:256", 256, "fine-tuned", 10, OWN) + sketch("fine-tuned", 40, 256)  # the largest d counts
    return low + cell("pca-bilinear:4096", 4096, "fine-tuned", at_4096, OWN) + sketch("fine-tuned", sketch_at_4096, 4096, wide)


def crossing(low: float, high: float) -> list[Record]:
    """Random Maclaurin's error less Tensor Sketch's, in points, at d = 128 and d = 8192."""
    both = sketch("linear", 50, 128) + maclaurin(50 + low, 128) + sketch("linear", 30) + maclaurin(30 + high, 8192)
    return both + sketch("linear", 40, 1024) + maclaurin(70, 1024)  # in between nothing is claimed


PLANTED: list[tuple[Callable[[Iterable[Record]], Finding], dict[str, list[Record]]]] = [
    (
        reaches_full_bilinear,
        {
            "borne out": full("linear", 30) + sketch("linear", 30.5) + sketch("linear", 20, 16384),
            "refuted": full("linear", 30) + sketch("linear", 32) + full("fine-tuned", 20) + sketch("fine-tuned", 20),
            "undecided": full("linear", 30) + sketch("linear", 30.95),
        },
    ),
    (
        close_after_fine_tuning,
        {
            "borne out": full("fine-tuned", 16) + sketch("fine-tuned", 15.6) + full("linear", 5) + sketch("linear", 9),
            "refuted": full("fine-tuned", 16) + sketch("fine-tuned", 18),
            "undecided": full("fine-tuned", 16) + sketch("fine-tuned", 16.5, wide=20),
        },
    ),
    (
        maclaurin_crosses,
        {"borne out": crossing(-2, 2), "refuted": crossing(-2, -1), "undecided": crossing(-2, 0.05)},
    ),
    (pca_lags, {"borne out": pca(25.3, 23.2), "refuted": pca(20, 23.2), "undecided": pca(23.3, 23.2, wide=20)}),
    (
        fine_tuning_helps,
        {
            "borne out": full("linear", 30) + full("fine-tuned", 22) + sketch("linear", 31) + sketch("fine-tuned", 23),
            "refuted": full("linear", 22) + full("fine-tuned", 29) + sketch("linear", 24),
            "undecided": sketch("linear", 30) + sketch("fine-tuned", 29.9, wide=20),
        },
    ),
    (
        compact_wins_at_one_shot,
        {
            "borne out": few_shot(15.6, 12.7) + few_shot(10, 50, shots=14),
            "refuted": few_shot(12.7, 15.6),
            "undecided": few_shot(13, 12.7, wide=20),
        },
    ),
]  # fmt: skip
CASES = [(claim, verdict, records) for claim, cases in PLANTED for verdict, records in cases.items()]


@pytest.mark.parametrize(("claim", "verdict", "records"), CASES, ids=lambda each: getattr(each, "__name__", str(each)[:10]))
def test_what_was_planted_is_found(claim: Callable[[Iterable[Record]], Finding], verdict: str, records: list[Record]) -> None:
    found = claim(records)
    assert found.verdict == verdict
    assert found.difference is not None
    assert found.standard_errors is not None
    assert {"borne out": found.standard_errors >= 2, "refuted": found.standard_errors <= -2}.get(
        verdict, abs(found.standard_errors) < 2
    )
    assert math.copysign(1, found.difference) == math.copysign(1, found.standard_errors)
    assert claim(random.Random(0).sample(records, len(records))) == found


def test_every_claim_has_its_three_cases() -> None:
    assert [claim for claim, _ in PLANTED] == list(CLAIMS)
    assert all(list(cases) == ["borne out", "refuted", "undecided"] for _, cases in PLANTED)


def test_numbers_and_standard_errors_by_hand() -> None:
    found = compact_wins_at_one_shot(few_shot(15.6, 12.7))
    differences = [2.9 + other - own for own, other in zip(OWN, OTHER, strict=True)]
    mean = sum(differences) / 3
    error = math.sqrt(sum((each - mean) ** 2 for each in differences) / 2 / 3)
    assert found.difference == pytest.approx(mean, abs=1e-9)
    assert found.standard_errors == pytest.approx(mean / error, rel=1e-6)
    assert found.sentence == (
        "With one image of each class Tensor Sketch, d = 8192, has a mean AP of 15.73\u202f%, "
        "full bilinear pooling of 12.83\u202f%: "
        f"a difference of +2.90 points (± {error:.2f}, draw by draw)."
    )


def test_what_draws_share_cancels_only_where_they_are_the_same_draws() -> None:
    same = few_shot(13.5, 12.7)
    others = [replace(each, seed=each.seed + 10) if each.pooling == "full-bilinear" else each for each in same]
    assert compact_wins_at_one_shot(same).verdict == "borne out"
    assert compact_wins_at_one_shot(others).verdict == "undecided"
    assert "independent draws" in compact_wins_at_one_shot(others).sentence


def test_several_seeds_of_a_split_are_paired_with_the_one_that_has_no_seed() -> None:
    splits = [record for k, off in enumerate((0, 5, -5)) for record in (
        *(replace(r, value=r.value + off / 100, details={"split": k}) for r in sketch("linear", 30.5)),
        *(replace(r, value=r.value + off / 100, details={"split": k}) for r in full("linear", 30)[:1]),
    )]  # fmt: skip
    found = reaches_full_bilinear(splits)
    assert "draw by draw" in found.sentence
    assert found.standard_errors is not None
    assert abs(found.standard_errors) > 100, "splits differ by 5 points, differences within them do not"


def test_full_bilinear_measured_once_is_known_for_it_draws_nothing() -> None:
    records = sketch("linear", 36) + full("linear", 30)[:1]
    assert reaches_full_bilinear(records).verdict == "refuted"
    other_split = [replace(record, details={"split": k}) for k, record in enumerate(records)]
    assert reaches_full_bilinear(other_split).verdict == "undecided", "another split would have been another number"
    tuned = sketch("fine-tuned", 36) + full("fine-tuned", 30)[:1]  # trained once, it would have been another
    assert close_after_fine_tuning(tuned).verdict == "undecided"


def test_one_repetition_decides_nothing() -> None:
    for claim, cases in PLANTED:
        found = claim([record for record in cases["borne out"] if record.seed == 0])
        assert (found.verdict, found.standard_errors) == ("undecided", None)
        assert "no spread" in found.sentence


def test_far_fewer_dimensions_are_not_3_percent() -> None:
    assert reaches_full_bilinear(full("linear", 30) + sketch("linear", 60, 512)).difference is None


def test_far_better_is_not_close() -> None:
    better = full("fine-tuned", 16) + sketch("fine-tuned", 13)
    assert close_after_fine_tuning(better).verdict == "refuted"
    assert reaches_full_bilinear(better).verdict == "borne out"


def test_no_records_decide_nothing() -> None:
    for found in findings([]):
        assert (found.verdict, found.difference, found.standard_errors) == ("undecided", None, None)
        assert found.sentence.startswith("This run has no records of ")


def test_several_data_sets_weigh_the_same() -> None:
    cub = full("fine-tuned", 16) + sketch("fine-tuned", 16.2)
    mit = [replace(each, data="MIT") for each in full("fine-tuned", 30) + sketch("fine-tuned", 30.6)]
    one, both = close_after_fine_tuning(cub), close_after_fine_tuning([*cub, *mit])
    assert one.difference == pytest.approx(0.8, abs=1e-9)
    assert both.difference == pytest.approx(0.6, abs=1e-9)
    assert "2 pairs" in both.sentence
    assert close_after_fine_tuning([*full("fine-tuned", 16), *mit[3:]]).difference is None, (
        "of two data sets nothing is compared"
    )
