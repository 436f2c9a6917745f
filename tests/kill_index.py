"""Run as a program: an index killed by SIGKILL while it is made, added to, deleted from, compacted; and looked at each time.

``kill_index.py FOLDER everywhere`` kills at every step that touches the disk, one after the other; ``kill_index.py FOLDER
TIMES`` at random moments, so many times each. After each kill the index is the old one or the new one, and the same command
again makes it the new one and leaves nothing else behind. Prints how many kills left the old one, and how many the new.
"""

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np

import clustered
from compact_bilinear.features import FeatureStore
from compact_bilinear.search import Index, IndexWriter
from compact_bilinear.search.layout import LOCK, MANIFEST

POOLING, QUERIES = "tensor-sketch:33", clustered.rows(3, 33, seed=7)
State = object
Change = Callable[[Path], object]


def main(folder: Path, how: str) -> None:
    faiss.omp_set_num_threads(1)  # threads do not survive the fork
    os.fsync = lambda _: None  # a step to die at, but who is only killed loses nothing that the system has
    x = clustered.rows(700, 33)
    for name, rows in (("first", x[:400]), ("second", x[300:])):
        paths = [f"{300 * (name == 'second') + index}.jpg" for index in range(len(rows))]
        clustered.store(folder / name, rows, paths=paths)
    first, second = FeatureStore(folder / "first"), FeatureStore(folder / "second")

    def save_model(to: Path) -> None:
        to.mkdir()
        (to / "model.json").write_text("{}")

    def make(index: Path, replace: bool = False) -> None:
        IndexWriter(index).make(first, POOLING, engine="ivf-pq", save_model=save_model, replace=replace)

    def make_other(index: Path) -> None:
        IndexWriter(index).make(second, POOLING, engine="hnsw")

    def grown(index: Path) -> None:
        make_other(index)
        IndexWriter(index).add(first)

    paths = [f"{number}.jpg" for number in range(300, 400, 3)]
    left = {"old": 0, "new": 0}
    for number, (before, change, again) in enumerate(
        (
            (None, make_other, make_other),
            (make_other, lambda index: make(index, replace=True), lambda index: make(index, replace=True)),
            (make_other, lambda index: IndexWriter(index).add(first), lambda index: IndexWriter(index).add(first)),
            (grown, lambda index: IndexWriter(index).delete(paths), lambda index: IndexWriter(index).delete(paths)),
            (grown, lambda index: IndexWriter(index).compact(), lambda index: IndexWriter(index).compact()),
        )
    ):
        old, new = folder / f"old{number}", folder / f"new{number}"
        if before is not None:
            before(old)
            shutil.copytree(old, new)
        start = time.monotonic()
        change(new)
        duration, kills = time.monotonic() - start, 0
        states = {"old": state(old), "new": state(new)}
        assert states["old"] != states["new"]
        draw = random.Random(number)
        while True:
            index = folder / f"killed{number}-{kills}"
            if before is not None:
                shutil.copytree(old, index)
            if how == "everywhere":
                child = begin(change, index, at=kills)
            else:
                child = begin(change, index)
                time.sleep(draw.uniform(0, duration))
                os.kill(child, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert code in (0, -signal.SIGKILL), f"exit code {code}"
            found = next((name for name, each in states.items() if each == state(index)), None)
            assert found, f"change {number} killed at {kills}: neither the old index nor the new one"
            left[found] += code != 0
            if found == "old":
                again(index)
                assert state(index) == states["new"]
                named = Index(index).manifest["files"]
                there = {each.relative_to(index).as_posix() for each in index.rglob("*") if each.is_file()}
                assert there == {*named, MANIFEST, LOCK}, f"left behind: {there - {*named, MANIFEST, LOCK}}"
            shutil.rmtree(index)
            kills += 1
            if code == 0 if how == "everywhere" else kills == int(how):
                break
    sys.stdout.write(f"{left['old']} {left['new']}")


def state(folder: Path) -> State:
    """All that can be seen of an index: its items and rows, and what it finds."""
    if not (folder / MANIFEST).exists():
        return None
    index = Index(folder)
    index.verify()
    numbers = index.numbers
    found = [(each.numbers.tolist(), each.similarities.tolist()) for each in index.search(QUERIES, 5)]
    of_segments = [(each.facts["engine"], each.count, int(np.sum(each.dead))) for each in index.segments]
    return ([index.item(number) for number in numbers], index.features(numbers).tobytes(), found, of_segments)


def begin(change: Change, index: Path, at: int | None = None) -> int:
    """Change an index in a child process, which dies at a step if it is said at which."""
    child = os.fork()
    if child:
        return child
    steps = iter(range(sys.maxsize))
    for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (faiss, "write_index"), (np, "save")):

        def dying(*arguments: object, real: object = getattr(owner, name), **options: object) -> object:
            if next(steps) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)  # type: ignore[operator]

        setattr(owner, name, dying)
    try:
        change(index)
    finally:
        os._exit(sys.exc_info()[0] is not None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
