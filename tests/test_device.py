"""Devices, precisions, and one thread for what has to be the same to the last bit."""

import pytest
import torch

from compact_bilinear.device import choose_precision, find_device, one_thread, same_bits
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
