"""Predict: what a trained model sees in images, one line each, as they come."""

import csv
import glob
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TextIO

from tyro.conf import Positional

from ..device import Precision, choose_precision, find_device
from ..processes import Processes
from ..progress import note
from ..whole_file import WholeFile

if TYPE_CHECKING:
    from ..images import ImageList
    from ..model import Model


@dataclass(frozen=True)
class Predict:
    """Say what is in images, with a model that `cbp train` made.

    For instance, of two files and a folder, the three likeliest classes of each:

        cbp predict run one.jpg two.jpg photos --top 3

    A table for other programs, of files whose names come from another one:

        find photos -newer yesterday -name '*.jpg' | cbp predict run - --format csv --out new.csv

    A file that is no image is named on standard error and left out; the others are predicted, and the exit code is 1.
    """

    run: Positional[Path]
    """The folder that `cbp train` made."""
    files: Positional[tuple[str, ...]]
    """Images, folders of images, patterns like 'photos/**/*.jpg', or - to read names from standard input, one a line."""
    top: int = 1
    """How many classes to name, the likeliest first."""
    format: Literal["text", "csv", "jsonl"] = "text"
    """Lines for people, a table, or a JSON object a line."""
    out: Path | None = None
    """A file to write, in place of standard output."""
    device: str = "auto"
    """cpu or cuda."""
    precision: Precision = "auto"
    """What the backbone computes in: on a GPU bfloat16 where it can, and float32 on a CPU."""
    batch: int = 0
    """Images at a time; 0 is 32 on a GPU and 4 on a CPU."""
    workers: int | None = None
    """Processes that decode images; as many as are of use if not given."""


class Prediction(NamedTuple):
    """What is said of an image."""

    path: str
    classes: tuple[str, ...]  # the likeliest first
    probabilities: tuple[float, ...]


def run(config: Predict) -> None:
    """Predict, and write it down as it comes; fails in the end if a file gave no prediction."""
    from ..model import load_model

    if config.top < 1:
        raise ValueError(f"At least one class is named, but got top={config.top}.\nWrite --top 1.")
    if config.out is not None and (config.out.is_dir() or not config.out.absolute().parent.is_dir()):
        found = f"{config.out} is a folder" if config.out.is_dir() else f"there is no folder {config.out.parent} for it"
        raise ValueError(f"Predictions go into a file, but {found}.\nWrite --out new.csv, for instance.")
    device = find_device(config.device, Processes())
    model = load_model(config.run, device)
    if not model.classes:
        raise ValueError(f"The model in {config.run} has no classes to predict.\nGive the folder that `cbp train` made.")
    images = find_images(config.files)
    broken: list[str] = []
    with _opened(config.out) as file, closing(predictions(model, images, config, broken.append)) as predicted:
        write = _WRITERS[config.format](file, min(config.top, len(model.classes)))
        for prediction in predicted:
            try:
                write(prediction)
                file.flush()
            except BrokenPipeError:  # who read, as `head` does, has read enough
                return
    if broken:
        raise OSError(
            f"{len(broken)} of {len(images)} files gave no prediction; the first is {broken[0]}.\n"
            f"Mend or remove what is named above; all else is predicted ({len(images) - len(broken)})."
        )


def predictions(model: "Model", images: "ImageList", config: Predict, report: Callable[[str], None]) -> Generator[Prediction]:
    """What a model says to one image after another; those that are broken are named and reported."""
    from ..inference import answers

    device = next(model.parameters()).device
    precision = choose_precision(config.precision, device)
    for answer in answers(model, images, batch=config.batch, precision=precision, workers=config.workers):
        for each in answer.broken:
            note(f"left out: {each.reason}")
            report(each.reason)
        likeliest = model.probabilities(answer.output.double()).topk(min(config.top, len(model.classes)))
        for place, values, labels in zip(
            answer.places.tolist(), likeliest.values.tolist(), likeliest.indices.tolist(), strict=True
        ):
            yield Prediction(images.paths[place], tuple(model.classes[label] for label in labels), tuple(values))


def find_images(files: Sequence[str]) -> "ImageList":
    """The images that names, folders, patterns and standard input stand for, in the order given, each once."""
    from ..images import ImageList
    from ..images.folder import images_below

    paths: list[str] = []
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="surrogateescape")  # not every name of a file is text
    for given in files:
        if given == "-":
            paths += [line.rstrip("\r\n") for line in sys.stdin if line.strip()]
        elif os.path.isdir(given):  # noqa: PTH112  # of names that are too long Path says so by failing
            below, others = images_below(Path(given))
            paths += [str(Path(given) / each) for each in below]
            if others:
                note(f"left out of {given} are files that are no images by their names, {len(others)} in all")
        elif os.path.exists(given) or not glob.has_magic(given):  # noqa: PTH110  # as above
            paths.append(given)  # if it is not there, that will be said of it, and of it alone
        else:
            matches = glob.glob(given, recursive=True)  # noqa: PTH207  # patterns may be absolute, which Path.glob refuses
            found = sorted(each for each in matches if Path(each).is_file())
            if not found:
                raise ValueError(f"No file matches {given!r}.\nCheck the pattern; ** stands for folders at any depth.")
            paths += found
    paths = list(dict.fromkeys(paths))
    if not paths:
        raise ValueError("Images are predicted, but none were given.\nName files or a folder: cbp predict run photos")
    return ImageList("files", Path(), (), tuple(paths), (-1,) * len(paths), ("",) * len(paths))


@contextmanager
def _opened(out: Path | None) -> Iterator[TextIO]:
    if out is None:
        yield sys.stdout
        return
    # as on standard output: not every name of a file is text
    with WholeFile(out) as part, part.open("w", encoding="utf-8", newline="", errors="backslashreplace") as file:
        yield file


def _text(file: TextIO, _: int) -> Callable[[Prediction], None]:
    def write(prediction: Prediction) -> None:
        shares = (f"{name} {p:.1%}" for name, p in zip(prediction.classes, prediction.probabilities, strict=True))
        file.write(f"{prediction.path}: {', '.join(shares)}\n")

    return write


def _csv(file: TextIO, top: int) -> Callable[[Prediction], None]:
    table = csv.writer(file, lineterminator="\n")
    ends = ["", *(f"_{rank}" for rank in range(2, top + 1))]
    table.writerow(["path", *(f"{name}{end}" for end in ends for name in ("class", "probability"))])

    def write(prediction: Prediction) -> None:
        pairs = zip(prediction.classes, prediction.probabilities, strict=True)
        table.writerow([prediction.path, *(value for name, p in pairs for value in (name, f"{p:.6g}"))])

    return write


def _jsonl(file: TextIO, _: int) -> Callable[[Prediction], None]:
    def write(prediction: Prediction) -> None:
        pairs = zip(prediction.classes, prediction.probabilities, strict=True)
        record = {"path": prediction.path, "classes": [{"class": name, "probability": p} for name, p in pairs]}
        file.write(json.dumps(record, ensure_ascii=False) + "\n")

    return write


_WRITERS = {"text": _text, "csv": _csv, "jsonl": _jsonl}
