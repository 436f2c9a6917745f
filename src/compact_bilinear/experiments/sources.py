"""The images of an experiment: the paper's data sets, anybody's folder, or textures out of a formula."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..images import ImageList, read_images
from ..images.recognize import recognize
from ..images.textures import write_textures
from ..progress import note

PAPER = {"cub": "CUB", "mit": "MIT", "dtd": "DTD"}  # what the package calls them, and what the paper does
TEXTURES = {"classes": 10, "images_per_class": 40, "size": 64}
COLUMNS = {"path", "label", "split"}


@dataclass(frozen=True)
class Source:
    """One data set, with one split or several.

    Args:
        name: "CUB", "MIT" or "DTD" if it is one of the paper's, else that of the folder.
        lists: what :func:`~compact_bilinear.images.read_images` takes, one for each split.
        of_paper: it is the paper's, whole, so that the paper's numbers may stand beside ours.
        check_counts: the paper's have to be whole.
    """

    name: str
    lists: tuple[Path, ...]
    of_paper: bool
    check_counts: bool = True

    def number(self, repetition: int) -> int:
        """The split that a repetition takes."""
        return repetition % len(self.lists)

    def split(self, number: int) -> str:
        """What a split is called; "" where there is only one."""
        return self.lists[number].stem if len(self.lists) > 1 else ""

    def images(self, number: int = 0) -> ImageList:
        """The images of a split, checked for being something to learn from."""
        images = read_images(self.lists[number], check_counts=self.check_counts)
        counts = images.counts()
        if len(images.classes) < 2 or not counts.get("train") or not counts.get("test"):
            raise ValueError(
                f"An experiment trains on some images of two classes or more and tests on others, but {images}.\n"
                "Give a folder with a folder of images for each class, or with train/ and test/, or a CSV with labels."
            )
        return images


def find_sources(folders: Sequence[Path], check_counts: bool = True) -> tuple[Source, ...]:
    """Recognise data sets.

    Args:
        folders: a folder of images, a CSV, or an archive; or a folder with several CSVs, each a split of the same images.
        check_counts: refuse a data set of the paper that is not whole; otherwise it is taken for what it is, a part.
    """
    sources = [_source(folder, check_counts) for folder in folders]
    names = [source.name for source in sources]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise ValueError(
            f"Every data set is given once, but two of {', '.join(map(str, folders))} are called {twice}.\n"
            "Leave one out, or rename its folder."
        )
    return tuple(sources)


def write_source(folder: Path) -> Source:
    """Textures as files, written once: what there is where nothing was given.

    Args:
        folder: where to.
    """
    if not folder.exists():
        note(f"no --data: textures out of a formula are written into {folder}")
        write_textures(folder, **TEXTURES)
    return Source("textures", (folder,), of_paper=False)


def _source(data: Path, check_counts: bool) -> Source:
    if not data.exists():
        raise ValueError(
            f"Images are read from a folder, a CSV or an archive, but {data} does not exist.\n"
            "Check its name; `cbp fetch cub --to data/cub` downloads a data set of the paper."
        )
    kind, _ = recognize(data)
    if kind in PAPER:
        return Source(PAPER[kind] if check_counts else f"{PAPER[kind]}, a part", (data,), check_counts, check_counts)
    lists = _lists(data) if kind == "folder" and data.is_dir() else ()
    name = data.stem if kind == "csv" else data.resolve().name.partition(".")[0]
    return Source(name, lists or (data,), of_paper=False)


def _lists(folder: Path) -> tuple[Path, ...]:
    """The CSVs of a folder that split images: other tables may lie there too."""
    return tuple(file for file in sorted(folder.glob("*.csv")) if _columns(file) >= COLUMNS)


def _columns(file: Path) -> set[str]:
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        first = next(csv.reader(lines), [])
    return {name.strip().lower() for name in first}
