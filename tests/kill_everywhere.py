"""Run as a program: a store killed by SIGKILL at every step that touches the disk, one after the other, and resumed each time.

``kill_everywhere.py FOLDER`` prints how many times it killed; it fails if any resumed store differs from the uninterrupted one.
"""

import os
import signal
import sys
from pathlib import Path

import pyarrow.parquet as pq

from stores import begin, contents, fill, items


def main(folder: Path) -> None:
    fill(begin(folder / "whole", items=items(8)))
    expected = contents(folder / "whole")
    kills = 0
    while True:
        store = folder / f"killed-{kills}"
        child = os.fork()
        if child == 0:
            run_and_die(store, at=kills)
        if os.waitpid(child, 0)[1] == 0:
            break
        kills += 1
        fill(begin(store, items=items(8)))
        assert contents(store) == expected, f"killed at step {kills}: {sorted(contents(store))}"
    sys.stdout.write(str(kills))


def run_and_die(store: Path, at: int) -> None:
    steps = iter(range(sys.maxsize))
    for owner, name in ((os, "fsync"), (os, "open"), (Path, "replace"), (Path, "unlink"), (pq.ParquetWriter, "write_table")):

        def dying(*args: object, real: object = getattr(owner, name), **options: object) -> object:
            if next(steps) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)  # type: ignore[operator]

        setattr(owner, name, dying)
    fill(begin(store, items=items(8)))
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
