"""Reading a feature store: labels and paths at once, features whole or in blocks, as NumPy arrays that torch can share."""

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from .layout import cut, read_manifest

Features = NDArray[np.floating]


class FeatureStore:
    """What ``cbp extract`` made, complete and ready to be read.

    Rows are in the order of the list of images; images that were broken have none.

    Args:
        folder: with a manifest and shards.

    Attributes:
        folder: as given.
        manifest: all that is known of how the features were made.
        classes: names; a label is a place in here.
        poolings: name → d.
        dtype: "float16" or "float32".
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.manifest: dict[str, Any] = read_manifest(self.folder)
        shards = cut(self.manifest["items"]["count"], self.manifest["shards"]["size"])
        self._files = [self.folder / shard.file for shard in shards]
        self._reports = [self.folder / shard.report for shard in shards]
        if not self.manifest["complete"]:
            there = sum(file.exists() for file in self._files)
            raise ValueError(
                f"A feature store is read when it is complete, but {self.folder} has {there} of {len(shards)} shards so far.\n"
                "Wait for the run that makes it, or run the same command again: it goes on where it stopped."
            )
        for file, size in zip(self._files, self.manifest["shards"]["bytes"], strict=True):
            found = file.stat().st_size if file.exists() else "none"
            if found != size:
                raise ValueError(
                    f"{file} should have {size} bytes, but has {found}.\n"
                    "Copy it anew; or remove it, and run the command that made it again."
                )
        self.classes: tuple[str, ...] = tuple(self.manifest["classes"])
        self.poolings: dict[str, int] = {name: each["dim"] for name, each in self.manifest["poolings"].items()}
        self.dtype: str = self.manifest["dtype"]

    def __len__(self) -> int:
        rows: int = self.manifest["rows"]
        return rows

    def __repr__(self) -> str:
        return f"FeatureStore({str(self.folder)!r})"

    def __str__(self) -> str:
        """What is in it, for people: a line; and another if there were broken images."""
        poolings = ", ".join(f"{name} (d={d})" for name, d in self.poolings.items())
        of = f" of {len(self.classes)} classes" if self.classes else ""
        line = f"{self.folder}: {poolings} of {len(self)} images{of}, in {self.dtype}"
        broken = self.broken
        if not broken:
            return line
        first = f"{broken[0]['path']} ({broken[0]['reason']})"
        if len(broken) == 1:
            return f"{line}\nA broken image has no features: {first}"
        return (
            f"{line}\n{len(broken)} broken images have no features, the first is {first}; _broken-*.jsonl there name them all"
        )

    @cached_property
    def indices(self) -> NDArray[np.int64]:
        """Where in the list of images each row's image is."""
        return self._column("index").astype(np.int64)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The class of each row, -1 where it is not known."""
        return self._column("label").astype(np.int64)

    @cached_property
    def splits(self) -> NDArray[np.str_]:
        """What each row is for: "train", "test", "val", or "" where nobody said."""
        return self._column("split").astype(np.str_)

    @cached_property
    def paths(self) -> list[str]:
        """The image of each row, relative to the folder of images."""
        paths: list[str] = self._column("path").tolist()
        return paths

    @property
    def broken(self) -> list[dict[str, Any]]:
        """The images that have no row, each with its index, path and reason."""
        reports = [file.read_text("utf-8") for file in self._reports if file.exists()]
        return [json.loads(line) for report in reports for line in report.split("\n") if line]

    def rows(self, split: str | None = None) -> NDArray[np.int64]:
        """Places of a split's rows, which ``labels`` and the like can be indexed with; all of them for None."""
        if split is None:
            return np.arange(len(self))
        rows = np.flatnonzero(self.splits == split)
        if not len(rows):
            known = ", ".join(f"{str(name)!r} ({(self.splits == name).sum()})" for name in np.unique(self.splits))
            raise ValueError(f"{self.folder} has no rows of the split {split!r}.\nAsk for one of these: {known or 'none'}.")
        return rows

    def read(self, pooling: str, split: str | None = None) -> Features:
        """All features (rows, d) of a pooling, or those of one split."""
        whole = np.empty((len(self.rows(split)), self._dim(pooling)), self.dtype)
        filled = 0
        for part in self._parts(pooling, split):
            whole[filled : filled + len(part)] = part
            filled += len(part)
        return whole

    def tensor(self, pooling: str, split: str | None = None) -> Tensor:
        """:meth:`read` as a tensor."""
        return torch.from_numpy(self.read(pooling, split))

    def blocks(self, pooling: str, split: str | None = None, rows: int = 1024) -> Iterator[Features]:
        """The features of :meth:`read` in pieces, without ever holding much more than one of them.

        Args:
            pooling: which.
            split: which; None for all.
            rows: in a block; the last may be smaller. ``torch.from_numpy(block)`` shares a block's memory.
        """
        if rows < 1:
            raise ValueError(f"FeatureStore.blocks takes blocks of at least one row, but got rows={rows}.\nWrite rows=1024.")
        self._dim(pooling)
        self.rows(split)
        return self._blocks(pooling, split, rows)

    def _blocks(self, pooling: str, split: str | None, rows: int) -> Iterator[Features]:
        waiting: list[Features] = []
        for part in self._parts(pooling, split):
            start = 0
            while sum(map(len, waiting)) + len(part) - start >= rows:
                stop = start + rows - sum(map(len, waiting))
                waiting.append(part[start:stop])
                yield waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
                waiting, start = [], stop
            if start < len(part):
                waiting.append(part[start:])
        if waiting:
            yield waiting[0] if len(waiting) == 1 else np.concatenate(waiting)

    def _parts(self, pooling: str, split: str | None) -> Iterator[Features]:
        """The rows of a split in each row group. Where that is all of them, the memory that Parquet was decoded into."""
        wanted = None if split is None else self.splits == split
        first = 0
        for file in self._files:
            with pq.ParquetFile(file, memory_map=True) as parquet:
                for group in range(parquet.num_row_groups):
                    rows = parquet.metadata.row_group(group).num_rows
                    chosen = None if wanted is None else wanted[first : first + rows]
                    first += rows
                    if chosen is not None and not chosen.any():
                        continue
                    for part in parquet.read_row_group(group, columns=[pooling]).column(0).chunks:
                        values = _shared(part, self.dtype)
                        if chosen is None or chosen.all():
                            yield values
                        else:
                            yield values[chosen[: len(values)]]
                            chosen = chosen[len(values) :]

    def _dim(self, pooling: str) -> int:
        if pooling not in self.poolings:
            raise ValueError(f"{self.folder} has no features {pooling!r}.\nIt has {', '.join(self.poolings)}.")
        return self.poolings[pooling]

    def _column(self, name: str) -> NDArray[Any]:
        parts = [pq.read_table(file, columns=[name]).column(0).to_numpy() for file in self._files]
        return np.concatenate(parts)


def _shared(part: pa.FixedSizeListArray, dtype: str) -> Features:
    """The numbers of a list column as (rows, d) in the same memory, which nobody else has and may be written to."""
    d = part.type.list_size
    numbers = np.frombuffer(part.values.buffers()[1], dtype)
    start = part.values.offset + part.offset * d
    return numbers[start : start + len(part) * d].reshape(len(part), d)
