"""Files whole or not at all."""

from contextlib import suppress
from pathlib import Path

import pytest

from compact_bilinear.whole_file import WholeFile, write_whole


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


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    target, other = tmp_path / "shard*", tmp_path / "shard**"
    left, of_other = WholeFile(target), WholeFile(other)
    left.part.write_text("half")
    of_other.part.write_text("half")
    write_whole(target, "whole")
    assert sorted(tmp_path.iterdir()) == sorted([target, of_other.part])


def test_text_has_the_same_bytes_everywhere(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", "é\n")
    assert (tmp_path / "file").read_bytes() == b"\xc3\xa9\n"
