"""Table 3: principal components before full bilinear pooling, against Tensor Sketch of the same dimension.

    cbp reproduce table3 --data data/cub --out reproduced

Claims: PCA errs more than Tensor Sketch at every d, above all small ones without fine-tuning; and it does not use larger d
well.

Cost: one pass of the images through VGG-M, and one of some of them to find the components; then fine-tuning, 50 passes forward
and backward for each of eight cells and each repetition.

The paper's errors on CUB with VGG-M in percent, before/after fine-tuning:

======= ========= ========= ========= =========
d       256       1024      4096      16384
======= ========= ========= ========= =========
PCA     72.5/42.9 49.7/28.9 41.3/25.3 36.2/23.8
TS      62.6/32.2 41.6/25.5 33.9/23.2 31.1/22.5
======= ========= ========= ========= =========
"""

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import TYPE_CHECKING

from ..report.names import AFTER, BEFORE
from .fig_dim import by_place
from .protocol import both_stages, measure_errors
from .records import Record
from .setting import Experiment, Setting

if TYPE_CHECKING:
    from ..report.drawing import Drawing
    from ..report.table import Table

NAME = "table3"
DIMS = (256, 1024, 4096, 16384)
_ROWS = {
    "pca-bilinear": ((72.5, 42.9), (49.7, 28.9), (41.3, 25.3), (36.2, 23.8)),
    "tensor-sketch": ((62.6, 32.2), (41.6, 25.5), (33.9, 23.2), (31.1, 22.5)),
}
PAPER = {
    ("CUB", "vgg-m", f"{method}:{d}", stage): number
    for method, row in _ROWS.items()
    for d, numbers in zip(DIMS, row, strict=True)
    for stage, number in zip((BEFORE, AFTER), numbers, strict=True)
}


def measure(setting: Setting) -> None:
    """Both poolings at each d, before and after fine-tuning."""
    dims = setting.dims or DIMS
    odd = [d for d in dims if isqrt(d) ** 2 != d]
    if odd:
        raise ValueError(
            f"table3 compares PCA, whose d is a square, with Tensor Sketch of the same d, but got {odd[0]}.\n"
            f"Write --dims {isqrt(odd[0]) ** 2}, for instance."
        )
    poolings = [f"{method}:{d}" for method in _ROWS for d in dims]
    measure_errors(setting, NAME, ("vgg-m",), both_stages(poolings), PAPER)


def tables(records: Sequence[Record]) -> Mapping[str, "Table"]:
    """The paper's layout."""
    from ..report.tables import dimension_table

    return {NAME: dimension_table(records)}


def drawings(records: Sequence[Record]) -> Mapping[str, "Drawing"]:
    """The same as curves, for each data set and backbone."""
    from ..report.figures import error_against_dim

    return {"-".join([NAME, *place]): error_against_dim(some) for place, some in by_place(records)}


EXPERIMENT = Experiment("PCA against Tensor Sketch", measure, tables, drawings)
