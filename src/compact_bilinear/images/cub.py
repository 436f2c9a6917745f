"""Caltech-UCSD Birds-200-2011 (Wah, Branson, Welinder, Perona & Belongie, 2011): 200 species of birds.

What lies in the folder, four tables of lines ``number value`` beside the images::

    CUB_200_2011/
    ├── images.txt               1 001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg
    ├── image_class_labels.txt   1 1          (of image 1 the class)
    ├── train_test_split.txt     1 0          (of image 1 whether it is for training)
    ├── classes.txt              1 001.Black_footed_Albatross
    └── images/001.Black_footed_Albatross/...
"""

from pathlib import Path

from .image_list import ImageList, read_lines, require_counts, require_files

TABLES = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")
REMEDY = "Unpack CUB_200_2011.tgz anew, or give the archive itself."


def find(data: Path) -> Path | None:
    """The folder with the tables: this one or one below it; None if it does not look like CUB at all."""
    for folder in (data, data / "CUB_200_2011", data / "CUB_200_2011" / "CUB_200_2011"):
        if sum((folder / table).is_file() for table in TABLES) >= 2:
            return folder
    return None


def read(root: Path, *, check_counts: bool = True) -> ImageList:
    """Read the tables of CUB-200-2011.

    Args:
        root: the folder with ``images.txt``.
        check_counts: refuse another number than 5994 training images, 5794 test images and 200 classes.
    """
    files, labels, training, classes = (_table(root / name) for name in TABLES)
    numbers = list(classes)
    for name, table in zip(TABLES[1:3], (labels, training), strict=True):
        if table.keys() != files.keys():
            odd = min(table.keys() ^ files.keys())
            raise ValueError(f"images.txt and {name} in {root} do not list the same images: only one has {odd}.\n{REMEDY}")
    for image, label in labels.items():
        if not label.isdecimal() or int(label) not in classes:
            raise ValueError(
                f"image_class_labels.txt gives image {image} the class {label}, which classes.txt lacks.\n{REMEDY}"
            )
        if training[image] not in ("0", "1"):
            raise ValueError(f"train_test_split.txt says {training[image]!r} of image {image} in place of 0 or 1.\n{REMEDY}")
    images = ImageList(
        name="cub",
        root=root / "images",
        classes=tuple(classes.values()),
        paths=tuple(files.values()),
        labels=tuple(numbers.index(int(labels[image])) for image in files),
        splits=tuple("train" if training[image] == "1" else "test" for image in files),
    )
    if check_counts:
        require_counts(images, 5994, 5794, 200, REMEDY)
    require_files(images, "images.txt", REMEDY)
    return images


def _table(file: Path) -> dict[int, str]:
    """Lines ``number value`` as a dictionary in the order of the numbers."""
    table = {}
    for place, line in enumerate(read_lines(file, "CUB-200-2011", REMEDY), start=1):
        number, _, value = line.strip().partition(" ")
        if not number.isdecimal() or not value or int(number) in table:
            raise ValueError(f"Line {place} of {file} should be a number of its own and a value, but is {line!r}.\n{REMEDY}")
        table[int(number)] = value
    return dict(sorted(table.items()))
