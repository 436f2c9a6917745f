"""What poolings, backbones and stages are called on a page, in which order they come, and how they are drawn."""

from collections.abc import Iterable
from typing import NamedTuple


class Look(NamedTuple):
    """How one pooling appears in tables and figures."""

    name: str
    short: str  # the paper's, at the head of a column
    light: str  # its colour on white
    dark: str  # and on black
    marker: str  # so that it can be told from others without colour


# In the order of the paper's tables. The colours are those of Okabe and Ito, which colour-blind readers can tell apart, made
# darker on white and lighter on black until they have a contrast of 3 or more.
LOOKS = {
    "fully-connected": Look("fully connected", "FC", "#6b6b6b", "#a9a9a9", "X"),
    "average-pool": Look("average pooling", "average", "#8f6a00", "#e6b93c", "P"),
    "fisher-vector": Look("Fisher vector", "Fisher", "#a8487f", "#dd93bc", "v"),
    "full-bilinear": Look("full bilinear", "FB", "#222222", "#e8e8e8", "s"),
    "full-bilinear-triangle": Look("full bilinear, triangle", "FB triangle", "#555555", "#c4c4c4", "p"),
    "pca-bilinear": Look("PCA bilinear", "PCA", "#00795a", "#3fc49f", "D"),
    "random-projection": Look("random projection", "projection", "#2f86b5", "#7cc3ea", "h"),
    "random-projection,sparse": Look("sparse random projection", "sparse", "#7a7000", "#c9bd3a", "H"),
    "random-maclaurin": Look("random Maclaurin", "RM", "#c04f00", "#f08a4b", "^"),
    "tensor-sketch": Look("Tensor Sketch", "TS", "#0064a4", "#58a9e6", "o"),
}
# they draw nothing, and have one d
FIXED = ("fully-connected", "average-pool", "full-bilinear", "full-bilinear-triangle")
OTHER = Look("", "", "#7a5195", "#b58ad1", "*")
BACKBONES = {"vgg-m": "VGG-M", "vgg16": "VGG-D", "tiny": "tiny"}
DATA = ("CUB", "MIT", "DTD")
STAGES = ("linear", "fine-tuned", "fine-tuned, projection learned", "few-shot", "")
BEFORE, AFTER, LEARNED = STAGES[:3]


def method(pooling: str) -> str:
    """A pooling without its dimension and its seed.

    >>> method("tensor-sketch:8192,seed=1"), method("random-projection:64,sparse")
    ('tensor-sketch', 'random-projection,sparse')
    """
    first, *options = pooling.split(",")
    return ",".join([first.partition(":")[0], *(each for each in options if not each.startswith("seed="))])


def look(pooling: str) -> Look:
    """How a pooling appears; one that is not known, by the text that it has."""
    known = LOOKS.get(method(pooling))
    return known or OTHER._replace(name=pooling, short=pooling)


def headings(poolings: Iterable[str]) -> dict[str, str]:
    """The heading of a column for each pooling, in the paper's order; with its dimension where the name alone would not do.

    >>> headings(["tensor-sketch:8192", "full-bilinear", "pca-bilinear:4096", "pca-bilinear:256"])
    {'full-bilinear': 'FB', 'pca-bilinear:256': 'PCA 256', 'pca-bilinear:4096': 'PCA 4096', 'tensor-sketch:8192': 'TS'}
    """
    ordered = sorted(set(poolings), key=place)
    methods = [method(pooling) for pooling in ordered]
    return {pooling: look(pooling).short if methods.count(method(pooling)) == 1 else _with_dim(pooling) for pooling in ordered}


def place(pooling: str) -> tuple[int, int, str]:
    """A key to sort poolings by: the paper's order, then the dimension."""
    order = list(LOOKS)
    name, dim = method(pooling), _dim(pooling)
    return order.index(name) if name in order else len(order), int(dim) if dim.isdecimal() else 0, pooling


def stage_place(stage: str) -> tuple[int, str]:
    """A key to sort stages by: those of the paper, then others by name."""
    return STAGES.index(stage) if stage in STAGES else len(STAGES), stage


def data_place(data: str) -> tuple[int, str]:
    """A key to sort data sets by: the paper's, then others by name."""
    return DATA.index(data) if data in DATA else len(DATA), data


def backbone_place(backbone: str) -> tuple[int, str]:
    """A key to sort backbones by: the paper's, then others by name."""
    order = list(BACKBONES)
    return order.index(backbone) if backbone in order else len(order), backbone


def _dim(pooling: str) -> str:
    return pooling.partition(",")[0].partition(":")[2]


def _with_dim(pooling: str) -> str:
    seed = [each for each in pooling.split(",")[1:] if each.startswith("seed=")]
    return " ".join(filter(None, [look(pooling).short, _dim(pooling), *seed]))
