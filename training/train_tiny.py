"""Train the small trunk that ships with the package: it learns to give what VGG-16 gives, on images that a program makes.

    python training/train_tiny.py --teacher vgg16-397923af.pth --out tiny-run      half an hour, 2 cores

The teacher is VGG-16 with torchvision's weights, with or without its fully connected layers. Of the student is asked, for every
batch of images that nobody has seen before (``procedural.py``):

- its last map, through a 1×1 convolution, is the square root of the teacher's map at conv4_3, channel by channel in units of
  that channel's spread, image by image in units of what that image has; a few loud ones would otherwise be all that counts;
- likewise its last map, averaged over 2×2, for conv5_3, and a map on the way for conv3_3;
- images are as alike to it as to the teacher: with f = signed square root and ℓ₂ of full bilinear pooling, the centred matrices
  of all ⟨f, f'⟩ in a batch are to be parallel (centred kernel alignment). This is what the trunk is for.

All losses are shares of what is to be explained: 1 for a student that knows nothing, 0 for a perfect one. While it learns
the student has batch normalisation after each convolution, which is folded into the weights at the end.

The same seed gives the same weights on the same machine with the same number of threads. Interrupted, the same command goes on
where the last checkpoint was. ``OUT/log.jsonl`` gets a line every few steps, ``OUT/tiny.safetensors`` is the result in float16.
"""

import argparse
import json
import time
from collections.abc import Iterator
from math import cos, pi
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from compact_bilinear import signed_sqrt_l2
from compact_bilinear.descriptors import TINY, VGG, VGG_D, load_vgg
from compact_bilinear.pooling import full_bilinear
from compact_bilinear.whole_file import WholeFile
from procedural import procedural_image

# numbers that float16 holds exactly
MEAN, SCALE = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
# what batch normalisation adds to a variance
EPS = 1e-5
# what of ours is to become what of theirs; the last is averaged over 2×2 before
PAIRS = (("relu3_2", "relu3_3"), ("relu4_4", "relu4_3"), ("relu4_4", "relu5_3"))


class Images(Dataset[Tensor]):
    """The images of a run, in order."""

    def __init__(self, seed: int, start: int, stop: int, side: int) -> None:
        self.seed, self.start, self.stop, self.side = seed, start, stop, side

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, place: int) -> Tensor:
        return torch.from_numpy(procedural_image(self.seed, self.start + place, self.side)).permute(2, 0, 1)


class Student(nn.Module):
    """The trunk with batch normalisation, and the 1×1 convolutions that speak the teacher's language."""

    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__()
        self.trunk = VGG(TINY, mean=MEAN, scale=SCALE)
        self.norms, widths = nn.ModuleDict(), {}
        for name, layer in self.trunk.named_children():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                self.norms[name] = nn.BatchNorm2d(layer.out_channels, EPS)
                widths[name.replace("conv", "relu")] = layer.out_channels
        self.heads = nn.ModuleList(nn.Conv2d(widths[ours], c, 1) for (ours, _), c in zip(PAIRS, channels, strict=True))

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = (images / 255 - self.trunk.mean) / self.trunk.scale
        maps = {}
        for name, layer in self.trunk.named_children():
            x = maps[name] = layer(x)
            if name in self.norms:
                x = maps[name] = self.norms[name](x)
        guesses = [maps[ours] for ours, _ in PAIRS]
        guesses[-1] = F.avg_pool2d(guesses[-1], 2)
        return x, [head(guess) for head, guess in zip(self.heads, guesses, strict=True)]

    @torch.no_grad()
    def folded(self) -> VGG:
        """The trunk alone, each batch normalisation multiplied into the convolution before it."""
        trunk = VGG(TINY, mean=MEAN, scale=SCALE)
        state = dict(self.trunk.state_dict())
        for name, norm in self.norms.items():
            told = norm.state_dict()
            factor = told["weight"] / (told["running_var"] + EPS).sqrt()
            state[f"{name}.weight"] = state[f"{name}.weight"] * factor[:, None, None, None]
            state[f"{name}.bias"] = (state[f"{name}.bias"] - told["running_mean"]) * factor + told["bias"]
        trunk.load_state_dict(state)
        return trunk.eval()


class Teacher(nn.Module):
    """VGG-16 up to conv5_3, whose maps are kept on the way."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.vgg = load_vgg(VGG_D, path).requires_grad_(False).to(torch.bfloat16)

    @torch.no_grad()
    def forward(self, images: Tensor) -> list[Tensor]:
        x = (images / 255 - self.vgg.mean) / self.vgg.scale
        x = x.to(torch.bfloat16, memory_format=torch.channels_last)
        maps = {}
        for name, layer in self.vgg.named_children():
            x = maps[name] = layer(x)
        return [maps[theirs].float() for _, theirs in PAIRS]


def unexplained(student: Tensor, teacher: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """Share of the teacher's square roots, less their mean, that is not met; each channel and each image counts the same."""
    wanted = (teacher.sqrt() - mean) / spread
    return ((student - wanted).square().sum((1, 2, 3)) / wanted.square().sum((1, 2, 3))).mean()


def misaligned(student: Tensor, teacher: Tensor) -> Tensor:
    """One minus the centred alignment of two kernels of full bilinear pooling over a batch of maps."""
    kernels = []
    for x in (student, teacher):
        f = signed_sqrt_l2(full_bilinear(x, triangle=True))
        kernel = f @ f.T
        kernel = kernel - kernel.mean(0, keepdim=True)
        kernels.append(kernel - kernel.mean(1, keepdim=True))
    one, other = kernels
    alignment: Tensor = (one * other).sum() / (one.norm() * other.norm())
    return 1 - alignment


def spreads(teacher: Teacher, images: Iterator[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Mean and spread of each channel of the teacher's maps. Channels that hardly ever speak are not blown up."""
    numbers = []
    for maps in zip(*(teacher(batch) for batch in images), strict=True):
        x = torch.cat(maps).sqrt()
        spread = x.std((0, 2, 3))
        spread = spread.clamp(min=0.1 * float(spread.median()))
        numbers.append((x.mean((0, 2, 3))[:, None, None], spread[:, None, None]))
    return numbers


def learning_rate(step: int, steps: int, highest: float) -> float:
    """Up in the first twentieth of the steps, down along half a cosine."""
    return highest * min((step + 1) / (0.05 * steps + 1), 0.5 + 0.5 * cos(pi * step / steps))


def batches(settings: dict[str, Any], start: int, stop: int, seed: int) -> DataLoader[Tensor]:
    """Steps ``start`` to ``stop`` of the endless set ``seed``."""
    b = settings["batch"]
    images = Images(seed, start * b, stop * b, settings["side"])
    return DataLoader(images, batch_size=b, num_workers=settings["workers"], prefetch_factor=4 if settings["workers"] else None)


def train(settings: dict[str, Any], teacher: Teacher, out: Path) -> Student:
    """Run, or go on with, the training that the settings describe."""
    torch.manual_seed(settings["seed"])
    torch.use_deterministic_algorithms(True)
    statistics = spreads(teacher, iter(batches(settings, 0, 16, settings["seed"] + 1)))
    student: Student = Student(tuple(len(mean) for mean, _ in statistics))
    student = student.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(student.parameters(), weight_decay=0.02)
    start, checkpoint = 0, out / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        if saved["settings"] != settings:
            raise SystemExit(f"{checkpoint} was made with {saved['settings']},\nnot with {settings}. Take another --out.")
        student.load_state_dict(saved["student"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["step"]
        lines = (out / "log.jsonl").read_text().splitlines(keepends=True)
        (out / "log.jsonl").write_text("".join(line for line in lines if json.loads(line)["step"] <= start))
    began, steps = time.perf_counter(), settings["steps"]
    names = (*(theirs for _, theirs in PAIRS), "alignment")
    sums = torch.zeros(len(names))
    for step, images in enumerate(batches(settings, start, steps, settings["seed"]), start):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, settings["lr"])
        maps = teacher(images)
        x, guesses = student(images.to(memory_format=torch.channels_last))
        shares = [unexplained(guess, map_, *known) for guess, map_, known in zip(guesses, maps, statistics, strict=True)]
        losses = torch.stack([*shares, misaligned(x, maps[-1])])
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
        sums += losses.detach()
        done = step + 1
        if done % settings["every"] == 0 or done == steps:
            count = (done - 1) % settings["every"] + 1
            line = {"step": done} | {name: round(value / count, 4) for name, value in zip(names, sums.tolist(), strict=True)}
            line |= {"images_a_second": round((done - start) * settings["batch"] / (time.perf_counter() - began), 1)}
            with (out / "log.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)
            sums.zero_()
        if done % settings["keep"] == 0 or done == steps:
            state = {"student": student.state_dict(), "optimizer": optimizer.state_dict(), "step": done}
            with WholeFile(checkpoint) as part:
                torch.save(state | {"settings": settings}, part)
    return student


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--teacher", type=Path, required=True, help="weights of VGG-16, its convolutions at least")
    parser.add_argument("--out", type=Path, required=True, help="folder for the log, the checkpoint and the result")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=32, help="images a step")
    parser.add_argument("--side", type=int, default=112, help="pixels; a multiple of 16")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=20, help="steps between lines of the log")
    parser.add_argument("--keep", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--workers", type=int, default=1, help="processes that make images; 0 for none")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = vars(parser.parse_args())
    if arguments["keep"] % arguments["every"]:
        parser.error("--keep has to be a multiple of --every, so that a line of the log never spans an interruption")
    teacher = Teacher(arguments.pop("teacher")).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    out = arguments.pop("out")
    torch.set_num_threads(arguments["threads"])
    out.mkdir(parents=True, exist_ok=True)
    trunk = train(arguments, teacher, out).folded().half()
    save_file({name: tensor.contiguous() for name, tensor in trunk.state_dict().items()}, out / "tiny.safetensors")
    print(f"{out / 'tiny.safetensors'}: {(out / 'tiny.safetensors').stat().st_size} bytes")


if __name__ == "__main__":
    main()
