"""Training descriptors to fit PCA and mixtures on, of some images; and their maps, so that no image is looked at twice.

What is fitted on descriptors has to see some before the first image can be pooled. The maps of the images that they are taken
from are kept in a folder until those images' turn comes.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from ..whole_file import WholeFile, undamaged


class Part(NamedTuple):
    """Some images whose maps go into one file."""

    number: int
    places: tuple[int, ...]


def draw_places(splits: Sequence[str], count: int, seed: int) -> list[int]:
    """Places of ``count`` training images drawn from a seed, or of all; of all images where none is said to be for training.

    >>> draw_places(["train", "test", "train", "train"], 2, seed=0)
    [0, 3]
    """
    training = [place for place, split in enumerate(splits) if split == "train"] or list(range(len(splits)))
    chosen = np.random.default_rng(seed).permutation(len(training))[:count]
    return [training[each] for each in sorted(chosen.tolist())]


class KeptMaps:
    """The maps of some images in a folder, a file for each few of them.

    Args:
        folder: where.
        places: of the images in their list.
        batch: how many go into one file.
    """

    def __init__(self, folder: Path, places: Sequence[int], batch: int) -> None:
        self.folder = folder
        self.count = len(places)
        self.parts = [Part(first // batch, tuple(places[first : first + batch])) for first in range(0, len(places), batch)]
        self._found: dict[int, tuple[Path, int]] | None = None

    def missing(self) -> list[Part]:
        """What is still to be kept."""
        return [part for part in self.parts if not self._file(part).exists()]

    def keep(self, part: Part, places: Sequence[int], maps: Tensor) -> None:
        """Write one file.

        Args:
            part: which.
            places: those of its images that were not broken.
            maps: theirs, (b, c, h, w) or (b, n, c).
        """
        self.folder.mkdir(exist_ok=True)
        with WholeFile(self._file(part)) as file:
            # save_file() would make a file that nobody else may read
            file.write_bytes(save({"places": torch.tensor(places, dtype=torch.int64), "maps": maps.cpu().contiguous()}))

    def split(self, places: Sequence[int]) -> tuple[list[int], list[int]]:
        """Those of some places whose maps are here, and those whose are not."""
        if self._found is None:
            self._found = {}
            for part in self.parts:
                if self._file(part).exists():
                    with undamaged(self._file(part)), safe_open(self._file(part), "pt") as file:
                        rows = enumerate(file.get_tensor("places").tolist())
                        self._found |= {place: (self._file(part), row) for row, place in rows}
        return [each for each in places if each in self._found], [each for each in places if each not in self._found]

    def read(self, places: Sequence[int]) -> Tensor:
        """The maps of some places whose maps are here."""
        here, absent = self.split(places)
        if absent or self._found is None:
            raise ValueError(
                f"Maps of {len(places)} images are wanted, but {self.folder} lacks {len(absent)}.\nSplit them first."
            )
        maps = []
        for place in here:
            path, row = self._found[place]
            with undamaged(path), safe_open(path, "pt") as file:
                maps.append(file.get_slice("maps")[row : row + 1])
        return torch.cat(maps)

    def descriptors(self, limit: int, seed: int) -> Tensor:
        """Descriptors (m, c) drawn from all maps, as many of each image, at most ``limit`` in all; in float32."""
        chosen = list(self._rows(max(limit // max(self.count, 1), 1), seed))
        if not chosen:
            raise ValueError(
                "Some training images are needed to fit on, but none of those drawn could be read.\nCheck the images."
            )
        return torch.cat(chosen)[:limit]

    def remove(self) -> None:
        """Free the room that they take."""
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def _rows(self, count: int, seed: int) -> Iterator[Tensor]:
        for part in self.parts:
            with undamaged(self._file(part)), safe_open(self._file(part), "pt") as file:
                places, maps = file.get_tensor("places").tolist(), file.get_slice("maps")
                for row, place in enumerate(places):
                    of_image = maps[row : row + 1]
                    descriptors = of_image[0].flatten(1).mT if of_image.ndim == 4 else of_image[0]
                    # a generator for each image: what is drawn of one does not depend on which others are broken
                    drawn = np.random.default_rng([seed, place]).permutation(len(descriptors))[:count]
                    yield descriptors[torch.from_numpy(drawn)].float()

    def _file(self, part: Part) -> Path:
        return self.folder / f"maps-{part.number:05}-of-{len(self.parts):05}.safetensors"
