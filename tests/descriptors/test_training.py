"""The script that trains the small trunk: the same seed gives the same bytes, whatever interrupts it."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from compact_bilinear.descriptors import TINY, VGG, load_vgg
from narrow import NARROW_D, narrow

SETTINGS: dict[str, Any] = {"steps": 4, "batch": 3, "side": 32, "lr": 1e-3, "seed": 0, "every": 2, "keep": 2, "workers": 0}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "training")
    import train_tiny

    monkeypatch.setattr(train_tiny, "VGG_D", NARROW_D)
    monkeypatch.setattr(train_tiny, "TINY", narrow(TINY))
    teacher = VGG(NARROW_D)
    for parameter in teacher.parameters():  # torch's own would let the signal die on its way
        parameter.data.mul_(3)
    save_file(teacher.state_dict(), tmp_path / "teacher.safetensors")
    return train_tiny


def run(script: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: int) -> dict[str, torch.Tensor]:
    flags = [f"--{name}={value}" for name, value in (SETTINGS | changes).items()]
    teacher = folder.parent / "teacher.safetensors"
    monkeypatch.setattr(sys, "argv", ["train_tiny.py", f"--teacher={teacher}", f"--out={folder}", "--threads=1", *flags])
    script.main()
    return load_file(folder / "tiny.safetensors")


def test_goes_on_where_it_stopped(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(script, tmp_path / "whole", monkeypatch, steps=6)
    assert {tensor.dtype for tensor in expected.values()} == {torch.float16}
    batches, given = script.batches, []

    def cut(settings: dict[str, Any], start: int, stop: int, seed: int) -> object:
        for batch in batches(settings, start, stop, seed):
            if seed == SETTINGS["seed"]:
                if len(given) == 5:
                    raise KeyboardInterrupt
                given.append(batch)
            yield batch

    monkeypatch.setattr(script, "batches", cut)
    with pytest.raises(KeyboardInterrupt):
        run(script, tmp_path / "cut", monkeypatch, steps=6)
    with (tmp_path / "cut" / "log.jsonl").open("a") as log:
        log.write('{"step": 5}\n')
    monkeypatch.setattr(script, "batches", batches)
    resumed = run(script, tmp_path / "cut", monkeypatch, steps=6)
    for name, tensor in expected.items():
        assert torch.equal(resumed[name], tensor), name
    logs = [
        [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()] for name in ("whole", "cut")
    ]
    assert [line["step"] for line in logs[0]] == [2, 4, 6]
    for one, other in zip(*logs, strict=True):
        assert one | {"images_a_second": 0} == other | {"images_a_second": 0}
    with pytest.raises(SystemExit, match=r"was made with .*\nnot with .*'lr': 0.5.* Take another --out"):
        run(script, tmp_path / "cut", monkeypatch, lr=0.5)
    with pytest.raises(SystemExit):
        run(script, tmp_path / "cut", monkeypatch, keep=3)


def test_what_is_written_is_what_was_trained(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(script, tmp_path / "run", monkeypatch)
    student = script.Student((5, 8, 8))
    student.load_state_dict(torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["student"])
    pixels = torch.randint(256, (2, 3, 40, 48), dtype=torch.uint8)
    expected = student.eval()(pixels)[0]
    torch.testing.assert_close(student.folded()(pixels), expected, rtol=1e-4, atol=1e-5)
    written = load_vgg(script.TINY, tmp_path / "run" / "tiny.safetensors")(pixels)
    assert (written - expected).norm() < 0.01 * expected.norm()


def test_the_losses_are_shares(script: ModuleType) -> None:
    x, y = torch.rand(6, 5, 7, 7), torch.rand(6, 9, 3, 4)
    mean, spread = y.sqrt().mean((0, 2, 3))[:, None, None], y.sqrt().std((0, 2, 3))[:, None, None]
    target = (y.sqrt() - mean) / spread
    assert script.unexplained(target, y, mean, spread) == 0
    assert script.unexplained(torch.zeros_like(y), y, mean, spread) == 1
    torch.testing.assert_close(script.unexplained(target / 2, y, mean, spread), torch.tensor(0.25))
    torch.testing.assert_close(script.misaligned(x, x), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(script.misaligned(3 * x.flip(1), x), torch.tensor(0.0), atol=1e-5, rtol=0)
    assert 0.1 < script.misaligned(x, y) < 1.5


def test_images_come_from_their_number_alone(script: ModuleType) -> None:
    images = [script.procedural_image(seed, index, 48) for seed, index in ((0, 3), (0, 4), (1, 3), (0, 3))]
    assert np.array_equal(images[0], images[3])
    assert not any(np.array_equal(images[i], images[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    many = np.stack([script.procedural_image(0, index, 48) for index in range(200)]).astype(float)
    assert many.shape == (200, 48, 48, 3)
    assert (many.std((1, 2, 3)) > 2).mean() > 0.97, "images without anything in them"
    assert 80 < many.mean() < 170
    assert many.mean((1, 2)).std(0).min() > 25, "images that all have one colour"
