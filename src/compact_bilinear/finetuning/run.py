"""Fine-tuning from its beginning to its end, or from where it was: a run is a function of its settings.

Everything that is drawn is drawn from the seed and the place in the run, and what a checkpoint holds is all that the rest of
the run depends on.
"""

from dataclasses import asdict
from pathlib import Path

import torch

from ..device import same_bits
from ..images import ImageList
from ..model import Model
from ..processes import Processes
from ..progress import note
from .checkpoint import Checkpoints, State, identity, put
from .interrupt import ctrl_c_noted
from .learner import Learner
from .log import Log
from .loop import Loop
from .places import Places, training_places
from .settings import FineTuning
from .together import together


def fine_tune(
    model: Model,
    images: ImageList,
    settings: FineTuning,
    folder: Path,
    *,
    device: torch.device,
    processes: Processes,
    split: str = "train",
) -> Model:
    """Train a whole model on the images of a split, or go on with it.

    Args:
        model: with a head for the classes of the images, which begins as a linear classifier (:meth:`Model.set_head`). It is
            trained in place. For a run that goes on: the same as at its beginning; its head may be any.
        images: of all splits; images without a label are left out.
        settings: how.
        folder: for checkpoints and the log. If they are there already, the run goes on where it was.
        device: where.
        processes: of those that ``torchrun`` started. All see the folder; the first writes into it.
        split: the images to train on.

    Returns:
        The model in evaluation mode: after the last epoch or, if images are held out, after the best.
    """
    _check(model, images, settings)
    places = training_places(images, settings, split)
    if settings.damping is not None:
        model.damping = settings.damping
    checkpoints = Checkpoints(folder, identity(model, images, places, settings))
    learned_before = {name: each.requires_grad for name, each in model.named_parameters()}
    with (
        together(processes, device) as group,
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        same_bits(device, settings.deterministic),
        ctrl_c_noted(group.alone) as stopped,
    ):
        if processes.first:
            folder.mkdir(parents=True, exist_ok=True)
        learner, state = Learner(model, settings, group), State()
        begun = group.said_by_the_first(checkpoints.find())
        if begun >= 0:
            state, tensors = checkpoints.read(begun)
            learner.restore(tensors, state.scaler)
            group.wait()  # the first removes what is old
        if processes.first:
            note(_beginning(model, places, begun, settings))
        with Log(folder if processes.first else None, state.lines, state.step) as log:
            Loop(learner, images, places, checkpoints, log, state, stopped).to_the_end()
        group.wait()  # the first writes what is best
        if settings.hold_out:
            put(model, checkpoints.read_best(state))
            if processes.first:
                note(_ending(state))
    for name, each in model.named_parameters():
        each.requires_grad_(learned_before[name])
    model.made = model.made | {"fine-tuning": asdict(settings) | {"epoch": int(state.best.get("epoch", state.epoch))}}
    return model.eval()


def _check(model: Model, images: ImageList, settings: FineTuning) -> None:
    if model.head is None or model.classes != images.classes:
        raise ValueError(
            f"The model should have the {len(images.classes)} classes of {images.name}, in the same order, but has "
            f"{'none' if model.head is None else f'{len(model.classes)}, which are not these'}.\n"
            "Build it with classes=images.classes."
        )
    if model.learnable != settings.learn_projection:
        asked, is_so = ("is to be", "was built to stay fixed") if settings.learn_projection else ("is not to be", "can learn")
        raise ValueError(
            f"The projection {asked} trained, but that of the model {is_so}.\n"
            f"Write Model(..., learnable={settings.learn_projection}), or learn_projection={model.learnable}."
        )


def _ending(state: State) -> str:
    best = int(state.best["epoch"])
    which = (
        f"that of epoch {best} of {state.epoch}"
        if best
        else f"the one that it began with, better than all {state.epoch} epochs"
    )
    return f"fine-tune: the model is {which}, with an error of {state.best['error']:.1%} on the images held out"


def _beginning(model: Model, places: Places, begun: int, settings: FineTuning) -> str:
    what = f"fine-tune: {model.backbone.name}, {model.named}, on {len(places.train)} images of {len(model.classes)} classes"
    held = f", {len(places.held)} held out" if places.held else ""
    return f"{what}{held}, {settings.epochs} epochs" + (f"; going on after step {begun}" if begun >= 0 else "")
