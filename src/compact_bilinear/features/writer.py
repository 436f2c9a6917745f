"""Writing a feature store: shard after shard, each whole or not at all, by any number of processes.

Which items make a shard is decided before anything is computed, and nothing in the files depends on the time, on the process or
on what happened before. So a run that was interrupted, whenever and however, is resumed by doing the same again: shards that
are there stay, and those that are missing are written.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from .. import __version__
from ..whole_file import PART, WholeFile, undamaged, write_whole
from .layout import (
    DTYPES,
    FITTED,
    MANIFEST,
    MAPS,
    Items,
    Setting,
    Shard,
    begin_manifest,
    changes_of,
    cut,
    read_manifest,
    refuse_changes,
    write_manifest,
)

# bytes of features that a shard holds in memory before it writes them: one row group, the least that a reader reads at once
GROUP = 2**25


class FeatureWriter:
    """Begin a feature store in a folder, or go on with the one that is there if it has the same settings.

    One with other settings that has no shards yet is begun anew: what stopped it is often what was changed.

    Args:
        folder: made if need be.
        items: what features are computed of: paths, labels, splits, and the names of the classes.
        poolings: by name, each with its ``dim`` and with what else decides its numbers.
        settings: everything else that decides what the features are.
        versions: of the programs that compute them; those of this package and of pyarrow are added.
        dtype: "float16" or "float32".
        shard_size: items a shard.
        wait: for a process that leaves the beginning to another: called with a function that says whether the store is begun,
            returns when it is.

    >>> from types import SimpleNamespace
    >>> from tempfile import mkdtemp
    >>> items = SimpleNamespace(classes=["crow", "wren"], paths=["a.jpg", "b.jpg"], labels=[1, 0], splits=["train", "test"])
    >>> writer = FeatureWriter(Path(mkdtemp()), items, {"average-pool": {"dim": 3}}, settings={"backbone": "vgg16"})
    >>> for shard in writer.missing():
    ...     with writer.start(shard) as rows:
    ...         rows.add([0, 1], {"average-pool": np.zeros((2, 3))})
    >>> writer.complete()
    """

    def __init__(
        self,
        folder: Path,
        items: Items,
        poolings: Mapping[str, Mapping[str, Setting]],
        *,
        settings: Mapping[str, Setting],
        versions: Mapping[str, str] | None = None,
        dtype: str = "float16",
        shard_size: int = 1024,
        wait: Callable[[Callable[[], bool]], None] | None = None,
    ) -> None:
        _check(items, poolings, dtype, shard_size)
        self.folder, self.items, self.dtype = folder, items, dtype
        self.dims = {name: int(str(pooling["dim"])) for name, pooling in poolings.items()}
        self.shards = cut(len(items.paths), shard_size)
        of_these = {"compact-bilinear": __version__, "pyarrow": pa.__version__}
        self.manifest = begin_manifest(items, poolings, settings, of_these | dict(versions or {}), dtype, shard_size)
        with _explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if wait is not None:
                wait(self._is_begun)
            if (folder / MANIFEST).exists():
                if self._is_begun():
                    self._refuse_changes()
                    return
                # the old manifest stays to the last: killed in between, this is still a store without shards
                for of_the_old in (folder / FITTED, *folder.glob("_broken-*")):
                    of_the_old.unlink(missing_ok=True)
                shutil.rmtree(folder / MAPS, ignore_errors=True)
                write_manifest(folder, self.manifest)
                return
            strange = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
            if strange:
                raise ValueError(
                    f"Features go into a new folder, or one that holds such features, but {folder} holds {strange[0]}.\n"
                    "Give another folder."
                )
            write_manifest(folder, self.manifest)

    def missing(self) -> list[Shard]:
        """The shards that are still to be written."""
        return [shard for shard in self.shards if not (self.folder / shard.file).exists()]

    def start(self, shard: Shard) -> "ShardWriter":
        """Begin to write one shard."""
        return ShardWriter(self.folder, shard, self.items, self.dims, self.dtype, self._refuse_changes)

    def complete(self, results: Mapping[str, Any] | None = None) -> None:
        """Declare the store complete: all shards are there.

        Args:
            results: what the manifest shall hold of what was found out only on the way.
        """
        missing = self.missing()
        if missing:
            raise ValueError(
                f"A store is complete when all of its {len(self.shards)} shards are there, but {len(missing)} are missing, "
                f"{missing[0].file} for one.\nWrite them first."
            )
        rows = [self._rows_of(shard) for shard in self.shards]
        shards = self.manifest["shards"] | {
            "rows": rows,
            "bytes": [(self.folder / shard.file).stat().st_size for shard in self.shards],
        }
        self.manifest = self.manifest | {"complete": True, "rows": sum(rows), "broken": len(self.items.paths) - sum(rows)}
        self.manifest |= {"shards": shards} | dict(results or {})
        with _explained(self.folder):
            write_manifest(self.folder, self.manifest)
            for left_behind in self.folder.glob(f".*{PART}"):
                left_behind.unlink(missing_ok=True)

    def _is_begun(self) -> bool:
        """Whether there is a store that this one is part of, or that has something to lose."""
        if not (self.folder / MANIFEST).exists():
            return False
        return any(self.folder.glob("shard-*")) or not changes_of(read_manifest(self.folder), self.manifest)

    def _refuse_changes(self) -> None:
        refuse_changes(self.folder, read_manifest(self.folder), self.manifest)

    def _rows_of(self, shard: Shard) -> int:
        with undamaged(self.folder / shard.file):
            rows: int = pq.read_metadata(self.folder / shard.file).num_rows
        return rows


class ShardWriter:
    """One shard: rows in the order of their items, each either added or reported as broken, then :meth:`finish`.

    As a context it finishes at its end, and abandons if there was an exception.
    """

    def __init__(
        self,
        folder: Path,
        shard: Shard,
        items: Items,
        dims: Mapping[str, int],
        dtype: str,
        refuse_changes: Callable[[], None],
    ) -> None:
        self.folder, self.shard = folder, shard
        self._refuse_changes = refuse_changes
        self._items, self._dims = items, dims
        self._file = WholeFile(folder / shard.file)
        self._next = shard.first
        self._broken: dict[int, str] = {}
        self._waiting: list[int] = []  # indices of the rows in _values
        row = sum(dims.values()) * np.dtype(dtype).itemsize
        size = max(1, min(GROUP // row, shard.stop - shard.first))
        self._values = {name: np.empty((size, d), dtype) for name, d in dims.items()}
        self._schema = _schema(dims, dtype)
        with _explained(folder):
            self._parquet = pq.ParquetWriter(
                self._file.part,
                self._schema,
                compression="NONE",  # features are as good as noise
                use_dictionary=["label", "split"],
                write_statistics=["index", "label", "split"],
            )

    def add(self, indices: Sequence[int], features: Mapping[str, NDArray[np.floating]]) -> None:
        """Add rows.

        Args:
            indices: places in the list of items, ascending.
            features: (rows, d) for each pooling.
        """
        with self._abandoned_on_failure():
            for row, index in enumerate(indices):
                self._skip_to(index)
                self._next = index + 1
                for name, values in self._values.items():
                    values[len(self._waiting)] = features[name][row]
                self._waiting.append(index)
                if len(self._waiting) == len(next(iter(self._values.values()))):
                    self._flush()

    def report(self, index: int, reason: str) -> None:
        """Say why an item has no row, before any that comes after it is added."""
        self._broken[index] = reason

    def finish(self) -> None:
        """Write what is left, and give the shard its name."""
        with self._abandoned_on_failure():
            self._skip_to(self.shard.stop)
            self._flush()
            self._parquet.close()
            self._refuse_changes()  # before it had shards, somebody may have begun it anew with other settings
            if self._file.target.exists():  # the same command, run twice at once: the other was faster, with the same rows
                self._file.abandon()
                return
            report = self.folder / self.shard.report
            if self._broken:
                write_whole(report, "".join(self._lines()))
            else:
                report.unlink(missing_ok=True)  # of an earlier run that was killed before the shard had its name
            self._file.commit()

    def abandon(self) -> None:
        """Leave no trace."""
        with suppress(OSError, pa.ArrowException):  # a full disk has no room for what closing writes
            self._parquet.close()
        self._file.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.finish()
        else:
            self.abandon()

    def _skip_to(self, index: int) -> None:
        lost = [each for each in range(self._next, index) if each not in self._broken]
        if lost or not self._next <= index <= self.shard.stop:
            raise ValueError(
                f"{self.shard.file} takes rows {self._next} to {self.shard.stop - 1} in their order, but got {index}.\n"
                "Report what has no features as broken before adding what comes after it."
            )

    def _lines(self) -> Iterator[str]:
        for index in sorted(self._broken):
            said = {"index": index, "path": self._items.paths[index], "reason": self._broken[index]}
            yield json.dumps(said, ensure_ascii=False) + "\n"

    def _flush(self) -> None:
        rows = len(self._waiting)
        if not rows:
            return
        of_items = [self._items.paths, self._items.labels, self._items.splits]
        columns = [pa.array(self._waiting, self._schema.field("index").type)]
        for name, values in zip(("path", "label", "split"), of_items, strict=True):
            columns.append(pa.array([values[index] for index in self._waiting], self._schema.field(name).type))
        for name, numbers in self._values.items():
            flat = pa.array(numbers[:rows].reshape(-1))
            columns.append(pa.FixedSizeListArray.from_arrays(flat, type=self._schema.field(name).type))
        self._parquet.write_table(pa.table(columns, schema=self._schema), row_group_size=rows)
        self._waiting.clear()

    @contextmanager
    def _abandoned_on_failure(self) -> Iterator[None]:
        try:
            with _explained(self.folder):
                yield
        except BaseException:
            self.abandon()
            raise


def _schema(dims: Mapping[str, int], dtype: str) -> pa.Schema:
    # nothing is ever null, and saying so makes reading several times as fast
    fields = [
        pa.field("index", pa.int64(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("label", pa.int32(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
    ]
    number = pa.field("element", pa.from_numpy_dtype(np.dtype(dtype)), nullable=False)
    fields += [pa.field(name, pa.list_(number, d), nullable=False) for name, d in dims.items()]
    return pa.schema(fields)


def _check(items: Items, poolings: Mapping[str, Mapping[str, Setting]], dtype: str, shard_size: int) -> None:
    if not items.paths:
        raise ValueError("A feature store takes at least one item, but the list is empty.\nCheck where the images are.")
    if not poolings:
        raise ValueError(
            'A feature store takes at least one pooling, but got none.\nPass {"tensor-sketch:8192": {"dim": 8192}}.'
        )
    if dtype not in DTYPES:
        raise ValueError(f"Features are kept as {' or '.join(DTYPES)}, but got dtype={dtype!r}.\nWrite dtype='float16'.")
    if shard_size < 1:
        raise ValueError(f"A shard has at least one item, but got shard_size={shard_size}.\nWrite shard_size=1024.")


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Failures of the disk, in words."""
    try:
        yield
    except OSError as failure:
        reason = os.strerror(failure.errno) if failure.errno else str(failure)
        raise OSError(
            f"Features could not be written into {folder}: {reason}.\n"
            "See to it, and run the same again: what is finished is kept, and it goes on from there."
        ) from failure
