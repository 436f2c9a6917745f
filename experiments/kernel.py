"""How well compact features stand in for full bilinear ones: the error of the kernel matrix against d, beside what theory says.

    python experiments/kernel.py --out demo          seconds on two cores

Claims: the error of the estimate falls as 1/√d; Random Maclaurin and Tensor Sketch follow their exact variances
(``pooling/variance.py``), and Tensor Sketch is the more accurate of the two on descriptors that have passed a ReLU.

Descriptors are made up: each image mixes a few of the directions that all images share, and a ReLU follows, so that images are
alike to various degrees. No network and no download is needed; what the claims say does not depend on where B comes from.
"""

import argparse
import json
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

from compact_bilinear import TensorSketch
from compact_bilinear.experiments.kernel import DIMS, descriptors, kernel_error, kernel_matrix, theory
from compact_bilinear.pooling import full_bilinear

METHODS = {"tensor sketch": "tensor-sketch", "random Maclaurin": "random-maclaurin"}
COLORS = {"tensor sketch": "#0b6e99", "random Maclaurin": "#c2571a"}


def records(dims: tuple[int, ...] = DIMS, draws: int = 30) -> Iterator[dict[str, Any]]:
    """Root mean square errors of the kernel matrix, relative to the exact one: of each draw, of all, and what theory says."""
    x = descriptors()
    for name, method in METHODS.items():
        for d in dims:
            errors = [kernel_error(method, d, seed, x) for seed in range(draws)]
            yield {
                "experiment": "kernel",
                "method": name,
                "c": x.shape[2],
                "d": d,
                "draws": errors,
                "error": sqrt(fmean(error**2 for error in errors)),
                "theory": theory(method, d, x),
            }


def picture(found: list[dict[str, Any]], path: Path) -> None:
    """Error against d with theory's lines; and two estimates of one kernel matrix against the exact one."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    style: Any = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "kernel"}
    with plt.rc_context(style):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained")
        _errors_against_d(left, found)
        _estimates_against_exact(right)
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
        plt.close(figure)


def _errors_against_d(axes: Any, found: list[dict[str, Any]]) -> None:
    for (method, color), aside in zip(COLORS.items(), (0.94, 1.06), strict=True):
        rows = [record for record in found if record["method"] == method]
        dims = [row["d"] for row in rows]
        axes.plot(dims, [row["theory"] for row in rows], color=color, linewidth=1, label=f"{method}: exact variance")
        for row in rows:
            place = [row["d"] * aside] * len(row["draws"])
            axes.plot(place, row["draws"], ".", color=color, alpha=0.15, markersize=5, markeredgewidth=0)
        label = f"{method}: {len(rows[0]['draws'])} draws, root mean square"
        axes.plot(dims, [row["error"] for row in rows], "o", color=color, markersize=4.5, label=label)
    c = found[0]["c"]
    axes.axvline(c * c, color="0.6", linewidth=0.8, linestyle=":")
    axes.text(c * c * 0.93, axes.get_ylim()[1], f"d = c² = {c * c}", ha="right", va="top", color="0.4", fontsize=9)
    axes.set(xscale="log", yscale="log", xlabel="output dimension d", ylabel="relative error of the kernel matrix")
    axes.set_xticks(dims[::2], [str(d) for d in dims[::2]])
    axes.minorticks_off()
    axes.set_title("The error falls as 1/√d, as theory says", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=8.5)


def _estimates_against_exact(axes: Any) -> None:
    x = descriptors()
    exact = kernel_matrix(full_bilinear(x)).flatten()
    for d, color in ((128, "#9cc7d8"), (8192, COLORS["tensor sketch"])):
        estimate = kernel_matrix(TensorSketch(x.shape[2], d)(x)).flatten()
        axes.plot(exact / exact.max(), estimate / exact.max(), ".", markersize=4, color=color, label=f"tensor sketch, d = {d}")
    axes.plot([0, 1], [0, 1], color="0.3", linewidth=0.8)
    axes.set(xlabel="full bilinear ⟨B(X), B(Y)⟩, of the largest", ylabel="compact ⟨y, y′⟩, likewise")
    axes.set_title(f"{len(exact)} pairs of images, one draw", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=8.5, markerscale=2)


def main() -> None:
    """Write records and picture, and say what they show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="the folder to write to")
    arguments = parser.parse_args()
    show(arguments.out)


def show(out: Path) -> None:
    """The experiment: print its table, write ``kernel.jsonl``, ``kernel.svg`` and ``kernel.png``."""
    out.mkdir(parents=True, exist_ok=True)
    found = list(records())
    print(f"\nKernel of compact features against that of full bilinear ones, c={found[0]['c']}: relative error\n")
    print(f"{'d':>8}" + "".join(f"{method:>26}" for method in METHODS) + "      (in brackets: exact theory)")
    for d in DIMS:
        rows = [record for record in found if record["d"] == d]
        cells = [f"{row['error']:.4f} ({row['theory']:.4f})" for row in rows]
        print(f"{d:>8}" + "".join(f"{cell:>26}" for cell in cells))
    with (out / "kernel.jsonl").open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(record) + "\n" for record in found)
    for name in ("kernel.svg", "kernel.png"):
        picture(found, out / name)


if __name__ == "__main__":
    main()
