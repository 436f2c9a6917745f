"""Poolings as they are written on a command line: ``NAME[:DIM][,OPTION...]``, for instance ``tensor-sketch:8192,seed=1``."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from .average_pool import AveragePool
from .fisher_vector import FisherVector
from .full_bilinear import FullBilinear
from .pca_bilinear import PCABilinear
from .random_maclaurin import RandomMaclaurin
from .random_projection import RandomProjection
from .tensor_sketch import TensorSketch

Build = Callable[[int, int, int, bool, bool], nn.Module]  # of channels, DIM, seed, and whether it is sparse, and learnable


class _Known(NamedTuple):
    """What may be written after a name."""

    build: Build
    dim: int = 0  # the one taken where none is written; 0 where none may be
    options: tuple[str, ...] = ()
    learns: bool = False  # it has a projection that can be trained
    tap: str | None = None  # the layer that it is a pooling of; None for any


# d = 8192 and 64 Gaussians are the paper's; 4096 are 64 principal components
POOLINGS = {
    "average-pool": _Known(lambda c, d, seed, sparse, learn: AveragePool(c)),
    "fisher-vector": _Known(lambda c, k, seed, sparse, learn: FisherVector(c, k), 64, ("seed",)),
    "full-bilinear": _Known(lambda c, d, seed, sparse, learn: FullBilinear(c)),
    "full-bilinear-triangle": _Known(lambda c, d, seed, sparse, learn: FullBilinear(c, triangle=True)),
    # the paper's baseline without any pooling: the network's own last layers, of which there is one location
    "fully-connected": _Known(lambda c, d, seed, sparse, learn: AveragePool(c), tap="fc7"),
    "pca-bilinear": _Known(lambda c, d, seed, sparse, learn: PCABilinear(c, d, learn), 4096, learns=True),
    "random-maclaurin": _Known(
        lambda c, d, seed, sparse, learn: RandomMaclaurin(c, d, seed, learn), 8192, ("seed",), learns=True
    ),
    "random-projection": _Known(
        lambda c, d, seed, sparse, learn: RandomProjection(c, d, seed, sparse=sparse), 8192, ("seed", "sparse")
    ),
    "tensor-sketch": _Known(lambda c, d, seed, sparse, learn: TensorSketch(c, d, seed, learn), 8192, ("seed",), learns=True),
}


class NamedPooling(NamedTuple):
    """What :func:`read_pooling` understood; as a string the same again, in full but for a seed of 0."""

    name: str
    dim: int
    seed: int = 0
    sparse: bool = False

    def __str__(self) -> str:
        """The text that names a column of features."""
        options = [f"seed={self.seed}"] * bool(self.seed) + ["sparse"] * self.sparse
        return ",".join([f"{self.name}:{self.dim}" if self.dim else self.name, *options])

    @property
    def before_relu(self) -> bool:
        """Whether it pools descriptors before their last ReLU, as the paper does for Fisher vectors."""
        return self.name == "fisher-vector"

    @property
    def tap(self) -> str | None:
        """The only tap of a backbone that it takes; None where it takes any."""
        return POOLINGS[self.name].tap

    def build(self, channels: int, learnable: bool = False) -> nn.Module:
        """The layer for descriptors of so many channels. PCA and Fisher vectors are still to be fitted.

        Args:
            channels: c.
            learnable: its projection is to be trained.
        """
        if learnable and not POOLINGS[self.name].learns:
            learning = ", ".join(name for name, known in POOLINGS.items() if known.learns)
            raise ValueError(f"{self.name} has no projection that could be learned.\nTake {learning}, or leave it fixed.")
        return POOLINGS[self.name].build(channels, self.dim, self.seed, self.sparse, learnable)

    def fit(self, layer: nn.Module, descriptors: Tensor) -> None:
        """Fit a layer that :meth:`build` built, if it is one that can be fitted.

        Args:
            layer: which.
            descriptors: (m, c) of training images.
        """
        if isinstance(layer, FisherVector):
            layer.fit(descriptors, self.seed)
        elif isinstance(layer, PCABilinear):
            layer.fit(descriptors)


def read_pooling(text: str) -> NamedPooling:
    """Understand ``NAME[:DIM][,seed=N][,sparse]``. DIM is d, for Fisher vectors the number of Gaussians.

    >>> read_pooling("tensor-sketch:4096,seed=1")
    NamedPooling(name='tensor-sketch', dim=4096, seed=1, sparse=False)
    >>> print(read_pooling("pca-bilinear"))
    pca-bilinear:4096
    """
    first, *options = text.split(",")
    name, colon, dim = first.partition(":")
    if name not in POOLINGS:
        raise ValueError(
            f"There is no pooling {name!r}.\nKnown are {', '.join(POOLINGS)}; write tensor-sketch:8192, for instance."
        )
    known = POOLINGS[name]
    if colon and not known.dim:
        raise ValueError(f"{name} has as many numbers as its descriptors decide, but got {text!r}.\nWrite {name} alone.")
    if colon and not (dim.isdecimal() and int(dim) > 0):
        what = "a number of Gaussians" if name == "fisher-vector" else "an output dimension"
        raise ValueError(f"{name} takes {what} ≥ 1 after its colon, but got {text!r}.\nWrite {name}:{known.dim}, for instance.")
    seed, sparse = 0, False
    for option in options:
        key, _, value = option.partition("=")
        if key not in known.options or not (value.isdecimal() if key == "seed" else option == "sparse"):
            examples = ",".join("seed=1" if each == "seed" else each for each in known.options)
            remedy = f"Write {name}:{known.dim},{examples}, for instance." if examples else f"Write {name} alone."
            raise ValueError(f"{name} has no option {option!r}.\n{remedy}")
        seed, sparse = (int(value), sparse) if key == "seed" else (seed, True)
    return NamedPooling(name, int(dim) if colon else known.dim, seed, sparse)
