"""Miniatures that a whole experiment runs on in seconds, and the flags that make it so."""

import io
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import miniatures
import photos
from compact_bilinear import cli, descriptors
from compact_bilinear.descriptors import VGG, Architecture, Conv
from compact_bilinear.experiments.records import Record, read_records
from compact_bilinear.images import cub, dtd, mit_indoor
from compact_bilinear.images.textures import texture, textures

SIZE = photos.SIZE
# stands for VGG-M: its names of layers and its taps, and next to nothing of its size
SMALL = Architecture(
    name="vgg-m",
    layers=(
        Conv("conv1", 8, kernel=4, stride=4),
        Conv("conv5", 16, kernel=2, stride=2),
        Conv("fc6", 12, kernel=5),
        Conv("fc7", 10, kernel=1),
    ),
    taps={"conv5": "relu5", "conv5-pre-relu": "conv5", "fc6": "relu6", "fc7": "relu7"},
    image_size={"conv5": SIZE, "conv5-pre-relu": SIZE, "fc6": SIZE, "fc7": SIZE},
)


def make(folder: Path) -> Path:
    """Weights; CUB and DTD in their layouts, a few images of each; and one set of images in two splits."""
    photos.weights(folder / "weights.safetensors")
    miniatures.write(miniatures.cub(train=12, test=9, draw=picture), folder / "birds")
    miniatures.write(miniatures.mit(train=12, test=9, draw=picture), folder / "rooms")
    miniatures.write(miniatures.dtd(draw=picture), folder / "textures")
    splits(folder / "bark-and-brick")
    return folder


def picture(number: int) -> bytes:
    """An image with something in it, another for each number."""
    file = io.BytesIO()
    Image.fromarray(texture(number % 3, number, SIZE)).save(file, "JPEG", quality=95)
    return file.getvalue()


def as_in_paper(folder: Path, patch: pytest.MonkeyPatch) -> list[str]:
    """Let miniatures pass for the paper's data sets and a small network for VGG-M, and return the flags that ask for them."""
    for module in (cub, mit_indoor, dtd):
        patch.setattr(module, "require_counts", lambda *_: None)
    patch.setitem(descriptors.VGGS, "vgg-m", SMALL)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        save_file(VGG(SMALL, "fc7").state_dict(), folder / "small.safetensors")
    short = ["--workers", "0", "--tune.epochs", "1", "--seeds", "2", "--device", "cpu"]
    return ["--backbone", "VGG-M", "--weights", str(folder / "small.safetensors"), *short]


def splits(folder: Path) -> Path:
    """Images of three classes, 6 of each, in three CSVs; and a table that is none of them."""
    images, labels = textures(classes=3, images_per_class=6, size=SIZE)
    rows = []
    for place, (image, label) in enumerate(zip(images, labels, strict=True)):
        file = folder / "images" / f"{place:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
        rows.append((f"images/{place:02}.png", "abc"[label]))
    for number in range(2):
        lines = [f"{path},{label},{'test' if place % 2 == number else 'train'}" for place, (path, label) in enumerate(rows)]
        (folder / f"split{number}.csv").write_text("\n".join(["path,label,split", *lines]) + "\n")
    (folder / "sources.csv").write_text("path,label,licence\nimages/00.png,a,ours\n")
    return folder


def flags(name: str, folder: Path, out: Path, *more: str, data: str = "bark-and-brick", part: bool = False) -> list[str]:
    """A command line; ``part`` lets a part of one of the paper's data sets pass for what it is."""
    given = ["--data", str(folder / data), *(["--no-check-counts"] if part else [])]
    backbone = ["--backbone", "tiny", "--weights", str(folder / "weights.safetensors"), "--size", str(SIZE)]
    short = ["--workers", "0", "--tune.epochs", "1", "--tune.batch", "8", "--seeds", "2", "--device", "cpu"]
    return ["reproduce", name, *given, *backbone, *short, "--out", str(out), *more]


def measure(name: str, folder: Path, out: Path, *more: str, data: str = "bark-and-brick", part: bool = False) -> list[Record]:
    """Run it, and return the records that are there then."""
    assert cli.main(flags(name, folder, out, *more, data=data, part=part)) == 0
    return read_records(out / "records.jsonl")


def numbers(records: list[Record]) -> dict[tuple[object, ...], float]:
    """What was measured, without when and how long."""
    found = {(*record.cell, record.draw): record.value for record in records}
    assert len(found) == len(records), "a number is there once"
    return found
