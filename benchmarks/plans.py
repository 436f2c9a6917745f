"""What plan="auto" loses: both plans of Tensor Sketch and Random Maclaurin over a grid of shapes, forward and backward.

    python benchmarks/plans.py                    every point, about fifteen minutes on two cores
    python benchmarks/plans.py --only tensor_sketch --json > benchmarks/results/plans-tensor_sketch-cpu.jsonl

A loss of 1 means that the rule in ``pooling/plan.py`` took the faster plan; it promises at most 1.25.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch

from compact_bilinear import RandomMaclaurin, TensorSketch
from compact_bilinear.pooling.plan import Shape, choose, random_maclaurin_costs, tensor_sketch_costs
from compact_bilinear.timing import forward_backward, machine, take_turns

METHODS = {
    "tensor_sketch": (TensorSketch, ("gram", "fft"), tensor_sketch_costs),
    "random_maclaurin": (RandomMaclaurin, ("gram", "direct"), random_maclaurin_costs),
}
CHANNELS, LOCATIONS, DIMS = (64, 256, 512, 1024, 2048), (1, 49, 196, 784), (512, 4096, 16384)
B = 8
# the largest point, direct Random Maclaurin at c = 2048, n = 784, d = 16384, holds about 2.5 GB


def points(method: str, device: str) -> Iterator[dict[str, Any]]:
    """One record for each shape."""
    layer, plans, costs = METHODS[method]
    for c, n, d in product(CHANNELS, LOCATIONS, DIMS):
        x = torch.randn(B, n, c, device=device).relu()
        # few turns where one takes seconds, by the rule's own estimate
        seconds = B * max(costs(Shape(n, c, c, d, device)).values()) / 1e9
        times = take_turns(
            {plan: forward_backward(layer(c, d, plan=plan).to(device), x) for plan in plans},
            device,
            rounds=3 if seconds > 0.5 else 15,
        )
        taken = choose("auto", costs, Shape(n, c, c, d, device))
        loss = times[taken].median / min(time.median for time in times.values())
        yield {
            "benchmark": "plans",
            "method": method,
            **machine(device),
            "b": B,
            "c": c,
            "n": n,
            "d": d,
            "ms": {plan: [round(part, 4) for part in time] for plan, time in times.items()},
            "auto": taken,
            "loss": round(loss, 3),
        }


def main() -> None:
    """Print a line for each point, and the worst at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(METHODS), help="one method")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    worst: dict[str, Any] | None = None
    for method in [arguments.only] if arguments.only else METHODS:
        for record in points(method, arguments.device):
            worst = record if worst is None or record["loss"] > worst["loss"] else worst
            print(json.dumps(record) if arguments.json else _line(record), flush=True)
    if worst is not None and not arguments.json:
        print(f"\nthe largest loss: {_line(worst)}")


def _line(record: dict[str, Any]) -> str:
    times = "   ".join(f"{plan} {median:9.2f} ms" for plan, (median, *_) in record["ms"].items())
    shape = f"c={record['c']:<5} n={record['n']:<4} d={record['d']:<6}"
    return f"{record['method']:<17} {shape} {times}   auto: {record['auto']:<7} loss {record['loss']:.2f}"


if __name__ == "__main__":
    main()
