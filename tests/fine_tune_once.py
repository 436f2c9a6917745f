"""Run as a program, by itself or by ``torchrun``: fine-tune what :mod:`tuned` makes.

``fine_tune_once.py FOLDER OUT SETTINGS`` fine-tunes with the images in FOLDER and the settings, a JSON text.
With "die_at" in the settings its second process is killed at that step, but only the first time.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

import tuned
from compact_bilinear.finetuning.learner import Learner
from compact_bilinear.processes import Processes


def main(folder: Path, out: Path, settings: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    processes = Processes.from_environment()
    die_at = settings.pop("die_at", None)
    if die_at is not None and processes.rank == 1 and not (out / "died").exists():
        _die(die_at, out / "died")
    tuned.tune(out, tuned.images(folder), tuned.model(dropout=0.0).double(), processes, **settings)


def _die(at: int, mark: Path) -> None:
    real, taken = Learner.step, iter(range(10**6))

    def step(self: Learner, *arguments: Any) -> Any:
        if next(taken) == at:
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, *arguments)

    Learner.step = step  # type: ignore[method-assign]


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
    except KeyboardInterrupt:
        sys.exit(130)
