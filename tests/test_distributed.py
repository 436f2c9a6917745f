"""Data-parallel training in two processes is training in one on the whole batch."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from compact_bilinear import RandomMaclaurin, TensorSketch, signed_sqrt_l2

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch was built without torch.distributed")

PROCESSES = 2
DIM = 5  # few enough that no bin is empty: the square root would blow up what rounding leaves in there
PATIENCE = timedelta(seconds=60)  # with a partner that never comes; the work takes two
POOLS = {
    "tensor_sketch-gram": lambda seed: TensorSketch(6, DIM, seed=seed, learnable=True, plan="gram"),
    "tensor_sketch-fft": lambda seed: TensorSketch(6, DIM, seed=seed, learnable=True, plan="fft"),
    "random_maclaurin-gram": lambda seed: RandomMaclaurin(6, DIM, seed=seed, learnable=True, plan="gram"),
    "random_maclaurin-direct": lambda seed: RandomMaclaurin(6, DIM, seed=seed, learnable=True, plan="direct"),
}
State = dict[str, Tensor]


class Network(nn.Module):
    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.conv, self.pool, self.linear = nn.Conv2d(3, 6, 3), pool, nn.Linear(DIM, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(signed_sqrt_l2(self.pool(self.conv(x))))


def network(name: str, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return Network(POOLS[name](seed)).double()


def batch() -> tuple[Tensor, Tensor]:
    """Images and labels, as many of each for either process."""
    draw = torch.Generator().manual_seed(5)
    return torch.randn(6, 3, 7, 8, generator=draw, dtype=torch.float64), torch.randint(4, (6,), generator=draw)


def step(model: nn.Module, x: Tensor, labels: Tensor) -> State:
    """Two steps of training: gradients of the last, and all that would be saved."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    bare = model.module if isinstance(model, DistributedDataParallel) else model
    return {f"gradient of {name}": p.grad for name, p in bare.named_parameters()} | bare.state_dict()


def work(rank: int, folder: str) -> None:
    """One of the processes: it trains every network on its own half of the batch, and writes down what became of it."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=PROCESSES, timeout=PATIENCE)
    x, labels = batch()
    mine = slice(3 * rank, 3 * rank + 3)
    states = {}
    for name in POOLS:
        # other weights, and other buckets, than the first process has: it has to send its own
        states[name] = step(DistributedDataParallel(network(name, seed=rank)), x[mine], labels[mine])
    torch.save(states, Path(folder) / f"{rank}.pt")
    dist.barrier()  # both leave at the same time: gloo's threads have been seen to abort when their partner had gone before
    dist.destroy_process_group()


def in_processes(folder: Path) -> list[dict[str, State]]:
    """What each process wrote. They run this file."""
    processes = [
        subprocess.Popen([sys.executable, __file__, str(rank), folder], stderr=subprocess.PIPE, text=True)
        for rank in range(PROCESSES)
    ]
    try:
        complaints = [process.communicate(timeout=2 * PATIENCE.total_seconds())[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * PROCESSES, "\n".join(complaints)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(PROCESSES)]


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    first, second = in_processes(tmp_path)
    x, labels = batch()
    for name in POOLS:
        alone, half = step(network(name), x, labels), step(network(name), x[:3], labels[:3])
        learned = {"pool.sign", "pool.w"} & alone.keys()
        assert len(learned) == 1
        assert first[name].keys() == second[name].keys() == alone.keys()
        for key, expected in alone.items():
            assert torch.equal(first[name][key], second[name][key]), (name, key)
            torch.testing.assert_close(first[name][key], expected, rtol=1e-10, atol=1e-10, msg=f"{name}: {key}")
        for key in learned | {"conv.weight", "linear.weight"}:
            assert not torch.allclose(first[name][key], half[key]), f"{name}: {key} would be the same without the other half"
            assert not torch.allclose(first[name][key], network(name).state_dict()[key]), f"{name}: {key} did not learn"


if __name__ == "__main__":
    work(int(sys.argv[1]), sys.argv[2])
