"""The alternatives that the paper calls impractical: random projections of the full bilinear feature, against Tensor Sketch.

    cbp reproduce alternatives --data data/cub --out reproduced

Claim: a projection would do as well, but its matrix "has 2.6 billion entries", 10.5 GB dense and about 40 MB sparse at c = 512
and d = 10 000, and the full bilinear feature has to be formed before it. So errors stand beside the bytes that a matrix takes.

Cost: the dense matrix is not kept here, but drawn anew for each batch of images: c²·d numbers for each d and repetition, on the
CPU. That is most of the time; ``--only RP`` and ``--only TS`` part the two.

The paper has no errors for projections. At c = 512 and d = 10 000 it has 10 500 MB for a dense matrix and 40 MB for a sparse.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from ..descriptors import empty_backbone
from ..pooling.by_name import read_pooling
from ..report.names import BEFORE
from .protocol import Wanted, measure_errors
from .records import Record
from .setting import Experiment, Setting

if TYPE_CHECKING:
    from ..report.table import Table

NAME = "alternatives"
DIMS = (512, 2048)
POOLINGS = ("random-projection:{d}", "random-projection:{d},sparse", "tensor-sketch:{d}")


def measure(setting: Setting) -> None:
    """Errors before fine-tuning, and the size of each projection."""
    poolings = [pooling.format(d=d) for pooling in POOLINGS for d in setting.dims or DIMS]
    measure_errors(setting, NAME, ("vgg-m",), [Wanted(pooling, BEFORE) for pooling in poolings], {})
    for record in [each for each in setting.ledger.records if each.experiment == NAME and each.measure == "error"]:
        c = _channels(record.backbone)
        size = replace(record, measure="projection kB", stage="", value=kilobytes(record.pooling, c), paper=None, seed=0)
        size = replace(size, details={}, made=setting.made(0.0))
        if not setting.ledger.has(size):
            setting.ledger.keep(size)


def kilobytes(pooling: str, c: int) -> float:
    """What the projection of a pooling takes for c channels, counted from its layer; dense, the matrix that it draws.

    >>> kilobytes("random-projection:10000", 512), kilobytes("tensor-sketch:10000", 512)
    (10485760.0, 12.288)
    """
    named = read_pooling(pooling)
    if named.name == "random-projection" and not named.sparse:
        return c * c * named.dim * 4 / 1e3
    kept: Mapping[str, Tensor] = named.build(c).state_dict()
    return sum(each.numel() * each.element_size() for each in kept.values()) / 1e3


def tables(records: Sequence[Record]) -> Mapping[str, "Table"]:
    """Error and size of each pooling."""
    from ..report.tables import pooling_table

    return {NAME: pooling_table(records)}


def _channels(backbone: str) -> int:
    channels: int = empty_backbone(backbone).channels
    return channels


EXPERIMENT = Experiment("Random projections against Tensor Sketch", measure, tables, lambda _: {})
