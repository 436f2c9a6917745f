"""Speed and memory of every pooling and plan, beside full bilinear pooling, the FFT at every location, and the floor.

    python benchmarks/pooling.py                                 the shapes below; some ten minutes on two cores
    python benchmarks/pooling.py --shape 8x512x28x28 --dim 8192  one shape
    python benchmarks/pooling.py --json > benchmarks/results/pooling-cpu.jsonl

Everything is timed in turns in one process. Three rows are not of this package and are what the others are compared with:

- full bilinear: a batched matrix product, and autograd;
- FFT at each location: how every public port computes Tensor Sketch;
- floor: one forward and one backward matrix product, which no way through the Gram matrix can avoid.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from math import isqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fft import irfft, rfft

from compact_bilinear import (
    AveragePool,
    FisherVector,
    FullBilinear,
    PCABilinear,
    RandomMaclaurin,
    RandomProjection,
    TensorSketch,
)
from compact_bilinear.timing import Run, Time, extra_megabytes, forward, forward_backward, machine, take_turns

FULL, FFT, FLOOR = "full bilinear: bmm + autograd", "FFT at each location", "floor: two matrix products"
PLAIN_MACLAURIN = "random Maclaurin: plain torch"
BASES = (FULL, FFT, FLOOR, PLAIN_MACLAURIN)
SHAPES = ((8, 512, 28, 28), (8, 512, 14, 14), (8, 2048, 7, 7), (8, 64, 28, 28), (8, 2048, 1, 1))
DIM = 8192


class Entry(NamedTuple):
    """One row of the table."""

    forward: Run
    both: Run
    measures_memory: bool = True


def entries(b: int, c: int, h: int, w: int, d: int, device: str, only: Sequence[str] | None = None) -> dict[str, Entry]:
    """Every pooling for maps (b, c, h, w), and what they are compared with; or those in ``only``, in its order."""
    torch.manual_seed(0)
    x = torch.randn(b, c, h, w, device=device).relu()
    k = min(isqrt(d), c)
    gaussians = max(1, d // (2 * c))
    sketch, maclaurin = TensorSketch(c, d).to(device), RandomMaclaurin(c, d).to(device)
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        FULL: full_bilinear_by_bmm,
        FFT: lambda x: fft_at_each_location(x, sketch.bucket, sketch.sign, d),
        PLAIN_MACLAURIN: lambda x: plain_random_maclaurin(x, maclaurin.w),
        "FullBilinear": FullBilinear(c).to(device),
        "FullBilinear(triangle=True)": FullBilinear(c, triangle=True).to(device),
        "TensorSketch(plan='gram')": TensorSketch(c, d, plan="gram").to(device),
        "TensorSketch(plan='fft')": TensorSketch(c, d, plan="fft").to(device),
        "RandomMaclaurin(plan='gram')": RandomMaclaurin(c, d, plan="gram").to(device),
        "RandomMaclaurin(plan='direct')": RandomMaclaurin(c, d, plan="direct").to(device),
        "RandomProjection(sparse=True)": RandomProjection(c, d, sparse=True).to(device),
        f"PCABilinear(dim={k * k})": PCABilinear(c, k * k, projection=torch.randn(k, c), bias=torch.zeros(k)).to(device),
        f"FisherVector(components={gaussians})": _some_fisher_vector(c, gaussians).to(device),
        "AveragePool": AveragePool(),
    }
    if c * c * d <= 2**26:  # beyond that the dense matrix takes seconds to draw, each time
        functions["RandomProjection"] = RandomProjection(c, d).to(device)
    columns, gradient = x.flatten(2), torch.randn(b, c, c, device=device)
    made = {}
    for name in only or (*functions, FLOOR):
        if name == FLOOR:
            made[name] = Entry(lambda: columns @ columns.mT, lambda: (columns @ columns.mT, gradient @ columns), False)
        else:
            made[name] = Entry(forward(functions[name], x), forward_backward(functions[name], x))
    return made


def full_bilinear_by_bmm(x: Tensor) -> Tensor:
    """The matrix product that everybody writes."""
    columns = x.flatten(2)
    return torch.bmm(columns, columns.mT).flatten(1)


def fft_at_each_location(x: Tensor, bucket: Tensor, sign: Tensor, d: int) -> Tensor:
    """Tensor Sketch as the public ports compute it, at its leanest: real transforms, and autograd."""
    rows = x.flatten(2).mT
    first, second = (rows.new_zeros(*rows.shape[:2], d).index_add(2, h, rows * s) for h, s in zip(bucket, sign, strict=True))
    convolved: Tensor = irfft(rfft(first) * rfft(second), n=d)
    return convolved.sum(1)


def plain_random_maclaurin(x: Tensor, w: Tensor) -> Tensor:
    """Random Maclaurin as its formula reads, and autograd."""
    rows = x.flatten(2).mT
    y: Tensor = ((rows @ w[0].mT) * (rows @ w[1].mT)).sum(1) / w.shape[1] ** 0.5
    return y


def _some_fisher_vector(c: int, k: int) -> FisherVector:
    pool = FisherVector(c, components=k)
    pool.load_state_dict({"mixture": torch.full((k,), 1 / k), "means": torch.randn(k, c), "variances": torch.ones(k, c)})
    return pool


def records(
    shape: tuple[int, int, int, int], d: int, device: str, rounds: int, only: Sequence[str] | None = None
) -> Iterator[dict[str, Any]]:
    """One record for each row, or for those in ``only``, in its order; the ratios included."""
    b, c, h, w = shape
    rows = entries(b, c, h, w, d, device, only)
    once, both = _timed(rows, device, rounds)
    memory = {name: extra_megabytes(row.both, device) for name, row in rows.items() if row.measures_memory}
    for name in rows:
        record = _record(name, device, once[name], both[name]) | {"b": b, "c": c, "h": h, "w": w, "d": d}
        record["ratio"] = {base: both[name].median / both[base].median for base in BASES if base in rows}
        if name in memory:
            record["extra_mb"] = memory[name]
        yield record


def _timed(rows: dict[str, Entry], device: str, rounds: int) -> tuple[dict[str, Time], dict[str, Time]]:
    once = take_turns({name: row.forward for name, row in rows.items()}, device, rounds)
    return once, take_turns({name: row.both for name, row in rows.items()}, device, rounds)


def _record(name: str, device: str, once: Time, both: Time) -> dict[str, Any]:
    return {"benchmark": "pooling", "name": name, **machine(device), "forward_ms": once, "both_ms": both}


def main() -> None:
    """Print a table for each shape, or one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", type=_shape, help="bxcxhxw, as 8x512x28x28; may be repeated")
    parser.add_argument("--dim", type=int, default=DIM, help=f"d of the compact poolings, {DIM} if not given")
    parser.add_argument("--rounds", type=int, default=9, help="how often each is timed")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    for shape in arguments.shape or SHAPES:
        found = list(records(shape, arguments.dim, arguments.device, arguments.rounds))
        _show(found, arguments.json, "x".join(map(str, shape)) + f", d={arguments.dim}")


def _show(found: list[dict[str, Any]], as_json: bool, title: str) -> None:
    if as_json:
        for record in found:
            print(json.dumps(record, ensure_ascii=False), flush=True)
        return
    print(f"\n{title}   ({found[0]['device']}, torch {found[0]['torch']}, {found[0]['threads']} threads)\n")
    print(f"{'':<36}{'forward':>10}{'fwd + bwd':>11}{'quartiles':>20}{'÷ full':>9}{'÷ floor':>9}{'FFT ÷':>8}{'extra MB':>10}")
    for record in found:
        once, both = record["forward_ms"], record["both_ms"]
        ratio = record["ratio"]
        extra = f"{record['extra_mb']:.0f}" if "extra_mb" in record else ""
        spread = f"{both.low:.2f} … {both.high:.2f}"
        print(
            f"{record['name']:<36}{once.median:>10.2f}{both.median:>11.2f}{spread:>20}"
            f"{ratio[FULL]:>9.2f}{ratio[FLOOR]:>9.2f}{1 / ratio[FFT]:>8.2f}{extra:>10}"
        )


def _shape(text: str) -> tuple[int, int, int, int]:
    parts = tuple(int(part) for part in text.split("x") if part.isdecimal())
    if len(parts) != 4 or 0 in parts or text != "x".join(map(str, parts)):
        raise argparse.ArgumentTypeError(f"takes b x c x h x w, for instance 8x512x28x28, but got {text}")
    return parts


if __name__ == "__main__":
    main()
