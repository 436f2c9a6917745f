"""Rows as codes: what FAISS would have written, as precise as the codes are, and read from the disk when looked at."""

from pathlib import Path

import faiss
import numpy as np
import pytest

import clustered
from compact_bilinear.search.codes import RowsWriter, codes_of, decode, empty_like, empty_rows, open_rows

KINDS = ("float32", "float16", "8-bit")


def write(file: Path, x: np.ndarray, kind: str) -> None:
    writer = RowsWriter(file, empty_rows(kind, x.shape[1], x))  # type: ignore[arg-type]
    for start in range(0, len(x), 5):
        writer.add(x[start : start + 5])
    writer.commit()


@pytest.fixture
def x() -> np.ndarray:
    return clustered.unit(clustered.rows(23, 33)).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_is_the_one_that_faiss_writes(tmp_path: Path, x: np.ndarray, kind: str) -> None:
    write(tmp_path / "ours", x, kind)
    theirs = empty_rows(kind, 33, x)  # type: ignore[arg-type]
    theirs.add(x)
    faiss.write_index(theirs, str(tmp_path / "theirs"))
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(("kind", "off"), [("float32", 0), ("float16", 2**-11), ("8-bit", 1 / 510)])
def test_precision(tmp_path: Path, x: np.ndarray, kind: str, off: float) -> None:
    write(tmp_path / "rows", x, kind)
    rows = open_rows(tmp_path / "rows", 23)
    some = np.array([22, 0, 7])
    # half a step: of float16, relative to numbers below 1; of 255 steps in the range of a column, which is below 2
    assert np.abs(decode(rows, some) - x[some]).max() <= off * (2 if kind == "8-bit" else 1)


@pytest.mark.parametrize("kind", KINDS)
def test_decoded_rows_have_the_codes_that_they_had(tmp_path: Path, x: np.ndarray, kind: str) -> None:
    write(tmp_path / "rows", x, kind)
    rows = open_rows(tmp_path / "rows", 23)
    again = empty_like(rows)
    assert again.ntotal == 0
    assert np.array_equal(again.sa_encode(decode(rows, np.arange(23))), codes_of(rows))


def test_rows_in_large_files_are_not_read_when_opened(tmp_path: Path) -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("only Linux tells how much memory is resident")

    def resident() -> int:
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    block = np.ones((1024, 1024), np.float32)
    writer = RowsWriter(tmp_path / "rows", empty_rows("float32", 1024, block))
    for _ in range(16):
        writer.add(block)
    writer.commit()
    before = resident()
    rows = open_rows(tmp_path / "rows", 16 * 1024)
    assert resident() - before < 2**22, "64 MB should stay on the disk"
    assert decode(rows, np.array([16383]))[0, 0] == 1


def test_abandoned_rows_leave_nothing(tmp_path: Path, x: np.ndarray) -> None:
    writer = RowsWriter(tmp_path / "rows", empty_rows("float16", 33, x))
    writer.add(x)
    writer.abandon()
    assert not list(tmp_path.iterdir())


def test_another_number_of_rows_is_refused(tmp_path: Path, x: np.ndarray) -> None:
    write(tmp_path / "rows", x, "float16")
    with pytest.raises(ValueError, match=r"rows is damaged: it has 23 rows where 22 should be\.\nRemove it"):
        open_rows(tmp_path / "rows", 22)
    (tmp_path / "rows").write_bytes(b"nothing of FAISS")
    with pytest.raises(ValueError, match="rows is damaged"):
        open_rows(tmp_path / "rows", 23)
