"""Checkpoints: what they keep, what they refuse, and what is left when one is damaged."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tuned
from compact_bilinear.finetuning import FineTuning, training_places
from compact_bilinear.finetuning.checkpoint import Checkpoints, State, finite, identity
from compact_bilinear.images import ImageList

RUN = {"rate": 0.1, "images": 5}
STATE = State(epoch=1, batch=2, step=7, seen=9, broken=1, loss=0.1 + 0.2, wrong=3, worse=1, lines=8, scaler={"scale": 2.0})


def numbers(step: int) -> dict[str, torch.Tensor]:
    return {"model/w": torch.full((2, 3), float(step)), "model/n": torch.tensor([2**40 + 1])}


def test_what_was_written_is_read_to_the_last_bit(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, RUN)
    assert checkpoints.find() == -1
    strided = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    checkpoints.write(STATE, {"model/w": strided})
    assert Checkpoints(tmp_path, RUN).find() == 7
    state, tensors = checkpoints.read(7)
    assert state == STATE
    assert torch.equal(tensors["model/w"], strided)


def test_the_newest_two_are_kept_and_the_best(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, RUN)
    for step in range(1, 7):
        state = State(step=step, best={"epoch": 2 if step < 5 else 5, "error": 0.5, "loss": 1.0})
        if step in (2, 5):
            checkpoints.write_best(state, numbers(step))
        checkpoints.write(state, numbers(step))
        # the one before may be the one to go on from
        best = {2: ["00002"], 5: ["00002", "00005"], 6: ["00005"]}
        if step in best:
            found = sorted(file.stem.removeprefix("best-") for file in checkpoints.folder.glob("best-*"))
            assert found == best[step]
    assert sorted(file.name for file in checkpoints.folder.glob("step-*")) == [
        "step-00000005.safetensors",
        "step-00000006.safetensors",
    ]
    assert torch.equal(checkpoints.read_best(checkpoints.read(6)[0])["model/w"], numbers(5)["model/w"])
    assert not list(checkpoints.folder.glob(".*"))


def test_a_damaged_one_gives_way_to_the_one_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints = Checkpoints(tmp_path, RUN)
    for step in (3, 4):
        checkpoints.write(State(step=step), numbers(step))
    newest = checkpoints.file(4)
    newest.write_bytes(newest.read_bytes()[:-3])
    assert checkpoints.find() == 3
    assert "step-00000004.safetensors is damaged" in capsys.readouterr().err
    for step in (6, 9):
        (checkpoints.folder / f"step-{step:08}.safetensors").write_bytes(b"cut")
    for step in (4, 5):  # on its way to where it was it passes the damaged ones
        checkpoints.write(State(step=step), numbers(step))
        assert checkpoints.find() == step
    assert [file.name for file in sorted(checkpoints.folder.iterdir())] == [
        "step-00000004.safetensors",
        "step-00000005.safetensors",
    ]
    checkpoints.file(4).write_bytes(b"")
    checkpoints.file(5).write_bytes(b"")
    with pytest.raises(ValueError, match=r"can be read\.\nCopy them anew, or remove that folder to begin anew"):
        checkpoints.find()


def test_another_run_is_refused_by_what_is_different(tmp_path: Path) -> None:
    Checkpoints(tmp_path, RUN).write(State(), {})
    with pytest.raises(ValueError, match=r"changed are rate: 0\.1 → 0\.2; seed: null → 1\.\nGive another folder"):
        Checkpoints(tmp_path, RUN | {"rate": 0.2, "seed": 1}).find()


def test_an_identity_has_all_that_decides(tmp_path: Path) -> None:
    images = tuned.images(tmp_path)

    def of(images: ImageList = images, model: Any = None, **changed: Any) -> dict[str, Any]:
        settings = FineTuning(**changed)
        return identity(model or tuned.model(), images, training_places(images, settings), settings)

    base = of()
    assert of(workers=5, accumulate=3) == base
    head = tuned.model().set_head(torch.zeros(3, 16), torch.zeros(3))
    assert of(model=head) == base
    relabelled = replace(images, labels=tuple((label + 1) % 3 for label in images.labels))
    other_backbone = tuned.model()
    next(other_backbone.backbone.parameters()).data[0, 0, 0, 0] += 1
    for changed, names in (
        (of(rate=0.5), {"rate"}),
        (of(relabelled), {"images sha256"}),
        (of(hold_out=0.2), {"hold_out", "images sha256"}),
        (of(model=other_backbone), {"backbone sha256"}),
        (of(model=tuned.model(pooling="tensor-sketch:16,seed=1")), {"pooling", "pooling sha256"}),
        (of(model=tuned.model(damping=0.1)), {"damping"}),
        (of(model=tuned.model(link="sigmoid")), {"loss"}),
    ):
        assert {name for name in base if base[name] != changed[name]} == names


def test_finite() -> None:
    assert finite({"w": torch.ones(3), "n": torch.tensor([1])})
    for wrong in (float("nan"), float("inf")):
        assert not finite({"w": torch.tensor([1.0, wrong])})
