"""Fine-tuning in processes of its own: killed, stopped, and several at one model."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import tuned
from compact_bilinear.images import ImageList

TESTS = Path(__file__).parents[1]
PATIENCE = 120  # seconds, for what takes ten


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("interruption")
    tuned.images(made)
    return made


@pytest.fixture(scope="module")
def images(folder: Path) -> ImageList:
    return tuned.images(folder)


def environment() -> dict[str, str]:
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS), "GLOO_SOCKET_IFNAME": loopback}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes to kill are forked, which this system does not do")
def test_killed_at_random_moments_and_resumed(folder: Path) -> None:
    command = [sys.executable, TESTS / "kill_fine_tune.py", folder, "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is no signal there")
def test_ctrl_c_leaves_a_checkpoint_of_the_last_step(folder: Path, images: ImageList, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": 400, "workers": 1, "checkpoint_minutes": 1e9}
    process = subprocess.Popen(
        [sys.executable, TESTS / "fine_tune_once.py", folder, tmp_path, json.dumps(settings)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment(),
    )
    log = tmp_path / "log.jsonl"
    while process.poll() is None and not (log.exists() and log.read_text().count("\n") > 5):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes at once
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    newest = max(tmp_path.glob("checkpoints/step-*")).stem
    last = tuned.records(tmp_path, "step")[-1]["step"]
    assert newest == f"step-{last:08}"
    assert not list(tmp_path.glob("checkpoints/.*"))


@pytest.mark.skipif(not dist.is_available(), reason="this torch was built without torch.distributed")
def test_two_processes_learn_what_one_learns_though_one_dies(folder: Path, images: ImageList, tmp_path: Path) -> None:
    # batches of 6, 6 and 1, of which one image is broken: shares of different sizes, and none at all for the second process
    settings: dict[str, Any] = {"batch": 6, "accumulate": 2, "hold_out": 0.2, "rate": 0.01}
    out = tmp_path / "two"
    out.mkdir()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "--max-restarts", "1"]
    done = subprocess.run(
        [*launcher, TESTS / "fine_tune_once.py", folder, out, json.dumps(settings | {"die_at": 4})],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert (out / "died").exists()
    assert "going on after step 4" in done.stderr
    assert len(re.findall(r"fine-tune: (\d+) of \1 images", done.stderr)) == 1, "the first tells of all"
    tuned.tune(tmp_path / "one", images, tuned.model(dropout=0.0).double(), **settings)
    alone, found, start = tuned.last(tmp_path / "one"), tuned.last(out), tuned.model().double().state_dict()
    assert alone.keys() == found.keys()
    for name, tensor in alone.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-9, msg=name)
    for name in ("head.weight", "backbone.module.0.weight", "backbone.module.4.bias"):
        assert float((found[f"model/{name}"] - start[name]).abs().max()) > 1e-5, f"{name} did not learn"
    for two, one in zip(*(tuned.records(each) for each in (out, tmp_path / "one")), strict=True):
        assert two.keys() == one.keys()
        for name, value in one.items():
            assert two[name] == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value), name
