"""Demo: the whole road on what ships with the package, offline: images, features, a comparison, fine-tuning, a report."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..device import find_device
from ..finetuning.settings import FineTuning
from ..processes import Processes
from ..progress import note
from . import compare

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import RenderableType

    from ..experiments.records import Record
    from ..features import FeatureStore
    from ..images import ImageList
    from ..model import Model
    from ..report.page import Section

IMAGES, COMPARISON, MODEL = "textures", "comparison", "model"
# How hard the textures are was chosen by looking at errors. At their 64 pixels the network's map has 8×8 places, and no pooling
# was ahead of averages, whether the jitter was 0.3 or 0.6; made into 256 pixels, second order was, at 0.3 and 0.4. At 0.8 all
# were wrong about every other image. 0.4 leaves more errors to tell poolings apart by than 0.3.
JITTER = 0.4
# a mixture of 16 Gaussians, fitted on 40 images, takes seconds; the usual 64 on all images would take minutes
POOLINGS = tuple("fisher-vector:16" if each == "fisher-vector:64" else each for each in compare.POOLINGS)
FIT_IMAGES = 40
# the paper's layer, whichever pooling comes out ahead; and the last four of nine convolutions, for the sake of time
TUNED, FROZEN, RATE = "tensor-sketch:2048", 5, 3e-4
MEASURED = 3  # records of it
NEXT = "cbp compare photos --backbone tiny --out comparison"


@dataclass(frozen=True)
class Demo:
    """See what this package does, on images that it makes itself.

    For instance:

        cbp demo --out demo

    Textures are written into a folder, pass a small network once, and are pooled in ten ways; classifiers learn from all of
    them, and from a few of each class; the network is fine-tuned for a moment; and a report shows it all. It takes about three
    minutes on two cores, and no download.

    Interrupted, the same command goes on where it stopped.
    """

    out: Path = Path("demo")
    """The folder for everything."""
    classes: int = 10
    """Kinds of textures."""
    images: int = 80
    """Images of each, half to learn from and half to test on."""
    size: int = 256
    """Side of the squares that they are made into; they have 64 pixels at first."""
    epochs: int = 2
    """How often fine-tuning sees each training image; 0 leaves it out."""


@dataclass(frozen=True)
class Demonstration:
    """What came out."""

    comparison: compare.Comparison
    tuned: "tuple[Record, ...]"
    """Errors before and after fine-tuning; none if it was left out."""
    report: Path

    def __str__(self) -> str:
        """For people."""
        from ..comparing.printed import plain

        return "\n".join([plain(self.comparison.records, self.comparison.choice), "", *self._ends()])

    def __rich__(self) -> "RenderableType":
        """The same for a terminal."""
        from rich.console import Group
        from rich.text import Text

        from ..comparing.printed import Printed

        lines = [Text(line, style="bold cyan" if line.startswith("  ") else "") for line in self._ends()]
        return Group(Printed(self.comparison.records, self.comparison.choice), *lines)

    def _ends(self) -> list[str]:
        return [
            self.comparison.recommendation,
            *([_sentence(self.tuned)] if self.tuned else []),
            "",
            f"Look at it: {self.report.resolve().as_uri()}",
            "",
            "Now your own images, a folder with a folder for each class:",
            f"  {NEXT}",
        ]


def run(config: Demo) -> Demonstration:
    """Make the images, compare poolings on them, fine-tune, and write the report."""
    from ..report.page import CommandSection, Report, write_report

    _check(config)
    images = _textures(config)
    compared = compare.Compare(
        data=config.out / IMAGES,
        out=config.out / COMPARISON,
        pool=POOLINGS,
        backbone="tiny",
        size=config.size,
        fit_images=FIT_IMAGES,
        device="cpu",
    )
    comparison = compare.run(compared)
    assert isinstance(comparison, compare.Comparison)
    tuned = _fine_tuned(config, images) if config.epochs else ()

    what = (
        f"{config.classes} kinds of textures out of a formula, {config.images} images of each, seen by the small network that "
        "ships with this package. What tells kinds apart is how their colours go together; each colour alone looks the same."
    )
    table, length, _, *pictures, settings = comparison.sections
    theirs = CommandSection(
        "Now your own images", NEXT, "A folder with a folder for each class. It says which pooling to take."
    )
    shown = [table, length, *([_section(tuned)] if tuned else []), *pictures, theirs, settings]
    report = write_report(
        Report("Ten ways to pool an image", [what, comparison.recommendation], shown), config.out / compare.REPORT
    )
    return Demonstration(comparison, tuned, report)


def _textures(config: Demo) -> "ImageList":
    """The images, written unless they are there."""
    from ..images import read_images
    from ..images.textures import write_textures

    folder, wanted = config.out / IMAGES, config.classes * config.images
    if not folder.exists():
        note(f"demo: making {wanted} images")
        write_textures(folder, config.classes, config.images, jitter=JITTER)
    images = read_images(folder)
    if (len(images), len(images.classes)) != (wanted, config.classes):
        raise ValueError(
            f"The demonstration has {wanted} images of {config.classes} classes, but {folder} has {len(images)} of "
            f"{len(images.classes)}.\nRemove {config.out}, or give another folder: --out demo2."
        )
    return images


def _fine_tuned(config: Demo, images: "ImageList") -> "tuple[Record, ...]":
    """Train the last layers of the network from the linear classifier on, for a moment, and see what it changes."""
    from ..classify.head import fit_head
    from ..comparing.choice import difference
    from ..comparing.measure import kept
    from ..experiments.ledger import Ledger
    from ..experiments.origin import made
    from ..experiments.records import Record
    from ..features import FeatureStore
    from ..finetuning import fine_tune
    from ..model import Model

    # a mirror would turn the directions of the threads, which are what a class is made of
    settings = FineTuning(
        epochs=config.epochs, batch=16, rate=RATE, schedule="cosine", freeze=FROZEN, flip=False, clip=1.0, precision="float32"
    )
    store = FeatureStore(config.out / COMPARISON / compare.FEATURES)
    ledger = Ledger(config.out / MODEL)
    ledger.agree({"fine-tuning": settings.decisive(), "images": store.manifest["items"]["sha256"], "size": config.size})
    if len(ledger.records) == MEASURED:
        return tuple(ledger.records)
    started = time.monotonic()
    model = Model.of_features(store, TUNED, classes=store.classes)
    fit_head(model, store, TUNED)
    fine_tune(model, images, settings, config.out / MODEL, device=find_device("cpu", Processes()), processes=Processes())
    model.save(config.out / MODEL)

    before = kept(config.out / COMPARISON / compare.ANSWERS, TUNED)
    assert before is not None
    wrong, wrong_before = _wrong(model, images, store), before.scores.argmax(1) != store.labels[store.splits == "test"]
    apart = difference(wrong, wrong_before)
    origin = made("cpu", seconds=round(time.monotonic() - started, 3))

    def record(stage: str, measure: str, value: float, more: float | None = None) -> Record:
        details = {"test images": len(wrong), "epochs": config.epochs} | ({} if more is None else {"standard error": more})
        return Record(
            "demo", images.name, "tiny", TUNED, store.poolings[TUNED], stage, measure, value, details=details, made=origin
        )

    for each in (
        record("linear", "error", float(wrong_before.mean())),
        record("fine-tuned", "error", float(wrong.mean())),
        record("fine-tuned", "change of the error", apart.value, apart.standard_error),
    ):
        if not ledger.has(each):
            ledger.keep(each)
    return tuple(ledger.records)


def _wrong(model: "Model", images: "ImageList", store: "FeatureStore") -> "NDArray[np.bool_]":
    """Which test images a model gets wrong, in the order of the store."""
    from ..inference import answers

    places = store.indices[store.splits == "test"].tolist()
    found = list(answers(model, images, order=places))
    scores = torch.cat([each.output for each in found])
    labels = [images.labels[place] for each in found for place in each.places.tolist()]
    return np.asarray(scores.argmax(1).numpy() != np.array(labels))


def _sentence(tuned: "tuple[Record, ...]") -> str:
    """What fine-tuning gave, in words."""
    from ..report.table import as_text

    before, after, change = tuned
    count, spread = int(str(before.details["epochs"])), float(str(change.details["standard error"]))
    times = f"{count} epoch{'s' * (count > 1)}"
    doubt = "" if abs(change.value) > 2 * spread or not change.value else ", which may be chance"
    return (
        f"In {times} of fine-tuning the error of {before.pooling} went from {100 * before.value:.1f} to "
        f"{100 * after.value:.1f} %, {as_text(100 * change.value, 1, signed=True)} ± {100 * spread:.1f} points on the same "
        f"images{doubt}."
    )


def _section(tuned: "tuple[Record, ...]") -> "Section":
    from ..comparing.table import SaidTable
    from ..report.page import TableSection
    from ..report.table import Number, Row

    *errors, change = tuned
    rows = []
    for each in errors:
        spread = (each.value * (1 - each.value) / int(str(each.details["test images"]))) ** 0.5
        apart = Number(digits=1)
        if each.stage == "fine-tuned":
            apart = Number(100 * change.value, 100 * float(str(change.details["standard error"])), 1, digits=1)
        rows.append(Row((each.stage,), ((Number(100 * each.value, 100 * spread, 1, digits=1),), (apart,))))
    table = SaidTable(
        f"{errors[0].pooling}, before and after",
        ("classifier",),
        ("error, %", "difference"),
        tuple(rows),
        said="± is the standard error, of the difference that on the same images.",
    )
    return TableSection(
        "Fine-tuned for a moment",
        table,
        f"{_sentence(tuned)} The last four of the network’s nine layers learned, from the linear classifier on; the others "
        "stayed as they are. Real fine-tuning takes dozens of epochs: cbp train --finetune.",
    )


def _check(config: Demo) -> None:
    if config.classes < 2 or config.images < 4 or config.epochs < 0 or config.size < 32:
        raise ValueError(
            "The demonstration has two classes or more, four images of each or more, 32 pixels or more and epochs ≥ 0, but got "
            f"{config.classes}, {config.images}, {config.size} and {config.epochs}.\nLeave them out for the usual ones."
        )
    if config.out.exists() and not config.out.is_dir():
        raise ValueError(f"The demonstration goes into a folder, but {config.out} is a file.\nGive a folder.")
