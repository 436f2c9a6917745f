"""How an index lies on the disk: names, the manifest, checksums, and what is nobody's any more.

::

    INDEX/
    ├── _manifest.json        which of the files count; written last, and the only moment at which anything changes
    ├── rows-00001.faiss      the features as codes, one behind the other; absent where PQ codes are all that is kept
    ├── graph-00001.faiss     HNSW's graph over them, or lists-00001.faiss, IVF-PQ's lists
    ├── items-00001.arrow     paths, labels and splits
    ├── deleted-00004.npy     a bit an item, where some were deleted
    └── model-00001/          backbone and pooling, for images that are not inside

The number is the generation that wrote the file. A file is never changed: another generation writes others, the manifest names
them, and then those that it no longer names are removed.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..whole_file import PART, write_whole

MANIFEST = "_manifest.json"
LOCK = ".lock"
FORMAT = "compact-bilinear index"
FORMAT_VERSION = 1
CHEAP = 2**24  # bytes up to which a file is read in full when an index is opened: some milliseconds
OURS = re.compile(rf"(rows|graph|lists|items|deleted|model)-(?P<generation>\d{{5,}})(\.\w+)?|\..*{re.escape(PART)}")

Manifest = dict[str, Any]


def name_of(what: str, generation: int, suffix: str) -> str:
    """The name of a file.

    >>> name_of("rows", 3, ".faiss")
    'rows-00003.faiss'
    """
    return f"{what}-{generation:05}{suffix}"


def generation_of(name: str) -> int:
    """The generation that a file's name tells of, 0 if it is none of ours."""
    match = OURS.fullmatch(name)
    return int(match["generation"] or 0) if match else 0


def facts_of(file: Path) -> dict[str, Any]:
    """What a manifest says of a file: its size, and the SHA-256 of what is in it."""
    with file.open("rb") as opened:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(opened, "sha256").hexdigest()}


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write it whole: before, the index is the old one, and after, the new one."""
    sealed = {**manifest, "sha256": _seal(manifest)}
    write_whole(folder / MANIFEST, json.dumps(sealed, indent=2, ensure_ascii=False) + "\n")


def may_be_index(folder: Path) -> bool:
    """Whether what lies in a folder is an index, damaged as it may be, and not what another command made there.

    Stores of features have a manifest of the same name.
    """
    try:
        return bool(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["format"] == FORMAT)
    except FileNotFoundError:
        return False
    except (ValueError, KeyError, TypeError):  # nobody's any more: what lies beside it tells
        return all(each.name in (MANIFEST, LOCK) or OURS.fullmatch(each.name) for each in folder.iterdir())


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder that is an index."""
    file = folder / MANIFEST
    if not file.is_file():
        there = "does not exist" if not folder.exists() else f"has no {MANIFEST}"
        raise ValueError(
            f"An index is a folder that `cbp index` made, but {folder} {there}.\n"
            f"Check its name, or write `cbp index FEATURES --out {folder}`."
        )
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        kind, version = manifest["format"], manifest["format_version"]
    except (ValueError, KeyError, TypeError) as fault:
        raise ValueError(
            f"{file} is no manifest of an index: {type(fault).__name__}, {fault}.\nCopy the folder anew, or index anew."
        ) from fault
    if (kind, version) != (FORMAT, FORMAT_VERSION):
        raise ValueError(
            f"An index of format version {FORMAT_VERSION} can be read, but {file} says {kind!r}, version {version!r}.\n"
            "Read it with the version of compact-bilinear that made it, or index anew."
        )
    if manifest.pop("sha256", None) != _seal(manifest):
        raise ValueError(f"{file} is damaged: its checksum does not fit.\nCopy the folder anew, or index anew.")
    result: Manifest = manifest
    return result


def _seal(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def check_files(folder: Path, manifest: Manifest, *, full: bool = False) -> None:
    """Refuse damaged files: other sizes, and other contents where a file is small or ``full`` is asked for."""
    for name, facts in manifest["files"].items():
        file = folder / name
        found: int | str = file.stat().st_size if file.is_file() else "none"
        if found != facts["bytes"]:
            raise ValueError(
                f"{file} should have {facts['bytes']} bytes, but has {found}.\nCopy the folder anew, or index anew."
            )
        if (full or facts["bytes"] <= CHEAP) and facts_of(file) != facts:
            raise ValueError(f"{file} is damaged: its checksum does not fit.\nCopy the folder anew, or index anew.")


def sweep(folder: Path, manifest: Manifest | None) -> None:
    """Remove what no manifest names: of old generations, and of writers that were killed. Only for who holds the lock."""
    named = {name.partition("/")[0] for name in manifest["files"]} if manifest else set()
    for each in folder.iterdir():
        if each.name in named or not OURS.fullmatch(each.name):
            continue
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
        else:
            with suppress(PermissionError):  # Windows keeps files that a reader has open; the next writer removes them
                each.unlink(missing_ok=True)
