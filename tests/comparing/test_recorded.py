"""What is measured once is not measured again, and what is missing is."""

from pathlib import Path

import pytest

import photos
from compact_bilinear.comparing import recorded
from compact_bilinear.comparing.choice import choose
from compact_bilinear.comparing.recorded import learn, tell_apart, time_poolings
from compact_bilinear.experiments.ledger import Ledger
from compact_bilinear.features import FeatureStore
from compact_bilinear.images import read_images
from compact_bilinear.recipes import extract
from compact_bilinear.recipes.compare import Compare

POOL = ("average-pool", "tensor-sketch:64")


def test_nothing_is_measured_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos.make(tmp_path)
    weights = str(tmp_path / "weights.safetensors")
    store = extract.run(extract.Extract(tmp_path / "photos", tmp_path / "features", POOL, weights=weights, **photos.SETTINGS))  # type: ignore[arg-type]
    assert isinstance(store, FeatureStore)
    config = Compare(tmp_path / "photos", tmp_path / "out", POOL, backbone="tiny", weights=weights, draws=2)
    images = read_images(tmp_path / "photos")

    def measure() -> bytes:
        ledger = Ledger(tmp_path / "out")
        learn(config, store, ledger, tmp_path / "answers")
        tell_apart(store, ledger, tmp_path / "answers")
        time_poolings(config, store, images, ledger)
        return ledger.file.read_bytes()

    once = measure()

    def again(*arguments: object, **more: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(recorded, "linear", again)
    monkeypatch.setattr(recorded, "milliseconds", again)
    assert measure() == once

    # one line gone: that number alone comes back, with the same value
    lines = once.splitlines(keepends=True)
    gone = next(number for number, line in enumerate(lines) if b'"linear", "measure": "error", ' in line)
    (tmp_path / "out/records.jsonl").write_bytes(b"".join([*lines[:gone], *lines[gone + 1 :]]))
    measure()
    back = Ledger(tmp_path / "out").records
    assert len(back) == len(lines)
    assert choose(back).best.error == pytest.approx(
        min(each.value for each in back if each.measure == "error" and not each.seed and each.stage == "linear")
    )
