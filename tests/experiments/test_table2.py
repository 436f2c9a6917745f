"""What poolings cost: counted by hand and from the layers."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from compact_bilinear.experiments import table2
from compact_bilinear.experiments.ledger import Ledger
from compact_bilinear.experiments.only import Only
from compact_bilinear.experiments.setting import Setting
from compact_bilinear.pooling.by_name import read_pooling

C, N, D, K = 512, 13 * 13, 10_000, 1000


@pytest.mark.parametrize(
    ("pooling", "dimension", "parameters", "products"),
    [
        ("full-bilinear", C * C, 0, N * C * C),
        (f"random-maclaurin:{D}", D, 2 * C * D, 2 * N * C * D),
        (f"tensor-sketch:{D}", D, 2 * C, None),
    ],
)
def test_counts_are_the_papers_formulas(pooling: str, dimension: int, parameters: int, products: int | None) -> None:
    found = table2.counts(pooling, read_pooling(pooling).build(C), torch.zeros(1, C, 13, 13))
    assert found["dimension"] == dimension
    assert found["parameters"] == parameters
    assert found["parameter MB"] == 4 * parameters / 1e6
    assert found["classifier MB"] == 4 * dimension * K / 1e6
    if products is not None:
        assert found["computation"] == products
    else:  # the product is symmetric: its upper half, and what of the lower lies in the same blocks
        assert N * C * C / 2 <= found["computation"] < 0.7 * N * C * C


def test_what_is_counted_is_there_once_and_what_is_timed_as_often_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table2, "C", 16)
    monkeypatch.setattr(table2, "ROUNDS", 1)
    setting = Setting(Ledger(tmp_path), dims=(24,), seeds=2, only=Only.of(["FB", "TS"]))
    table2.measure(setting)
    records = list(setting.ledger.records)
    assert {record.pooling for record in records} == {"full-bilinear", "tensor-sketch:24"}
    assert [record.seed for record in records if (record.measure, record.d) == ("ms", 24)] == [0, 1]
    assert {record.paper for record in records} == {None}, "another d is not the paper's"
    table2.measure(replace(setting, seeds=1))
    assert len(setting.ledger.records) == len(records)
    table2.measure(replace(setting, seeds=3))
    assert len(setting.ledger.records) == len(records) + 2
    (table,) = table2.tables(records).values()
    assert {row.stub for row in table.rows} >= {("dimension",), ("classifier MB",), ("ms",), ("MB",)}
    assert list(table2.drawings(records)) == ["table2"]
