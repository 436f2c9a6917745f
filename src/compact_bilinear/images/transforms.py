"""Images of any size to tensors of one size: cut, flipped and scaled where they are decoded.

What comes out is bytes, a fourth of what floats would take on their way to the GPU. Backbones take them as they are, and
subtract the mean that their weights were trained with.
"""

import json
import random
from dataclasses import asdict, dataclass
from typing import Literal, Self, get_args

import numpy as np
import torch
from PIL import Image
from torch import Tensor

Fit = Literal["stretch", "center-crop", "random-crop"]
Flip = Literal["never", "random", "always"]


@dataclass(frozen=True)
class Transform:
    """Image to (3, S, S), S being ``size``.

    Random crops and flips are drawn from (seed, epoch, index) and nothing else: they are the same in whatever order, in
    whichever process, and on whatever machine the image is read.

    >>> transform = Transform(size=2, fit="stretch")
    >>> transform.pixels(Image.new("RGB", (300, 200), (124, 116, 104)))[0]
    tensor([[124, 124],
            [124, 124]], dtype=torch.uint8)
    >>> Transform.from_json(transform.to_json()) == transform
    True
    """

    size: int = 448
    """S, the side of what the network sees; the paper's is 448."""
    fit: Fit = "stretch"
    """How an image of other proportions gets there: stretched, as in the paper; or its shorter side resized to `shorter`, and
    a square cut out of the middle, or out of a random place."""
    shorter: int = 0
    """The shorter side before cutting; 0 is size · 8/7, 512 for 448 and 256 for 224. Stretching has no use for it."""
    flip: Flip = "never"
    """Whether left and right are exchanged."""
    seed: int = 0
    """What random crops and flips are drawn from."""

    def __post_init__(self) -> None:
        if self.size < 1 or self.shorter < 0 or 0 < self.shorter < self.size:
            raise ValueError(
                f"Transform cuts a square of size={self.size} from an image with a shorter side of {self.shorter}.\n"
                "Write a size ≥ 1 and a shorter side of at least that, or 0 for size · 8/7."
            )
        for name, value, known in (("fit", self.fit, get_args(Fit)), ("flip", self.flip, get_args(Flip))):
            if value not in known:
                raise ValueError(f"Transform knows no {name}={value!r}.\nWrite one of {', '.join(map(repr, known))}.")

    @property
    def reads(self) -> int:
        """Pixels that both sides of a decoded image should have at least: what ``draft`` of a JPEG may leave."""
        return self.size if self.fit == "stretch" else self.shorter or round(self.size * 8 / 7)

    def pixels(self, image: Image.Image, *, epoch: int = 0, index: int = 0) -> Tensor:
        """An RGB image cut and flipped, (3, S, S) in uint8. In memory colours come last, as in Pillow and as GPUs like it.

        Args:
            image: what :func:`~compact_bilinear.images.decode.decode` gives.
            epoch, index: which pass over which image this is; they decide what is drawn.
        """
        # a string is hashed, so that neighbours in seed, epoch and index have nothing in common
        draw = random.Random(f"{self.seed}/{epoch}/{index}")
        x, y, flip = draw.random(), draw.random(), draw.random() < 0.5
        if self.fit == "stretch":
            image = image.resize((self.size, self.size), Image.Resampling.BILINEAR)
        else:
            if self.fit == "center-crop":
                x = y = 0.5
            # where the square lies in the image as it is: only what is seen is resized, however long the image
            side = self.size * min(image.size) / self.reads
            left, top = x * (image.width - side), y * (image.height - side)
            box = (left, top, min(left + side, image.width), min(top + side, image.height))
            image = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)
        if self.flip == "always" or (self.flip == "random" and flip):
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)

    def to_json(self) -> str:
        """All settings, as :meth:`from_json` reads them."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """A transform that was written with :meth:`to_json`."""
        settings = json.loads(text)
        unknown = settings.keys() - cls.__dataclass_fields__.keys()
        if unknown:
            raise ValueError(
                f"A transform has the settings {', '.join(cls.__dataclass_fields__)}, but got {', '.join(sorted(unknown))}.\n"
                "It was written by another version: make the file anew, or install that version."
            )
        return cls(**settings)
