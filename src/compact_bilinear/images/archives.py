"""Archives to folders: nothing is written outside, nothing is linked to, nothing grows without end, and all of it or nothing.

Only regular files and folders come out; a link to a file that the archive held before becomes a copy of it. All is written into
a folder beside the archive that gets its name when it is complete, together with a note of which archive it came from, so that
the next call finds it done.
"""

import errno
import json
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, NamedTuple

from ..lock import alone
from ..progress import transfer_bar

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip")
NOTE = ".unpacked.json"
BYTES = 100_000_000_000  # all the images of ImageNet have 150 GB packed: whoever wants more says so
FILES = 1_000_000


class _Member(NamedTuple):
    name: str
    size: int
    is_folder: bool
    link: str | None  # the member that it is another name of
    is_file: bool
    open: Callable[[], IO[bytes]]


def is_archive(file: Path) -> bool:
    """Whether the name is that of an archive."""
    return file.name.lower().endswith(SUFFIXES)


def folder_of(archive: Path) -> Path:
    """The folder that an archive is unpacked into: beside it, with its name less the suffix."""
    suffix = max((each for each in SUFFIXES if archive.name.lower().endswith(each)), key=len)
    return archive.with_name(archive.name[: -len(suffix)] or "unpacked")


def unpack(archive: Path, *, max_bytes: int = BYTES, max_files: int = FILES) -> Path:
    """Unpack an archive into :func:`folder_of` it, unless that was done before.

    Args:
        archive: tar, plain or compressed by gzip, bzip2 or xz, or zip.
        max_bytes: how large all files together may become.
        max_files: how many files and folders there may be.

    Returns:
        The folder. Raises ValueError for an archive that is broken or dangerous, OSError if the disk is full or the
        like, and leaves nothing behind then.
    """
    if not is_archive(archive) or not archive.is_file():
        raise ValueError(
            f"An archive is a file that ends in one of {' '.join(SUFFIXES)}, but got {archive}.\n"
            "Give such a file, or the folder that was unpacked from it."
        )
    folder = folder_of(archive)
    unfinished = archive.with_name(f".{folder.name}.unpacking")
    lock = archive.with_name(f".{folder.name}.lock")
    try:
        if _is_done(folder, archive):
            return folder
        with alone(lock):
            try:
                if not _is_done(folder, archive):  # another process may just have unpacked it
                    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
                    unfinished.mkdir()
                    _write(archive, unfinished, max_bytes, max_files)
                    (unfinished / NOTE).write_text(json.dumps(_identity(archive)))
                    unfinished.rename(folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
                lock.unlink()
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError, EOFError, RuntimeError, OSError) as fault:
        if isinstance(fault, OSError) and fault.errno is not None:  # of the disk; what decoders raise has no number
            reason = "the disk is full" if fault.errno == errno.ENOSPC else str(fault.strerror).lower()
            raise OSError(
                f"{archive} cannot be unpacked into {folder}: {reason}.\n"
                "Unpack it by hand where there is room, and give the folder with what was in it."
            ) from fault
        raise ValueError(
            f"{archive} cannot be unpacked into {folder}: {str(fault).rstrip('.')}.\nDownload it anew; it may be incomplete."
        ) from fault
    return folder


def _is_done(folder: Path, archive: Path) -> bool:
    if not folder.exists():
        return False
    try:
        note = json.loads((folder / NOTE).read_text())
    except (OSError, ValueError):
        note = None
    if note != _identity(archive):
        raise ValueError(
            f"{archive} would be unpacked into {folder}, which is there already and was not unpacked from it here.\n"
            f"Give {folder} itself if it holds the images; if not, move it away."
        )
    return True


def _identity(archive: Path) -> dict[str, object]:
    return {"archive": archive.name, "size": archive.stat().st_size, "modified": archive.stat().st_mtime_ns}


def _write(archive: Path, folder: Path, max_bytes: int, max_files: int) -> None:
    count = size = 0
    with _members(archive) as members:
        for member in members:
            where = _place(archive, member)
            if where is None:
                continue
            count, size = count + 1, size + member.size
            if count > max_files or size > max_bytes:
                raise ValueError(
                    f"{archive} holds more than {max_files} files or {max_bytes} bytes.\n"
                    "If that is right, unpack it yourself, and give the folder."
                )
            target = folder / where
            if member.is_folder:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.link is not None:
                source = folder / PurePosixPath(os.path.normpath(member.link))
                if not source.is_file() or not source.resolve().is_relative_to(folder.resolve()):
                    raise _refused(
                        archive, member, f"is a link to {member.link}, not to a file that came before it in the archive"
                    )
                size += source.stat().st_size
                shutil.copyfile(source, target)
                continue
            with member.open() as packed, target.open("wb") as file:
                shutil.copyfileobj(packed, file, 1 << 20)


def _place(archive: Path, member: _Member) -> PurePosixPath | None:
    """Where a member goes, below the folder; None for the folder itself."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or PureWindowsPath(member.name).drive or "\0" in member.name:
        raise _refused(archive, member, "leads out of the folder")
    if not member.is_folder and not member.is_file and member.link is None:
        raise _refused(archive, member, "is a device, or something else that is neither file nor folder")
    return path if path.parts else None


def _refused(archive: Path, member: _Member, why: str) -> ValueError:
    return ValueError(
        f"{archive} is not unpacked, for {member.name!r} in it {why}.\n"
        "Get the archive from its publisher, or look at it yourself and give the folder."
    )


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[_Member]]:
    with archive.open("rb") as file, transfer_bar(archive.name, 0, archive.stat().st_size) as advance:
        if archive.name.lower().endswith(".zip"):
            with zipfile.ZipFile(file) as packed:
                yield _zip_members(packed, advance)
        else:
            with tarfile.open(fileobj=file, mode="r:*") as tar:
                yield _tar_members(tar, file, advance)


def _tar_members(tar: tarfile.TarFile, file: IO[bytes], advance: Callable[[int], None]) -> Iterator[_Member]:
    done = 0
    for info in tar:
        link = None
        if info.islnk():  # a hard link names its file from the top, a soft one from where it is
            link = info.linkname
        elif info.issym():
            link = str(PurePosixPath(info.name).parent / info.linkname)

        def opened(info: tarfile.TarInfo = info) -> IO[bytes]:
            content = tar.extractfile(info)
            if content is None:
                raise tarfile.ReadError(f"{info.name} has no content")
            return content

        yield _Member(info.name, info.size, info.isdir(), link, info.isreg(), opened)
        advance(file.tell() - done)
        done = file.tell()


def _zip_members(packed: zipfile.ZipFile, advance: Callable[[int], None]) -> Iterator[_Member]:
    for info in packed.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)  # 0 where it was packed on Windows
        is_link = kind == stat.S_IFLNK

        def opened(info: zipfile.ZipInfo = info) -> IO[bytes]:
            return packed.open(info)

        link = None
        if is_link and info.file_size < 4096:
            link = str(PurePosixPath(info.filename).parent / packed.read(info).decode("utf-8", "surrogateescape"))
        # names with backslashes are of packers on Windows that do not know better
        yield _Member(info.filename.replace("\\", "/"), info.file_size, info.is_dir(), link, kind in (0, stat.S_IFREG), opened)
        advance(info.compress_size)
