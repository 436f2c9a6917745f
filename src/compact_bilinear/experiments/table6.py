"""Table 6: few images of each class, Tensor Sketch against full bilinear pooling.

    cbp reproduce table6 --data data/cub --out reproduced

Claim: where images are few, a compact feature is ahead: with one image of each class 15.6 against 12.7 % mean average precision
(the text has 15.5), and the lead shrinks as images are added.

Cost: one pass of the images through VGG-M; then classifiers on a few images each, and the inner products of these with all
others. Nothing is fine-tuned. Repetition r draws its images from r, and its hashes too. Classifiers are one against the rest,
as in the authors' code: average precision compares images by the score of one class.

The paper's mean average precision on CUB with VGG-M in percent:

=================== ==== ==== ==== ==== ====
images of a class   1    2    3    7    14
=================== ==== ==== ==== ==== ====
FB                  12.7 21.5 27.4 41.7 53.9
TS, d = 8192        15.6 24.1 29.9 43.1 54.3
=================== ==== ==== ==== ==== ====
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..classify.few_shot import SHOTS, Draws, Products, few_shot, most_shots
from ..device import same_bits
from ..progress import note
from .fig_dim import by_place
from .protocol import as_share, seeded
from .records import Record
from .setting import Experiment, Setting
from .sources import Source
from .stores import stores_of

if TYPE_CHECKING:
    from ..report.drawing import Drawing
    from ..report.table import Table

NAME = "table6"
D = 8192
PAPER = {
    "full-bilinear": (12.7, 21.5, 27.4, 41.7, 53.9),
    f"tensor-sketch:{D}": (15.6, 24.1, 29.9, 43.1, 54.3),
}


def measure(setting: Setting) -> None:
    """Each pooling with each number of images, as often as there are repetitions."""
    poolings = ("full-bilinear", f"tensor-sketch:{setting.dims[0] if setting.dims else D}")
    for source in setting.chosen_sources():
        for backbone in setting.chosen_backbones(("vgg-m",)):
            wanted = [each for each in poolings if setting.only.allows(source.name, backbone, each)]
            for repetition in setting.repetitions(source):
                _measure(setting, source, backbone, wanted, repetition)


def _measure(setting: Setting, source: Source, backbone: str, poolings: Sequence[str], repetition: int) -> None:
    number = source.number(repetition)
    split = source.split(number)
    images = source.images(number)
    smallest = min(
        sum(label == one and split == "train" for label, split in zip(images.labels, images.splits, strict=True))
        for one in range(len(images.classes))
    )
    counts = [count for count in SHOTS if count <= smallest]
    if not repetition and len(counts) < len(SHOTS):
        note(f"{NAME}: the smallest class of {source.name} has {smallest} training images; larger numbers are left out")
    tasks: dict[str, dict[int, Record]] = {}
    for pooling in poolings:
        known = dict(zip(SHOTS, PAPER.get(pooling, ()), strict=False)) if source.of_paper and backbone == "vgg-m" else {}
        for count in counts:
            details: dict[str, Any] = {"shots": count} | ({"split": split} if split else {})
            paper = as_share(known[count]) if count in known and source.name == "CUB" else None
            record = Record(NAME, source.name, backbone, pooling, 0, "few-shot", "mean AP", 0.0, paper, repetition, details)
            if not setting.ledger.has(record):
                tasks.setdefault(pooling, {})[count] = record
    if not tasks:
        return
    # of all repetitions that take this split, so that each image passes the backbone once
    seeds = [each for each in setting.repetitions(source) if source.number(each) == number]
    columns = {seeded(pooling, seed) for pooling in poolings for seed in seeds}
    stores = stores_of(setting, source, number, backbone, columns)
    for pooling, records in tasks.items():
        column = seeded(pooling, repetition)
        store, start = stores[column], time.perf_counter()
        shots = [count for count in records if count <= most_shots(store)]  # fewer where images are broken
        draws = Draws.of(store, max(shots), repetition + 1, seed=0)
        mine = replace(draws, drawn=draws.drawn[repetition:], scored=draws.scored[repetition:])
        with same_bits(setting.device):
            products = Products.of(store, column, mine, setting.device)
        scores = few_shot(products, mine, shots, ["one-vs-rest"], setting.lambda_)
        made = setting.made(time.perf_counter() - start, config=setting.config(store))
        for score in scores:
            record, value = records[score.shots], score.mean_average_precision
            details = dict(record.details) | {"test images": len(mine.scored[0]), "classes": len(store.classes)}
            setting.ledger.keep(replace(record, d=store.poolings[column], value=value, details=details, made=made))


def tables(records: Sequence[Record]) -> Mapping[str, "Table"]:
    """The paper's layout."""
    from ..report.tables import few_shot_table

    return {NAME: few_shot_table(records)}


def drawings(records: Sequence[Record]) -> Mapping[str, "Drawing"]:
    """The same as curves, for each data set and backbone."""
    from ..report.figures import few_shot_curves

    return {"-".join([NAME, *place]): few_shot_curves(some) for place, some in by_place(records)}


EXPERIMENT = Experiment("Few images of each class", measure, tables, drawings)
