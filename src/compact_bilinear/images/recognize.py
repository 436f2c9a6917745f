"""The one way in: a folder, a CSV or an archive, whichever data set it holds."""

from pathlib import Path
from typing import Literal, get_args

from . import csv_list, cub, dtd, folder, mit_indoor
from .archives import NOTE, SUFFIXES, is_archive, unpack
from .image_list import ImageList

Kind = Literal["auto", "cub", "mit", "dtd", "folder", "csv"]

SIGNS = {
    "cub": "images.txt, image_class_labels.txt, train_test_split.txt and classes.txt",
    "mit": "Images/, TrainImages.txt and TestImages.txt",
    "dtd": "images/ and labels/train1.txt",
    "folder": "train/ and test/, or a folder for each class, and no list of a known data set",
    "csv": "a file whose name ends in .csv or .tsv",
}


def read_images(
    data: Path | str,
    kind: Kind = "auto",
    *,
    partition: int = 1,
    test_share: float = 0.5,
    seed: int = 0,
    check_counts: bool = True,
) -> ImageList:
    """List the images that lie somewhere, with their classes and splits.

    Args:
        data: a folder, a CSV, or an archive, which is unpacked beside where it lies.
        kind: which data set it must be; "auto" finds out.
        partition: of DTD, which of its ten.
        test_share: of folders and CSVs without a split, the part of each class that is tested on.
        seed: what that split is drawn from.
        check_counts: of CUB, MIT and DTD, whether to insist on their numbers of images.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"read_images knows the kinds {', '.join(get_args(Kind))}, but got {kind!r}.\nWrite one of these.")
    data = Path(data)
    if not data.exists():
        raise ValueError(f"Images are read from a folder, a CSV or an archive, but {data} does not exist.\nCheck its name.")
    found, root = recognize(data)
    if kind not in ("auto", found):
        raise ValueError(
            f"{data} should be of the kind {kind}, which is {SIGNS[kind]}, but looks like {found}.\n"
            f"Ask for {found} or auto, or give the place where {kind} lies."
        )
    if found == "cub":
        return cub.read(root, check_counts=check_counts)
    if found == "mit":
        return mit_indoor.read(root, check_counts=check_counts)
    if found == "dtd":
        return dtd.read(root, partition=partition, check_counts=check_counts)
    if found == "csv":
        return csv_list.read(root, test_share=test_share, seed=seed)
    return folder.read(root, test_share=test_share, seed=seed)


def recognize(data: Path) -> tuple[str, Path]:
    """The kind of data, and the place from which its own reader reads. Nothing is read yet; an archive is unpacked."""
    if data.suffix.lower() in (".csv", ".tsv") and data.is_file():
        return "csv", data
    unpacked = None
    if not data.is_dir():
        if not is_archive(data):
            raise ValueError(
                f"Images are read from a folder, a CSV or an archive, but {data} is none of them by its name.\n"
                f"Rename it if it is one: .csv, .tsv, or {' '.join(SUFFIXES)}."
            )
        data = unpacked = unpack(data)
    for kind, find in (("cub", cub.find), ("mit", mit_indoor.find), ("dtd", dtd.find)):
        root = find(data)
        if root is not None:
            return kind, root
    if unpacked is not None:
        entries = [each for each in data.iterdir() if each.name != NOTE]
        if len(entries) == 1 and entries[0].is_dir():  # photos.zip holds photos/, and that the classes
            data = entries[0]
    return "folder", data
