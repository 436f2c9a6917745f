"""A bar on standard error for what takes long, if rich is installed and a person is watching; or now and then a plain line."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

EVERY = 30.0  # seconds between plain lines


class Advance(Protocol):
    """What :func:`counting_bar` gives."""

    def __call__(self, count: int, said: str = "") -> None:
        """So many more are done, and ``said`` is how it goes."""


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


@contextmanager
def counting_bar(name: str, what: str, done: int, total: int) -> Iterator[Advance]:
    """Show how many things are done, how many a second, and how long still; plain lines where nobody watches.

    Args:
        name: what stands before the bar.
        what: the things.
        done: those that were done before.
        total: all of them.

    Yields:
        A function to call with the number of things that were done since the last call, and a few words if there are any.
    """
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
        from rich.text import Text
    except ImportError:
        watched = False
    else:
        watched = sys.stderr.isatty()
    if not watched:
        yield _Lines(name, what, done, total)
        return

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:.3g} {what}/s" if task.speed else "")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    words = TextColumn("{task.fields[said]}")
    with Progress(*columns, words, console=Console(stderr=True), speed_estimate_period=60) as bar:
        task = bar.add_task(name, total=total, completed=done, said="")

        def advance(count: int, said: str = "") -> None:
            bar.update(task, advance=count, said=said)

        yield advance


class _Lines:
    """Lines for a log: one now and then, and one at the end."""

    def __init__(self, name: str, what: str, done: int, total: int) -> None:
        self.name, self.what, self.before, self.done, self.total = name, what, done, done, total
        self.start = self.said = time.monotonic()

    def __call__(self, count: int, said: str = "") -> None:
        self.done += count
        now = time.monotonic()
        if now - self.said < EVERY and self.done < self.total:
            return
        self.said = now
        rate = (self.done - self.before) / max(now - self.start, 1e-9)
        left = f", {(self.total - self.done) / rate / 60:.1f} minutes left" if self.done < self.total else ""
        words = f"; {said}" if said else ""
        note(f"{self.name}: {self.done} of {self.total} {self.what}, {rate:.3g} a second{left}{words}")


def note(line: str) -> None:
    """Tell the person, or the log, something by the way."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _nothing(_: int) -> None:
    pass
