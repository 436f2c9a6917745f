"""How a feature store lies on the disk: names, the manifest, and what makes two manifests the same.

::

    OUT/
    ├── _manifest.json                 every setting; "complete" once all shards are there
    ├── _fitted.safetensors            what was fitted for some poolings
    ├── _broken-00003-of-00012.jsonl   the images of a shard that gave no features, and why; only where there are any
    ├── shard-00000-of-00012.parquet   columns index, path, label, split, and one for each pooling
    └── ...

Whatever is not a shard begins with an underscore or a dot: readers of Parquet folders pass such files over.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

from ..whole_file import write_whole

MANIFEST = "_manifest.json"
FITTED = "_fitted.safetensors"
MAPS = ".maps"  # a folder, there only until what is fitted has been used
FORMAT = "compact-bilinear features"
FORMAT_VERSION = 1
RESULTS = ("shards rows", "shards bytes")  # what a complete manifest has among what is compared

Setting = str | int | float | bool | None
DType = Literal["float16", "float32"]
DTYPES: tuple[DType, ...] = get_args(DType)


class Items(Protocol):
    """What features are computed of; :class:`~compact_bilinear.images.ImageList` is one."""

    @property
    def classes(self) -> Sequence[str]:
        """Names of the classes."""

    @property
    def paths(self) -> Sequence[str]:
        """One name an item."""

    @property
    def labels(self) -> Sequence[int]:
        """The class of each item, -1 where it is not known."""

    @property
    def splits(self) -> Sequence[str]:
        """What each item is for: "train", "test", "val", or "" where nobody said."""


class Shard(NamedTuple):
    """A run of items that have a file of their own."""

    number: int
    of: int
    first: int
    stop: int

    @property
    def file(self) -> str:
        """The name of its Parquet file."""
        return f"shard-{self.number:05}-of-{self.of:05}.parquet"

    @property
    def report(self) -> str:
        """The name of the file that tells of its broken items."""
        return f"_broken-{self.number:05}-of-{self.of:05}.jsonl"


def cut(count: int, size: int) -> list[Shard]:
    """Cut ``count`` items into shards of ``size``; the last may be smaller.

    >>> cut(5, 2)[-1]
    Shard(number=2, of=3, first=4, stop=5)
    """
    starts = range(0, count, size)
    return [Shard(number, len(starts), first, min(first + size, count)) for number, first in enumerate(starts)]


def begin_manifest(
    items: Items,
    poolings: Mapping[str, Mapping[str, Setting]],
    settings: Mapping[str, Setting],
    versions: Mapping[str, str],
    dtype: str,
    shard_size: int,
) -> dict[str, Any]:
    """What is known before anything is computed. Nothing in it, nor added later, depends on when or where it is made."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "complete": False,
        "versions": dict(versions),
        "settings": dict(settings),
        "dtype": dtype,
        "poolings": {name: dict(pooling) for name, pooling in poolings.items()},
        "shards": {"size": shard_size, "count": len(cut(len(items.paths), shard_size))},
        "items": {"count": len(items.paths), "sha256": hash_of(items)},
        "classes": list(items.classes),
    }


def hash_of(items: Items) -> str:
    """A short text that is the same for two lists if, and only if, they have the same items in the same order."""
    sha = hashlib.sha256()
    for item in zip(items.paths, items.labels, items.splits, strict=True):
        sha.update(json.dumps(item).encode())
    return sha.hexdigest()


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write it whole."""
    write_whole(folder / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, complete or not."""
    file = folder / MANIFEST
    if not file.is_file():
        there = "does not exist" if not folder.exists() else f"has no {MANIFEST}"
        raise ValueError(
            f"A feature store is a folder that `cbp extract` made, but {folder} {there}.\n"
            "Check its name, or extract features into it."
        )
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        kind, version = manifest["format"], manifest["format_version"]
    except (ValueError, KeyError, TypeError) as fault:
        raise ValueError(
            f"{file} is no manifest of a feature store: {type(fault).__name__}, {fault}.\n"
            "Copy the folder anew, or extract anew."
        ) from fault
    if (kind, version) != (FORMAT, FORMAT_VERSION):
        raise ValueError(
            f"A feature store of format version {FORMAT_VERSION} can be read, but {file} says {kind!r}, version {version!r}.\n"
            "Read it with the version of compact-bilinear that made it, or extract anew."
        )
    result: dict[str, Any] = manifest
    return result


def refuse_changes(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on in ``folder`` if anything that decides what the features are is no longer what it was."""
    changes = changes_of(before, now)
    if changes:
        raise ValueError(
            f"{folder} holds features that were made otherwise; changed are {'; '.join(changes)}.\n"
            "Give another folder for the new settings, or the old settings to go on; remove the folder to begin anew."
        )


def changes_of(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What decides what the features are and differs between two manifests, in words."""
    old, new = (dict(_flat({key: manifest.get(key) for key in now if key != "complete"})) for manifest in (before, now))
    for name in before["poolings"].keys() ^ now["poolings"].keys():  # said once, not for each of its numbers
        for values, poolings in ((old, before["poolings"]), (new, now["poolings"])):
            values[f"pooling {name}"] = name in poolings
            for detail in [each for each in values if each.startswith(f"poolings {name} ")]:
                del values[detail]
    return [
        f"{name.removeprefix('settings ')}: {_shown(old, name)} → {_shown(new, name)}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name, ...) != new.get(name, ...) and name not in RESULTS
    ]


def _flat(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{name} {key}".strip())
    else:
        yield name, value


def _shown(values: Mapping[str, object], name: str) -> str:
    if name not in values:
        return "not there"
    value = values[name]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return f"{len(value)} names"
    if name.endswith("sha256"):
        return str(value)[:12]
    return json.dumps(value, ensure_ascii=False)
