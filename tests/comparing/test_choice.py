"""The rule on planted records, and differences by hand."""

import math

import pytest

from compact_bilinear.comparing.choice import choose, difference
from compact_bilinear.experiments.records import Record


def record(pooling: str, d: int, error: float, images: int = 400, stage: str = "linear", measure: str = "error") -> Record:
    return Record("compare", "bark", "tiny", pooling, d, stage, measure, error, details={"test images": images})


FULL, LARGE, SMALL = "full-bilinear-triangle", "tensor-sketch:8192", "tensor-sketch:2048"


def test_a_clear_winner_is_taken_whatever_its_length() -> None:
    choice = choose([record(SMALL, 2048, 0.20), record(FULL, 18528, 0.10), record("average-pool", 192, 0.30)])
    assert choice.taken.pooling == choice.best.pooling == FULL


def test_of_those_within_a_standard_error_the_shortest_is_taken() -> None:
    # √(0.1 · 0.9 / 400) = 0.015
    choice = choose([record(FULL, 18528, 0.10), record(LARGE, 8192, 0.1149), record(SMALL, 2048, 0.1151)])
    assert (choice.taken.pooling, choice.best.pooling) == (LARGE, FULL)
    assert choice.limit == pytest.approx(0.115)


def test_equal_errors_take_the_smaller_d() -> None:
    assert choose([record(LARGE, 8192, 0.10), record(SMALL, 2048, 0.10)]).taken.pooling == SMALL
    assert choose([record(SMALL, 2048, 0.10), record(LARGE, 8192, 0.10)]).taken.pooling == SMALL


def test_the_same_d_takes_the_smaller_error() -> None:
    other = "random-maclaurin:2048"
    assert choose([record(SMALL, 2048, 0.105), record(other, 2048, 0.10), record(FULL, 18528, 0.10)]).taken.pooling == other


def test_no_error_at_all_leaves_only_those_without_any() -> None:
    assert choose([record(SMALL, 2048, 0.0025), record(LARGE, 8192, 0.0), record(FULL, 18528, 0.0)]).taken.pooling == LARGE


def test_only_linear_errors_count_and_their_order_does_not() -> None:
    records = [
        record(SMALL, 2048, 0.2),
        record(LARGE, 8192, 0.1),
        record(SMALL, 2048, 0.0, stage="few-shot"),
        record(SMALL, 2048, 0.0, measure="mean AP"),
    ]
    assert choose(records) == choose(records[::-1])
    assert choose(records).taken.pooling == LARGE


def test_differences_by_hand() -> None:
    wrong, other = [True] * 3 + [False] * 7, [True] * 2 + [False] * 7 + [True]
    found = difference(wrong, other)
    assert found.value == 0
    assert found.standard_error == pytest.approx(math.sqrt(2 / 9 / 10))
    assert difference([True, True], [True, True]) == (0, 0)
    assert difference([True], [False]) == (1, 0)
    # what both get wrong does not count: the error bar is smaller than that of two separate samples
    assert difference([True] * 50 + [False] * 49 + [True], [True] * 50 + [False] * 50).standard_error < 0.011
