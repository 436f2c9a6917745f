"""Logistic regression beside scikit-learn's: the time until the objective is as near to the optimum.

    python benchmarks/logistic.py            5994 images of 200 classes, as in CUB-200-2011; ten minutes, 4 GB of disk
    python benchmarks/logistic.py --small    a try, some seconds
    python benchmarks/logistic.py --json > benchmarks/results/logistic-cpu.jsonl

Features are made up, but as those of photographs are made: local descriptors that an image, its class, the relatives of its
class and the place in the image have a part in, behind a ReLU, pooled, with signed square root and ℓ₂.

The optimum is that of a run in float64 to a gap of 1e-10. scikit-learn's `lbfgs` gets the same float32 features, C = 1/(2λ),
and as `max_iter` the number of iterations at which, in a run that is not counted, its objective first came within 1e-5 of the
optimum. Without knowing the optimum nobody could stop it earlier. Ours stops by itself, where it knows that the gap is at most
1e-5. They take turns.

Full bilinear features of the same images are read from a store on the disk, in a process of its own, whose memory is that of
all it does. What the Gram matrix takes is given by itself.
"""

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.optimize
import torch
from sklearn.linear_model import LogisticRegression as ScikitLearn
from torch import Tensor, nn

from compact_bilinear import FullBilinear, TensorSketch, signed_sqrt_l2
from compact_bilinear.classify import LogisticRegression, logistic_regression
from compact_bilinear.classify.gram_matrix import gram_matrix
from compact_bilinear.classify.head import labelled
from compact_bilinear.features import FeatureStore, FeatureWriter
from compact_bilinear.timing import Run, machine, take_turns

LAMBDA, GAP = 1e-3, 1e-5


def descriptors(labels: Tensor, k: int, c: int, first: int, n: int = 12) -> Tensor:
    """Tokens (b, n, c) of images of these classes; ``first`` says which images of the class they are."""
    draw = torch.Generator().manual_seed(0)
    spectrum = torch.arange(1, c + 1) ** -0.35
    basis = torch.randn(c, c, generator=draw) / c**0.5
    relatives, classes = torch.randn(max(k // 5, 1), c, generator=draw), torch.randn(k, c, generator=draw)
    places = torch.randn(n, c, generator=draw)
    draw.manual_seed(first + 1)
    image = torch.randn(len(labels), 1, c, generator=draw)
    local = torch.randn(len(labels), n, c, generator=draw)
    of_class = relatives[labels % len(relatives)] + classes[labels] / 2
    x = places + of_class.unsqueeze(1) + 2.1 * image + 3 * local
    return nn.functional.relu((x * spectrum) @ basis.mT * 3 - 0.3)


def features(pool: nn.Module, labels: Tensor, k: int, c: int, first: int = 0, rows: int = 128) -> Iterator[Tensor]:
    """Pooled and normalised, in blocks."""
    for start in range(0, len(labels), rows):
        with torch.no_grad():
            yield signed_sqrt_l2(pool(descriptors(labels[start : start + rows], k, c, first + start)))


def objective(weights: Any, intercept: Any, x: Tensor, labels: Tensor) -> float:
    """λ‖W‖² + Σ l, in float64."""
    w, b = torch.as_tensor(weights).double(), torch.as_tensor(intercept).double()
    loss = sum(
        nn.functional.cross_entropy(rows.double() @ w.mT + b, of, reduction="sum").item()
        for rows, of in zip(x.split(1024), labels.split(1024), strict=True)
    )
    return LAMBDA * w.square().sum().item() + loss


def iterations_needed(x: Tensor, labels: Tensor, optimum: float) -> int:
    """How many of scikit-learn's until its objective, which is ours divided by the images, is near enough."""
    minimize, values = scipy.optimize.minimize, []

    def noting(*arguments: Any, **options: Any) -> Any:
        def note(intermediate_result: Any) -> None:
            values.append(intermediate_result.fun)

        return minimize(*arguments, **(options | {"callback": note}))

    with patch.object(scipy.optimize, "minimize", noting), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ScikitLearn(C=1 / (2 * LAMBDA), tol=1e-12, max_iter=1000).fit(x.numpy(), labels.numpy())
    near = [place for place, value in enumerate(values, 1) if value * len(x) <= optimum * (1 + GAP)]
    return near[0] if near else len(values)


def from_memory(x: Tensor, labels: Tensor, device: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Both on the same features, in turns; the first to see is the one that knows the optimum."""
    best = LogisticRegression(LAMBDA, tolerance=1e-10, precision="float64", device=device).fit(x.numpy(), labels.numpy())
    optimum = objective(best.coef_, best.intercept_, x, labels)
    needed = iterations_needed(x, labels, optimum)
    models = {
        "scikit-learn lbfgs": ScikitLearn(C=1 / (2 * LAMBDA), tol=1e-12, max_iter=needed),
        "ours": LogisticRegression(LAMBDA, tolerance=GAP, device=device),
        "ours, default tolerance": LogisticRegression(LAMBDA, device=device),
    }
    runs: dict[str, Run] = {name: partial(model.fit, x.numpy(), labels.numpy()) for name, model in models.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn says that it was stopped
        times = take_turns(runs, device, rounds)
    theirs = times["scikit-learn lbfgs"].median
    for name, model in models.items():
        yield {
            "name": name,
            "seconds": [each / 1e3 for each in times[name]],
            "faster": theirs / times[name].median,
            "gap": objective(model.coef_, model.intercept_, x, labels) / optimum - 1,
            "iterations": int(np.max(model.n_iter_)),
            "m": len(x),
            "d": x.shape[1],
        }


def from_store(folder: Path, labels: Tensor, k: int, c: int, device: str) -> Iterator[dict[str, Any]]:
    """Full bilinear features, written block by block, and fitted in another process."""
    items = SimpleNamespace(
        classes=tuple(map(str, range(k))),
        paths=tuple(map(str, range(len(labels)))),
        labels=tuple(labels.tolist()),
        splits=("train",) * len(labels),
    )
    writer = FeatureWriter(folder, items, {"full-bilinear": {"dim": c * c}}, settings={})
    blocks = features(FullBilinear(c), labels, k, c)
    waiting = next(blocks)
    for shard in writer.missing():
        with writer.start(shard) as rows:
            first = shard.first
            while first < shard.stop:
                part = waiting[: shard.stop - first]
                rows.add(range(first, first + len(part)), {"full-bilinear": part.half().numpy()})
                first, waiting = first + len(part), waiting[len(part) :]
                waiting = waiting if len(waiting) else next(blocks, waiting)
    writer.complete()
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_fit_store, args=(folder, device, torch.get_num_threads(), queue))
    process.start()
    yield {"name": "ours, full bilinear from a store", "m": len(labels), "d": c * c} | queue.get()
    process.join()


def _fit_store(folder: Path, device: str, threads: int, queue: Any) -> None:
    torch.set_num_threads(threads)
    store = FeatureStore(folder)
    spent = []

    def timed(*arguments: Any) -> Tensor:
        start = time.perf_counter()
        result = gram_matrix(*arguments)
        spent.append(time.perf_counter() - start)
        return result

    start = time.perf_counter()
    with patch.object(logistic_regression, "gram_matrix", timed):
        model = LogisticRegression(LAMBDA, tolerance=GAP, device=device)
        read, labels = labelled(store, "full-bilinear", "train")  # as `cbp train` reads them
        model.fit_blocks(read, labels)
    queue.put(
        {
            "seconds": time.perf_counter() - start,
            "gram_seconds": sum(spent),
            "gap": model.gap_,
            "iterations": model.n_iter_,
            "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,  # kilobytes, as Linux counts
        }
    )


def main() -> None:
    """Print a table, or one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where ours runs")
    parser.add_argument("--images", type=int, default=5994, help="m")
    parser.add_argument("--classes", type=int, default=200, help="k")
    parser.add_argument("--channels", type=int, default=512, help="c; full bilinear features have its square")
    parser.add_argument("--dim", type=int, default=8192, help="d of the features in memory")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is timed")
    parser.add_argument("--small", action="store_true", help="600 images, 20 classes, 64 channels, d = 1024")
    parser.add_argument(
        "--folder", type=Path, help="where the store is made for a while, in place of the folder for such things"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    m, k, c, d = arguments.images, arguments.classes, arguments.channels, arguments.dim
    if arguments.small:
        m, k, c, d = 600, 20, 64, 1024
    labels = (torch.arange(m) % k)[torch.randperm(m, generator=torch.Generator().manual_seed(0))]

    def records() -> Iterator[dict[str, Any]]:
        x = torch.cat(list(features(TensorSketch(c, d), labels, k, c)))
        yield from from_memory(x, labels, arguments.device, arguments.rounds)
        del x
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            yield from from_store(Path(folder, "store"), labels, k, c, arguments.device)

    for record in records():
        if arguments.json:
            print(json.dumps({"benchmark": "logistic", **machine(arguments.device), "k": k, **record}), flush=True)
        else:
            cells = (f"{name} {_shown(value)}" for name, value in record.items() if name != "name")
            print(f"{record['name']:<34}{'   '.join(cells)}", flush=True)


def _shown(value: object) -> str:
    if isinstance(value, list):
        middle, low, high = value
        return f"{middle:.4g} ({low:.4g} … {high:.4g})"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
