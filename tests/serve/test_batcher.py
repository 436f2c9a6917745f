"""Each gets its own answer, whatever it shared a batch with; and a culprit fails alone."""

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from compact_bilinear.serve.batcher import Batcher


def run(test: object) -> None:
    asyncio.run(test)  # type: ignore[arg-type]


@pytest.mark.parametrize("threads", [1, 3])
def test_each_gets_its_own_result_and_batches_grow(threads: int) -> None:
    sizes: list[int] = []

    def square(works: Sequence[int]) -> list[int]:
        sizes.append(len(works))
        time.sleep(0.002)
        return [work**2 for work in works]

    async def test() -> None:
        batcher: Batcher[int, int] = Batcher(square, threads=threads, batch=4)
        found = await asyncio.gather(*(batcher(work) for work in range(101)))
        await batcher.close()
        assert found == [work**2 for work in range(101)]
        assert max(sizes) == 4
        assert sum(sizes) == 101

    run(test())


def test_an_idle_thread_takes_one_at_once() -> None:
    sizes: list[int] = []

    async def test() -> None:
        batcher: Batcher[int, int] = Batcher(lambda works: sizes.append(len(works)) or list(works), batch=8)
        for work in range(5):
            assert await batcher(work) == work
        await batcher.close()

    run(test())
    assert sizes == [1] * 5


def test_waiting_gathers_those_that_come_a_little_later() -> None:
    sizes: list[int] = []

    async def test() -> None:
        batcher: Batcher[int, int] = Batcher(lambda works: sizes.append(len(works)) or list(works), batch=3, wait=30)
        first = asyncio.create_task(batcher(1))
        await asyncio.sleep(0.05)
        await asyncio.gather(first, batcher(2), batcher(3))  # the batch is full, so nobody waits for half a minute
        await batcher.close()

    run(test())
    assert sizes == [3]


def test_only_the_culprit_fails() -> None:
    def divide(works: Sequence[int]) -> list[float]:
        return [1 / work for work in works]

    async def test() -> None:
        batcher: Batcher[int, float] = Batcher(divide, batch=8, wait=0.05)
        found = await asyncio.gather(*map(batcher, (1, 2, 0, 4)), return_exceptions=True)
        await batcher.close()
        assert [each for each in found if isinstance(each, float)] == [1, 0.5, 0.25]
        assert isinstance(found[2], ZeroDivisionError)

    run(test())


def test_what_is_cancelled_is_not_computed() -> None:
    computed: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def slowly(works: Sequence[int]) -> list[int]:
        begun.set()
        go_on.wait(10)
        computed.extend(works)
        return list(works)

    async def test() -> None:
        batcher: Batcher[int, int] = Batcher(slowly, batch=1)
        first = asyncio.create_task(batcher(1))
        await asyncio.get_running_loop().run_in_executor(None, begun.wait)
        second, third = asyncio.create_task(batcher(2)), asyncio.create_task(batcher(3))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        go_on.set()
        assert (await first, await third) == (1, 3)
        await batcher.close()

    run(test())
    assert computed == [1, 3]


def test_closing_computes_what_waits() -> None:
    def slowly(works: Sequence[int]) -> list[int]:
        time.sleep(0.01)
        return list(works)

    async def test() -> None:
        batcher: Batcher[int, int] = Batcher(slowly, threads=2, batch=2)
        tasks = [asyncio.create_task(batcher(work)) for work in range(9)]
        await asyncio.sleep(0)
        await batcher.close()
        assert await asyncio.gather(*tasks) == list(range(9))

    run(test())


def test_each_thread_begins_once() -> None:
    begun: list[str] = []

    async def test() -> None:
        batcher: Batcher[int, int] = Batcher(list, threads=3, begin=lambda: begun.append(threading.current_thread().name))
        await batcher(1)
        await batcher.close()

    run(test())
    assert len(set(begun)) == len(begun) == 3
