"""Anybody's images: a folder for each class.

::

    photos/train/CLASS/...  and  photos/test/CLASS/...    a split that was made already; there may be a val/ too
    photos/CLASS/...                                      a split is drawn from a seed, in the same proportion in each class
    photos/...                                            images alone: nothing to learn from, but to search in and to label

An image may lie any number of folders below its class. Files and folders whose names begin with a dot, and those that macOS and
Windows strew about, are passed over; any other file that is no image by its name is listed as left out, for someone to look at.
"""

import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

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
    name = root.resolve().name
    folders = _folders(root)
    if not folders:
        paths, left_out = _images(root, root)
        _require_some(paths, root)
        return ImageList(name, root, (), tuple(paths), (UNLABELLED,) * len(paths), ("",) * len(paths), tuple(sorted(left_out)))
    # folders all of whose names are splits hold splits; one more and `train` is a class, of vehicles perhaps
    splits = [(SPLITS[each.name.lower()], each) for each in folders if each.name.lower() in SPLITS]
    if len(splits) < len(folders):
        splits = [("", root)]
    elif "train" not in dict(splits) or len(splits) < 2 or len(dict(splits)) < len(splits):
        raise ValueError(
            f"A folder of splits holds train/ and test/, but {root} holds {', '.join(each.name + '/' for each in folders)}.\n"
            "Add what is missing, or give the folder that holds a folder for each class, and a split is drawn."
        )
    if len(folders) == 1 and _folders(folders[0]):
        lists = [each.name for each in sorted(root.glob("*.csv"))]
        raise ValueError(
            f"A folder for each class is expected, but {root} holds one folder, which holds others.\n"
            f"Give {' or '.join(map(str, (folders[0], *lists)))}."
        )
    found: list[tuple[str, str, str]] = []  # split, class, path
    left_out = []
    for folder in sorted({root, *(folder for _, folder in splits)}):
        stray, others = _images(folder, root, deep=False)
        if stray:
            raise ValueError(
                f"An image lies in the folder of its class, but {len(stray)} lie beside such folders in {folder}, {stray[0]} "
                "for one.\nMove them into a class, or out of this folder."
            )
        left_out += others
    for split, folder in splits:
        for class_folder in _folders(folder):
            paths, others = _images(class_folder, root)
            left_out += others
            found += [(split, class_folder.name, path) for path in paths]
            if not paths and split in ("train", ""):
                raise ValueError(
                    f"Every class needs an image, but {class_folder} has none that can be told by its name.\n"
                    f"Remove the folder or fill it; images end in one of {' '.join(sorted(SUFFIXES))}."
                )
    return _list(name, root, found, left_out, test_share, seed)


def _list(
    name: str, root: Path, found: list[tuple[str, str, str]], left_out: list[str], test_share: float, seed: int
) -> ImageList:
    _require_some([path for _, _, path in found], root)
    classes = sorted({name for _, name, _ in found})
    alike: dict[str, str] = {}
    for each in classes:
        twin = alike.setdefault(unicodedata.normalize("NFC", each).casefold(), each)
        if twin != each:
            raise ValueError(
                f"The classes {twin!r} and {each!r} in {root} differ only in how they are written.\n"
                "If they are one class, give both folders one name; if not, give them names that can be told apart."
            )
    trained = {of for split, of, _ in found if split == "train"}
    for tested in {split for split, _, _ in found} - {"train", ""}:
        untrained = {of for split, of, _ in found if split == tested} - trained
        if untrained:
            raise ValueError(
                f"The classes in {tested}/ should be in train/ too, but {len(untrained)} are not, {min(untrained)} for one.\n"
                f"Add their training images in {root}, or remove them from {tested}/."
            )
    label = {of: number for number, of in enumerate(classes)}
    paths, labels = tuple(path for _, _, path in found), tuple(label[of] for _, of, _ in found)
    splits = tuple(split for split, _, _ in found)
    if "" in splits:
        splits = stratified(paths, labels, test_share, seed)
    return ImageList(name, root, tuple(classes), paths, labels, splits, tuple(sorted(left_out)))


def _folders(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir() and not _is_strewn(each.name))


def images_below(folder: Path) -> tuple[list[str], list[str]]:
    """Paths of the images anywhere below a folder, relative to it and in order, and of the other files."""
    return _images(folder, folder)


def _images(folder: Path, root: Path, *, deep: bool = True) -> tuple[list[str], list[str]]:
    """Paths of the images below a folder, in order, and of what else lies there."""
    start = folder.relative_to(root).as_posix()
    paths: list[str] = []
    others: list[str] = []
    for path in _walk(folder, "" if start == "." else f"{start}/", set(), deep):
        try:
            path.encode()
        except UnicodeEncodeError:  # a name that is no UTF-8 can be written into no manifest
            others.append(path.encode("utf-8", "backslashreplace").decode())
            continue
        (paths if PurePosixPath(path).suffix.lower() in SUFFIXES else others).append(path)
    return paths, others


def _walk(folder: Path, start: str, above: set[tuple[int, int]], deep: bool) -> Iterator[str]:
    """Files below a folder in the order of their names. Links are followed, but not in circles."""
    status = folder.stat()
    here = (status.st_dev, status.st_ino)
    if here in above:
        return
    with os.scandir(folder) as entries:  # which knows what is a folder without asking for each, where there are millions
        seen = sorted((entry.name, entry.is_dir(), entry.path) for entry in entries if not _is_strewn(entry.name))
    for name, is_folder, path in seen:
        if not is_folder:
            yield start + name
        elif deep:
            yield from _walk(Path(path), f"{start}{name}/", above | {here}, deep)


def _is_strewn(name: str) -> bool:
    return name.startswith(".") or name.lower() in STREWN


def _require_some(paths: list[str], root: Path) -> None:
    if not paths:
        raise ValueError(
            f"A folder of images is expected, but {root} has no file that ends in one of {' '.join(sorted(SUFFIXES))}.\n"
            "Give the folder that holds train/ and test/, or a folder for each class, or the images; or a CSV that lists them."
        )
