"""Devices, precisions, and one thread for what has to be the same to the last bit."""

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from compact_bilinear.device import choose_precision, find_device, one_thread, same_bits, side_by_side
from compact_bilinear.processes import Processes


def test_cpu() -> None:
    cpu = find_device("cpu", Processes())
    assert choose_precision("auto", cpu) == torch.float32
    assert choose_precision("bfloat16", cpu) == torch.bfloat16
    if not torch.cuda.is_available():
        assert find_device("auto", Processes()) == cpu


def test_each_process_takes_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    assert find_device("auto", Processes(3, 4, 1, 2)) == torch.device("cuda", 1)
    assert find_device("cuda:0", Processes(3, 4, 1, 2)) == torch.device("cuda", 0)
    assert taken == [torch.device("cuda", 1), torch.device("cuda", 0)]
    for able, expected in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda able=able, **_: able)
        assert choose_precision("auto", torch.device("cuda")) == expected


def test_devices_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"but got 'meta'.\nWrite cpu, cuda or auto"):
        find_device("meta", Processes())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match=r"cuda:0 to cuda:1, but got 'cuda:2'.\nWrite cuda, or one of them"):
        find_device("cuda:2", Processes())


def test_deterministic_algorithms_are_as_before_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    memory = torch.utils.deterministic
    for wanted in (True, False):
        torch.use_deterministic_algorithms(False)
        try:
            with same_bits(torch.device("cuda"), wanted):
                assert torch.are_deterministic_algorithms_enabled() is wanted
                assert memory.fill_uninitialized_memory is not wanted
            assert not torch.are_deterministic_algorithms_enabled()
            assert memory.fill_uninitialized_memory
        finally:
            torch.use_deterministic_algorithms(True)
    with same_bits(torch.device("cpu")):
        assert memory.fill_uninitialized_memory


def test_one_thread() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [0, 1, 2, 7])
@pytest.mark.parametrize("count", [0, 1, 5, 20])
def test_results_come_in_order(threads: int, count: int) -> None:
    taken = []

    def items() -> Iterator[int]:
        for item in range(count):
            taken.append(item)
            yield item

    for place, result in enumerate(side_by_side(lambda item: item * item, items(), threads)):
        assert result == place * place
        assert len(taken) <= place + threads + 1, "more would be in memory at once"
    assert len(taken) == count


def test_each_item_is_computed_by_one_thread_without_gradients() -> None:
    torch.set_num_threads(2)
    try:
        weight = torch.ones(2, requires_grad=True)
        seen = list(side_by_side(lambda _: (torch.get_num_threads(), (weight * 2).requires_grad), range(3), 2))
        assert seen == [(1, False)] * 3
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_items_are_computed_at_the_same_time() -> None:
    both = threading.Barrier(2)

    def meet(item: Tensor) -> Tensor:
        both.wait(timeout=30)
        return item

    assert len(list(side_by_side(meet, torch.arange(4), 2))) == 4


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_what_fails_is_raised_in_its_place_and_the_rest_is_not_begun(threads: int) -> None:
    begun = []

    def compute(item: int) -> int:
        begun.append(item)
        if item == 4:
            raise RuntimeError("not this one")
        return item

    results = []

    def take() -> None:
        results.extend(side_by_side(compute, range(1000), threads))

    with pytest.raises(RuntimeError, match="not this one"):
        take()
    assert len(begun) < 20
