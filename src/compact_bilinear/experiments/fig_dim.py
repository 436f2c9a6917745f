"""The figure of dimensions: error against d for random Maclaurin and Tensor Sketch, beside full bilinear pooling.

    cbp reproduce fig-dim --data data/cub --out reproduced

Claims: both come to full bilinear pooling's error as d grows, and 2000 to 8000 numbers are enough; random Maclaurin is ahead
at low d, above all where W is learned, and behind above 2000; fine-tuning brings back most of what low d loses.

Cost: one pass of the images through VGG-M for the curves without fine-tuning; the others are 26 cells of 50 passes forward and
backward, each as often as there are repetitions.

The paper's curves are a picture; its text has these numbers for CUB with VGG-M, errors in percent:

========================== ====== =========== =======================
pooling                    fixed  fine-tuned  remark
========================== ====== =========== =======================
full bilinear              29.41  22.44
Tensor Sketch, d = 16K     31.1   22.66       "1.7" points above 29.41
Tensor Sketch, d = 512            25.54       names no pooling
d = 32                            below 50    names no pooling
========================== ====== =========== =======================
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ..report.names import AFTER, BEFORE, LEARNED
from .protocol import Wanted, both_stages, measure_errors
from .records import Record
from .setting import Experiment, Setting

if TYPE_CHECKING:
    from ..report.drawing import Drawing
    from ..report.table import Table

NAME = "fig-dim"
DIMS = (32, 128, 512, 2048, 8192, 16384)
PAPER = {
    ("CUB", "vgg-m", "full-bilinear", BEFORE): 29.41,
    ("CUB", "vgg-m", "full-bilinear", AFTER): 22.44,
    ("CUB", "vgg-m", "tensor-sketch:16384", BEFORE): 31.1,
    ("CUB", "vgg-m", "tensor-sketch:16384", AFTER): 22.66,
    ("CUB", "vgg-m", "tensor-sketch:512", AFTER): 25.54,
}


def measure(setting: Setting) -> None:
    """Three curves of each pooling, and full bilinear pooling's two lines."""
    poolings = [f"{method}:{d}" for method in ("random-maclaurin", "tensor-sketch") for d in setting.dims or DIMS]
    learned = [Wanted(pooling, LEARNED) for pooling in poolings]
    measure_errors(setting, NAME, ("vgg-m",), [*both_stages([*poolings, "full-bilinear"]), *learned], PAPER)


def tables(records: Sequence[Record]) -> Mapping[str, "Table"]:
    """The numbers of the curves."""
    from ..report.tables import pooling_table

    return {NAME: pooling_table(records)}


def drawings(records: Sequence[Record]) -> Mapping[str, "Drawing"]:
    """The figure, one for each data set and backbone."""
    from ..report.figures import error_against_dim

    return {"-".join([NAME, *place]): error_against_dim(some) for place, some in by_place(records)}


def by_place(records: Sequence[Record]) -> Iterator[tuple[tuple[str, str], list[Record]]]:
    """Records of one data set and one backbone after the other, as figures take them."""

    def place(record: Record) -> tuple[str, str]:
        return record.data, record.backbone

    for where, some in groupby(sorted(records, key=place), place):
        yield where, list(some)


EXPERIMENT = Experiment("Error against dimension", measure, tables, drawings)
