"""The paper's timing: pooling takes little of what the network before it takes.

    cbp reproduce timing --out reproduced

Claims: on a K40c, VGG-16 takes 312 ms forward and backward for an image of 448×448, full bilinear pooling 0.77 ms and Tensor
Sketch with d = 4096 5.03 ms: the pooling hardly counts, and Tensor Sketch is 6.5 times slower than full bilinear pooling, by a
Fourier transform at each location. Through the Gram matrix it need not be.

Cost: no images and no weights; the network has random ones, which take the same time. A few dozen passes forward and backward.

================ ==== ===== =======
paper, K40c      FB   TS    VGG-16
================ ==== ===== =======
ms               0.77 5.03  312
================ ==== ===== =======
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..descriptors import TINY, VGG, VGG_D, VGG_M
from ..pooling import TensorSketch
from ..pooling.by_name import read_pooling
from ..timing import forward_backward, take_turns
from .records import Record
from .setting import Experiment, Setting

if TYPE_CHECKING:
    from ..report.drawing import Drawing
    from ..report.table import Table

NAME = "timing"
D = 4096
NETWORKS = {"vgg16": VGG_D, "vgg-m": VGG_M, "tiny": TINY}
NETWORK = "the network"
PAPER = {"full-bilinear": 0.77, f"tensor-sketch:{D}": 5.03, NETWORK: 312.0}
BY_FFT, SHARE = "ms by FFT", "share of the network in %"
ROUNDS = 5


def measure(setting: Setting) -> None:
    """Time the network and its poolings in turns, as often as there are repetitions."""
    for backbone in setting.chosen_backbones(("vgg16",)):
        if backbone not in NETWORKS:
            raise ValueError(
                f"timing builds {', '.join(NETWORKS)} without their weights, but got {backbone}.\nWrite --backbone vgg16."
            )
        missing = [
            seed
            for seed in setting.repetitions()
            if not setting.ledger.has(_record(backbone, NETWORK, 0, "ms", 0.0, None, seed))
        ]
        if missing:
            _measure(setting, backbone, missing)


def _measure(setting: Setting, backbone: str, seeds: Sequence[int]) -> None:
    d = setting.dims[0] if setting.dims else D
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = VGG(NETWORKS[backbone]).to(setting.device)
    size = setting.size or network.image_size
    draw = torch.Generator().manual_seed(0)
    pixels = torch.rand(1, 3, size, size, generator=draw).to(setting.device)
    maps = network(pixels).detach()
    sketch = f"tensor-sketch:{d}"
    layers: dict[str, Any] = {each: read_pooling(each).build(network.channels) for each in ("full-bilinear", sketch)}
    by_fft = TensorSketch(network.channels, d, plan="fft")
    runs: dict[str, Callable[[], object]] = {
        each: forward_backward(layer.to(maps.device), maps) for each, layer in layers.items()
    }
    runs |= {BY_FFT: forward_backward(by_fft.to(maps.device), maps), NETWORK: lambda: _step(network, pixels)}
    as_in_paper = backbone == "vgg16" and size == 448
    for seed in seeds:
        start = time.perf_counter()
        taken = {name: each.median for name, each in take_turns(runs, setting.device.type, ROUNDS).items()}
        dims = {name: int(layer.dim) for name, layer in layers.items()}
        found: list[tuple[str, str, float, float | None]] = [(sketch, BY_FFT, taken[BY_FFT], None)]
        for pooling in layers:
            known = PAPER.get(pooling)
            found.append((pooling, "ms", taken[pooling], known))
            share = None if known is None else 100 * known / PAPER[NETWORK]
            found.append((pooling, SHARE, 100 * taken[pooling] / taken[NETWORK], share))
        found.append((NETWORK, "ms", taken[NETWORK], PAPER[NETWORK]))  # the last: with it the repetition is complete
        made = setting.made(time.perf_counter() - start, size=size, locations=list(maps.shape[2:]))
        for pooling, measure, value, paper in found:
            record = _record(
                backbone, pooling, dims.get(pooling, 0), measure, value, paper if as_in_paper else None, seed, made
            )
            if not setting.ledger.has(record):
                setting.ledger.keep(record)


def _step(network: nn.Module, pixels: torch.Tensor) -> None:
    network(pixels).sum().backward()
    network.zero_grad(set_to_none=True)


def _record(
    backbone: str,
    pooling: str,
    d: int,
    measure: str,
    value: float,
    paper: float | None,
    seed: int,
    made: Mapping[str, Any] | None = None,
) -> Record:
    return Record(NAME, "made up", backbone, pooling, d, "", measure, value, paper, seed, {}, made or {})


def tables(records: Sequence[Record]) -> Mapping[str, "Table"]:
    """Milliseconds of one image, and the share of the network's."""
    from ..report.tables import cost_table

    return {NAME: cost_table(records)}


def drawings(records: Sequence[Record]) -> Mapping[str, "Drawing"]:
    """Milliseconds as bars, for each network."""
    from ..report.figures import cost_bars
    from .fig_dim import by_place

    return {f"{NAME}-{backbone}": cost_bars(some, ["ms"]) for (_, backbone), some in by_place(records)}


EXPERIMENT = Experiment(
    "Time of pooling beside that of the network",
    measure,
    tables,
    drawings,
    {
        "": "One image, forward and backward; the paper’s are those of a K40c, and its Tensor Sketch transforms at each "
        "location, which is ours by FFT. Shares of the network are ratios of one run, and compare devices better than "
        "milliseconds do."
    },
    images=False,
)
