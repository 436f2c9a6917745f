"""A bar on standard error for what takes long, if rich is installed and a person is watching."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def transfer_bar(name: str, done: int, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show bytes on their way: how many of the total, how fast, how long still.

    Args:
        name: what stands before the bar.
        done: bytes that are there already.
        total: all bytes, None if nobody knows.

    Yields:
        A function to call with the number of bytes that came since the last call.
    """
    if not sys.stderr.isatty():
        yield _nothing
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    except ImportError:
        yield _nothing
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=total, completed=done)
        yield lambda count: bar.advance(task, count)


def _nothing(_: int) -> None:
    pass
