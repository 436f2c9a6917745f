"""Table 5: how many images and classes the data sets have.

    cbp reproduce table5 --data data/cub --data data/mit --data data/dtd --out reproduced

Claim: what is measured here is measured on the images that the paper measured on. It is so for CUB and DTD. It is not for MIT
Indoor: the paper's counts are those of no split that is to be had.

Cost: lists are read, no image is.

==== ===== ==== =======
data train test classes
==== ===== ==== =======
CUB  5994  5794 200
MIT  4017  1339 67
DTD  1880  3760 47
==== ===== ==== =======
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .records import Record
from .setting import Experiment, Setting

if TYPE_CHECKING:
    from ..report.table import Table

NAME = "table5"
MEASURES = ("train images", "test images", "classes")
PAPER = {"CUB": (5994, 5794, 200), "MIT": (4017, 1339, 67), "DTD": (1880, 3760, 47)}


def measure(setting: Setting) -> None:
    """Count each data set, in each of its splits."""
    for source in setting.chosen_sources():
        for number in range(len(source.lists)):
            images = source.images(number)
            found = images.counts()
            known: tuple[float | None, ...] = PAPER[source.name] if source.of_paper else (None,) * len(MEASURES)
            details = {"split": source.split(number)} if source.split(number) else {}
            values = (found["train"], found["test"], len(images.classes))
            for measure, value, paper in zip(MEASURES, values, known, strict=True):
                record = Record(NAME, source.name, "", "", 0, "", measure, value, paper, number, details, setting.made(0.0))
                if not setting.ledger.has(record):
                    setting.ledger.keep(record)


def tables(records: Sequence[Record]) -> Mapping[str, "Table"]:
    """The paper's layout."""
    from ..report.tables import sizes_table

    return {NAME: sizes_table(records)}


EXPERIMENT = Experiment(
    "Sizes of the data sets",
    measure,
    tables,
    lambda _: {},
    {
        "MIT": "MIT Indoor comes with lists of 80 training and 20 test images of each of 67 classes, give or take three: 5360 "
        "and 1340. The paper has 4017 and 1339, three quarters and one quarter of 5356 images, and that choice is not to be "
        "had any more. Its numbers on MIT and those on the usual lists are therefore of different splits."
    },
)
