"""Time and memory, measured side by side."""

import torch

from compact_bilinear.timing import extra_megabytes, forward_backward, machine, take_turns


def test_turns_are_shared_fairly() -> None:
    order: list[str] = []
    taken = take_turns({name: lambda name=name: order.append(name) for name in "ab"}, "cpu", rounds=3)  # type: ignore[misc]
    assert taken.keys() == {"a", "b"}
    assert all(time.low <= time.median <= time.high for time in taken.values())
    assert {"a", "b"} == set(order)


def test_memory_is_what_is_held_at_most() -> None:
    def run() -> None:
        first = torch.ones(1_000_000)
        second = first + 1
        del first
        second + 1

    assert 7.9 < extra_megabytes(run, "cpu") < 8.3, "two of three tensors of 4 MB at a time"


def test_forward_and_backward_leave_inputs_alone() -> None:
    x = torch.ones(3)
    forward_backward(torch.sin, x)()
    assert x.grad is None
    assert not x.requires_grad


def test_a_machine_has_a_name() -> None:
    assert machine("cpu").keys() == {"date", "device", "threads", "torch", "python"}
