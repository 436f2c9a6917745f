"""Whatever stops a writer, the index is the old one or the new one, and the same again makes it the new one."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import clustered
from compact_bilinear.search import Index, IndexWriter
from compact_bilinear.search.layout import LOCK, MANIFEST

TESTS = Path(__file__).parents[1]
POOLING = "tensor-sketch:33"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes to kill are forked, which this system does not do")
@pytest.mark.parametrize(("how", "old", "new"), [("everywhere", 50, 8), ("3", 1, 0)])
def test_killed(tmp_path: Path, how: str, old: int, new: int) -> None:
    done = subprocess.run(
        [sys.executable, TESTS / "kill_index.py", tmp_path, how],
        capture_output=True,
        text=True,
        check=False,
        cwd=TESTS,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    left_old, left_new = map(int, done.stdout.split())
    assert left_old >= old
    assert left_new >= new


@pytest.mark.parametrize("when", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_an_exception_leaves_the_old_index_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int, error: BaseException
) -> None:
    x = clustered.rows(600, 33)
    first = clustered.store(tmp_path / "first", x[:300])
    second = clustered.store(tmp_path / "second", x[300:], paths=[f"{number}.jpg" for number in range(300)])
    writer = IndexWriter(tmp_path / "index")
    writer.make(first, POOLING, engine="ivf-pq")
    calls, real = iter(range(1000)), os.fsync

    def stopping(descriptor: int) -> None:
        if next(calls) == 2 * when:  # each file is brought to the disk, and then its folder
            raise error
        real(descriptor)

    changes = (
        lambda: writer.add(second),
        lambda: writer.delete(first.paths[:9]),
        writer.compact,
        lambda: writer.make(second, POOLING, replace=True),
    )
    for change in changes:
        before = Index(tmp_path / "index")
        calls = iter(range(1000))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", stopping)
            try:
                change()
                assert when >= 2, "at least a file and the manifest are written"
                continue
            except type(error):
                pass
        after = Index(tmp_path / "index")
        assert after.manifest == before.manifest
        assert {each.name for each in (tmp_path / "index").iterdir()} == {MANIFEST, LOCK, *after.manifest["files"]}


def test_what_killed_writers_left_is_removed_by_the_next(tmp_path: Path) -> None:
    store = clustered.store(tmp_path / "features", clustered.rows(30, 33))
    folder = tmp_path / "index"
    writer = IndexWriter(folder)
    folder.mkdir()
    (folder / LOCK).touch()
    left = ("rows-00001.faiss", ".rows-00001.faiss.0123abcd.part", "items-00007.arrow", "lists-00002.faiss")
    for name in left:
        (folder / name).write_text("of a writer that was killed")
    (folder / "model-00003").mkdir()
    (folder / "model-00003" / "model.json").write_text("{}")
    index = writer.make(store, POOLING).index
    assert {each.name for each in folder.iterdir()} == {MANIFEST, LOCK, *index.manifest["files"]}
    for name in (each.replace("00001", "00008") for each in left):
        (folder / name).write_text("of a writer that was killed")
    (folder / "notes.txt").write_text("of somebody")
    index = writer.delete(store.paths[:1]).index
    assert {each.name for each in folder.iterdir()} == {MANIFEST, LOCK, "notes.txt", *index.manifest["files"]}
