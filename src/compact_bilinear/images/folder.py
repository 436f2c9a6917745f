"""Anybody's images: a folder for each class.

::

    photos/train/CLASS/...  and  photos/test/CLASS/...    a split that was made already; there may be a val/ too
    photos/CLASS/...                                      a split is drawn from a seed, in the same proportion in each class
    photos/...                                            images alone: nothing to learn from, but to search in and to label

An image may lie any number of folders below its class. Files and folders whose names begin with a dot, and those that macOS and
Windows strew about, are passed over; any other file that is no image by its name is listed as left out, for someone to look at.
"""

import unicodedata
from collections.abc import Iterator
from pathlib import Path

from .decode import SUFFIXES
from .image_list import SPLITS, UNLABELLED, ImageList, stratified

STREWN = {"__macosx", "thumbs.db", "desktop.ini", "@eadir"}


def read(root: Path, *, test_share: float = 0.5, seed: int = 0) -> ImageList:
    """List the images of a folder.

    Args:
        root: the folder.
        test_share: where no split was made, the part of each class that is tested on.
        seed: what that split is drawn from.
    """
    folders = sorted(each for each in root.iterdir() if each.is_dir() and not _is_strewn(each.name))
    if not folders:
        paths, left_out = _images(root, root)
        _require_some(paths, root)
        return ImageList(
            root.name, root, (), tuple(paths), (UNLABELLED,) * len(paths), ("",) * len(paths), tuple(sorted(left_out))
        )
    # folders all of whose names are splits hold splits; one more and `train` is a class, of vehicles perhaps
    splits = [(SPLITS[each.name.lower()], each) for each in folders if each.name.lower() in SPLITS]
    if len(splits) < len(folders):
        splits = [("", root)]
    elif [split for split, _ in splits].count("train") != 1 or len(splits) < 2 or len(dict(splits)) < len(splits):
        raise ValueError(
            f"A folder of splits holds train/ and test/, but {root} holds {', '.join(each.name + '/' for each in folders)}.\n"
            "Add what is missing, or give the folder that holds a folder for each class, and a split is drawn."
        )
    found: list[tuple[str, str, str]] = []  # split, class, path
    left_out = [each.relative_to(root).as_posix() for each in _visible(root) if not each.is_dir()]
    for split, folder in splits:
        left_out += [each.relative_to(root).as_posix() for each in _visible(folder) if not each.is_dir() and folder != root]
        for class_folder in (each for each in _visible(folder) if each.is_dir()):
            paths, others = _images(class_folder, root)
            left_out += others
            found += [(split, class_folder.name, path) for path in paths]
            if not paths and split != "test":
                raise ValueError(
                    f"Every class needs an image, but {class_folder} has none that can be told by its name.\n"
                    f"Remove the folder or fill it; images end in one of {' '.join(sorted(SUFFIXES))}."
                )
    return _list(root, found, left_out, test_share, seed)


def _list(root: Path, found: list[tuple[str, str, str]], left_out: list[str], test_share: float, seed: int) -> ImageList:
    _require_some([path for _, _, path in found], root)
    classes = sorted({name for _, name, _ in found})
    alike: dict[str, str] = {}
    for name in classes:
        twin = alike.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
        if twin != name:
            raise ValueError(
                f"The classes {twin!r} and {name!r} in {root} differ only in how they are written.\n"
                "If they are one class, give both folders one name; if not, give them names that can be told apart."
            )
    for split in {split for split, _, _ in found} - {"train", ""}:
        untrained = {name for each, name, _ in found if each == split} - {name for each, name, _ in found if each == "train"}
        if untrained:
            raise ValueError(
                f"The classes in {split}/ should be in train/ too, but {len(untrained)} are not, {min(untrained)} for one.\n"
                f"Add their training images in {root}, or remove them from {split}/."
            )
    label = {name: number for number, name in enumerate(classes)}
    paths = tuple(path for _, _, path in found)
    labels = tuple(label[name] for _, name, _ in found)
    drawn = found[0][0] == ""
    splits = stratified(paths, labels, test_share, seed) if drawn else tuple(split for split, _, _ in found)
    return ImageList(root.name, root, tuple(classes), paths, labels, splits, tuple(sorted(left_out)))


def _images(folder: Path, root: Path) -> tuple[list[str], list[str]]:
    """Paths of the images below a folder, in order, and of what else lies there."""
    paths, others = [], []
    for file in _walk(folder, set()):
        path = file.relative_to(root).as_posix()
        if not _is_text(path):
            others.append(path.encode("utf-8", "backslashreplace").decode())
        elif file.suffix.lower() in SUFFIXES:
            paths.append(path)
        else:
            others.append(path)
    return paths, others


def _walk(folder: Path, above: set[tuple[int, int]]) -> Iterator[Path]:
    """Files below a folder in the order of their names. Links are followed, but not in circles."""
    status = folder.stat()
    here = (status.st_dev, status.st_ino)
    if here in above:
        return
    for each in _visible(folder):
        if each.is_dir():
            yield from _walk(each, above | {here})
        else:
            yield each


def _visible(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if not _is_strewn(each.name))


def _is_strewn(name: str) -> bool:
    return name.startswith(".") or name.lower() in STREWN


def _is_text(name: str) -> bool:
    # a name that is no UTF-8 comes with surrogates, which can be written into no manifest
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _require_some(paths: list[str], root: Path) -> None:
    if not paths:
        raise ValueError(
            f"A folder of images is expected, but {root} has no file that ends in one of {' '.join(sorted(SUFFIXES))}.\n"
            "Give the folder that holds train/ and test/, or a folder for each class, or the images; or a CSV that lists them."
        )
