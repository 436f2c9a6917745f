"""Compare: which pooling, and how many numbers, on one's own images."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
import tyro
from tyro.conf import Positional, UseAppendAction

from ..device import Precision
from ..pooling.by_name import read_pooling
from . import extract

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..comparing.choice import Choice
    from ..experiments.ledger import Ledger
    from ..experiments.records import Record
    from ..features import FeatureStore
    from ..images import ImageList
    from ..model import Model
    from ..report.page import Section

POOLINGS = (
    "average-pool",
    "fisher-vector:64",
    "full-bilinear-triangle",
    "pca-bilinear:1024",
    "pca-bilinear:4096",
    "random-maclaurin:2048",
    "random-maclaurin:8192",
    "tensor-sketch:512",
    "tensor-sketch:2048",
    "tensor-sketch:8192",
)
FEATURES, ANSWERS, REPORT = "features", "answers", "report.html"


@dataclass(frozen=True)
class Compare:
    """Find out which pooling to take, and how many numbers, on your own images.

    For instance, offline, with the backbone that ships with the package:

        cbp compare photos --backbone tiny --out comparison

    Every image passes the backbone once for all poolings. A logistic regression on each kind of features, the same from one to
    ten images of each class, and the time that each pooling takes make one table and one report, OUT/report.html. In the end
    it says which one to take: the shortest feature whose error is within one standard error of the smallest.

    Interrupted, the same command goes on where it stopped.
    """

    data: Positional[Path]
    """A folder of images, a CSV that lists them, or an archive; CUB-200-2011, DTD and MIT Indoor are recognised."""
    out: Path
    """The folder for features, records and the report."""
    pool: UseAppendAction[tuple[str, ...]] = ()
    """A pooling, NAME[:DIM][,seed=N]; may be repeated. A choice of ten if there is none; `cbp extract --help` names all."""
    backbone: str = "vgg16"
    """vgg16, vgg-m, tiny, or timm:<name>."""
    weights: str | None = None
    """A file of weights for the backbone, in place of the published ones."""
    tap: str | None = None
    """Which of the backbone's layers; the last convolution, after its ReLU, if not given."""
    size: int = 0
    """Side of the squares that images are made into; 0 is what the backbone is meant for."""
    fit: Literal["stretch", "center-crop"] = "stretch"
    """How images of other proportions become squares."""
    normalize: bool = True
    """Signed square root and ℓ₂ are taken, unless this flag leaves features as they were pooled."""
    lambda_: Annotated[str, tyro.conf.arg(name="lambda")] = "0.001"
    """λ of the logistic regression, λ‖w‖² + a sum of losses; auto finds it by cross-validation for each pooling."""
    fit_images: int = 2000
    """Training images that PCA and Fisher vectors are fitted on."""
    draws: int = 5
    """How often a few images of each class are drawn anew."""
    json: bool = False
    """Print all records, a JSON object a line, in place of the table."""
    kind: Literal["auto", "cub", "mit", "dtd", "folder", "csv"] = "auto"
    """Which data set it must be."""
    partition: int = 1
    """Of DTD, which of its ten."""
    check_counts: bool = True
    """CUB, DTD and MIT Indoor must have their numbers of images, unless this flag lets others pass."""
    test_share: float = 0.5
    """Where images have no split, the part of each class that becomes test images."""
    seed: int = 0
    """What that split, the few images, and the descriptors that PCA and Fisher vectors are fitted on, are drawn from."""
    device: str = "auto"
    """cpu or cuda."""
    precision: Precision = "auto"
    """What the backbone computes in: on a GPU bfloat16 where it can, and float32 on a CPU."""
    workers: int | None = None
    """Processes that decode images; as many as are of use if not given."""


@dataclass(frozen=True)
class Comparison:
    """What came out."""

    records: "tuple[Record, ...]"
    choice: "Choice"
    command: str
    """What trains the pooling that is to be taken."""
    sections: "tuple[Section, ...]"
    """Of the report."""
    report: Path

    @property
    def recommendation(self) -> str:
        """What to take, in words."""
        from ..comparing.page import doubts, recommendation

        return " ".join([recommendation(self.choice), *doubts(self.choice)])

    def __str__(self) -> str:
        """The table in plain text, what to take, and the command that trains it."""
        from ..comparing.printed import plain

        return "\n".join([plain(self.records, self.choice), "", *self._ends()])

    def __rich__(self) -> "RenderableType":
        """The same for a terminal."""
        from rich.console import Group
        from rich.text import Text

        from ..comparing.printed import Printed

        sentence, empty, command, report = self._ends()
        return Group(
            Printed(self.records, self.choice),
            Text(sentence),
            Text(empty),
            Text(command, style="bold cyan", no_wrap=True, overflow="ignore"),
            Text(report, no_wrap=True, overflow="ignore"),
        )

    def _ends(self) -> list[str]:
        return [self.recommendation, "", f"  {self.command}", f"\nThe report: {self.report.resolve().as_uri()}"]


class _AsJson(tuple[Any, ...]):
    """Records that print as JSON."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(json.dumps(asdict(each), ensure_ascii=False) for each in self)


def run(config: Compare) -> Comparison | _AsJson | None:
    """Compare poolings, or go on with it; and write the report.

    Returns:
        What came out; with ``config.json`` the records; None in all processes but the first, if several extract.
    """
    from ..comparing.choice import choose
    from ..comparing.examples import Examples
    from ..comparing.measure import kept
    from ..comparing.page import doubts, recommendation, sections
    from ..comparing.recorded import learn, tell_apart, time_poolings
    from ..report.page import Report, write_report

    _check(config)
    images = _images(config)
    store = extract.run(_extraction(config))
    if store is None:
        return None
    ledger = _ledger(config, store)
    learn(config, store, ledger, config.out / ANSWERS)
    tell_apart(store, ledger, config.out / ANSWERS)
    time_poolings(config, store, images, ledger)

    choice = choose(ledger.records)
    taken = kept(config.out / ANSWERS, choice.taken.pooling)
    assert taken is not None
    examples = Examples(store, images, choice.taken.pooling, taken.scores)
    model = _model(config, store, choice.taken.pooling, taken.lambda_)
    command = _command(config, choice.taken.pooling)
    shown = sections(ledger.records, choice, command, examples, model, _settings(config, store, ledger.records))
    title = f"Which pooling for {images.name}?"
    report = write_report(Report(title, [recommendation(choice), *doubts(choice)], shown), config.out / REPORT)
    if config.json:
        return _AsJson(ledger.records)
    return Comparison(tuple(ledger.records), choice, command, tuple(shown), report)


def _images(config: Compare) -> "ImageList":
    """The images, if there are those of two classes to learn from and to test on."""
    from ..images import read_images

    images = read_images(
        config.data,
        config.kind,
        partition=config.partition,
        test_share=config.test_share,
        seed=config.seed,
        check_counts=config.check_counts,
    )
    for split, least in (("train", 2), ("test", 1)):
        labels = {label for label, of in zip(images.labels, images.splits, strict=True) if of == split and label >= 0}
        if len(labels) < least:
            raise ValueError(
                f"Poolings are compared on training images of two classes or more, and on test images, but {images.name} has "
                f"{split} images of {len(labels)}.\nGive a folder with a folder of images for each class, or a CSV that says "
                "the class of each."
            )
    return images


def _ledger(config: Compare, store: "FeatureStore") -> "Ledger":
    from ..experiments.ledger import Ledger

    ledger = Ledger(config.out)
    ledger.agree(
        {
            "images": store.manifest["items"]["sha256"],
            "backbone": store.manifest["settings"]["weights sha256"],
            "size": store.manifest["settings"]["size"],
            "poolings": list(store.poolings),
            "lambda": config.lambda_,
            "draws": config.draws,
            "seed": config.seed,
        }
    )
    return ledger


def _model(config: Compare, store: "FeatureStore", pooling: str, lambda_: float) -> "Model | None":
    """The pooling's model, if it can say which places in an image speak for a class."""
    from ..classify.head import fit_head
    from ..evidence import check_evidence
    from ..model import Model as TheModel

    model = TheModel.of_features(store, pooling, config.weights, classes=store.classes)
    try:
        check_evidence(model)
    except ValueError:  # a pooling that is neither a sum nor a mean
        return None
    side = model.transform.size
    with torch.inference_mode():
        if model.backbone(torch.zeros(1, 3, side, side, dtype=torch.uint8)).ndim != 4:  # tokens have no places
            return None
    fit_head(model, store, pooling, lambda_=lambda_)
    return model


def _command(config: Compare, pooling: str) -> str:
    """What trains a pooling on the same images: all flags that were given here and `cbp train` has."""
    from .train import Train

    words = ["cbp", "train", str(config.data)]
    trained = {field.name for field in fields(Train)}
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name in trained - {"data", "out", "pool"} and value != field.default:
            flag = field.name.rstrip("_").replace("_", "-")
            words += [f"--no-{flag}"] if value is False else [f"--{flag}", str(value)]
    return shlex.join([*words, "--pool", pooling, "--out", "run"])


def _settings(config: Compare, store: "FeatureStore", records: "Sequence[Record]") -> dict[str, dict[str, object]]:
    """How all was made, for the last section of the report."""
    made, origin = store.manifest["settings"], records[-1].made
    splits = {split: int((store.splits == split).sum()) for split in ("train", "test")}
    return {
        "Images": {
            "data": made["data"],
            "training images": splits["train"],
            "test images": splits["test"],
            "classes": len(store.classes),
            "broken, left out": len(store.broken),
        },
        "Features and classifier": {
            "backbone": made["backbone"],
            "layer": made["tap"] or "its last",
            "images made into": f"{made['size']}×{made['size']}, {made['fit']}",
            "normalised": "signed square root, ℓ₂" if made["normalize"] else "no",
            "kept as": store.dtype,
            "logistic regression, λ": config.lambda_,
            "draws of a few images": config.draws,
            "seed": config.seed,
        },
        "Where": {
            "device": origin["device"],
            "threads": origin["threads"],
            "torch": origin["torch"],
            "compact-bilinear": origin["compact-bilinear"],
            "commit": origin["commit"] or "not known",
            "date": origin["date"],
        },
    }


def _extraction(config: Compare) -> extract.Extract:
    pool = tuple(dict.fromkeys(str(read_pooling(each)) for each in config.pool or POOLINGS))
    same = {field.name for field in fields(extract.Extract)} & {field.name for field in fields(config)}
    settings = {name: getattr(config, name) for name in same - {"data", "out", "pool"}}
    return extract.Extract(data=config.data, out=config.out / FEATURES, pool=pool, **settings)


def _check(config: Compare) -> None:
    try:
        good = config.lambda_ == "auto" or 0 < float(config.lambda_) < float("inf")
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"λ is a number > 0, or auto, but got {config.lambda_!r}.\nWrite --lambda 0.001, the paper's.")
    if config.draws < 1:
        raise ValueError(f"Few images are drawn at least once, but got {config.draws} draws.\nWrite --draws 5.")
    if any(read_pooling(each).tap for each in config.pool):
        raise ValueError(
            "All poolings take the same layer, but fully-connected takes the network's own last layers.\n"
            "Leave it out; cbp train --pool fully-connected learns from it by itself."
        )
    if len(set(config.pool)) == 1:
        raise ValueError(f"A comparison takes two poolings or more, but got {config.pool[0]} alone.\nName another one too.")
    if config.out.exists() and not config.out.is_dir():
        raise ValueError(f"A comparison goes into a folder, but {config.out} is a file.\nGive a folder.")
    if config.data.is_dir() and config.out.resolve().is_relative_to(config.data.resolve()):
        raise ValueError(
            f"A comparison goes beside the images, but {config.out} lies inside {config.data}.\n"
            "Write --out comparison, for instance."
        )
