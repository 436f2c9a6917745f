"""Extraction as its users run it: commands, killed, stopped, by several processes; and their exit codes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import photos
from compact_bilinear import cli
from compact_bilinear.features import FeatureStore
from stores import contents

TESTS = Path(__file__).parents[1]
POOL = ["--pool", "tensor-sketch:64", "--pool", "pca-bilinear:9", "--fit-images", "7"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photos.make(tmp_path_factory.mktemp("command"))


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, bytes]:
    assert cli.main(photos.flags(folder, folder / "expected", *POOL)) == 0
    return contents(folder / "expected")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes to kill are forked, which this system does not do")
def test_killed_at_random_moments_and_resumed(folder: Path, tmp_path: Path) -> None:
    photos.make(tmp_path)
    command = [sys.executable, TESTS / "kill_extract.py", tmp_path, "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2


def test_two_processes_make_what_one_makes(folder: Path, tmp_path: Path, expected: dict[str, bytes]) -> None:
    several = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "compact_bilinear"]
    done = subprocess.run(
        [*several, *photos.flags(folder, tmp_path / "out", *POOL)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "out") == expected
    assert len(done.stdout.splitlines()) == 2, "only the first process says what there is"


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is no signal there")
def test_ctrl_c_leaves_what_can_be_resumed(folder: Path, tmp_path: Path, expected: dict[str, bytes]) -> None:
    out = tmp_path / "out"
    # PCA is fitted on what shards are made of, so that at the first shard there is still work to do
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *photos.flags(folder, out, *POOL), "--workers", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not list(out.glob("shard-*")) and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes at once
    said, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert said == ""
    assert told.splitlines()[-1].startswith("Stopped. The same command goes on from here: cbp extract ")
    assert "Traceback" not in told
    assert not list(out.glob(".*.part"))
    with pytest.raises(ValueError, match="of 6 shards so far"):
        FeatureStore(out)
    assert cli.main(photos.flags(folder, out, *POOL)) == 0
    assert contents(out) == expected


SLOW = """
import sys, time
import torch
from compact_bilinear import cli
from compact_bilinear.features import ShardWriter

finish = ShardWriter.finish

def slowly(self):
    finish(self)
    time.sleep(0.3)

ShardWriter.finish = slowly
torch.set_num_threads(1)
sys.exit(cli.main())
"""


def test_the_module_is_the_command(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "compact_bilinear", *photos.flags(folder, tmp_path / "out")]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # a second one has nothing to do but to wait
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == f"{tmp_path / 'out'}: tensor-sketch:8192 (d=8192) of 27 images of 3 classes, in float16"
    assert second.startswith("2 broken images have no features, the first is test/bark/04.jpg (the file is empty); ")


def test_bad_input_is_told_in_two_lines(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert cli.main(photos.flags(folder, out)) == 0
    for flags, told in (
        (photos.flags(folder, out, "--pool", "full-bilinear"), "changed are pooling full-bilinear: no → yes"),
        (photos.flags(folder, out, "--pool", "tensor"), "There is no pooling 'tensor'."),
        (["extract", str(tmp_path / "absent"), "--out", str(out)], "absent does not exist."),
        (["extract", str(folder / "photos"), "--out", str(out), "--weights", "absent.pth"], "There is no file absent.pth"),
        (photos.flags(folder, tmp_path / "strict", "--strict"), "the file is empty"),
    ):
        capsys.readouterr()
        assert cli.main(flags) == 2
        said = capsys.readouterr()
        assert said.out == ""
        lines = [line for line in said.err.splitlines() if not line.startswith(("photos: ", "left out "))]
        assert told in lines[0]
        assert len(lines) == 2
        assert "Traceback" not in said.err


def test_failures_on_the_way_have_another_exit_code(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
    assert cli.main(photos.flags(folder, tmp_path / "out", *POOL)) == 1
    assert capsys.readouterr().err.splitlines()[-2:] == [
        f"Features could not be written into {tmp_path / 'out'}: No space left on device.",
        "See to it, and run the same again: what is finished is kept, and it goes on from there.",
    ]
    monkeypatch.undo()
    assert cli.main(photos.flags(folder, tmp_path / "out", *POOL)) == 0
