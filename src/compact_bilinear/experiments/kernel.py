"""The kernel: how well inner products of compact features estimate those of full bilinear ones.

    cbp reproduce kernel --out reproduced

Claims: the error of the estimate falls as 1/√d; random Maclaurin and Tensor Sketch follow their exact variances
(``pooling/variance.py``), and Tensor Sketch is the more accurate of the two on descriptors that have passed a ReLU.

Cost: no images and no network; seconds on two cores. Descriptors are made up: each image mixes a few of the directions that all
images share, and a ReLU follows, so that images are alike to various degrees. What is claimed does not depend on where B comes
from.

The paper has no numbers of this; it says that both are estimates whose variance falls as 1/d, and that Tensor Sketch tends to
be the better one. Theory's line stands in their place.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..pooling import RandomMaclaurin, TensorSketch, full_bilinear
from ..pooling.variance import random_maclaurin_variance, tensor_sketch_variance
from .records import Record, summaries
from .setting import Experiment, Setting

if TYPE_CHECKING:
    from ..report.drawing import Drawing
    from ..report.table import Table

NAME = "kernel"
METHODS = {
    "random-maclaurin": (RandomMaclaurin, random_maclaurin_variance),
    "tensor-sketch": (TensorSketch, tensor_sketch_variance),
}
DIMS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
DRAWS = 30


def measure(setting: Setting) -> None:
    """Each draw of each pooling at each d."""
    x = descriptors()
    for method in METHODS:
        for d in setting.dims or DIMS:
            pooling = f"{method}:{d}"
            if not setting.only.allows("", "", pooling):
                continue
            records = [
                Record(NAME, "made up", "none", pooling, d, "", "kernel error", 0.0, None, seed)
                for seed in setting.repetitions(usual=DRAWS)
            ]
            records = [record for record in records if not setting.ledger.has(record)]
            expected = theory(method, d, x) if records else 0.0
            for record in records:
                start = time.perf_counter()
                error = kernel_error(method, d, record.seed, x)
                made = setting.made(time.perf_counter() - start)
                setting.ledger.keep(replace(record, value=error, details={"theory": expected}, made=made))


def descriptors(images: int = 16, n: int = 49, c: int = 64, seed: int = 0) -> Tensor:
    """Tokens (b, n, c), not negative, in float64."""
    draw = torch.Generator().manual_seed(seed)
    shared = torch.randn(16, c, generator=draw, dtype=torch.float64)
    strength = torch.rand(images, 1, 16, generator=draw, dtype=torch.float64) ** 3
    mixed = (strength * torch.randn(images, n, 16, generator=draw, dtype=torch.float64)) @ shared
    noise = torch.randn(images, n, c, generator=draw, dtype=torch.float64)
    return (mixed + 0.5 * noise).relu()


def kernel_matrix(features: Tensor) -> Tensor:
    """⟨y, y'⟩ of all pairs of images."""
    return features @ features.mT


def kernel_error(method: str, d: int, seed: int, x: Tensor) -> float:
    """Root mean square error of the kernel matrix (b, b) of one draw, relative to the exact one."""
    exact = kernel_matrix(full_bilinear(x))
    layer, _ = METHODS[method]
    errors = kernel_matrix(layer(x.shape[2], d, seed=seed)(x)) - exact
    return float(errors.square().mean().sqrt() / exact.square().mean().sqrt())


def theory(method: str, d: int, x: Tensor) -> float:
    """What theory expects of :func:`kernel_error`, from the exact variance of each pair."""
    b, _, c = x.shape
    matrices = full_bilinear(x).reshape(b, c, c)
    _, variance = METHODS[method]
    row, column = torch.triu_indices(b, b)
    counted = 2.0 - (row == column).double()
    variances = torch.stack([variance(matrices[i], matrices[k], d) for i, k in zip(row, column, strict=True)])
    scale = kernel_matrix(full_bilinear(x)).square().mean().sqrt()
    return float(((variances * counted).sum() / counted.sum()).sqrt() / scale)


def tables(records: Sequence[Record]) -> Mapping[str, "Table"]:
    """The error of each pooling at each d, and theory beside it."""
    from ..report.names import look, method
    from ..report.table import Number, Row, Table, as_text

    found = {(method(each.pooling), each.d): each for each in summaries(records)}
    methods = [name for name in METHODS if any(key[0] == name for key in found)]

    def cells(d: int) -> Iterator[tuple[Number]]:
        for name in methods:
            cell = found.get((name, d))
            error = sqrt(fmean(value**2 for value in cell.values.values())) if cell else None
            yield (Number(error, cell.spread if cell else None, cell.count if cell else 0, digits=4),)
            yield (Number(float(str(cell.details["theory"])), digits=4) if cell else Number(),)

    columns = tuple(f"{look(name).short}{more}" for name in methods for more in ("", ", theory"))
    rows = tuple(Row((as_text(d, 0),), tuple(cells(d))) for d in sorted({d for _, d in found}))
    return {NAME: Table("Error of the kernel relative to its root mean square", ("d",), columns, rows)}


def drawings(records: Sequence[Record]) -> Mapping[str, "Drawing"]:
    """Draws, and theory's lines."""
    from ..report.figures import kernel_error as figure

    return {NAME: figure(records)}


EXPERIMENT = Experiment(
    "Error of the kernel against dimension",
    measure,
    tables,
    drawings,
    {"": "Errors are root mean squares over all draws, and theory is the root of the expected square."},
    images=False,
)
