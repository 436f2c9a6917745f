"""Describable Textures (Cimpoi, Maji, Kokkinos, Mohamed & Vedaldi, CVPR 2014): 47 adjectives, 120 images each.

Ten partitions into three equal parts come with it, as lists of ``CLASS/FILE``::

    dtd/
    ├── labels/train1.txt val1.txt test1.txt ... train10.txt val10.txt test10.txt
    └── images/banded/banded_0002.jpg ...

The paper trains on the first part of partition 1 and tests on the two others: 1880 against 3760 images, 40 and 80 of a class.
"""

from collections import Counter
from pathlib import Path

from .image_list import ImageList, classed_by_folder, read_class_files, require_counts, require_files

PARTITIONS = range(1, 11)
PARTS = {"train": "train", "val": "test", "test": "test"}  # of what is trained on, and what is tested on
REMEDY = "Unpack dtd-r1.0.1.tar.gz anew, or give the archive itself."


def find(data: Path) -> Path | None:
    """The folder with labels/ and images/: this one or one below it; None if it does not look like DTD at all."""
    for folder in (data, data / "dtd", data / "dtd-r1.0.1" / "dtd"):
        if any((folder / "labels" / f"{part}{number}.txt").is_file() for part in PARTS for number in PARTITIONS):
            return folder
    return None


def read(root: Path, *, partition: int = 1, check_counts: bool = True) -> ImageList:
    """Read one of DTD's ten partitions.

    Args:
        root: the folder with ``labels`` and ``images``.
        partition: 1, as in the paper, to 10.
        check_counts: refuse another number than 40 images of each of 47 classes in each of the three parts.
    """
    if partition not in PARTITIONS:
        raise ValueError(f"DTD has partitions 1 to 10, but got {partition!r}.\nWrite partition=1 for the paper's.")
    paths, splits = [], []
    for part, split in PARTS.items():
        file = root / "labels" / f"{part}{partition}.txt"
        lines = read_class_files(file, "DTD", REMEDY)
        uneven = {name: count for name, count in Counter(line.split("/")[0] for line in lines).items() if count != 40}
        if check_counts and uneven:
            name, count = min(uneven.items())
            raise ValueError(
                f"DTD has 40 images of every class in {file.name}, but {file} has {count} of {name}.\n"
                f"{REMEDY} If this is a part of it on purpose, turn check_counts off."
            )
        paths += lines
        splits += [split] * len(lines)
    images = classed_by_folder("dtd", root / "images", paths, splits, REMEDY)
    if check_counts:
        require_counts(images, 1880, 3760, 47, REMEDY)
    require_files(images, f"partition {partition}", REMEDY)
    return images
