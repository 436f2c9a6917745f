"""Whatever stops a run, the same again ends with the same bytes."""

import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from compact_bilinear.features import MANIFEST
from stores import BROKEN, begin, contents, fill, values

TESTS = Path(__file__).parents[1]


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, bytes]:
    fill(begin(tmp_path / "whole"))
    return contents(tmp_path / "whole")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes to kill are forked, which this system does not do")
def test_killed_at_every_step(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, TESTS / "kill_everywhere.py", tmp_path], capture_output=True, text=True, check=False, cwd=TESTS
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 25


@pytest.mark.parametrize("when", [0, 1, 3])
@pytest.mark.parametrize(("owner", "step"), [(os, "fsync"), (pq.ParquetWriter, "write_table"), (Path, "write_text")])
def test_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes], owner: object, step: str, when: int
) -> None:
    calls, real = iter(range(1000)), getattr(owner, step)

    def filling(*arguments: object, **options: object) -> object:
        if next(calls) >= when:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, filling)
        with pytest.raises(OSError, match=r"could not be written into .*store: No space left on device.\n.*run the same again"):
            fill(begin(tmp_path / "store"))
    assert not list((tmp_path / "store").glob(".*")), "what was begun would only make the disk fuller"
    fill(begin(tmp_path / "store"))
    assert contents(tmp_path / "store") == expected


FULL_IN_THE_MIDDLE = """
import resource, sys
from pathlib import Path
from stores import BROKEN, begin, fill
writer = begin(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
fill(writer)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the size of files is limited as only POSIX can")
@pytest.mark.parametrize("where", ["rows", "footer"])
def test_a_write_that_fails_in_the_middle_of_a_file(tmp_path: Path, expected: dict[str, bytes], where: str) -> None:
    store = tmp_path / "store"
    size = 100 if where == "rows" else len(expected["shard-00000-of-00005.parquet"]) - 10
    command = [sys.executable, "-W", "error", "-c", FULL_IN_THE_MIDDLE, str(store), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS)
    assert done.stderr.splitlines()[-2:] == [
        f"OSError: Features could not be written into {store}: File too large.",
        "See to it, and run the same again: what is finished is kept, and it goes on from there.",
    ]
    assert "ignored" not in done.stderr, "a destructor tried again"
    assert list(contents(store)) == [MANIFEST]
    fill(begin(store))
    assert contents(store) == expected


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_exception_leaves_no_shard_behind(tmp_path: Path, expected: dict[str, bytes], error: type[BaseException]) -> None:
    writer = begin(tmp_path / "store")
    with suppress(error), writer.start(writer.shards[1]) as rows:
        rows.add([5], {name: row[None] for name, row in values(5).items()})
        raise error
    assert list(contents(tmp_path / "store")) == [MANIFEST]
    fill(begin(tmp_path / "store"))
    assert contents(tmp_path / "store") == expected


def test_a_report_of_an_image_that_was_mended_meanwhile_goes(tmp_path: Path, expected: dict[str, bytes]) -> None:
    begin(tmp_path / "store")
    (tmp_path / "store" / "_broken-00001-of-00005.jsonl").write_text("of a run that was killed before its shard was named\n")
    fill(begin(tmp_path / "store"))
    assert contents(tmp_path / "store") == expected


def test_two_runs_in_one_folder_do_not_mix(tmp_path: Path, expected: dict[str, bytes]) -> None:
    first, second = begin(tmp_path / "store"), begin(tmp_path / "store")
    slow = first.start(first.shards[0])
    row = {name: np.zeros((1, len(numbers)), "float32") for name, numbers in values(1).items()}
    slow.report(0, BROKEN[0])
    slow.add([1], row)
    fill(second)
    assert contents(tmp_path / "store") == expected
    slow.add([2], row)
    slow.add([3], row)
    slow.add([4], row)
    slow.finish()  # its file was swept, and the other's is there
    assert contents(tmp_path / "store") == expected
