"""``--only CUB/VGG-D/TS``: a part of an experiment, in the paper's names or in the package's."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..pooling.by_name import POOLINGS

# what the paper calls them
BACKBONES = {"vgg-d": "vgg16", "vgg16": "vgg16", "vgg-m": "vgg-m", "tiny": "tiny"}
METHODS = {
    "fb": "full-bilinear",
    "fc": "fully-connected",
    "fisher": "fisher-vector",
    "fv": "fisher-vector",
    "pca": "pca-bilinear",
    "rm": "random-maclaurin",
    "rp": "random-projection",
    "ts": "tensor-sketch",
} | {name: name for name in POOLINGS}
DATA = ("CUB", "MIT", "DTD")


@dataclass(frozen=True)
class Only:
    """What is to be measured; an empty set is everything.

    >>> only = Only.of(["CUB/TS,RM"], data=["CUB", "DTD"])
    >>> only.allows("CUB", "vgg16", "tensor-sketch:8192"), only.allows("DTD", "vgg16", "tensor-sketch:8192")
    (True, False)
    """

    data: frozenset[str] = frozenset()
    backbones: frozenset[str] = frozenset()
    poolings: frozenset[str] = frozenset()

    @classmethod
    def of(cls, texts: Iterable[str], data: Sequence[str] = ()) -> "Only":
        """Understand parts between slashes, each a data set, a backbone or a pooling, or several of a kind with commas.

        Args:
            texts: as they were written; several are taken together.
            data: names of the data sets that there are beside the paper's.
        """
        names = {name.lower(): name for name in (*DATA, *data)}
        found: dict[str, set[str]] = {"data": set(), "backbones": set(), "poolings": set()}
        for part in (part.strip() for text in texts for piece in text.split("/") for part in piece.split(",")):
            key = part.lower()
            if key in names:
                found["data"].add(names[key])
            elif key in BACKBONES or key.startswith("timm:"):
                found["backbones"].add(read_backbone(part))
            elif key.partition(":")[0] in METHODS:
                method, colon, dim = key.partition(":")
                found["poolings"].add(f"{METHODS[method]}{colon}{dim}")
            else:
                raise ValueError(
                    f"--only takes data sets, backbones and poolings, but got {part!r}, which is none of them.\n"
                    f"Data sets are {', '.join(names.values())}; backbones VGG-M, VGG-D, tiny; poolings FC, FV, FB, RM, TS, "
                    "PCA, RP, or as in cbp extract."
                )
        return cls(**{kind: frozenset(values) for kind, values in found.items()})

    def allows(self, data: str, backbone: str, pooling: str) -> bool:
        """Whether a cell is wanted. A pooling without its dimension stands for all of them."""
        method = pooling.partition(":")[0].partition(",")[0]
        return (
            (not self.data or data in self.data)
            and (not self.backbones or backbone in self.backbones)
            and (not self.poolings or bool(self.poolings & {method, pooling}))
        )


def read_backbone(text: str) -> str:
    """A backbone as the package calls it.

    >>> read_backbone("VGG-D")
    'vgg16'
    """
    return BACKBONES.get(text.lower(), text)
