"""A model that is fine-tuned in a second, with everything that could make a run depend on chance; and the run."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import photos
from compact_bilinear.descriptors import CustomBackbone
from compact_bilinear.finetuning import FineTuning, fine_tune
from compact_bilinear.images import ImageList, Transform, read_images
from compact_bilinear.model import Model
from compact_bilinear.processes import Processes

CPU = torch.device("cpu")
# 16 training images of which one is broken: 3 steps an epoch, the last of them with 4 images
SETTINGS: dict[str, Any] = {"epochs": 2, "batch": 6, "rate": 0.1, "crop": True, "workers": 0, "checkpoint_minutes": 1e-9}


def images(folder: Path) -> ImageList:
    """Those of :func:`photos.photos`, written if they are not there."""
    return read_images(folder / "photos" if (folder / "photos").exists() else photos.photos(folder / "photos"))


def model(
    classes: tuple[str, ...] = ("bark", "brick", "moss"),
    pooling: str = "tensor-sketch:16",
    dropout: float = 0.2,
    **settings: Any,
) -> Model:
    """With batch normalisation and dropout; the same each time."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        layers = (nn.Conv2d(3, 6, 8, 8), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(dropout), nn.Conv2d(6, 5, 1), nn.ReLU())
        backbone = CustomBackbone(nn.Sequential(*layers), image_size=photos.SIZE)
        made = Model(backbone, pooling, classes, transform=Transform(size=photos.SIZE, fit="center-crop"), **settings)
        if hasattr(made.pooling, "fitted"):
            made.pooling.fit(torch.randn(100, 5).abs())
        weight, bias = torch.randn(len(classes), made.pooling.dim), torch.randn(len(classes))
        made.set_head(weight, bias, settings.get("link", "softmax"))
    return made.eval()


def tune(
    folder: Path, some: ImageList, begin: Model | None = None, processes: Processes | None = None, **changed: Any
) -> Model:
    """Fine-tune a fresh model of :func:`model`, or one that is given."""
    settings = FineTuning(**(SETTINGS | changed))
    return fine_tune(begin or model(), some, settings, folder, device=CPU, processes=processes or Processes())


def state(made: nn.Module) -> dict[str, Tensor]:
    """A copy of all its numbers."""
    return {name: tensor.clone() for name, tensor in made.state_dict().items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """To the last bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def last(folder: Path) -> dict[str, Tensor]:
    """All numbers after the last step, whichever epoch was the best."""
    return load_file(max(folder.glob("checkpoints/step-*")))


def records(folder: Path, event: str | None = None) -> list[dict[str, Any]]:
    """The log, without what depends on the clock."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("images_a_second", None)
    return [line for line in lines if event in (None, line["event"])]
