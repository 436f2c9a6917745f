"""Files whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from compact_bilinear.whole_file import LEFT_BEHIND, WholeFile, undamaged, write_whole


def test_the_name_comes_last(tmp_path: Path) -> None:
    target = tmp_path / "file [1].json"
    with WholeFile(target) as part:
        part.write_text("new")
        assert not target.exists()
        assert part.name.startswith(".")
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_was_there_stays_until_then(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "file"
    write_whole(target, "old")
    with suppress(error), WholeFile(target) as part:
        part.write_text("half")
        raise error
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_what_a_killed_process_left_is_removed_later(tmp_path: Path) -> None:
    target, other = tmp_path / "shard*", tmp_path / "shard**"
    left, of_other = WholeFile(target), WholeFile(other)
    left.part.write_text("half")
    of_other.part.write_text("half")
    for part in (left.part, of_other.part):
        os.utime(part, (0, part.stat().st_mtime - LEFT_BEHIND - 1))
    write_whole(target, "whole")
    assert sorted(tmp_path.iterdir()) == sorted([target, of_other.part])


def test_two_that_write_the_same_file_at_once_both_succeed(tmp_path: Path) -> None:
    with WholeFile(tmp_path / "file") as first:
        first.write_text("first")
        with WholeFile(tmp_path / "file") as second:
            second.write_text("second")
        assert (tmp_path / "file").read_text() == "second"
    assert (tmp_path / "file").read_text() == "first"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_damage_is_told_apart_from_what_the_system_refuses() -> None:
    with pytest.raises(ValueError, match=r"file is damaged: no magic.\nRemove it"), undamaged(Path("file")):
        raise RuntimeError("no magic.\nmore")
    with pytest.raises(PermissionError), undamaged(Path("file")):
        raise PermissionError(13, "denied")


def test_text_has_the_same_bytes_everywhere(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", "é\n")
    assert (tmp_path / "file").read_bytes() == b"\xc3\xa9\n"
