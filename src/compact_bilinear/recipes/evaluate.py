"""Evaluate: how often a trained model is right, where it is wrong, and whether its probabilities mean what they say."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from tyro.conf import Positional

from ..device import Precision, choose_precision, find_device
from ..processes import Processes
from ..progress import counting_bar, note
from . import extract

if TYPE_CHECKING:
    from ..images import ImageList
    from ..model import Model
    from ..retrieval import Retrieval


@dataclass(frozen=True)
class Evaluate:
    """Compare what a model says of images with what they are.

    For instance, on the test images of the folder that it was trained on:

        cbp evaluate run photos

    On all images of another folder, whose classes have the same names, for another program to read:

        cbp evaluate run elsewhere --split all --json > elsewhere.json

    How well images of a class find each other among the test images, and among the training images:

        cbp evaluate run photos --retrieval
        cbp evaluate run photos --retrieval --gallery train
    """

    run: Positional[Path]
    """The folder that `cbp train` made."""
    data: Positional[Path]
    """A folder of images, a CSV that lists them, or an archive, as `cbp train` takes it."""
    split: str = "test"
    """Which images: test, train, val, or all."""
    json: bool = False
    """Print one JSON object, with the numbers of every class and all confusions."""
    pairs: int = 10
    """How many pairs of classes that are taken for each other are named."""
    retrieval: bool = False
    """Search in place of classifying: recall at 1, 5 and 10, and mean average precision, by the cosine of features."""
    gallery: str | None = None
    """The split that is searched in; if not given the same, each image among all others."""
    kind: Literal["auto", "cub", "mit", "dtd", "folder", "csv"] = "auto"
    """Which data set it must be."""
    partition: int = 1
    """Of DTD, which of its ten."""
    check_counts: bool = True
    """CUB, DTD and MIT Indoor must have their numbers of images, unless this flag lets others pass."""
    test_share: float = 0.5
    """Where images have no split, the part of each class that becomes test images; as it was for training."""
    seed: int = 0
    """What that split is drawn from; as it was for training."""
    device: str = "auto"
    """cpu or cuda."""
    precision: Precision = "auto"
    """What the backbone computes in: on a GPU bfloat16 where it can, and float32 on a CPU."""
    batch: int = 0
    """Images at a time; 0 is 32 on a GPU and 4 on a CPU."""
    workers: int | None = None
    """Processes that decode images; as many as are of use if not given."""


@dataclass(frozen=True)
class ClassResult:
    """How one class fares."""

    name: str
    images: int
    accuracy: float | None
    """None where it has no images, as for what follows."""
    average_precision: float | None


@dataclass(frozen=True)
class Evaluation:
    """What came out. Shares are from 0 to 1; of probabilities, the model's own."""

    data: str
    split: str
    images: int
    broken: int
    error: float
    standard_error: float
    """Of the error, had the images been drawn at random: √(e(1 − e)/m)."""
    top_5_error: float | None
    """None where there are no more than five classes."""
    mean_average_precision: float
    negative_log_likelihood: float
    calibration_error: float
    """How far the probability of what was predicted is from how often it is right, in the mean over 15 bins."""
    mean_confidence: float
    classes: tuple[ClassResult, ...]
    confusions: tuple[tuple[str, str, int], ...]
    """(is, was taken for, how often), the most frequent first."""
    pairs: int = 10

    def __str__(self) -> str:
        """The outcome on a page, for people."""
        lines = [
            f"{self.data}, {self.split}: {self.images} images of {sum(each.images > 0 for each in self.classes)} classes",
            f"  error               {self.error:7.2%}   ± {self.standard_error:.2%}",
        ]
        if self.top_5_error is not None:
            lines.append(f"  not among five      {self.top_5_error:7.2%}")
        lines += [
            f"  mean AP             {self.mean_average_precision:7.2%}",
            f"  calibration error   {self.calibration_error:7.2%}   (it says {self.mean_confidence:.1%} in the mean)",
        ]
        seen = sorted((each.accuracy, each.name) for each in self.classes if each.accuracy is not None)
        hardest = ", ".join(f"{name} ({accuracy:.0%})" for accuracy, name in seen[: min(5, len(seen) // 2)])
        if hardest:
            lines.append(f"  hardest to get      {hardest}")
        if self.confusions:
            lines.append("  taken for another")
            lines += [f"    {count:4} × {true} → {other}" for true, other, count in self.confusions[: self.pairs]]
            left = len(self.confusions) - self.pairs
            if left > 0:
                lines.append(f"    and {left} pairs more, which --json lists")
        if self.broken:
            lines.append(f"  {self.broken} broken images were left out")
        return "\n".join(lines)


class _AsJson(dict[str, Any]):
    """A record that prints as JSON."""

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)


def run(config: Evaluate) -> "Evaluation | Retrieval | _AsJson":
    """Evaluate a model on images.

    Returns:
        What came out; with ``config.json`` as a record that prints as JSON.
    """
    if config.retrieval:
        found = _retrieve(config)
        return _AsJson(found.to_record()) if config.json else found
    if config.gallery is not None:
        raise ValueError("A gallery is searched in, but nothing was to be searched.\nWrite --retrieval beside --gallery.")
    from ..images import read_images
    from ..inference import answers
    from ..model import load_model

    device = find_device(config.device, Processes())
    model = load_model(config.run, device)
    images = read_images(
        config.data,
        config.kind,
        partition=config.partition,
        test_share=config.test_share,
        seed=config.seed,
        check_counts=config.check_counts,
    )
    if config.split != "all" and any(label >= 0 for label in images.labels):  # without a class there is no split to miss
        images = images.select(config.split)
    labels = labels_for(model, images)
    known = [place for place, label in enumerate(labels) if label >= 0]
    if not known:
        raise ValueError(
            f"Predictions are compared with the classes of images, but {config.data} knows none.\n"
            f"Give a folder with a folder for each class, or see what the model says: cbp predict {config.run} {config.data}"
        )
    scores, places, broken = [], [], 0
    precision = choose_precision(config.precision, device)
    with counting_bar("evaluate", "images", 0, len(known)) as advance:
        for each in answers(model, images, order=known, batch=config.batch, precision=precision, workers=config.workers):
            scores.append(each.output)
            places += each.places.tolist()
            broken += len(each.broken)
            for some in each.broken:
                note(f"left out: {some.reason}")
            advance(len(each.places) + len(each.broken))
    if not places:
        raise ValueError(f"All {broken} images of {config.data} are broken.\nMend them, or give others.")
    result = evaluation(model, torch.cat(scores), torch.tensor(labels)[places], images.name, config.split, broken, config.pairs)
    return _AsJson(asdict(result)) if config.json else result


def _retrieve(config: Evaluate) -> "Retrieval":
    """Features of all images, for as long as it takes to rank them."""
    from ..features import FeatureStore
    from ..retrieval import retrieval

    with TemporaryDirectory(prefix="cbp-evaluate-") as folder:
        extract.run(
            extract.Extract(
                data=config.data,
                out=Path(folder) / "features",
                model=config.run,
                kind=config.kind,
                partition=config.partition,
                check_counts=config.check_counts,
                test_share=config.test_share,
                seed=config.seed,
                device=config.device,
                precision=config.precision,
                batch=config.batch,
                workers=config.workers,
            )
        )
        store = FeatureStore(Path(folder) / "features")
        queries, gallery = (None if each == "all" else each for each in (config.split, config.gallery or config.split))
        return retrieval(store, next(iter(store.poolings)), queries, gallery)


def labels_for(model: "Model", images: "ImageList") -> list[int]:
    """The model's labels of images whose data set may number its classes otherwise; -1 where the class is not known."""
    label = {name: number for number, name in enumerate(model.classes)}
    used = {images.classes[each] for each in set(images.labels) if each >= 0}
    strangers = sorted(used - label.keys())
    if strangers:
        raise ValueError(
            f"The model knows {len(label)} classes, but {len(strangers)} of {images.name} are not among them, "
            f"{strangers[0]!r} for one.\nGive images of its classes, in folders of the same names: {_few(model.classes)}."
        )
    return [label[images.classes[each]] if each >= 0 else -1 for each in images.labels]


def evaluation(
    model: "Model", scores: Tensor, labels: Tensor, data: str, split: str, broken: int = 0, pairs: int = 10
) -> Evaluation:
    """How good scores (m, k) of a model are for labels (m,), of which none is -1.

    Args:
        model: whose classes and link they are.
        scores, labels: in the same order.
        data, split: where they are from.
        broken: images that were left out.
        pairs: confusions that are shown to people.
    """
    from ..classify import metrics

    s, y = scores.double().numpy(), labels.numpy()
    probabilities = model.probabilities(scores.double()).numpy()
    m, k = s.shape
    error = metrics.error_rate(s, y)
    accuracy, precision = metrics.per_class_accuracy(s, y), metrics.average_precision(s, y)
    counts = metrics.confusion_matrix(s, y).sum(1)
    return Evaluation(
        data=data,
        split=split,
        images=m,
        broken=broken,
        error=error,
        standard_error=(error * (1 - error) / m) ** 0.5,
        top_5_error=1 - metrics.top_k_accuracy(s, y, 5) if k > 5 else None,
        mean_average_precision=metrics.mean_average_precision(s, y),
        negative_log_likelihood=metrics.negative_log_likelihood(probabilities, y),
        calibration_error=metrics.expected_calibration_error(probabilities, y),
        mean_confidence=float(probabilities.max(1).mean()),
        classes=tuple(
            ClassResult(name, int(count), _number(share), _number(ap))
            for name, count, share, ap in zip(model.classes, counts, accuracy, precision, strict=True)
        ),
        confusions=tuple(
            (model.classes[true], model.classes[other], count)
            for true, other, count in metrics.most_confused(s, y, limit=k * k)
        ),
        pairs=pairs,
    )


def _number(value: float) -> float | None:
    """JSON has no NaN, which classes without images have."""
    return None if math.isnan(value) else float(value)


def _few(names: tuple[str, ...], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
