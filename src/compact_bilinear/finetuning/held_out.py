"""How good a model is on the images held out."""

from collections.abc import Callable, Sequence
from contextlib import closing

import torch

from ..images import ImageList
from ..inference import answers
from .learner import Learner, losses


def measure(
    learner: Learner, images: ImageList, places: Sequence[int], workers: int | None, check: Callable[[], None]
) -> dict[str, float]:
    """The error and the mean loss on some images, over all processes; broken images count nothing.

    Args:
        learner: its model is put into evaluation mode.
        images, places: which.
        workers: processes that decode; None for as many as are of use.
        check: called now and then; may raise.
    """
    sums = torch.zeros(3, dtype=torch.float64)
    found = answers(
        learner.model.eval(),
        images,
        order=learner.group.processes.share(places),
        precision=learner.precision,
        workers=workers,
    )
    with closing(found):
        for each in found:
            check()
            if len(each.places):
                labels = torch.tensor([images.labels[place] for place in each.places.tolist()])
                wrong = (each.output.argmax(1) != labels).double().sum()
                loss = losses(each.output, labels, learner.model.link).double().sum()
                sums += torch.stack([wrong, loss, torch.tensor(float(len(labels)), dtype=torch.float64)])
    wrong, loss, count = learner.group.sum(sums).tolist()
    if not count:
        raise ValueError(
            f"The epochs are measured on {len(places)} images held out, but none of them gives an image and finite scores.\n"
            "Mend them, or write hold_out=0."
        )
    return {"error": wrong / count, "loss": loss / count}
