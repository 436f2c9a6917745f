"""MIT Indoor Scenes (Quattoni & Torralba, CVPR 2009): 67 kinds of rooms.

The archive has 15620 images, of which two lists, to be downloaded beside it, choose 5360 for training and 1340 for testing, 80
and 20 of a class give or take three::

    ├── TrainImages.txt    gameroom/bt_132294gameroom2.jpg
    ├── TestImages.txt     kitchen/int474.jpg
    └── Images/kitchen/int474.jpg ...

The paper's Table 5 has 4017 training and 1339 test images. Which these were is not to be had any more, so its numbers and those
of these lists are of different splits.
"""

from pathlib import Path

from .image_list import ImageList, classed_by_folder, read_class_files, require_counts, require_files

LISTS = {"train": "TrainImages.txt", "test": "TestImages.txt"}
REMEDY = "Unpack indoorCVPR_09.tar, and put TrainImages.txt and TestImages.txt beside its folder Images."


def find(data: Path) -> Path | None:
    """The folder that holds Images/: this one or one below it; None if it does not look like MIT Indoor at all."""
    for folder in (data, data / "indoorCVPR_09", data / "indoorCVPR_09" / "indoorCVPR_09"):
        has_list = any((place / name).is_file() for place in (folder, data) for name in LISTS.values())
        if (folder / "Images").is_dir() and (has_list or (folder / "Images" / "airport_inside").is_dir()):
            return folder
    return data if any((data / name).is_file() for name in LISTS.values()) else None


def read(root: Path, *, check_counts: bool = True) -> ImageList:
    """Read the two lists of MIT Indoor.

    Args:
        root: the folder with ``Images``; the lists lie in it or in one of the two folders above.
        check_counts: refuse another number than 5360 training images, 1340 test images and 67 classes.
    """
    paths, splits = [], []
    for split, name in LISTS.items():
        places = [place / name for place in (root, *root.parents[:2])]
        lines = read_class_files(next((each for each in places if each.is_file()), places[0]), "MIT Indoor", REMEDY)
        paths += lines
        splits += [split] * len(lines)
    images = classed_by_folder("mit", root / "Images", paths, splits, REMEDY)
    if check_counts:
        require_counts(images, 5360, 1340, 67, REMEDY)
    require_files(images, "TrainImages.txt with TestImages.txt", REMEDY)
    return images
