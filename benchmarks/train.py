"""How fast a model is fine-tuned from JPEG files, beside what no run can be faster than.

    python benchmarks/train.py --device cuda --backbone vgg16 --size 448 --batch 32 --precision bfloat16
    python benchmarks/train.py --backbone tiny --size 64 --images 64         on a CPU: the loop, and what it adds
    python benchmarks/train.py --device cuda ... --json > benchmarks/results/train-h200.jsonl

Timed in turns are whole runs, from the first image in the backbone to the last checkpoint on the disk; the same steps with
images that are on the device already, once with the pooling and once with average pooling in its place; and the decoder with
all its processes and nobody who uses the images. Which of the last two is the limit is said.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from compact_bilinear.descriptors import VGG, VGG_D, load_backbone
from compact_bilinear.device import choose_precision, find_device, same_bits
from compact_bilinear.finetuning import FineTuning, fine_tune
from compact_bilinear.finetuning.learner import Learner
from compact_bilinear.finetuning.together import Group
from compact_bilinear.images import Batch, ImageList, Transform, load_images, read_images
from compact_bilinear.images.loader import available_cpus
from compact_bilinear.model import Model
from compact_bilinear.processes import Processes
from compact_bilinear.timing import machine
from extract import SIDES, write_photographs


def new_model(arguments: argparse.Namespace, images: ImageList, pooling: str) -> Model:
    """A model with the weights that come with the backbone's name; vgg16's are drawn, for speed does not depend on them."""
    backbone: nn.Module = VGG(VGG_D) if arguments.backbone == "vgg16" else load_backbone(arguments.backbone)
    return Model(backbone, pooling, images.classes, transform=Transform(size=arguments.size))


def whole_run(model: Model, images: ImageList, settings: FineTuning, folder: Path, device: torch.device) -> float:
    """Seconds from the first image in the backbone to the last checkpoint on the disk."""
    begun: list[float] = []

    def note_the_time(*_: object) -> None:
        begun.append(time.perf_counter())

    handle = model.backbone.register_forward_pre_hook(note_the_time)
    try:
        fine_tune(model, images, settings, folder, device=device, processes=Processes())
        return time.perf_counter() - begun[0]
    finally:
        handle.remove()
        shutil.rmtree(folder)


def steps_alone(model: Model, count: int, settings: FineTuning, device: torch.device) -> float:
    """Seconds for steps over ``count`` images that are on the device already."""
    size = model.transform.size
    pixels = torch.randint(256, (settings.batch, size, size, 3), dtype=torch.uint8).permute(0, 3, 1, 2).to(device)
    labels = (torch.arange(settings.batch) % len(model.classes)).to(device)
    batch = Batch(pixels, torch.arange(settings.batch), labels, ())
    learner = Learner(model, settings, Group(Processes(), device))
    learner.begin_epoch()
    with same_bits(device, settings.deterministic):
        learner.step([batch], settings.batch, settings.rate).read()
        start = time.perf_counter()
        for _ in range(0, count, settings.batch):
            facts = learner.step([batch], settings.batch, settings.rate)
        facts.read()
        if device.type == "cuda":
            torch.cuda.synchronize()
    return time.perf_counter() - start


def decoder_alone(images: ImageList, settings: FineTuning, size: int, device: torch.device) -> float:
    """Seconds until all images were decoded, from the first batch on, times as if that one were counted."""
    loaded = load_images(
        images,
        Transform(size=size, flip="random"),
        batch=settings.batch,
        workers=settings.workers,
        pin_memory=device.type == "cuda",
    )
    next(loaded)
    start = time.perf_counter()
    rest = sum(len(each.pixels) for each in loaded)
    return (time.perf_counter() - start) * len(images) / rest


def rates(arguments: argparse.Namespace, images: ImageList, folder: Path, device: torch.device) -> Iterator[dict[str, Any]]:
    """Images a second of each, and their ratios."""
    settings = FineTuning(
        epochs=1,
        batch=arguments.batch,
        precision=arguments.precision,
        compile=arguments.compile,
        workers=arguments.workers,
        rate=1e-6,  # random weights need not learn anything
        checkpoint_minutes=1e9,
    )
    loose = replace(settings, deterministic=False)
    count = len(images)
    runs: dict[str, Callable[[], float]] = {}
    for name, each in (("", settings), (", --no-deterministic", loose)) if device.type == "cuda" else (("", settings),):
        runs |= {
            f"average pooling on the device{name}": lambda each=each: steps_alone(  # type: ignore[misc]
                new_model(arguments, images, "average-pool"), count, each, device
            ),
            f"{arguments.pool} on the device{name}": lambda each=each: steps_alone(  # type: ignore[misc]
                new_model(arguments, images, arguments.pool), count, each, device
            ),
            f"fine-tune{name}": lambda each=each: whole_run(  # type: ignore[misc]
                new_model(arguments, images, arguments.pool), images, each, folder / "run", device
            ),
        }
    runs["decoder alone"] = lambda: decoder_alone(images, settings, arguments.size, device)
    taken: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            taken.setdefault(name, []).append(count / run())
    middle = {name: median(each) for name, each in taken.items()}
    for name, each_rate in taken.items():
        floor = "average pooling on the device" + (", --no-deterministic" if name.endswith("deterministic") else "")
        limit = min((floor, "decoder alone"), key=middle.__getitem__)
        yield {
            "name": name,
            "images_a_second": [middle[name], min(each_rate), max(each_rate)],
            "ratio": middle[name] / middle[floor],
            "limit": limit,
            "ratio_to_limit": middle[name] / middle[limit],
        }


def main() -> None:
    """Print a table, or one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--backbone", default="vgg16", help="vgg16 with random weights, or another name with its own")
    parser.add_argument("--pool", default="tensor-sketch:8192")
    parser.add_argument("--size", type=int, default=448, help="side of the images in the backbone")
    parser.add_argument("--images", type=int, help="how many: 16 on a CPU, 8192 on a GPU")
    parser.add_argument("--batch", type=int, default=32, help="images a step")
    parser.add_argument("--precision", choices=("auto", "float32", "bfloat16", "float16"), default="auto")
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    parser.add_argument("--data", type=Path, help="a folder of images, in place of some that are made")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is timed")
    parser.add_argument("--workers", type=int, help="processes that decode: one on a CPU, one for each core on a GPU")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    on_a_gpu = arguments.device == "cuda"
    device = find_device(arguments.device, Processes())
    if arguments.workers is None:
        arguments.workers = min(16, available_cpus()) if on_a_gpu else 1
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or write_photographs(
            Path(folder) / "photos", arguments.images or (8192 if on_a_gpu else 16), SIDES
        )
        images = read_images(data)
        images = images.take([place for place, split in enumerate(images.splits) if split == "train"])
        about = {
            "backbone": arguments.backbone,
            "pool": arguments.pool,
            "size": arguments.size,
            "batch": arguments.batch,
            "precision": str(choose_precision(arguments.precision, device)).removeprefix("torch."),
            "compile": arguments.compile,
            "workers": arguments.workers,
        }
        for record in rates(arguments, images, Path(folder), device):
            if arguments.json:
                print(json.dumps({"benchmark": "train", **machine(arguments.device), **record, **about}), flush=True)
            else:
                middle, low, high = record["images_a_second"]
                print(
                    f"{record['name']:<52}{middle:>9.4g} images/s ({low:.4g} … {high:.4g})   × average pooling "
                    f"{record['ratio']:.3f}   × {record['limit']} {record['ratio_to_limit']:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
