"""Run as a program: fine-tuning killed by SIGKILL at random moments, and resumed until it ends.

``kill_fine_tune.py FOLDER TIMES`` fine-tunes what :mod:`tuned` makes in FOLDER, once whole, then TIMES times with kills. It
fails if any ends with other weights or another log than the first, and prints how many kills hit a run at work.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import tuned

# at every step a checkpoint, so that kills hit what is being written
SETTINGS: dict[str, Any] = {"epochs": 5, "hold_out": 0.2, "batch_statistics": True, "schedule": "cosine"}


def main(folder: Path, times: int) -> None:
    torch.set_num_threads(1)
    images, draw = tuned.images(folder), random.Random(0)
    start = time.monotonic()
    assert os.waitstatus_to_exitcode(os.waitpid(begin(folder / "whole", images), 0)[1]) == 0
    duration = time.monotonic() - start
    expected = load_file(folder / "whole" / "final.safetensors")
    kills = 0
    for number in range(times):
        out = folder / f"killed-{number}"
        for attempt in range(5):
            child = begin(out, images)
            if attempt < 4:
                time.sleep(draw.uniform(0, duration / 2))
                os.kill(child, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert code in (0, -signal.SIGKILL), f"exit code {code}"
            kills += code != 0
            if code == 0:
                break
        assert tuned.same(load_file(out / "final.safetensors"), expected)
        assert tuned.same(tuned.last(out), tuned.last(folder / "whole"))
        assert tuned.records(out) == tuned.records(folder / "whole")
    sys.stdout.write(str(kills))


def begin(out: Path, images: Any) -> int:
    """Fine-tune in a child process."""
    child = os.fork()
    if child == 0:
        made = tuned.tune(out, images, **SETTINGS)
        save_file({name: tensor.contiguous() for name, tensor in made.state_dict().items()}, out / "final.safetensors")
        os._exit(0)
    return child


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
