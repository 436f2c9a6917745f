"""The kernel of compact features: draws against theory."""

from pathlib import Path
from statistics import fmean, stdev

import pytest

from compact_bilinear.experiments import kernel
from compact_bilinear.experiments.ledger import Ledger
from compact_bilinear.experiments.setting import Setting

DRAWS = 40


@pytest.mark.parametrize("method", ["random-maclaurin", "tensor-sketch"])
def test_draws_agree_with_theory(method: str) -> None:
    x = kernel.descriptors(images=6, n=9, c=8)
    squares = [kernel.kernel_error(method, 32, seed, x) ** 2 for seed in range(DRAWS)]
    expected = kernel.theory(method, 32, x) ** 2
    assert abs(fmean(squares) - expected) < 4 * stdev(squares) / DRAWS**0.5
    assert abs(fmean(squares) - 1.6 * expected) > 4 * stdev(squares) / DRAWS**0.5, "it would be seen if theory were another"


def test_every_draw_is_a_record(tmp_path: Path) -> None:
    setting = Setting(Ledger(tmp_path), dims=(8, 32), seeds=3)
    kernel.measure(setting)
    records = setting.ledger.records
    assert [(record.pooling, record.seed) for record in records[:4]] == [
        ("random-maclaurin:8", 0),
        ("random-maclaurin:8", 1),
        ("random-maclaurin:8", 2),
        ("random-maclaurin:32", 0),
    ]
    assert records[0].details["theory"] == pytest.approx(2 * float(str(records[3].details["theory"])), rel=0.01)
    kernel.measure(setting)
    assert len(setting.ledger.records) == 2 * 2 * 3
    shown = {
        column: row.cells[k][0]
        for row in kernel.tables(records)["kernel"].rows[:1]
        for k, column in enumerate(kernel.tables(records)["kernel"].columns)
    }
    assert shown["RM"].ours == pytest.approx(fmean(record.value**2 for record in records[:3]) ** 0.5)
    assert shown["RM, theory"].ours == records[0].details["theory"]
    assert "Tensor Sketch" in kernel.drawings(records)["kernel"].alternative
