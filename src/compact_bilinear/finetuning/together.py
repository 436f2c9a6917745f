"""Several processes that learn one model: what they have to tell each other."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from inspect import signature
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..model import Model
from ..processes import Processes

PATIENCE = timedelta(minutes=30)  # with a process that does not come: one may have to write, or to read from a slow disk


class Group(NamedTuple):
    """The processes at one model; of one process nothing is asked."""

    processes: Processes
    device: torch.device

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.processes.world == 1

    def sum(self, numbers: Tensor) -> Tensor:
        """The sum over all processes, in place. What lies on the CPU is summed without waiting for a GPU."""
        if not self.alone:
            dist.all_reduce(numbers)
        return numbers

    def wait(self) -> None:
        """Until all are here."""
        self.sum(torch.zeros(1))

    def said_by_the_first(self, number: int) -> int:
        """A number that the first process knows."""
        said = torch.tensor(number if self.processes.first else 0)
        return int(self.sum(said))

    def share(self, model: Model, buffers: bool) -> nn.Module:
        """The model as it is trained: with gradients that are means over the processes.

        Args:
            model: on its device; the numbers of the first process are taken in all of them.
            buffers: they change, and those of the first process count.
        """
        if self.alone:
            return model
        for parameter in _without_effect(model):
            parameter.requires_grad_(False)  # the others would wait for its gradient
        parallel = nn.parallel.DistributedDataParallel
        # it was given another name in 2026
        syncs = "forward_sync_buffers" if "forward_sync_buffers" in signature(parallel).parameters else "broadcast_buffers"
        on = [self.device] if self.device.type == "cuda" else None
        return parallel(model, device_ids=on, gradient_as_bucket_view=True, **{syncs: buffers})  # type: ignore[arg-type]


@contextmanager
def together(processes: Processes, device: torch.device) -> Iterator[Group]:
    """Meet the other processes, as ``torchrun`` says where, and part from them in the end."""
    group = Group(processes, device)
    if group.alone or dist.is_initialized():
        yield group
        return
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    store, rank, world = next(rendezvous("env://", timeout=PATIENCE))
    if processes.local_world == processes.world:
        # torchrun may keep its store when it starts all processes again, with the addresses of those that died in it. On
        # several machines the number of starts is not the same everywhere
        store = PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    try:
        yield group
    finally:
        dist.destroy_process_group()


def _without_effect(model: Model) -> list[nn.Parameter]:
    """Parameters that no score depends on: networks of others may have some after the layer that is taken."""
    model.eval()
    side = model.transform.size
    device = next(model.parameters()).device
    model(torch.zeros(1, 3, side, side, dtype=torch.uint8, device=device)).sum().backward()
    unused = [parameter for parameter in model.parameters() if parameter.requires_grad and parameter.grad is None]
    model.zero_grad()
    return unused
