"""Ctrl-C between two steps in place of in the middle of one."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ctrl_c_noted(wanted: bool) -> Iterator[Callable[[], bool]]:
    """Note the first Ctrl-C, so that what is being done can be finished; the second one stops at once, as usual.

    Args:
        wanted: otherwise, and where signals cannot be caught, the first one stops as usual.

    Yields:
        A function that says whether there was one.
    """
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    noted = threading.Event()

    def note(_: int, __: FrameType | None) -> None:
        noted.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted.is_set
    finally:
        signal.signal(signal.SIGINT, before)
