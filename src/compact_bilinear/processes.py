"""Several processes at one task, started by ``torchrun`` or anything else that numbers them; files are all that they share."""

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from .progress import note

PATIENCE = 30.0  # seconds after which a process says what it waits for
Task = TypeVar("Task")


class Processes(NamedTuple):
    """Which of how many processes this one is.

    >>> Processes(rank=1, world=3, local_rank=1, local_world=3).share(range(8))
    range(1, 8, 3)
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0  # on this machine
    local_world: int = 1

    @classmethod
    def from_environment(cls) -> "Processes":
        """As ``torchrun`` says in RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; one process where nothing is said."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        values = [os.environ.get(name, default) for name, default in zip(names, "0101", strict=True)]
        if not all(value.isdecimal() for value in values) or not int(values[0]) < int(values[1]):
            found = ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
            raise ValueError(
                f"RANK should be a number from 0 to WORLD_SIZE − 1, but {found}.\n"
                "Start with torchrun, which sets them, or unset them."
            )
        return cls(*map(int, values))

    @property
    def first(self) -> bool:
        """Whether this is the one that does what is to be done once."""
        return self.rank == 0

    def share(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """What this process does of a sequence of tasks: they are dealt out by turns."""
        return tasks[self.rank :: self.world]

    def wait(self, until: Callable[[], bool], what: str) -> None:
        """Wait for what other processes do: until a condition on the files holds."""
        said = time.monotonic()
        while not until():
            time.sleep(0.1)
            if time.monotonic() - said > PATIENCE:
                note(f"process {self.rank} of {self.world} waits for {what} of the others")
                said = time.monotonic()
