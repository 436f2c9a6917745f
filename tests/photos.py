"""A small folder of photographs, some broken, and a small network with random weights, for extraction to be tested on."""

from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from compact_bilinear.descriptors import TINY, VGG
from compact_bilinear.images.textures import textures

SIZE = 40
BROKEN = {"test/bark/04.jpg": "the file is empty", "train/brick/07.jpg": "not an image in a known format"}
# 29 files, of which two are broken: 6 shards, the last of them with 4 images, in batches of 3 and fewer
SETTINGS = {"backbone": "tiny", "size": SIZE, "batch": 3, "shard": 5, "workers": 0, "threads": 1}


def photos(folder: Path) -> Path:
    """Write the images of three classes, 5 for training and 4 for testing each, and return their folder."""
    images, labels = textures(classes=3, images_per_class=9, size=SIZE)
    for place, (image, label) in enumerate(zip(images, labels, strict=True)):
        split = "train" if place % 9 < 5 else "test"
        file = folder / split / ("bark", "brick", "moss")[label] / f"{place % 9:02}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file, quality=95)
    (folder / "test/bark/04.jpg").write_bytes(b"")
    (folder / "train/brick/07.jpg").write_bytes(b"nothing that anybody drew")
    (folder / "train/brick/notes.txt").write_text("not an image by its name")
    return folder


def weights(file: Path, seed: int = 3) -> Path:
    """Write random weights for the backbone ``tiny``."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        save_file(VGG(TINY).state_dict(), file)
    return file


def flags(folder: Path, out: Path, *more: str) -> list[str]:
    """A command line that extracts features of :func:`photos` and :func:`weights` in a folder."""
    settings = [part for name, value in SETTINGS.items() for part in (f"--{name}", str(value))]
    return [
        "extract",
        str(folder / "photos"),
        "--weights",
        str(folder / "weights.safetensors"),
        "--out",
        str(out),
        *settings,
        *more,
    ]


def read_fitted(store: Path, pooling: str) -> dict[str, torch.Tensor]:
    """The state of a fitted pooling."""
    tensors = load_file(store / "_fitted.safetensors")
    return {name.removeprefix(f"{pooling}/"): each for name, each in tensors.items() if name.startswith(f"{pooling}/")}


def make(folder: Path) -> Path:
    """Both in one folder."""
    photos(folder / "photos")
    weights(folder / "weights.safetensors")
    return folder
