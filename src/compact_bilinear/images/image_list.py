"""Which images there are: the one thing that every data set is turned into."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

UNLABELLED = -1

# how people name their splits, and how they are called here
SPLITS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "val": "val",
    "valid": "val",
    "validation": "val",
}


@dataclass(frozen=True)
class ImageList:
    """Images by name, with what is known of each. Nothing is opened.

    >>> images = ImageList("birds", Path("data"), ("crow", "wren"), ("a.jpg", "b.jpg"), (1, 0), ("train", "test"))
    >>> images.select("train").paths
    ('a.jpg',)
    >>> str(images)
    'birds: 2 images of 2 classes (1 train, 1 test)'
    """

    name: str
    """What the data set is called."""
    root: Path
    """The folder that paths start from."""
    classes: tuple[str, ...]
    """Names of the classes; a label is a place in here."""
    paths: tuple[str, ...]
    """Files, with / between folders, relative to the root. A list that names absolute files has them as they are."""
    labels: tuple[int, ...]
    """The class of each image, -1 where it is not known."""
    splits: tuple[str, ...]
    """What each image is for: "train", "test", "val", or "" where nobody said."""
    left_out: tuple[str, ...] = ()
    """Files that lie among the images and are none by their name."""

    def __len__(self) -> int:
        return len(self.paths)

    def __str__(self) -> str:
        """One line for people."""
        said = [f"{count} {split or 'in no split'}" for split, count in self.counts().items()]
        of = f" of {len(self.classes)} classes" if self.classes else ""
        return f"{self.name}: {len(self)} images{of} ({', '.join(said)})"

    def file(self, index: int) -> Path:
        """Where an image lies."""
        return self.root / self.paths[index]

    def counts(self) -> dict[str, int]:
        """How many images each split has, if any."""
        counts = Counter(self.splits)
        return {split: counts[split] for split in ("train", "val", "test", "") if counts[split]}

    def select(self, split: str) -> Self:
        """The images of one split, in the same order and with the same classes."""
        if split not in self.splits:
            raise ValueError(
                f"The split {split!r} of {self.name} was asked for, but there are only {_listed(self.counts())}.\n"
                "Ask for one of these, or give the images a split: in folders train/ and test/, or in a CSV."
            )
        return self.take([index for index, each in enumerate(self.splits) if each == split])

    def take(self, indices: Sequence[int]) -> Self:
        """Some of the images, in the order given."""
        return replace(
            self,
            paths=tuple(self.paths[index] for index in indices),
            labels=tuple(self.labels[index] for index in indices),
            splits=tuple(self.splits[index] for index in indices),
        )


def stratified(paths: Sequence[str], labels: Sequence[int], test_share: float, seed: int) -> tuple[str, ...]:
    """A split of the same proportion in every class, drawn from a seed.

    The images of a class are ordered by a hash of their path and the seed, and the first of them become the test images. So the
    split depends on nothing but the names: it is the same on every machine, and an image more in one class moves at most one
    other, and none of another class.

    Args:
        paths: the images.
        labels: their classes.
        test_share: part of each class that is tested on, rounded, but leaving an image for training in every class, and one for
            testing where there are two.
        seed: another seed, another split.
    """
    if not 0 < test_share < 1:
        raise ValueError(
            f"test_share is the part of each class that is tested on, between 0 and 1, but got {test_share!r}.\n"
            "Write test_share=0.5 for as many test as training images."
        )
    of_class: dict[int, list[int]] = {}
    for index, label in enumerate(labels):
        of_class.setdefault(label, []).append(index)
    splits = ["train"] * len(paths)
    for indices in of_class.values():
        indices.sort(key=lambda index: hashlib.sha256(f"{seed}/{paths[index]}".encode()).digest())
        count = min(max(round(test_share * len(indices)), 1), len(indices) - 1)
        for index in indices[:count]:
            splits[index] = "test"
    return tuple(splits)


def read_lines(file: Path, of: str, remedy: str) -> list[str]:
    """The lines of a text file that belongs to a data set, without those at the end that are empty."""
    if not file.is_file():
        raise ValueError(f"{of} needs {file.name}, but {file} is missing.\n{remedy}")
    try:
        return file.read_text("utf-8-sig").rstrip().splitlines()
    except UnicodeDecodeError as fault:
        raise ValueError(f"{file} is not a text file in UTF-8: {fault.reason} at byte {fault.start}.\n{remedy}") from fault


def read_class_files(file: Path, of: str, remedy: str) -> list[str]:
    """The lines ``CLASS/FILE`` of a text file."""
    lines = [line.strip() for line in read_lines(file, of, remedy)]
    for place, line in enumerate(lines, start=1):
        if line.count("/") != 1 or not all(line.split("/")):
            raise ValueError(f"Line {place} of {file} should be CLASS/FILE, but is {line!r}.\n{remedy}")
    return lines


def classed_by_folder(name: str, root: Path, paths: Sequence[str], splits: Sequence[str], remedy: str) -> ImageList:
    """Images ``CLASS/FILE``, of which each is listed once."""
    path, times = max(Counter(paths).items(), key=lambda item: item[1], default=("", 0))
    if times > 1:
        raise ValueError(f"The lists of {name} have {path} {times} times.\n{remedy}")
    of_image = [path.split("/")[0] for path in paths]
    classes = tuple(sorted(set(of_image)))
    label = {name: number for number, name in enumerate(classes)}
    return ImageList(name, root, classes, tuple(paths), tuple(label[name] for name in of_image), tuple(splits))


def require_files(images: ImageList, named_by: str, remedy: str) -> None:
    """Refuse a list that names files that are not there."""
    missing = [path for path in images.paths if not (images.root / path).is_file()]
    if missing:
        raise ValueError(
            f"{named_by} names {len(images)} images, but {len(missing)} of them are not in {images.root}; the first is "
            f"{missing[0]}.\n{remedy}"
        )


def require_counts(images: ImageList, train: int, test: int, classes: int, remedy: str) -> None:
    """Refuse another number of images or classes than the data set has."""
    counts = images.counts()
    found = (counts.get("train", 0), counts.get("test", 0), len(images.classes))
    if found != (train, test, classes):
        raise ValueError(
            f"{images.name} has {train} training images, {test} test images and {classes} classes, but {images.root} has "
            f"{found[0]}, {found[1]} and {found[2]}.\n{remedy} If this is a part of it on purpose, turn check_counts off."
        )


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{split!r} ({count})" for split, count in counts.items()) or "no images"
