"""Records: written whole, read back as they were, refused where foreign; and what repetitions say together."""

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from compact_bilinear.experiments.records import Record, append_record, is_share, read_records, summaries

RECORD = Record(
    "table4", "CUB", "vgg16", "tensor-sketch:8192", 8192, "linear", "error", 0.21, 0.205, 1, {"split": 2}, {"torch": "2"}
)


def repetitions(*values: float) -> list[Record]:
    return [replace(RECORD, value=value, seed=seed) for seed, value in enumerate(values)]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "é.jsonl"
    written = [*repetitions(0.2, 1 / 3), replace(RECORD, data='<"&ü\n', paper=None, details={"shots": 1, "theory": 0.1})]
    for record in written:
        append_record(file, record)
    assert read_records(file) == written
    assert file.read_bytes().count(b"\n") == 3


def test_a_line_that_was_cut_short_is_none_and_is_written_over(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    for record in repetitions(0.2, 0.3):
        append_record(file, record)
    whole = file.read_bytes()
    for size in (len(whole) - 1, len(whole) - 40, whole.index(b"\n") + 2):
        file.write_bytes(whole[:size])
        assert read_records(file) == repetitions(0.2)
        append_record(file, repetitions(0.2, 0.3)[1])
        assert file.read_bytes() == whole


@pytest.mark.parametrize(
    "line", ["{}", "[1]", "3", "not json", '{"experiment": "x", "value": NaN}', '{"name": "TensorSketch", "both_ms": [1, 2]}']
)
def test_foreign_lines_are_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "records.jsonl"
    append_record(file, RECORD)
    with file.open("a") as lines:
        lines.write(line + "\n")
    with pytest.raises(
        ValueError, match=r"line 2 is another: .*\nRemove that line, or name a file that an experiment wrote\.$"
    ):
        read_records(file)


@pytest.mark.parametrize("change", [{"value": math.nan}, {"value": "0.2"}, {"d": 2.5}, {"paper": math.inf}, {"value": 20.5}])
def test_what_is_no_record_is_not_written(tmp_path: Path, change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\n(Check what was measured|Divide percent by 100)"):
        append_record(tmp_path / "records.jsonl", replace(RECORD, **change))
    assert not list(tmp_path.iterdir())


def test_repetitions_are_those_of_another_seed_or_split_and_nothing_else() -> None:
    same = [replace(RECORD, seed=s, details={"split": k, "images": s}, value=0.1 * k) for s in (0, 1) for k in (1, 2, 4)]
    for apart in ({"d": 4096}, {"stage": "fine-tuned"}, {"data": "MIT"}, {"measure": "mean AP"}, {"details": {"shots": 3}}):
        assert [each.count for each in summaries([*same, replace(RECORD, **apart)])] in ([1, 6], [6, 1])
    (summary,) = summaries(same)
    assert summary.count == 6
    assert summary.details == {}
    assert list(summary.values) == [(s, k) for s in (0, 1) for k in ("1", "2", "4")]


def test_mean_spread_and_difference_by_hand() -> None:
    (summary,) = summaries(repetitions(0.19, 0.21, 0.23))
    assert summary.mean == pytest.approx(0.21, abs=1e-15)
    assert summary.spread == pytest.approx(0.02, abs=1e-15)
    assert summary.points == pytest.approx(0.5, abs=1e-12)
    assert summary.standard_errors == pytest.approx(0.005 / (0.02 / math.sqrt(3)), rel=1e-12)
    assert summary.details == {"split": 2}
    (single,) = summaries(repetitions(0.19))
    assert (single.spread, single.standard_errors) == (None, None)
    (without,) = summaries([replace(RECORD, paper=None)])
    assert (without.difference, without.points, without.standard_errors) == (None, None, None)
    (time,) = summaries([replace(RECORD, measure="ms", value=5.5, paper=5.03)])
    assert time.points is None
    assert time.difference == pytest.approx(0.47)


def test_the_order_of_records_does_not_matter() -> None:
    records = [replace(each, d=d) for each in repetitions(0.1, 0.7, 1 / 3, 0.2) for d in (512, 32, 8192)]
    expected = summaries(records)
    for seed in range(5):
        shuffled = random.Random(seed).sample(records, len(records))
        assert summaries([*shuffled, shuffled[0]]) == expected, "the same record twice is the same record"
    assert [each.d for each in expected] == [32, 512, 8192]


def test_two_numbers_for_one_draw_are_refused() -> None:
    with pytest.raises(ValueError, match=r"has 0\.2 and 0\.21 for seed 1\.\nRemove one"):
        summaries([RECORD, replace(RECORD, value=0.2)])
    with pytest.raises(ValueError, match=r"one number of the paper, .* has 0\.2 and 0\.205"):
        summaries([RECORD, replace(RECORD, seed=2, paper=0.2)])


def test_shares() -> None:
    assert [is_share(each) for each in ("error", "mean AP", "recall@1", "kernel error", "MB")] == [
        True,
        True,
        True,
        False,
        False,
    ]
