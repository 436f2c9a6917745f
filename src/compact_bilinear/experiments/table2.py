"""Table 2: what poolings cost at c = 512, d = 10 000, 13×13 locations and k = 1000 classes.

    cbp reproduce table2 --out reproduced

Claims: Tensor Sketch has 26 times fewer numbers than full bilinear pooling, next to no parameters of its own, and a classifier
of 40 MB in place of 1000.

Cost: no images and no network. Counts are taken from the layers as they are built: numbers of a feature, of what could be
learned of a projection, of a classifier on top; and multiply-adds of matrix products, as PyTorch dispatches them in a forward
pass. Time and memory of a forward and a backward pass for one image are measured on this device.

============== ============== =============== ===================
paper          FB             RM              TS
============== ============== =============== ===================
dimension      c²      262K   d       10K     d            10K
parameters     0              2cd     40 MB   2c           4 KB
computation    O(hwc²)        O(hwcd)         O(hw(c + d log d))
classifier     kc²     1000MB kd      40 MB   kd           40 MB
============== ============== =============== ===================
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ..pooling.by_name import read_pooling
from ..timing import extra_megabytes, forward_backward, take_turns
from .records import Record
from .setting import Experiment, Setting

if TYPE_CHECKING:
    from ..report.drawing import Drawing
    from ..report.table import Table

NAME = "table2"
C, D, SIDE, K = 512, 10_000, 13, 1000
METHODS = ("full-bilinear", "random-maclaurin", "tensor-sketch")
# of full bilinear pooling, random Maclaurin and Tensor Sketch; the formulas where the paper rounds, its megabytes as printed
PAPER = {
    "dimension": (C * C, D, D),
    "parameters": (0, 2 * C * D, 2 * C),
    "parameter MB": (0, 40, 0.004),
    "classifier MB": (1000, 40, 40),
}
ROUNDS = 5


def measure(setting: Setting) -> None:
    """Count once, measure time and memory as often as there are repetitions."""
    d = setting.dims[0] if setting.dims else D
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(1, C, SIDE, SIDE, generator=draw).relu().to(setting.device)
    poolings = [method if method == "full-bilinear" else f"{method}:{d}" for method in METHODS]
    poolings = [pooling for pooling in poolings if setting.only.allows("", "", pooling)]
    layers: dict[str, Any] = {pooling: read_pooling(pooling).build(C).to(setting.device) for pooling in poolings}
    start = time.perf_counter()
    for pooling, layer in layers.items():
        for measure, value in counts(pooling, layer, x).items():
            known = PAPER[measure][METHODS.index(read_pooling(pooling).name)] if measure in PAPER and d == D else None
            _keep(setting, start, pooling, layer.dim, measure, value, known)
    device = setting.device.type
    for seed in setting.repetitions():
        if any(not setting.ledger.has(_record(pooling, 0, "ms", 0.0, None, seed)) for pooling in poolings):
            start = time.perf_counter()
            runs = {pooling: forward_backward(layer, x) for pooling, layer in layers.items()}
            for pooling, taken in take_turns(runs, device, ROUNDS).items():
                _keep(setting, start, pooling, layers[pooling].dim, "ms", taken.median, None, seed)
    for pooling, layer in layers.items():
        if not setting.ledger.has(_record(pooling, 0, "MB", 0.0, None)):
            start = time.perf_counter()
            _keep(setting, start, pooling, layer.dim, "MB", extra_megabytes(forward_backward(layer, x), device), None)


def counts(pooling: str, layer: nn.Module, x: Tensor) -> dict[str, float]:
    """What can be counted of a layer, and of a classifier on top of it."""
    named = read_pooling(pooling)
    learned = named.build(C, learnable=True).parameters() if named.name != "full-bilinear" else iter(())
    parameters = sum(each.numel() for each in learned)
    dim = int(layer.dim)  # type: ignore[arg-type]
    classifier = nn.Linear(dim, K, bias=False, device="meta").weight  # as large as it is, it is never there
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(x)
    return {
        "dimension": dim,
        "parameters": parameters,
        "parameter MB": 4 * parameters / 1e6,
        "computation": counter.get_total_flops() // 2,
        "classifier MB": classifier.numel() * classifier.element_size() / 1e6,
    }


def tables(records: Sequence[Record]) -> Mapping[str, "Table"]:
    """Counts and measurements against poolings."""
    from ..report.tables import cost_table

    return {NAME: cost_table(records)}


def drawings(records: Sequence[Record]) -> Mapping[str, "Drawing"]:
    """Time and memory as bars."""
    from ..report.figures import cost_bars

    return {NAME: cost_bars(records)}


def _record(pooling: str, d: int, measure: str, value: float, paper: float | None, seed: int = 0) -> Record:
    return Record(NAME, "made up", "none", pooling, d, "", measure, value, paper, seed)


def _keep(
    setting: Setting, start: float, pooling: str, d: int, measure: str, value: float, paper: float | None, seed: int = 0
) -> None:
    record = _record(pooling, d, measure, value, paper, seed)
    if not setting.ledger.has(record):
        made = setting.made(time.perf_counter() - start, channels=C, side=SIDE, classes=K)
        setting.ledger.keep(replace(record, made=made))


EXPERIMENT = Experiment(
    "Dimension, parameters, computation and classifier",
    measure,
    tables,
    drawings,
    {
        "": "MB are 10⁶ bytes; the paper’s 1000 MB for full bilinear pooling are 1000 · 2²⁰ bytes, and its 40 MB are rounded. "
        "Computation counts multiply-adds of matrix products alone: what a sketch adds into its bins, and Fourier transforms, "
        "are none. Through the Gram matrix Tensor Sketch has little more than half the product of full bilinear pooling, as it "
        "is symmetric; the paper’s way, a transform at each location, is O(hw(c + d log d)). ms and MB are of one image, "
        "forward and backward; MB is what is held at most beyond what was held before."
    },
    images=False,
)
