"""Run as a program: an extraction killed by SIGKILL at random moments, and resumed until it ends.

``kill_extract.py FOLDER TIMES`` extracts features of what :func:`photos.make` made in FOLDER, once whole, then TIMES times with
kills. It fails if any folder differs from the first, and prints how many kills hit a run at work.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

import photos
from compact_bilinear import cli
from compact_bilinear.recipes import extract  # noqa: F401 - imported once, and not in each child
from stores import contents

POOL = [part for name in ("tensor-sketch:64", "pca-bilinear:9", "fisher-vector:2") for part in ("--pool", name)]


def main(folder: Path, times: int) -> None:
    torch.set_num_threads(1)
    draw = random.Random(0)
    start = time.monotonic()
    assert os.waitstatus_to_exitcode(os.waitpid(begin(folder, folder / "whole"), 0)[1]) == 0
    duration = time.monotonic() - start
    expected = contents(folder / "whole")
    kills = 0
    for number in range(times):
        out = folder / f"killed-{number}"
        for attempt in range(4):
            child = begin(folder, out)
            if attempt < 3:
                time.sleep(draw.uniform(0, duration / 2))  # what is resumed has less to do, and the machine may be quicker now
                os.kill(child, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert code in (0, -signal.SIGKILL), f"exit code {code}"
            kills += code != 0
            if code == 0:
                break
        assert contents(out) == expected, f"{sorted(contents(out))} in place of {sorted(expected)}"
    sys.stdout.write(str(kills))


def begin(folder: Path, out: Path) -> int:
    """Extract in a child process."""
    child = os.fork()
    if child == 0:
        with Path(os.devnull).open("w") as nowhere:
            sys.stdout = nowhere
            os._exit(cli.main(photos.flags(folder, out, "--fit-images", "7", *POOL)))
    return child


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
