"""The paper's protocol: how a data set, a backbone, a pooling and a stage become the error on test images.

1. Features are extracted once (``stores.py``).
2. *linear*: a logistic regression, λ‖w‖² + Σ losses with λ = 0.001, on the features of the training images.
3. *fine-tuned*: from that classifier on the whole network is trained, with the projection as it was drawn; PCA's projection is
   a layer of the network like others, and learns.
4. *fine-tuned, projection learned*: the same, but the projection learns too.

Repetition r draws hashes, the order of images and the mixtures of Fisher vectors from the seed r. Where a data set comes as
several splits, it takes split r. What depends on neither is measured once.
"""

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..classify.head import labelled
from ..classify.logistic_regression import LogisticRegression
from ..classify.metrics import error_rate
from ..device import choose_precision
from ..features import FeatureStore
from ..finetuning import Diverged, FineTuning, fine_tune
from ..images import ImageList
from ..inference import answers
from ..model import Model
from ..pooling.by_name import POOLINGS, read_pooling
from ..processes import Processes
from ..progress import note
from ..report.names import AFTER, BEFORE, LEARNED
from .records import Record
from .setting import Setting
from .sources import Source
from .stores import lacks_fully_connected, slug, stores_of

PAPER_BATCH = {"vgg16": 8, "vgg-m": 32}
TUNING = "tuning"  # a folder for checkpoints, each until its record is written


class Wanted(NamedTuple):
    """A pooling, without its seed, and how it is trained."""

    pooling: str
    stage: str


Floats = NDArray[np.float32]
Paper = Mapping[tuple[str, str, str, str], float]  # data, backbone, pooling, stage → error in percent


def both_stages(poolings: Iterable[str]) -> list[Wanted]:
    """Each pooling before and after fine-tuning."""
    return [Wanted(pooling, stage) for pooling in poolings for stage in (BEFORE, AFTER)]


def measure_errors(setting: Setting, experiment: str, backbones: Sequence[str], wanted: Sequence[Wanted], paper: Paper) -> None:
    """Measure whatever of an experiment is wanted and not there yet.

    Args:
        setting: of the run.
        experiment: its name, for the records.
        backbones: the paper's.
        wanted: what is measured for each data set and backbone.
        paper: the paper's numbers; they go beside ours if the data set is the paper's.
    """
    for source in setting.chosen_sources():
        for backbone in setting.chosen_backbones(backbones):
            tasks = _tasks(setting, experiment, source, backbone, wanted, paper)
            if tasks:
                _measure(setting, source, backbone, tasks)


def as_share(percent: float) -> float:
    """One of the paper's numbers as a share, with as many digits as it has.

    >>> as_share(27.4)
    0.274
    """
    return round(percent / 100, 6)


def seeded(pooling: str, seed: int) -> str:
    """A pooling with a seed, if it draws anything.

    >>> seeded("tensor-sketch:64", 2), seeded("full-bilinear", 2), seeded("random-projection:64,sparse", 1)
    ('tensor-sketch:64,seed=2', 'full-bilinear', 'random-projection:64,seed=1,sparse')
    """
    named = read_pooling(pooling)
    return str(named._replace(seed=seed) if draws(pooling) else named)


def draws(pooling: str) -> bool:
    """Whether a pooling draws anything."""
    return "seed" in POOLINGS[read_pooling(pooling).name].options


def _tasks(
    setting: Setting, experiment: str, source: Source, backbone: str, wanted: Sequence[Wanted], paper: Paper
) -> list[Record]:
    """Records without their number, of what is to be measured: those before fine-tuning first."""
    allowed = [each for each in wanted if setting.only.allows(source.name, backbone, each.pooling)]
    allowed = [each for each in allowed if setting.finetune or each.stage == BEFORE]
    without = any(each.pooling == "fully-connected" for each in allowed) and lacks_fully_connected(backbone, setting.weights)
    if without:
        note(f"{experiment}, {source.name}: no fully connected layers, as {without}")
        allowed = [each for each in allowed if each.pooling != "fully-connected"]
    found = []
    for pooling, stage in sorted(allowed, key=lambda each: each.stage != BEFORE):
        several = stage != BEFORE or draws(pooling) or len(source.lists) > 1
        for repetition in setting.repetitions(source) if several else (0,):
            percent = paper.get((source.name, backbone, pooling, stage)) if source.of_paper else None
            split = source.split(source.number(repetition))
            details: dict[str, Any] = {"split": split} if split else {}
            number = None if percent is None else as_share(percent)
            record = Record(experiment, source.name, backbone, pooling, 0, stage, "error", 0.0, number, repetition, details)
            if not setting.ledger.has(record):
                found.append(record)
    return found


def _measure(setting: Setting, source: Source, backbone: str, tasks: Sequence[Record]) -> None:
    for task in tasks:
        same = setting.ledger.elsewhere(task)
        if same is not None:
            setting.ledger.keep(replace(same, experiment=task.experiment, paper=task.paper))
    tasks = [task for task in tasks if not setting.ledger.has(task)]
    needed: dict[int, list[str]] = {}
    for task in tasks:
        needed.setdefault(source.number(task.seed), []).append(seeded(task.pooling, task.seed))
    stores = {number: stores_of(setting, source, number, backbone, needed[number]) for number in sorted(needed)}
    for task in tasks:
        number, pooling = source.number(task.seed), seeded(task.pooling, task.seed)
        record = _measured(setting, source, number, stores[number][pooling], pooling, task)
        if record is not None:
            setting.ledger.keep(record)
            shutil.rmtree(_checkpoints(setting, task), ignore_errors=True)
            note(f"{task.experiment}: {source.name}, {backbone}, {pooling}, {task.stage}: error {record.value:.2%}")


def _measured(setting: Setting, source: Source, number: int, store: FeatureStore, pooling: str, task: Record) -> Record | None:
    """The record with its number; None if the run diverged."""
    start = time.perf_counter()
    config = setting.config(store)
    if task.stage == BEFORE:
        error = linear_error(setting, store, pooling)
    else:
        tuning = _tuning(setting, task)
        config = setting.config(store, tuning=tuning.decisive())
        try:
            error = tuned_error(setting, store, pooling, source.images(number), tuning, _checkpoints(setting, task))
        except Diverged as fault:
            note(f"{task.experiment}: {source.name}, {task.backbone}, {pooling} diverged, and is left out: {fault}")
            return None
    details = dict(task.details) | {
        "train images": _labelled(store, "train"),
        "test images": _labelled(store, "test"),
        "classes": len(store.classes),
        "lambda": setting.lambda_,
    }
    made = setting.made(time.perf_counter() - start, config=config)
    return replace(task, d=store.poolings[pooling], value=error, details=details, made=made)


def _labelled(store: FeatureStore, split: str) -> int:
    return int((store.labels[store.rows(split)] >= 0).sum())


def _checkpoints(setting: Setting, task: Record) -> Path:
    split = str(task.details.get("split", ""))
    return setting.out / TUNING / slug(task.data, split, task.backbone, task.pooling, task.stage, f"seed {task.seed}")


def linear_error(setting: Setting, store: FeatureStore, pooling: str) -> float:
    """The share of test images that a logistic regression on stored features gets wrong."""
    weight, bias = linear_classifier(setting, store, pooling)
    read, labels = labelled(store, pooling, "test")
    return error_rate(np.concatenate([block.astype(np.float32) @ weight.T + bias for block in read()]), labels)


def linear_classifier(setting: Setting, store: FeatureStore, pooling: str) -> tuple[Floats, Floats]:
    """Weights (k, d) and biases (k,) of a logistic regression on the features of the training images."""
    read, labels = labelled(store, pooling, "train")
    classifier = LogisticRegression(
        setting.lambda_, one_vs_rest=setting.one_vs_rest, calibrate=setting.calibrate, device=str(setting.device)
    )
    return classifier.fit_blocks(read, labels).linear(len(store.classes))


def tuned_error(
    setting: Setting, store: FeatureStore, pooling: str, images: ImageList, tuning: FineTuning, folder: Path
) -> float:
    """The share of test images that the fine-tuned network gets wrong.

    Args:
        setting: of the run.
        store, pooling: features that the network begins with, and its linear classifier.
        images: those that the features are of.
        tuning: how.
        folder: for checkpoints; a run that was cut short goes on from there.
    """
    model = Model.of_features(store, pooling, setting.weights, classes=store.classes, learnable=tuning.learn_projection)
    weight, bias = map(torch.as_tensor, linear_classifier(setting, store, pooling))
    model.set_head(weight, bias, "sigmoid" if setting.one_vs_rest else "softmax")
    fine_tune(model, images, tuning, folder, device=setting.device, processes=Processes())
    tested = zip(images.labels, images.splits, strict=True)
    order = [place for place, (label, split) in enumerate(tested) if split == "test" and label >= 0]
    precision = choose_precision(setting.precision, setting.device)
    found = list(answers(model, images, order=order, precision=precision, workers=setting.workers))
    places = torch.cat([each.places for each in found])
    scores = torch.cat([each.output for each in found if len(each.places)])
    return error_rate(scores.numpy(), torch.tensor(images.labels)[places].numpy())


def _tuning(setting: Setting, task: Record) -> FineTuning:
    batch = setting.tuning.batch
    if batch == FineTuning.batch:
        batch = PAPER_BATCH.get(task.backbone, batch)
    learn = task.stage == LEARNED or read_pooling(task.pooling).name == "pca-bilinear"
    return replace(setting.tuning, batch=batch, seed=task.seed, learn_projection=learn)
