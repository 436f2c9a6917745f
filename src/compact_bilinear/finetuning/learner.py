"""A model that learns: its optimiser, and what one step does."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..device import choose_precision
from ..images import Batch
from ..model import Link, Model
from .checkpoint import put, taken
from .rates import build_optimizer, fixed, rates_of, set_rate
from .settings import FineTuning
from .together import Group


class Facts(NamedTuple):
    """The sum of the losses, and how many images had another class, of a batch of all processes: perhaps still on its way."""

    numbers: Tensor  # (2,) in float64
    there: torch.cuda.Event | None

    def read(self) -> tuple[float, int]:
        """Wait for them, if need be."""
        if self.there is not None:
            self.there.synchronize()
        loss, wrong = self.numbers.tolist()
        return loss, int(wrong)


def losses(scores: Tensor, labels: Tensor, link: Link, smoothing: float = 0.0) -> Tensor:
    """The loss of each image (b,), from scores (b, k): of softmax, or the sum over classes that are one against the rest."""
    if link == "softmax":
        return F.cross_entropy(scores, labels, reduction="none", label_smoothing=smoothing)
    wanted = F.one_hot(labels, scores.shape[1]).to(scores.dtype) * (1 - smoothing) + smoothing / scores.shape[1]
    return F.binary_cross_entropy_with_logits(scores, wanted, reduction="none").sum(1)


class Learner:
    """A model that learns.

    Args:
        model: with a head; it is changed in place.
        settings: how.
        group: the processes that do so together, each on its device.
    """

    def __init__(self, model: Model, settings: FineTuning, group: Group) -> None:
        self.model, self.settings, self.group, self.device = model, settings, group, group.device
        self.precision = choose_precision(settings.precision, self.device)
        model.to(self.device)
        model.backbone.to(memory_format=torch.channels_last if settings.channels_last else torch.contiguous_format)
        rates = rates_of(model, settings)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(rates[name] > 0)
        self.learning = {name: each for name, each in model.named_parameters() if each.requires_grad}
        self.optimizer = build_optimizer(model, settings, rates)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == torch.float16)
        self.shared = group.share(model, settings.batch_statistics)
        self.run: Any = torch.compile(self.shared) if settings.compile else self.shared

    def begin_epoch(self) -> None:
        """Training mode, but for what stays fixed."""
        self.model.train()
        for module in fixed(self.model, self.settings):
            module.eval()

    def step(self, parts: Sequence[Batch], count: int, rate: float) -> Facts:
        """Learn from one batch.

        Args:
            parts: what this process has of it; their gradients are added.
            count: images in it, of all processes, at least one. The gradient is the mean over these.
            rate: before the factors of the groups.
        """
        world = self.group.processes.world
        full = [(part.pixels, part.labels, world / count) for part in parts if len(part.labels)]
        if not full and not self.group.alone:  # a black image that counts nothing: the others wait for the gradient of all
            side = self.model.transform.size
            full = [(torch.zeros(1, 3, side, side, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64), 0.0)]
        set_rate(self.optimizer, rate)
        self.optimizer.zero_grad()
        facts = torch.zeros(2, dtype=torch.float64, device=self.device)
        for number, (pixels, labels, share) in enumerate(full):
            waits = not self.group.alone and number < len(full) - 1
            with self.shared.no_sync() if waits else nullcontext():  # type: ignore[operator]
                facts += self._learn(pixels, labels, share)
        if self.settings.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.learning.values(), self.settings.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return _on_its_way(self.group.sum(facts))

    def _learn(self, pixels: Tensor, labels: Tensor, share: float) -> Tensor:
        pixels, labels = (each.to(self.device, non_blocking=True) for each in (pixels, labels))
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            scores = self.run(pixels)
        each = losses(scores, labels, self.model.link, self.settings.label_smoothing)
        # processes are averaged, so that each contributes its sum times their number
        self.scaler.scale(each.sum() * share).backward()
        with torch.no_grad():
            facts = torch.stack([each.double().sum(), (scores.argmax(1) != labels).double().sum()])
            return facts if share else torch.zeros_like(facts)

    def tensors(self) -> dict[str, Tensor]:
        """All numbers that a checkpoint holds."""
        tensors = taken(self.model)
        for name, parameter in self.learning.items():
            for kind, value in self.optimizer.state[parameter].items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer/{name}/{kind}"] = value
        return tensors

    def restore(self, tensors: dict[str, Tensor], scaler: dict[str, float]) -> None:
        """Take the numbers of a checkpoint."""
        put(self.model, tensors)
        for key, value in tensors.items():
            name, _, kind = key.removeprefix("optimizer/").rpartition("/")
            if key.startswith("optimizer/"):
                parameter = self.learning[name]
                # AdamW counts its steps on the CPU
                like = torch.empty_like(parameter) if value.shape == parameter.shape else torch.empty_like(value)
                self.optimizer.state[parameter][kind] = like.copy_(value)
        if scaler:
            self.scaler.load_state_dict(scaler)


def _on_its_way(facts: Tensor) -> Facts:
    if facts.device.type != "cuda":
        return Facts(facts, None)
    numbers = torch.empty_like(facts, device="cpu", pin_memory=True).copy_(facts, non_blocking=True)
    there = torch.cuda.Event()
    there.record()
    return Facts(numbers, there)
