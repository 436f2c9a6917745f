"""From which similarity on two images are the same: changed images against other ones.

    python experiments/duplicates.py --data ../shared/data/materials --vgg16 vgg16-397923af.pth      some minutes

Photographs of materials, each changed in ways that images change on their way through the world, pooled by Tensor Sketch to
d = 8192 with signed square root and ℓ₂. For some thresholds: of how many images is the changed one at least as similar to the
original, in %; and of how many is any other image of the set. Some of those others are near-duplicates by themselves: the set
has photographs of the same wall. What a change costs depends on the backbone, and so does the threshold.
"""

import argparse
import io
import json
import platform
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance

import compact_bilinear
from compact_bilinear.descriptors import load_backbone
from compact_bilinear.images import Transform
from compact_bilinear.images.decode import decode
from compact_bilinear.images.folder import images_below
from compact_bilinear.model import Model

Change = Callable[[Image.Image], Image.Image]
THRESHOLDS = (0.8, 0.85, 0.9, 0.95, 0.98)
OTHERS = "another image"


def saved_again(quality: int) -> Change:
    """As a JPEG."""

    def change(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return decode(file.getvalue())

    return change


def cropped(share: float) -> Change:
    """Without a margin on each side."""

    def change(image: Image.Image) -> Image.Image:
        x, y = image.width * share, image.height * share
        return image.crop((round(x), round(y), round(image.width - x), round(image.height - y)))

    return change


CHANGES: dict[str, Change] = {
    "JPEG of quality 75": saved_again(75),
    "JPEG of quality 30": saved_again(30),
    "2 % cropped on each side": cropped(0.02),
    "5 % cropped on each side": cropped(0.05),
    "10 % brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.1),
    "20 % more contrast": lambda image: ImageEnhance.Contrast(image).enhance(1.2),
    "left and right exchanged": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
}


@torch.inference_mode()
def features(model: Model, images: list[Image.Image]) -> np.ndarray:
    """(b, d), eight images at a time."""
    parts = [
        model.features(torch.stack([model.transform.pixels(image) for image in images[start : start + 8]]))
        for start in range(0, len(images), 8)
    ]
    return torch.cat(parts).numpy()


def similarities(model: Model, images: list[Image.Image]) -> Iterator[tuple[str, np.ndarray]]:
    """Of each image and what a change makes of it; and of each and the most similar of the others."""
    x = features(model, images)
    among = x @ x.T
    np.fill_diagonal(among, -1)
    for name, change in CHANGES.items():
        yield name, np.einsum("bd,bd->b", x, features(model, [change(image) for image in images]))
    yield OTHERS, among.max(1)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder of images")
    parser.add_argument("--vgg16", type=Path, help="weights of VGG-16; the package's own small trunk alone without them")
    parser.add_argument("--images", type=int, default=150, help="how many, drawn from a seed")
    parser.add_argument("--out", type=Path, help="file that gets a line of JSON for every change and backbone")
    arguments = parser.parse_args()
    paths, _ = images_below(arguments.data)
    drawn = np.random.default_rng(0).permutation(len(paths))[: arguments.images]
    images = [decode(arguments.data / paths[place]) for place in drawn]
    for backbone, weights, size in (("tiny", None, 160), ("vgg16", arguments.vgg16, 224)):
        if backbone == "vgg16" and weights is None:
            continue
        transform = Transform(size=size)
        model = Model(load_backbone(backbone, weights), "tensor-sketch:8192", transform=transform).eval()
        for change, found in similarities(model, images):
            record = {
                "experiment": "duplicates",
                "backbone": backbone,
                "change": change,
                "found": {str(threshold): round(100 * float((found >= threshold).mean()), 1) for threshold in THRESHOLDS},
                "median": round(float(np.median(found)), 4),
                "data": arguments.data.name,
                "images": len(images),
                "size": size,
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "versions": {
                    "compact_bilinear": compact_bilinear.__version__,
                    "python": platform.python_version(),
                    "torch": torch.__version__,
                },
            }
            print(f"{backbone:8}{change:28}median {record['median']:.3f}   {record['found']}", flush=True)
            if arguments.out is not None:
                with arguments.out.open("a") as lines:
                    lines.write(json.dumps(record, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
