"""What comes one by one, computed in batches: a thread that is free takes whatever waits, up to a batch.

So a single client never waits for others, and batches grow with the load. On a CPU there is a thread for each core, and a batch
is computed by one of them from beginning to end: several at once in one batch would spend much of their time waiting for each
other. On a GPU there is one thread, and it may wait a little for more to come.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

Work = TypeVar("Work")
Result = TypeVar("Result")


class _Ticket(NamedTuple):
    work: Any
    future: asyncio.Future[Any]


class Batcher(Generic[Work, Result]):
    """Belongs to one event loop.

    Args:
        compute: works to results, one each, in the same order; called in ``threads`` threads at once.
        threads: how many.
        batch: works at a time, at most.
        wait: seconds that a free thread waits for more, once it has one.
        begin: called once in each thread, before anything else.

    What raises in a batch is computed again one by one, so that only the culprit fails.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Work]], Sequence[Result]],
        *,
        threads: int = 1,
        batch: int = 4,
        wait: float = 0.0,
        begin: Callable[[], object] | None = None,
    ) -> None:
        self.compute, self.batch, self.wait, self.begin = compute, batch, wait, begin
        self._loop = asyncio.get_running_loop()
        self._waiting: SimpleQueue[_Ticket | None] = SimpleQueue()
        self._pool = ThreadPoolExecutor(threads, "compute")
        self._threads = [self._pool.submit(self._work) for _ in range(threads)]

    async def __call__(self, work: Work) -> Result:
        """The result of one work. Cancelled, it is not computed any more, unless it is so already."""
        future: asyncio.Future[Result] = self._loop.create_future()
        self._waiting.put(_Ticket(work, future))
        return await future

    async def close(self) -> None:
        """Compute what waits, and end the threads."""
        self._waiting.put(None)
        await self._loop.run_in_executor(None, self._pool.shutdown)
        for thread in self._threads:
            thread.result()

    def _work(self) -> None:
        if self.begin is not None:
            self.begin()
        while tickets := self._take():
            wanted = [ticket for ticket in tickets if not ticket.future.cancelled()]
            if wanted:
                self._loop.call_soon_threadsafe(_deliver, wanted, self._compute([ticket.work for ticket in wanted]))

    def _take(self) -> list[_Ticket]:
        tickets: list[_Ticket] = []
        until = 0.0
        while len(tickets) < self.batch:
            try:
                ticket = self._waiting.get(timeout=max(until - time.monotonic(), 0) if tickets else None)
            except Empty:
                break
            if ticket is None:  # the end, for the other threads too
                self._waiting.put(None)
                break
            tickets.append(ticket)
            until = until or time.monotonic() + self.wait
        return tickets

    def _compute(self, works: list[Work]) -> Sequence[Result | Exception]:
        try:
            return self.compute(works)
        except Exception as fault:
            return [fault] if len(works) == 1 else [each for work in works for each in self._compute([work])]


def _deliver(tickets: Sequence[_Ticket], results: Sequence[object]) -> None:
    for ticket, result in zip(tickets, results, strict=True):
        if ticket.future.done():  # who asked is gone
            continue
        if isinstance(result, Exception):
            ticket.future.set_exception(result)
        else:
            ticket.future.set_result(result)
