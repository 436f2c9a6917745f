"""Where things are computed, in what precision, and whether to the same bits each time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

from .processes import Processes

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
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError("The device cuda was asked for, but torch finds no GPU.\nWrite cpu or auto, or mend the driver.")
        if device.index is None:
            device = torch.device("cuda", processes.local_rank % torch.cuda.device_count())
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
