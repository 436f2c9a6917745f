"""One process at a time: for files that several of them may want to make at once, as the processes of ``torchrun`` do."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """Hold ``file``, which is made if need be, until the end of the block; whoever comes later waits.

    The file may be renamed or removed inside the block. A process that dies lets go of it.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no such lock: there it is left to the user not to start the same thing twice
        file.touch()
        yield
        return
    while True:
        with file.open("ab") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            # whoever had it before may have renamed or removed it, and then this is the lock of nothing
            if not file.exists() or not os.path.samestat(os.fstat(held.fileno()), file.stat()):
                continue
            yield
            return
