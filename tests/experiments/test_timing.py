"""Pooling beside its network, in time."""

from pathlib import Path

import pytest

from compact_bilinear.experiments import timing
from compact_bilinear.experiments.ledger import Ledger
from compact_bilinear.experiments.setting import Setting


def test_every_repetition_is_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "ROUNDS", 1)
    setting = Setting(Ledger(tmp_path), backbones=("tiny",), dims=(64,), size=48, seeds=2)
    timing.measure(setting)
    found = {(record.pooling, record.measure, record.seed): record.value for record in setting.ledger.records}
    assert len(found) == len(setting.ledger.records) == 2 * 6
    for seed in range(2):
        share = found["tensor-sketch:64", timing.SHARE, seed]
        assert share == pytest.approx(100 * found["tensor-sketch:64", "ms", seed] / found[timing.NETWORK, "ms", seed])
        assert found["tensor-sketch:64", timing.BY_FFT, seed] > 0
    assert {record.paper for record in setting.ledger.records} == {None}, "the paper's is VGG-16 at 448"
    timing.measure(setting)
    assert len(setting.ledger.records) == 2 * 6
    assert timing.tables(setting.ledger.records)["timing"].columns[-1] == timing.NETWORK
    assert list(timing.drawings(setting.ledger.records)) == ["timing-tiny"]


def test_other_networks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"but got timm:resnet18\.\nWrite --backbone vgg16"):
        timing.measure(Setting(Ledger(tmp_path), backbones=("timm:resnet18",)))
