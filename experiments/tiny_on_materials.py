"""The small trunk that ships with the package tells materials apart, clearly better than the same trunk untrained.

    python experiments/tiny_on_materials.py --data ../shared/data/materials --vgg16 vgg16-397923af.pth      a minute

Photographs of 23 materials, about 143 to train with and 143 to test in each of five splits, stretched to 160×160. Tensor Sketch
to d = 4096, signed square root, ℓ₂, logistic regression whose C is chosen by cross-validation within the training images, for
every backbone alike. Error in %, mean over the splits and their standard deviation; the untrained trunk also over three draws
of its weights.
"""

import argparse
import csv
import json
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import numpy as np
import sklearn
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from torch import Tensor, nn

import compact_bilinear
from compact_bilinear import TensorSketch, signed_sqrt_l2
from compact_bilinear.descriptors import TINY, VGG, VGG_D, load_vgg
from compact_bilinear.descriptors.tiny import WEIGHTS

CHOICES = (1, 10, 100, 1000, 10000)


def untrained(seed: int) -> VGG:
    """The trunk as training finds it: He's initialisation, no biases."""
    draw = torch.Generator().manual_seed(seed)
    backbone = VGG(TINY, mean=(0.5, 0.5, 0.5), scale=(0.25, 0.25, 0.25))
    for layer in backbone.children():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=draw)
            nn.init.zeros_(layer.get_parameter("bias"))
    return backbone.eval()


@torch.inference_mode()
def features(backbone: VGG, dim: int, images: Tensor) -> np.ndarray:
    """Every image once, 16 at a time."""
    pool = TensorSketch(backbone.channels, dim, seed=0)
    return np.asarray(torch.cat([signed_sqrt_l2(pool(backbone(some))) for some in images.split(16)]))


def error(train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray) -> tuple[float, float]:
    """Error of logistic regression, in %, and the C that cross-validation on the training images chose.

    With fewer images than features a rotation into the space that the training images span changes no score, and saves time.
    """
    q, _ = np.linalg.qr(train.T.astype(np.float64))
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(LogisticRegression(max_iter=5000), {"C": CHOICES}, cv=folds).fit(train @ q, train_labels)
    return 100 * float((search.predict(test @ q) != test_labels).mean()), float(search.best_params_["C"])


def read_splits(data: Path, size: int) -> tuple[Tensor, list[np.ndarray], np.ndarray]:
    """Images (b, 3, size, size), for each split a mask of those to train with, and the labels."""
    splits = []
    for file in sorted(data.glob("split*.csv")):
        with file.open(newline="") as lines:
            splits.append({row["path"]: row for row in csv.DictReader(lines)})
    paths = sorted(splits[0])
    images = [
        np.array(Image.open(data / path).convert("RGB").resize((size, size), Image.Resampling.BILINEAR)) for path in paths
    ]
    masks = [np.array([split[path]["split"] == "train" for path in paths]) for split in splits]
    labels = np.array([splits[0][path]["label"] for path in paths])
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2), masks, labels


def backbones(weights: Path, vgg16: Path | None, draws: int) -> Iterator[tuple[str, VGG, str]]:
    """Name, network, and what tells its weights."""
    yield "tiny", load_vgg(TINY, weights), _digest(weights)
    for seed in range(draws):
        yield "tiny, untrained", untrained(seed), f"seed {seed}"
    if vgg16 is not None:
        yield "vgg16", load_vgg(VGG_D, vgg16), _digest(vgg16)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with images and split*.csv (path, label, split)")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="of the small trunk; those of the package by default")
    parser.add_argument("--vgg16", type=Path, help="weights of VGG-16, for comparison")
    parser.add_argument("--size", type=int, default=160, help="side of the images in pixels")
    parser.add_argument("--dim", type=int, default=4096)
    parser.add_argument("--draws", type=int, default=3, help="how many untrained trunks")
    parser.add_argument("--out", type=Path, help="file that gets a line of JSON for every backbone")
    arguments = parser.parse_args()
    images, masks, labels = read_splits(arguments.data, arguments.size)
    for name, backbone, weights in backbones(arguments.weights, arguments.vgg16, arguments.draws):
        f = features(backbone, arguments.dim, images)
        found = [error(f[train], labels[train], f[~train], labels[~train]) for train in masks]
        errors = [each for each, _ in found]
        record = {
            "experiment": "tiny_on_materials",
            "backbone": name,
            "weights": weights,
            "error": round(float(np.mean(errors)), 2),
            "spread": round(float(np.std(errors, ddof=1)), 2),
            "errors": [round(each, 2) for each in errors],
            "C": [c for _, c in found],
            "data": arguments.data.name,
            "images": len(images),
            "size": arguments.size,
            "dim": arguments.dim,
            "seed": 0,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {
                "compact_bilinear": compact_bilinear.__version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "scikit-learn": sklearn.__version__,
            },
        }
        print(f"{name:16} {weights:20} {record['error']:6.2f} ± {record['spread']:.2f}", flush=True)
        if arguments.out is not None:
            with arguments.out.open("a") as lines:
                lines.write(json.dumps(record) + "\n")


def _digest(path: Path) -> str:
    return f"sha256 {sha256(path.read_bytes()).hexdigest()[:8]}"


if __name__ == "__main__":
    main()
