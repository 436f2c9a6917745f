"""Where things are computed, in what precision, and whether to the same bits each time."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import torch

from .processes import Processes

Item = TypeVar("Item")
Result = TypeVar("Result")
Precision = Literal["auto", "float32", "bfloat16", "float16"]


def find_device(name: str, processes: Processes) -> torch.device:
    """The device that is asked for.

    Args:
        name: "cpu", "cuda", "cuda:1", ..., or "auto": a GPU where there is one.
        processes: of several on one machine, each takes a GPU of its own.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as fault:
        raise ValueError(f"There is no device {name!r}.\nWrite cpu, cuda or auto.") from fault
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"Features are computed on a CPU or with CUDA, but got {name!r}.\nWrite cpu, cuda or auto.")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError("The device cuda was asked for, but torch finds no GPU.\nWrite cpu or auto, or mend the driver.")
        count = torch.cuda.device_count()
        if device.index is not None and device.index >= count:
            raise ValueError(f"The GPUs are cuda:0 to cuda:{count - 1}, but got {name!r}.\nWrite cuda, or one of them.")
        if device.index is None:
            device = torch.device("cuda", processes.local_rank % count)
        torch.cuda.set_device(device)
    return device


def choose_precision(name: Precision, device: torch.device) -> torch.dtype:
    """What a network computes in: "auto" is float32, but on a GPU bfloat16 where it has that, and float16 where not."""
    if name != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


@contextmanager
def same_bits(device: torch.device, wanted: bool = True) -> Iterator[None]:
    """Deterministic algorithms while it lasts, where there are any; on a CPU they all are."""
    if device.type != "cuda" or not wanted:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS may choose otherwise each time
    memory: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filling = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # which is for tests, and takes time
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = filling


@contextmanager
def one_thread() -> Iterator[None]:
    """A single thread on the CPU while it lasts, also in NumPy and scikit-learn: the last digits of sums depend on how many."""
    from threadpoolctl import threadpool_limits

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


def side_by_side(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Generator[Result]:
    """Apply a function to item after item, in inference mode, several items at a time, and yield the results in order.

    Each item is computed by one thread from beginning to end. Were each computed by all of them, the last digits of sums would
    depend on how many there are; and the threads would spend much of their time waiting for each other.

    Args:
        function: called from several threads at once.
        items: taken as there is need of them.
        threads: how many; 0 to call the function here, as is right for a GPU, which does not wait.

    >>> list(side_by_side(torch.exp, [torch.tensor(0.0), torch.tensor(1.0)], threads=2))
    [tensor(1.), tensor(2.7183)]
    """
    inferring = torch.inference_mode()(function)
    if threads == 0:
        yield from map(inferring, items)
        return
    waiting: deque[Future[Result]] = deque()
    with _closing(ThreadPoolExecutor(threads, "compute", torch.set_num_threads, (1,))) as pool:
        for item in items:
            waiting.append(pool.submit(inferring, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def _closing(pool: ThreadPoolExecutor) -> Iterator[ThreadPoolExecutor]:
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)  # what has not begun will not
