"""Signed square root and ℓ₂: this package's function beside the composition of torch's own, forward and backward.

python benchmarks/normalize.py
python benchmarks/normalize.py --json > benchmarks/results/normalize-cpu.jsonl
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from compact_bilinear import signed_sqrt_l2
from compact_bilinear.timing import forward, forward_backward, machine, take_turns

PLAIN = "plain torch"
B, DIMS = 8, (512**2, 8192)


def plain_signed_sqrt_l2(y: Tensor) -> Tensor:
    """What everybody writes."""
    unit: Tensor = torch.nn.functional.normalize(y.sign() * y.abs().sqrt(), dim=-1)
    return unit


def records(d: int, device: str, rounds: int) -> Iterator[dict[str, Any]]:
    """One record for each way."""
    y = torch.randn(B, d, device=device)
    functions = {PLAIN: plain_signed_sqrt_l2, "signed_sqrt_l2": signed_sqrt_l2}
    once = take_turns({name: forward(function, y) for name, function in functions.items()}, device, rounds)
    both = take_turns({name: forward_backward(function, y) for name, function in functions.items()}, device, rounds)
    for name in functions:
        record = {"benchmark": "normalize", "name": name, **machine(device), "b": B, "d": d}
        yield record | {"forward_ms": once[name], "both_ms": both[name], "ratio": both[name].median / both[PLAIN].median}


def main() -> None:
    """Print a line for each way and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=151, help="how often each is timed")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    for d in DIMS:
        for record in records(d, arguments.device, arguments.rounds):
            once, both = record["forward_ms"].median, record["both_ms"]
            line = f"{B}×{d:<8}{record['name']:<18}forward {once:7.2f} ms   forward and backward {both.median:7.2f} ms"
            spread = f"({both.low:.2f} … {both.high:.2f})   {1 / record['ratio']:.2f}× faster than {PLAIN}"
            print(json.dumps(record, ensure_ascii=False) if arguments.json else f"{line} {spread}", flush=True)


if __name__ == "__main__":
    main()
