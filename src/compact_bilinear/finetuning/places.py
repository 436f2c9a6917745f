"""Which images a step sees, in which process: drawn from (seed, epoch), and nothing else."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..images import ImageList, shuffled
from ..images.image_list import UNLABELLED, stratified
from ..processes import Processes
from .settings import FineTuning


class Places(NamedTuple):
    """Places in a list of images."""

    train: tuple[int, ...]
    held: tuple[int, ...]  # not trained on


def training_places(images: ImageList, settings: FineTuning, split: str = "train") -> Places:
    """The labelled images of a split, parted into those to train on and those held out.

    Whatever is fitted before fine-tuning, the linear classifier above all, should see the first part only: on images that it
    has seen, no epoch would seem better than it.

    Args:
        images: of all splits.
        settings: ``hold_out`` is the share that is held out in every class, and depends on ``seed`` and names alone.
        split: which.

    >>> from pathlib import Path
    >>> names = tuple(f"{number}.jpg" for number in range(8))
    >>> images = ImageList("birds", Path("."), ("crow", "wren"), names, (0, 1) * 4, ("train",) * 6 + ("test",) * 2)
    >>> training_places(images, FineTuning(hold_out=0.3))
    Places(train=(0, 3, 4, 5), held=(1, 2))
    """
    places = [
        place
        for place, (label, of) in enumerate(zip(images.labels, images.splits, strict=True))
        if of == split and label != UNLABELLED
    ]
    if not places:
        raise ValueError(
            f"Fine-tuning takes labelled images of the split {split!r}, but {images.name} has none among its {len(images)}.\n"
            "Give the images classes and a split: in folders train/CLASS and test/CLASS, or in a CSV."
        )
    if not settings.hold_out:
        return Places(tuple(places), ())
    paths, labels = [images.paths[place] for place in places], [images.labels[place] for place in places]
    parts = stratified(paths, labels, settings.hold_out, settings.seed)
    train, held = (
        tuple(place for place, part in zip(places, parts, strict=True) if part == wanted) for wanted in ("train", "test")
    )
    if not held:
        raise ValueError(
            f"To hold out images takes a class with two of them, but {images.name} has none in the split {split!r}.\n"
            "Write hold_out=0."
        )
    return Places(train, held)


def batches_of(places: Sequence[int], settings: FineTuning, epoch: int) -> list[list[int]]:
    """The batches of one epoch, of all processes together; the last may be smaller."""
    order = [places[number] for number in shuffled(len(places), seed=settings.seed, epoch=epoch)]
    return [order[start : start + settings.batch] for start in range(0, len(order), settings.batch)]


def parts_of(batch: Sequence[int], processes: Processes, accumulate: int) -> Iterator[Sequence[int]]:
    """What one process computes of a batch: always ``accumulate`` parts, as equal as can be, and empty where there is no more.

    >>> [list(part) for part in parts_of(range(7), Processes(rank=1, world=2), accumulate=2)]
    [[1], [3, 5]]
    """
    share = processes.share(batch)
    for number in range(accumulate):
        yield share[len(share) * number // accumulate : len(share) * (number + 1) // accumulate]
