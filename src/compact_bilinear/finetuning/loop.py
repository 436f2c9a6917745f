"""Epoch after epoch: what is done between two steps, and what is written down."""

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from ..images import Batch, ImageList, Transform, load_images
from ..images.loader import available_cpus
from ..progress import Advance, counting_bar, note
from .checkpoint import Checkpoints, State, finite, taken
from .held_out import measure
from .learner import Facts, Learner
from .log import Log
from .places import Places, batches_of, parts_of
from .rates import rate_at
from .settings import FineTuning

NAMED = 3  # files that an error tells; the log has all


class Diverged(ValueError):
    """Numbers of a run are no longer finite, and what it would learn from here on is nothing."""


class Taken(NamedTuple):
    """A step that was taken, whose numbers may still be on their way."""

    step: int
    epoch: int
    rate: float
    batch: Sequence[int]
    broken: Sequence[int]
    seconds: float  # since the step before
    facts: Facts


class Loop:
    """Epoch after epoch, step after step, with all that is written meanwhile: :meth:`to_the_end`.

    Args:
        learner: with the numbers that ``state`` tells of.
        images, places: what to learn from, and what to measure on.
        checkpoints, log: where to write.
        state: where the run is; it is kept up to date.
        stopped: says whether somebody wants it to stop after the step.
    """

    def __init__(
        self,
        learner: Learner,
        images: ImageList,
        places: Places,
        checkpoints: Checkpoints,
        log: Log,
        state: State,
        stopped: Callable[[], bool],
    ) -> None:
        self.learner, self.images, self.places, self.checkpoints = learner, images, places, checkpoints
        self.log, self.state, self.stopped = log, state, stopped
        self.settings, self.group = learner.settings, learner.group
        self.transform = _training_transform(learner.model.transform, self.settings)
        self.steps = len(batches_of(places.train, self.settings, 0))  # of an epoch
        self.on_its_way: deque[Taken] = deque()
        self.settled: Taken | None = None
        self.said_broken: set[int] = set()
        self.written = self.stepped = time.monotonic()

    def to_the_end(self) -> None:
        """Learn until the last epoch is over, or patience."""
        state, settings = self.state, self.settings
        if state.step == 0 and not state.best:
            if settings.hold_out:
                self._measure(0)
            self._write()
        done, total = state.epoch * len(self.places.train) + state.seen + state.broken, settings.epochs * len(self.places.train)
        # all processes count the same images
        bar = counting_bar("fine-tune", "images", done, total) if self.group.processes.first else nullcontext(_silent)
        with bar as advance, closing(self._loaded()) as loaded:
            while not self._over():
                self._epoch(loaded, advance)

    def _over(self) -> bool:
        patience = self.settings.patience
        return self.state.epoch >= self.settings.epochs or (patience > 0 and self.state.worse >= patience)

    def _epoch(self, loaded: Iterator[Batch], advance: Advance) -> None:
        state, group, learner = self.state, self.group, self.learner
        learner.begin_epoch()
        self.stepped = time.monotonic()
        rest = batches_of(self.places.train, self.settings, state.epoch)[state.batch :]
        for batch in rest:
            parts = [next(loaded) for _ in range(self.settings.accumulate)]
            broken = self._broken(batch, parts)
            rate = rate_at(self.settings, state.step, self.steps)
            _seed(group.device, self.settings.seed, state.step, group.processes.rank)  # for dropout
            count = len(batch) - len(broken)
            facts = learner.step(parts, count, rate) if count else Facts(torch.zeros(2), None)
            state.step, state.batch = state.step + 1, state.batch + 1
            before, self.stepped = self.stepped, time.monotonic()
            self.on_its_way.append(Taken(state.step, state.epoch, rate, batch, broken, self.stepped - before, facts))
            self._settle(advance, leave=1)  # what a GPU has not answered yet is not waited for
            if time.monotonic() - self.written >= 60 * self.settings.checkpoint_minutes:
                self._settle(advance)
                self._write()
            self._stop_if_asked(advance)
        self._settle(advance)
        epoch = {"loss": state.loss / max(state.seen, 1), "error": state.wrong / max(state.seen, 1), "images": state.seen}
        if not state.seen:
            raise ValueError(
                f"Fine-tuning takes images, but all {state.broken} of the split are broken, "
                f"{self.images.paths[self.places.train[0]]} for one.\nMend them, and run the same again."
            )
        self._measure(state.epoch + 1, advance, epoch | {"broken": state.broken})
        state.epoch, state.batch = state.epoch + 1, 0
        state.seen, state.broken, state.loss, state.wrong = 0, 0, 0.0, 0
        self._write()

    def _loaded(self) -> Generator[Batch]:
        """The parts of all batches that are still to come: those who decode need not wait for an epoch to end."""
        group, settings, on_gpu = self.group, self.settings, self.group.device.type == "cuda"
        workers = min(16, max(1, available_cpus() // group.processes.local_world)) if on_gpu else 1
        batches, epochs = (self._ahead(self.state.epoch, self.state.batch) for _ in range(2))
        return load_images(
            self.images,
            self.transform,
            batches=(part for _, batch in batches for part in parts_of(batch, group.processes, settings.accumulate)),
            epoch=(epoch for epoch, _ in epochs for _ in range(settings.accumulate)),
            workers=workers if settings.workers is None else settings.workers,
            pin_memory=on_gpu,
        )

    def _ahead(self, begun: int, done: int) -> Iterator[tuple[int, list[int]]]:
        """Epoch and batch of every step, from an epoch on of which some batches are done."""
        for epoch in range(begun, self.settings.epochs):
            for batch in batches_of(self.places.train, self.settings, epoch)[done if epoch == begun else 0 :]:
                yield epoch, batch

    def _broken(self, batch: Sequence[int], parts: Sequence[Batch]) -> list[int]:
        """The places in a batch of all processes that gave no image. Each process names its own."""
        there = torch.zeros(len(batch), dtype=torch.int64)
        number = {place: position for position, place in enumerate(batch)}
        for part in parts:
            there[[number[place] for place in part.places.tolist()]] = 1
            for each in part.broken:
                if each.place not in self.said_broken:
                    self.said_broken.add(each.place)
                    note(f"fine-tune: skipped is {each.reason}")
        present = self.group.sum(there).tolist()
        return [place for place, is_there in zip(batch, present, strict=True) if not is_there]

    def _settle(self, advance: Advance, leave: int = 0) -> None:
        """Take in the numbers of steps, and write them down, but for the last few."""
        state = self.state
        while len(self.on_its_way) > leave:
            step = self.on_its_way.popleft()
            count = len(step.batch) - len(step.broken)
            loss, wrong = step.facts.read()
            self.settled = step
            if not math.isfinite(loss):
                self._refuse(f"The loss of step {step.step} should be finite but is {loss}", step)
            state.loss, state.wrong, state.seen = state.loss + loss, state.wrong + wrong, state.seen + count
            state.broken += len(step.broken)
            numbers: dict[str, Any] = {
                "epoch": step.epoch + 1,
                "loss": loss / max(count, 1),
                "error": wrong / max(count, 1),
                "rate": step.rate,
                "images": count,
                "images_a_second": round(count / max(step.seconds, 1e-9), 2),
            }
            if step.broken:
                numbers["broken"] = [self.images.paths[place] for place in step.broken]
            self.log.write("step", step.step, numbers)
            seen = max(state.seen, 1)
            how = (
                f"epoch {numbers['epoch']}/{self.settings.epochs}, loss {state.loss / seen:.4g}, error {state.wrong / seen:.1%}"
            )
            advance(len(step.batch), f"{how}, rate {step.rate:.2g}")

    def _measure(self, epoch: int, advance: Advance | None = None, numbers: dict[str, Any] | None = None) -> None:
        """Say how an epoch was, and keep it if it was the best."""
        state = self.state
        record = {"epoch": epoch} | (numbers or {})
        if self.settings.hold_out:
            numbers_now = self._finite(taken(self.learner.model))
            held = measure(
                self.learner, self.images, self.places.held, self.settings.workers, check=lambda: self._stop_if_asked(advance)
            )
            record |= {f"held out {name}": value for name, value in held.items()}
            best = state.best
            if not best or (held["error"], held["loss"]) < (best["error"], best["loss"]):
                state.best, state.worse = {"epoch": epoch} | held, 0
                if self.group.processes.first:
                    self.checkpoints.write_best(state, numbers_now)
            else:
                state.worse += 1
        self.log.write("epoch", state.step, record)

    def _stop_if_asked(self, advance: Advance | None) -> None:
        if self.stopped():
            if advance is not None:  # before the first step there is nothing to lose
                self._settle(advance)
                self._write()
            raise KeyboardInterrupt

    def _write(self) -> None:
        if self.group.processes.first:
            self.state.lines, self.state.scaler = self.log.lines, self.learner.scaler.state_dict()
            self.checkpoints.write(self.state, self._finite(self.learner.tensors()))
        self.written = time.monotonic()

    def _finite(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if not finite(tensors):
            self._refuse(f"After step {self.state.step} all numbers of the model should be finite but are not", self.settled)
        return tensors

    def _refuse(self, what: str, step: Taken | None) -> None:
        files = [self.images.paths[place] for place in step.batch] if step else []
        if step:
            self.log.write("not finite", step.step, {"epoch": step.epoch + 1, "files": files})
        more = f" and {len(files) - NAMED} more, which the log names" if len(files) > NAMED else ""
        raise Diverged(
            f"{what}; its batch: {', '.join(files[:NAMED]) or 'none yet'}{more}.\n"
            f"The last good checkpoint is {self.checkpoints.newest()}: take another folder, and a lower rate, a warm-up, or "
            "clip=1."
        )


def _training_transform(transform: Transform, settings: FineTuning) -> Transform:
    return replace(
        transform,
        fit="random-crop" if settings.crop else transform.fit,
        flip="random" if settings.flip else transform.flip,
        seed=settings.seed,
    )


def _silent(count: int, said: str = "") -> None:
    pass


def _seed(device: torch.device, *numbers: int) -> None:
    seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
