"""Batches of images, decoded ahead by worker processes, in order, whatever is broken among them.

A file that gives no image does not stop anything: its batch comes without it, and says which it was and why. Everything carries
its place in the list, so that results can be put where they belong, and so that work can be split and resumed at will.
"""

import os
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import repeat
from types import TracebackType
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from .decode import PIXELS, BrokenImage, decode
from .image_list import ImageList
from .transforms import Transform


class Broken(NamedTuple):
    """A file that gave no image."""

    place: int  # in the list
    reason: str  # with the file's name


class Batch(NamedTuple):
    """Some images of a list, as they follow each other in it, without those that are broken."""

    pixels: Tensor  # (b, 3, S, S), uint8, channels last; backbones take them as they are
    places: Tensor  # (b,), where in the list they are
    labels: Tensor  # (b,), -1 where it is not known
    broken: tuple[Broken, ...]


class _Item(NamedTuple):
    place: int
    label: int
    file: str
    epoch: int


class _Loaded(NamedTuple):
    item: _Item
    pixels: Tensor | None
    fault: str


class _Files(Dataset[_Loaded]):
    """Items to images. It holds no list of them, so that a worker needs the same memory for a thousand as for a billion."""

    def __init__(self, transform: Transform, pixels: int, draft: bool) -> None:
        self.transform, self.pixels, self.draft = transform, pixels, draft

    def __getitem__(self, item: _Item) -> _Loaded:
        try:
            image = decode(item.file, pixels=self.pixels, draft=self.transform.reads if self.draft else 0)
        except BrokenImage as fault:
            return _Loaded(item, None, str(fault))
        return _Loaded(item, self.transform.pixels(image, epoch=item.epoch, index=item.place), "")


class _Collate:
    def __init__(self, size: int) -> None:
        self.nothing = torch.empty(0, size, size, 3, dtype=torch.uint8)

    def __call__(self, loaded: list[_Loaded]) -> Batch:
        items = [each.item for each in loaded if each.pixels is not None]
        rows = [each.pixels.permute(1, 2, 0) for each in loaded if each.pixels is not None]  # (S, S, 3), as in memory
        return Batch(
            pixels=(torch.stack(rows) if rows else self.nothing).permute(0, 3, 1, 2),
            places=torch.tensor([item.place for item in items], dtype=torch.int64),
            labels=torch.tensor([item.label for item in items], dtype=torch.int64),
            broken=tuple(Broken(each.item.place, each.fault) for each in loaded if each.pixels is None),
        )


class _Batches:
    """The items of each batch, made when they are asked for."""

    def __init__(self, images: ImageList, batches: Iterable[Sequence[int]], epochs: Iterable[int]) -> None:
        self.images, self.batches, self.epochs = images, batches, epochs

    def __iter__(self) -> Iterator[list[_Item]]:
        for places, epoch in zip(self.batches, self.epochs, strict=False):  # one epoch for all of them has no end
            yield [_Item(place, self.images.labels[place], str(self.images.file(place)), epoch) for place in places]


def load_images(
    images: ImageList,
    transform: Transform,
    *,
    batch: int = 32,
    order: Sequence[int] | None = None,
    batches: Iterable[Sequence[int]] | None = None,
    epoch: int | Iterable[int] = 0,
    workers: int | None = None,
    strict: bool = False,
    pixels: int = PIXELS,
    draft: bool = False,
    pin_memory: bool = False,
    start_method: Literal["fork", "spawn", "forkserver"] | None = None,
) -> Generator[Batch]:
    """Decode and transform images, and yield them in batches.

    Args:
        images: which.
        transform: to what.
        batch: b, how many at once; the last may be smaller, and any batch is by the images in it that are broken.
        order: places in the list, in the order wanted: a part of it, a rank's share, or :func:`shuffled`. None: all in order.
        batches: places of each batch, in place of ``batch`` and ``order``, for batches that have to begin somewhere.
        epoch: which pass this is; random crops and flips depend on it. With ``batches`` of several passes, that of each.
        workers: processes that decode. None: one for each CPU that this process may use, at most 16. 0: none, all happens here.
        strict: raise the first :class:`BrokenImage` in place of reporting it.
        pixels: width × height beyond which an image is not unpacked but broken.
        draft: unpack JPEGs at 1/2, 1/4 or 1/8 of their size where that is still enough; faster, and slightly different.
        pin_memory: put batches where a GPU can fetch them while it works.
        start_method: how workers are started; None is Python's usual way.

    Returns:
        :class:`Batch` after batch. However many workers there are, the numbers are the same.
    """
    if batch < 1:
        raise ValueError(f"load_images takes batches of at least one image, but got batch={batch!r}.\nWrite batch=32.")
    if batches is None:
        order = range(len(images)) if order is None else order
        batches = (order[start : start + batch] for start in range(0, len(order), batch))
    workers = min(available_cpus(), 16) if workers is None else workers
    loader: DataLoader[_Loaded] = DataLoader(
        _Files(transform, pixels, draft),
        batch_sampler=_Batches(images, batches, repeat(epoch) if isinstance(epoch, int) else epoch),
        num_workers=workers,
        collate_fn=_Collate(transform.size),
        pin_memory=pin_memory,
        worker_init_fn=_leave_the_end_to_the_parent,
        multiprocessing_context=start_method if workers else None,
        generator=torch.Generator(),  # DataLoader would draw from the global one
    )
    return _checked(loader, strict)


def _checked(loader: DataLoader[_Loaded], strict: bool) -> Generator[Batch]:
    for each in loader:
        if strict and each.broken:
            raise BrokenImage(each.broken[0].reason)
        yield each


def shuffled(count: int, *, seed: int, epoch: int) -> list[int]:
    """All places of a list in an order drawn from (seed, epoch).

    >>> shuffled(5, seed=0, epoch=0) == shuffled(5, seed=0, epoch=0) != shuffled(5, seed=0, epoch=1)
    True
    """
    order: list[int] = np.random.default_rng([seed, epoch]).permutation(count).tolist()
    return order


def available_cpus() -> int:
    """How many CPUs this process may use, which in a container or a batch system is not how many there are."""
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _leave_the_end_to_the_parent(_: int) -> None:
    # a Ctrl-C reaches all processes of a terminal, but it is the parent's to decide when to stop; it takes its workers along
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = _quiet_about_the_parent


def _quiet_about_the_parent(kind: type[BaseException], fault: BaseException, trace: TracebackType | None) -> None:
    # of a batch that the parent was fetching when it stopped; what fails in a worker itself goes another way
    if not issubclass(kind, (EOFError, ConnectionError)):
        sys.__excepthook__(kind, fault, trace)
