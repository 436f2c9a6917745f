"""What `import compact_bilinear` adds to `import torch`: fresh processes, in turns.

python benchmarks/import_time.py
python benchmarks/import_time.py --json > benchmarks/results/import-cpu.jsonl
"""

import argparse
import json
import subprocess
import sys
from statistics import median, quantiles

from compact_bilinear.timing import machine

MEASURE = "import time, torch; start = time.perf_counter(); import compact_bilinear; print(time.perf_counter() - start)"


def main() -> None:
    """Print milliseconds: the median of many processes, and the quartiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="how many processes")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    added = [_milliseconds() for _ in range(arguments.rounds)]
    low, _, high = quantiles(added, n=4, method="inclusive")
    record = {"benchmark": "import", **machine("cpu"), "added_ms": [median(added), low, high]}
    if arguments.json:
        print(json.dumps(record))
    else:
        print(f"import compact_bilinear adds {median(added):.1f} ms ({low:.1f} … {high:.1f}) to import torch")


def _milliseconds() -> float:
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    return float(done.stdout) * 1e3


if __name__ == "__main__":
    main()
