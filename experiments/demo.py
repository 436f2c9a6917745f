"""The layers at work on this machine, in under a minute (``make demo``): how good the estimate is, and what it costs."""

import argparse
import sys
from pathlib import Path

import torch

import kernel
from compact_bilinear import RandomMaclaurin, TensorSketch, signed_sqrt_l2
from pooling import FFT, FLOOR, FULL, PLAIN_MACLAURIN, records

SHAPE, DIM = (2, 512, 28, 28), 8192


def main() -> None:
    """Three steps: use a layer, check its estimate, time it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="the folder to write to")
    arguments = parser.parse_args()
    _use()
    kernel.show(arguments.out)
    _time()
    print(f"\nThe picture is {arguments.out / 'kernel.png'}; its numbers are in {arguments.out / 'kernel.jsonl'}.")


def _use() -> None:
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).relu()
    pool = TensorSketch(channels=SHAPE[1], dim=DIM)
    features = signed_sqrt_l2(pool(x))
    print("pool = TensorSketch(channels=512, dim=8192)")
    print(f"features = signed_sqrt_l2(pool(x))      x {tuple(x.shape)} → features {tuple(features.shape)}")
    print(f"pool.explain(x):  {pool.explain(x)}")
    print(f"and random Maclaurin:  {RandomMaclaurin(SHAPE[1], DIM).explain(x)}")


def _time() -> None:
    b, c, h, w = SHAPE
    threads = torch.get_num_threads()
    print(f"\nOne step forward and backward, {b}×{c}×{h}×{w}, d={DIM}, {threads} threads: milliseconds, and in this run\n")
    print(f"{'':<34}{'ms':>9}{'× full bilinear':>18}{'× floor':>11}{'extra MB':>11}")
    wanted = (FULL, "TensorSketch(plan='gram')", FFT, "RandomMaclaurin(plan='gram')", PLAIN_MACLAURIN, "AveragePool", FLOOR)
    for record in records(SHAPE, DIM, "cpu", rounds=3, only=wanted):
        ratio = record["ratio"]
        extra = f"{record['extra_mb']:.0f}" if "extra_mb" in record else ""
        print(f"{record['name']:<34}{record['both_ms'].median:>9.1f}{ratio[FULL]:>18.2f}{ratio[FLOOR]:>11.2f}{extra:>11}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\nStopped. It begins anew when it is called again.", file=sys.stderr)
        sys.exit(130)
