"""How rows are kept: float32, float16, or 8 bits a number; encoded block after block, and mapped into memory when read.

A FAISS index can only be written by who holds all of it in memory. Its file, though, is a header and then the codes, one row
behind the other; so the codes are written as they come, and the header, which says how many, in the end.
"""

from pathlib import Path
from typing import Any, Literal, get_args

import faiss
import numpy as np
from numpy.typing import NDArray

from ..whole_file import WholeFile, undamaged

Codes = Literal["float32", "float16", "8-bit", "pq"]
CODES: tuple[Codes, ...] = get_args(Codes)
Rows = Any  # a faiss.IndexFlatCodes: FAISS ships no types
BLOCK = 2**22  # numbers that are decoded at a time, 16 MB


def empty_rows(codes: Codes, d: int, sample: NDArray[np.float32]) -> Rows:
    """An index without rows, that knows how to encode them.

    Args:
        codes: float32, float16, or 8-bit: 256 steps between the smallest and the largest value of each column in a sample.
        d: numbers a row.
        sample: (m, d) rows; only 8-bit codes look at it.
    """
    if codes == "float32":
        return faiss.IndexFlatIP(d)
    kind = faiss.ScalarQuantizer.QT_fp16 if codes == "float16" else faiss.ScalarQuantizer.QT_8bit
    rows = faiss.IndexScalarQuantizer(d, kind, faiss.METRIC_INNER_PRODUCT)
    if codes == "8-bit":
        rows.train(sample)
    return rows


def empty_like(rows: Rows) -> Rows:
    """An index without rows that encodes as another one does."""
    if isinstance(rows, faiss.IndexFlat):
        return faiss.IndexFlatIP(rows.d)
    empty = faiss.IndexScalarQuantizer(rows.d, rows.sq.qtype, faiss.METRIC_INNER_PRODUCT)
    empty.sq, empty.is_trained = rows.sq, True
    return empty


class RowsWriter:
    """A file of rows, written block after block, then :meth:`commit` or :meth:`abandon`.

    Args:
        file: where.
        empty: what :func:`empty_rows` gave.
    """

    def __init__(self, file: Path, empty: Rows) -> None:
        self.count = 0
        self._empty = empty
        self._whole = WholeFile(file)
        self._open = self._whole.part.open("wb")
        self._open.write(self._header())

    def add(self, block: NDArray[np.float32]) -> None:
        """Encode and write rows (m, d)."""
        self.add_codes(self._empty.sa_encode(block))

    def add_codes(self, codes: NDArray[np.uint8]) -> None:
        """Write rows that are encoded already."""
        self._open.write(np.ascontiguousarray(codes).data)
        self.count += len(codes)

    def commit(self) -> None:
        """Say how many rows there are, and give the file its name."""
        with self._open:
            self._open.seek(0)
            self._open.write(self._header())
        open_rows(self._whole.part, self.count)  # that FAISS reads what is written here is made sure of each time
        self._whole.commit()

    def abandon(self) -> None:
        """Leave no trace."""
        self._open.close()
        self._whole.abandon()

    def _header(self) -> bytes:
        one = empty_like(self._empty)
        one.add(np.zeros((1, one.d), np.float32))
        header = bytearray(faiss.serialize_index(one).tobytes()[: -one.code_size])
        # four letters, d, and the number of rows; and just before the codes how many units of them there are
        unit = int.from_bytes(header[-8:], "little")
        header[8:16], header[-8:] = self.count.to_bytes(8, "little"), (self.count * unit).to_bytes(8, "little")
        return bytes(header)


def open_rows(file: Path, count: int) -> Rows:
    """Rows as FAISS searches them, mapped into memory: nothing is read that is not looked at."""
    with undamaged(file):
        rows = faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC)
        if rows.ntotal != count or rows.codes.size() != count * rows.code_size:
            raise ValueError(f"it has {rows.ntotal} rows where {count} should be")
    return rows


def codes_of(rows: Rows) -> NDArray[np.uint8]:
    """(m, bytes a row) in the memory of ``rows``, which has to outlive it."""
    flat: NDArray[np.uint8] = faiss.rev_swig_ptr(rows.codes.data(), rows.ntotal * rows.code_size)
    return flat.reshape(rows.ntotal, rows.code_size)


def decode(rows: Rows, positions: NDArray[np.int64]) -> NDArray[np.float32]:
    """Some rows as numbers, (len(positions), d)."""
    decoded: NDArray[np.float32] = rows.reconstruct_batch(np.ascontiguousarray(positions, np.int64))
    return decoded
