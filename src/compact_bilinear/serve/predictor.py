"""From image files to what there is to say of them: classes, evidence, neighbours. Knows nothing of HTTP."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from ..evidence import check_evidence, evidence_on
from ..images import BrokenImage, Transform
from ..images.decode import decode
from ..model import Model
from .answers import ClassScore, EvidenceMap, ImageResult, NeighbourInIndex
from .neighbours import Neighbours


class Wanted(NamedTuple):
    """How much is asked for each image; 0 for nothing."""

    classes: int = 0
    evidence: int = 0
    neighbours: int = 0


class Seen(NamedTuple):
    """An image as the model sees it, and what is asked of it."""

    pixels: Tensor  # (3, S, S), uint8
    box: tuple[float, float, float, float]  # what of the image that is: left, top, right, bottom, as parts of its sides
    wanted: Wanted


class Predictor:
    """A model, and an index if there is one.

    Args:
        model: in evaluation mode. Images are cut out of the middle and not flipped, where it would draw at random.
        neighbours: made by the same backbone and pooling.
        precision: what the backbone computes in.
        measured: told of each batch, with its size and its seconds.
    """

    def __init__(
        self,
        model: Model,
        neighbours: Neighbours | None = None,
        *,
        precision: torch.dtype = torch.float32,
        measured: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        self.model, self.neighbours, self.precision, self.measured = model, neighbours, precision, measured
        self.device = next((each.device for each in model.parameters()), torch.device("cpu"))
        self.transform = _steady(model.transform)
        self.has_evidence = self._has_evidence()

    def see(self, content: bytes, wanted: Wanted, limit: int) -> Seen:
        """Decode a file, of at most ``limit`` pixels. Raises :class:`BrokenImage`."""
        try:
            image = decode(content, pixels=limit)
        except BrokenImage as fault:
            raise BrokenImage(str(fault).removeprefix("image: ")) from None
        return Seen(self.transform.pixels(image), _box(self.transform, image), wanted)

    @torch.no_grad()
    def __call__(self, images: Sequence[Seen]) -> list[ImageResult]:
        """What the model says of some images, each as it was asked; ``image`` and ``name`` are for the caller to fill in."""
        begun = time.perf_counter()
        wanted = [image.wanted for image in images]
        pixels = torch.stack([image.pixels.permute(1, 2, 0) for image in images]).permute(0, 3, 1, 2)  # colours stay last
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            maps = self.model.backbone(pixels.to(self.device, non_blocking=True))
            features = self.model.normalized(self.model.pooling(maps))
        results = [ImageResult(image=0, name="") for _ in images]
        good = features.isfinite().all(1).tolist()
        for result, fine in zip(results, good, strict=True):
            result.error = None if fine else "what the model says of it is not finite"
        if any(each.classes or each.evidence for each in wanted):
            self._classify(maps, features, images, results)
        if self.neighbours is not None and (k := max(each.neighbours for each in wanted)):
            rows = [row for row, each in enumerate(wanted) if each.neighbours and good[row]]
            for row, near in zip(rows, self.neighbours.near(features[rows].float().cpu().numpy(), k), strict=True):
                results[row].neighbours = [_in_words(*each) for each in near[: wanted[row].neighbours]]
        self.measured(len(images), time.perf_counter() - begun)
        return results

    def _classify(self, maps: Tensor, features: Tensor, images: Sequence[Seen], results: Sequence[ImageResult]) -> None:
        scores = self.model.scores(features).float()
        probabilities = self.model.probabilities(scores).cpu()
        order = scores.argsort(dim=1, descending=True, stable=True)
        of_row, scores = order.tolist(), scores.cpu()
        for row, (image, result) in enumerate(zip(images, results, strict=True)):
            if result.error is None:
                result.classes = [
                    ClassScore(
                        name=self.model.classes[label],
                        label=label,
                        probability=float(probabilities[row, label]),
                        score=float(scores[row, label]),
                    )
                    for label in of_row[row][: image.wanted.classes]
                ]
        rows = [row for row, each in enumerate(images) if each.wanted.evidence and results[row].error is None]
        if not rows:
            return
        k = min(max(images[row].wanted.evidence for row in rows), len(self.model.classes))
        _, found = evidence_on(self.model, maps[rows].float(), order[rows, :k])
        for row, grids in zip(rows, found.cpu().tolist(), strict=True):
            results[row].evidence = [
                EvidenceMap(name=self.model.classes[label], label=label, values=_rounded(grid), box=list(images[row].box))
                for label, grid in zip(of_row[row], grids[: images[row].wanted.evidence], strict=False)
            ]

    def warm_up(self) -> None:
        """One image through everything, so that the first that is asked for waits no longer than the others."""
        side = self.transform.size
        wanted = Wanted(len(self.model.classes), int(self.has_evidence), int(self.neighbours is not None))
        gradient = torch.arange(side, dtype=torch.float32).mul(255 / side).to(torch.uint8).expand(3, side, side)
        self([Seen(gradient, (0, 0, 1, 1), wanted)])

    def _has_evidence(self) -> bool:
        try:
            check_evidence(self.model)
            with torch.no_grad():
                side = self.transform.size
                return bool(self.model.backbone(torch.zeros(1, 3, side, side, dtype=torch.uint8).to(self.device)).ndim == 4)
        except ValueError:
            return False


def _in_words(item: int, similarity: float, path: str, name: str, has_image: bool) -> NeighbourInIndex:
    return NeighbourInIndex(item=item, similarity=similarity, path=path, name=name, has_image=has_image)


def _rounded(grid: list[list[float]]) -> list[list[float]]:
    return [[float(f"{value:.5g}") for value in row] for row in grid]


def _steady(transform: Transform) -> Transform:
    return replace(
        transform,
        fit="center-crop" if transform.fit == "random-crop" else transform.fit,
        flip="never" if transform.flip == "random" else transform.flip,
    )


def _box(transform: Transform, image: Image.Image) -> tuple[float, float, float, float]:
    """What of the image is seen, as :meth:`Transform.pixels` cuts it."""
    if transform.fit == "stretch":
        left, top, right, bottom = 0.0, 0.0, 1.0, 1.0
    else:
        part = transform.size / transform.reads
        across, down = (part * min(image.size) / side for side in image.size)
        left, top, right, bottom = (1 - across) / 2, (1 - down) / 2, (1 + across) / 2, (1 + down) / 2
    return (right, top, left, bottom) if transform.flip == "always" else (left, top, right, bottom)
