"""A model over a list of images: batch after batch of scores, in order, with what is broken named."""

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import NamedTuple

import torch
from torch import Tensor

from .device import same_bits, side_by_side
from .images import ImageList, load_images
from .images.loader import Batch, Broken, available_cpus
from .model import Model


class Answer(NamedTuple):
    """What a model says to some images."""

    places: Tensor  # (b,), where in the list they are
    output: Tensor  # (b, k) scores, or (b, d) features, float32 on the CPU
    broken: tuple[Broken, ...]  # those among them that gave no image, or no finite numbers


def answers(
    model: Model,
    images: ImageList,
    *,
    features: bool = False,
    order: Sequence[int] | None = None,
    batch: int = 0,
    precision: torch.dtype = torch.float32,
    workers: int | None = None,
    threads: int = 0,
) -> Generator[Answer]:
    """Decode images, hand them to a model where it is, and yield what it says.

    Args:
        model: in evaluation mode; its transform says how files become pixels.
        images: which; nothing is asked of their labels.
        features: yield features in place of scores.
        order: places in the list; None for all in order.
        batch: images at a time; 0 is 32 on a GPU and 4 on a CPU.
        precision: what the backbone computes in.
        workers: processes that decode; None for as many as are of use, 0 for none.
        threads: on a CPU, batches that are computed at a time, each in a thread; 0 is one for each core.
    """
    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"
    order = range(len(images)) if order is None else order
    # for a few images a process takes longer to start than to decode them
    helpers = 0 if len(order) < 32 else min(16, available_cpus()) if on_gpu else 1
    loaded = load_images(
        images,
        model.transform,
        batch=batch or (32 if on_gpu else 4),
        order=order,
        workers=helpers if workers is None else workers,
        pin_memory=on_gpu,
    )

    width = model.pooling.dim if features or model.head is None else len(model.classes)

    def answer(some: Batch) -> Answer:
        if not len(some.places):
            return Answer(some.places, torch.empty(0, width), some.broken)
        pixels = some.pixels.to(device, non_blocking=True)
        with torch.autocast(device.type, precision, enabled=precision != torch.float32):
            found = model.features(pixels)
        output = (found if features or model.head is None else model.scores(found)).float().cpu()
        good = output.isfinite().all(1)
        if bool(good.all()):
            return Answer(some.places, output, some.broken)
        lost = tuple(
            Broken(place, f"{images.file(place)}: what the model says of it is not finite")
            for place in some.places[~good].tolist()
        )
        return Answer(some.places[good], output[good], some.broken + lost)

    threads = 0 if on_gpu else threads or available_cpus()
    with same_bits(device), closing(side_by_side(answer, loaded, threads)) as found:
        yield from found
