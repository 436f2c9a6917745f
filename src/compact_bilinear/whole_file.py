"""A file that is there whole or not at all, whatever happens while it is written.

It is written beside its place under a hidden name, brought to the disk, and renamed; the folder is brought to the disk too, or
a power cut could take the new name back. What a process that was killed has left behind is removed by one that writes the same
file an hour later: until then it may be of a process that still writes.
"""

import glob
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

PART = ".part"
LEFT_BEHIND = 3600  # seconds after which a part that nobody wrote to is nobody's


class WholeFile:
    """The place of a file that is being written: write to ``part``, then :meth:`commit` or :meth:`abandon`.

    As a context it gives ``part``, commits at its end, and abandons if there was an exception.

    Args:
        target: where the file will be. Its folder is there already.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        for left_behind in target.parent.glob(f".{glob.escape(target.name)}.*{PART}"):
            with suppress(FileNotFoundError):  # its own process, or another that tidies up, was faster
                if time.time() - left_behind.stat().st_mtime > LEFT_BEHIND:
                    left_behind.unlink()
        # a name of its own, so that two processes that write the same file never write into each other's
        self.part = target.with_name(f".{target.name}.{secrets.token_hex(4)}{PART}")

    def commit(self) -> None:
        """Bring what was written to the disk, and give it its name."""
        _to_disk(self.part, os.O_RDWR)
        self.part.replace(self.target)
        if os.name == "posix":  # Windows opens no folders
            _to_disk(self.target.parent, os.O_RDONLY)

    def abandon(self) -> None:
        """Leave the target as it was."""
        self.part.unlink(missing_ok=True)

    def __enter__(self) -> Path:
        return self.part

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.abandon()


def write_whole(target: Path, text: str) -> None:
    """Write a text file in UTF-8."""
    with WholeFile(target) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def undamaged(file: Path) -> Iterator[None]:
    """Reading a file that was written whole: what its reader stumbles over happened to it since."""
    try:
        yield
    except Exception as fault:  # each reader has exceptions of its own
        if isinstance(fault, FileNotFoundError) or (isinstance(fault, OSError) and fault.errno is not None):
            raise
        raise ValueError(
            f"{file} is damaged: {str(fault).splitlines()[0].rstrip('.')}.\nRemove it, and run the same command again."
        ) from fault


def _to_disk(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
