"""A small model over the photographs of photos.py, for the verbs that take one."""

from pathlib import Path

import torch

import photos
from compact_bilinear.descriptors import load_backbone
from compact_bilinear.images import Transform, load_images, read_images
from compact_bilinear.model import Model


def make(folder: Path) -> Path:
    """Write photographs into ``folder/photos`` and a model of them, right for most, into ``folder/run``."""
    images = read_images(photos.photos(folder / "photos"))
    model = Model(load_backbone("tiny"), "tensor-sketch:512", images.classes, transform=Transform(size=photos.SIZE)).eval()
    (batch,) = load_images(images.select("train"), model.transform, batch=len(images), workers=0)
    with torch.no_grad():
        features = model.features(batch.pixels)
    one_of = torch.nn.functional.one_hot(batch.labels, len(images.classes)).float()
    model.set_head(20 * (one_of - one_of.mean(0)).T @ (features - features.mean(0)), torch.zeros(len(images.classes)))
    model.save(folder / "run")
    return folder
