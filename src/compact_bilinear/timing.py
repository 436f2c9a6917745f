"""How benchmarks and experiments measure: side by side in one process, in turns, of which the middle is reported.

Machines are shared and clocks move, so a time by itself says little; the ratio of two things timed in turns says much. Memory
is what torch holds beyond what it held before, at its worst moment.
"""

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import torch
from torch import Tensor

Run = Callable[[], object]
Clock = Callable[[], float]  # in seconds


class Time(NamedTuple):
    """Milliseconds: the median, and the quartiles around it."""

    median: float
    low: float
    high: float


def take_turns(runs: dict[str, Run], device: str, rounds: int = 7, clock: Clock = time.perf_counter) -> dict[str, Time]:
    """Time each of ``runs``: a warm-up, then ``rounds`` turns in which all go once, each time beginning with another."""
    repeats = {name: _repeats(run, device, clock) for name, run in runs.items()}
    taken: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            taken[name].append(_milliseconds(runs[name], device, repeats[name], clock))
    return {name: _summary(times) for name, times in taken.items()}


def forward(function: Callable[..., Tensor], *inputs: Tensor) -> Run:
    """A run without gradients."""

    def run() -> None:
        with torch.no_grad():
            function(*inputs)

    return run


def forward_backward(function: Callable[..., Tensor], *inputs: Tensor) -> Run:
    """A run that also gives the gradients of the inputs, for one and the same gradient of the result."""
    leaves = [each.detach().requires_grad_() for each in inputs]
    with torch.no_grad():
        g = torch.randn_like(function(*inputs))

    def run() -> None:
        torch.autograd.grad(function(*leaves), leaves, g)

    return run


def _summary(times: list[float]) -> Time:
    low, _, high = quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
    return Time(median(times), low, high)


def _repeats(run: Run, device: str, clock: Clock) -> int:
    """How many calls make a sample of at least two milliseconds, after a warm-up."""
    run()
    once = _milliseconds(run, device, 1, clock)
    return max(1, round(2 / max(once, 1e-3)))


def _milliseconds(run: Run, device: str, repeats: int, clock: Clock) -> float:
    _wait_for(device)
    start = clock()
    for _ in range(repeats):
        run()
    _wait_for(device)
    return (clock() - start) * 1e3 / repeats


def _wait_for(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def extra_megabytes(run: Run, device: str) -> float:
    """The most that torch holds during ``run`` beyond what it held before."""
    run()
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it writes two lines to the terminal for each profile otherwise
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        profile.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    allocations = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]")
    held = most = 0
    for _, size in allocations:
        held += size
        most = max(most, held)
    return most / 1e6


def machine(device: str) -> dict[str, Any]:
    """What a record has to say of where and when it was made."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "device": torch.cuda.get_device_name() if device == "cuda" else _processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _processor() -> str:
    names = Path("/proc/cpuinfo")
    if names.exists():
        for line in names.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores"
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
