"""Several processes that learn one model: what they have to tell each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..descriptors import CustomBackbone
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
        return nn.parallel.DistributedDataParallel(
            model,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            broadcast_buffers=buffers,
            find_unused_parameters=isinstance(model.backbone, CustomBackbone),  # networks of others may have some
            gradient_as_bucket_view=True,
        )


@contextmanager
def together(processes: Processes, device: torch.device) -> Iterator[Group]:
    """Meet the other processes, as ``torchrun`` says where, and part from them in the end."""
    group = Group(processes, device)
    if group.alone or dist.is_initialized():
        yield group
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield group
    finally:
        dist.destroy_process_group()
