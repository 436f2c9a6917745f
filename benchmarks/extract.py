"""What extraction adds to the backbone that it cannot do without: time, and memory.

    python benchmarks/extract.py                       pooling and store beside the backbone, on a CPU; some minutes
    python benchmarks/extract.py --memory              the most memory that a run takes, at 1, 4 and 16 times the images
    python benchmarks/extract.py --device cuda         from JPEG files, beside the backbone alone and the decoder alone
    python benchmarks/extract.py --json > benchmarks/results/extract-cpu.jsonl

On a CPU three things are timed in turns for some batches of images in memory, one in each core: the backbone; the backbone and
the poolings, with their normalisation; and that with a shard written and brought to the disk, as `cbp extract` does it.

On a GPU whole runs of `cbp extract` are timed from files to files, from the first image in the backbone to the last shard on
the disk, in turns with what no run can be faster than: the backbone on images that are on the GPU already, and the decoder with
all its processes and nobody who uses the images. Which of the two is the limit is said.

Memory is the most that the process held, torch and everything else, each run in a process of its own.
"""

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from compact_bilinear.descriptors import VGG, VGG_D, load_backbone
from compact_bilinear.descriptors.kept_maps import KeptMaps
from compact_bilinear.descriptors.network import Network, load_network
from compact_bilinear.device import choose_precision, find_device, same_bits, side_by_side
from compact_bilinear.features import FeatureWriter
from compact_bilinear.features.background import BackgroundWriter, batches
from compact_bilinear.features.layout import cut
from compact_bilinear.features.rows import BatchPooling
from compact_bilinear.images import ImageList, Transform, load_images, read_images
from compact_bilinear.images.loader import available_cpus
from compact_bilinear.images.textures import texture
from compact_bilinear.pooling.by_name import read_pooling
from compact_bilinear.processes import Processes
from compact_bilinear.recipes.extract import Extract, run
from compact_bilinear.timing import machine, take_turns

POOL = ("tensor-sketch:8192", "full-bilinear")
SIDES = (500, 375)  # of most photographs of CUB-200-2011


def on_cpu(config: Extract, network: Network, rounds: int) -> Iterator[dict[str, Any]]:
    """One batch for each core, at the same time: the backbone, the poolings after it, and the store after those."""
    images = read_images(config.data)
    layers = {pooling: pooling.build(network.channels) for pooling in map(read_pooling, config.pool)}
    pooling = BatchPooling(images, network, layers, KeptMaps(config.out, [], 1), normalize=True, dtype=torch.float16)
    dims = {str(pooling): {"dim": int(str(layer.dim))} for pooling, layer in layers.items()}
    folders = (config.out / str(number) for number in range(10**6))
    work = list(batches(cut(len(images), len(images)), config.batch, lanes=1))
    loaded = list(load_images(images, Transform(size=network.size), batches=[batch.places for batch in work], workers=1))

    def backbone() -> None:
        for _ in side_by_side(lambda some: network.maps(some.pixels), loaded, config.threads):
            pass

    def poolings() -> None:
        for rows in side_by_side(pooling, zip(work, loaded, strict=True), config.threads):
            rows()

    def store() -> None:
        writer = FeatureWriter(next(folders), images, dims, settings={}, shard_size=len(images))
        with BackgroundWriter(writer, 1) as writing:
            for batch, rows in zip(work, side_by_side(pooling, zip(work, loaded, strict=True), config.threads), strict=True):
                writing.write(batch, rows)
        shutil.rmtree(writer.folder)

    times = take_turns({"backbone": backbone, "and poolings": poolings, "and store": store}, "cpu", rounds)
    for name, each in times.items():
        seconds = [number / 1e3 / len(images) for number in each]
        yield {"name": name, "seconds_an_image": seconds, "ratio": each.median / times["backbone"].median}


def on_gpu(config: Extract, network: Network, rounds: int) -> Iterator[dict[str, Any]]:
    """Images a second: whole runs, and the two limits."""
    images = read_images(config.data)
    variants = {
        "extract": config,
        "extract --decode draft": replace(config, decode="draft"),
        "extract --no-deterministic": replace(config, deterministic=False),
    }
    rates: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, seconds, count in (
            ("backbone alone", backbone_alone(network, config.batch, len(images)), len(images)),
            ("decoder alone", decoder_alone(images, network, config, draft=False), len(images)),
            ("decoder alone, draft", decoder_alone(images, network, config, draft=True), len(images)),
            *((name, whole_run(variant, network.module), len(images)) for name, variant in variants.items()),
        ):
            rates.setdefault(name, []).append(count / seconds)
    middle = {name: median(each) for name, each in rates.items()}
    for name, each in rates.items():
        decoder = "decoder alone, draft" if name.endswith("draft") else "decoder alone"
        limit = min(("backbone alone", decoder), key=middle.__getitem__)
        yield {
            "name": name,
            "images_a_second": [middle[name], min(each), max(each)],
            "ratio": middle[name] / middle["backbone alone"],
            "limit": limit,
            "ratio_to_limit": middle[name] / middle[limit],
        }


def backbone_alone(network: Network, batch: int, count: int) -> float:
    """Seconds for ``count`` images that are on the GPU already."""
    pixels = (
        torch.randint(256, (batch, network.size, network.size, 3), dtype=torch.uint8).permute(0, 3, 1, 2).to(network.device)
    )
    with torch.inference_mode():
        network.maps(pixels)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(0, count, batch):
            network.maps(pixels)
        torch.cuda.synchronize()
    return time.perf_counter() - start


def decoder_alone(images: ImageList, network: Network, config: Extract, *, draft: bool) -> float:
    """Seconds until all images were decoded and pinned, from the first batch on, times as if that one were counted."""
    loaded = load_images(
        images, Transform(size=network.size), batch=config.batch, workers=config.workers, draft=draft, pin_memory=True
    )
    next(loaded)
    start = time.perf_counter()
    rest = sum(len(each.pixels) for each in loaded)
    return (time.perf_counter() - start) * len(images) / rest


def whole_run(config: Extract, backbone: nn.Module) -> float:
    """Seconds from the first image in the backbone to the last shard on the disk: a run without its start."""
    begun: list[float] = []

    def note_the_time(*_: object) -> None:
        begun.append(time.perf_counter())

    handle = backbone.register_forward_pre_hook(note_the_time)
    try:
        run(config, backbone)
        return time.perf_counter() - begun[0]
    finally:
        handle.remove()
        shutil.rmtree(config.out)


def memory(folder: Path, count: int) -> Iterator[dict[str, Any]]:
    """The most memory of runs over more and more images, with next to no backbone: what could pile up are 32 kB an image."""
    for factor in (1, 4, 16):
        data = write_photographs(folder / f"{factor}x", count * factor, (32, 32))
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        config = Extract(data, folder / f"out{factor}", ("full-bilinear",), size=32, shard=64, workers=1)
        process = context.Process(target=_peak, args=(config, queue))
        process.start()
        megabytes = queue.get()
        process.join()
        yield {"name": f"{count * factor} images", "megabytes": megabytes}


def _peak(config: Extract, queue: Any) -> None:
    run(config, nn.Conv2d(3, 128, kernel_size=8, stride=8))
    queue.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)  # kilobytes, as Linux counts


def write_photographs(folder: Path, count: int, sides: tuple[int, int], distinct: int = 128) -> Path:
    """A folder of JPEGs of two classes. Beyond some that are distinct, they are these again under other names."""
    for number in range(count):
        file = folder / "train" / f"class{number % 2}" / f"{number:06}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        if number >= distinct:
            original = number % distinct
            os.link(folder / "train" / f"class{original % 2}" / f"{original:06}.jpg", file)
            continue
        square = texture(number % 2, number, max(sides))
        noise = np.random.default_rng(number).normal(0, 4, square.shape)  # photographs are never as smooth
        image = Image.fromarray((square + noise).clip(0, 255).astype(np.uint8)[: sides[1], : sides[0]])
        image.save(file, quality=92)
    (folder / "test" / "class0").mkdir(parents=True)
    os.link(folder / "train" / "class0" / "000000.jpg", folder / "test" / "class0" / "000000.jpg")
    return folder


def main() -> None:
    """Print a table, or one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--memory", action="store_true", help="measure memory, and not time")
    parser.add_argument("--backbone", default="vgg16", help="vgg16 with random weights, or another name with its own")
    parser.add_argument("--size", type=int, default=448, help="side of the images in the backbone")
    parser.add_argument(
        "--images", type=int, help="how many: 16 on a CPU, 16384 on a GPU, 1024 (and 4 and 16 times that) for memory"
    )
    parser.add_argument("--batch", type=int, help="images at a time: 4 on a CPU, 32 on a GPU")
    parser.add_argument("--data", type=Path, help="a folder of images, in place of some that are made")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is timed")
    parser.add_argument("--workers", type=int, help="processes that decode")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for record in _records(arguments, Path(folder)):
            if arguments.json:
                print(json.dumps({"benchmark": "extract", **machine(arguments.device), **record}), flush=True)
            else:
                cells = (f"{name} {_shown(value)}" for name, value in record.items() if name != "name")
                print(f"{record['name']:<28}{'   '.join(cells)}", flush=True)


def _records(arguments: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    on_a_gpu = arguments.device == "cuda"
    if arguments.memory:
        yield from memory(folder, arguments.images or 1024)
        return
    device = find_device(arguments.device, Processes())
    torch.manual_seed(0)
    network = load_network(
        VGG(VGG_D) if arguments.backbone == "vgg16" else load_backbone(arguments.backbone),
        size=arguments.size,
        device=device,
        precision=choose_precision("auto", device),
    )
    batch = arguments.batch or (32 if on_a_gpu else 4)
    data = arguments.data or write_photographs(folder / "photos", arguments.images or (16384 if on_a_gpu else 16), SIDES)
    config = Extract(
        data,
        folder / "out",
        POOL,
        size=arguments.size,
        batch=batch,
        device=arguments.device,
        threads=0 if on_a_gpu else available_cpus(),
        workers=arguments.workers,
    )
    about = {"backbone": arguments.backbone, "size": arguments.size, "batch": batch, "precision": str(network.precision)}
    with same_bits(device):
        for record in (on_gpu if on_a_gpu else on_cpu)(config, network, arguments.rounds):
            yield record | about


def _shown(value: object) -> str:
    if isinstance(value, list):
        middle, low, high = value
        return f"{middle:.4g} ({low:.4g} … {high:.4g})"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
