"""What a pooling costs on this machine: milliseconds an image, beside those of the backbone in the same turns."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..descriptors.network import load_network
from ..device import one_thread
from ..features import FeatureStore
from ..features.layout import FITTED
from ..images import ImageList, Transform, load_images
from ..normalize import signed_sqrt_l2
from ..pooling.by_name import read_pooling
from ..timing import take_turns
from ..whole_file import undamaged

BACKBONE = "backbone"
ROUNDS = 7


def milliseconds(
    store: FeatureStore,
    images: ImageList,
    weights: str | None = None,
    *,
    device: torch.device,
    precision: torch.dtype,
    rounds: int = ROUNDS,
) -> dict[str, float]:
    """Time the backbone, and each pooling with its normalisation, on a batch of the images themselves.

    All take turns, and a time is the median over the turns. On a CPU each has one core, as in extraction, where several batches
    are computed at a time, and not several cores for each.

    Args:
        store: of features, whose poolings are timed as they were built and fitted for it.
        images: from which it was made.
        weights: the file of the backbone's weights, if it was made with one's own.
        device, precision: where, and in what the backbone computes.
        rounds: turns.

    Returns:
        For each pooling, and for ``BACKBONE``, milliseconds an image.
    """
    made = store.manifest["settings"]
    network = load_network(made["backbone"], weights, made["tap"], size=made["size"], device=device, precision=precision)
    some = store.indices[: 32 if device.type == "cuda" else 4].tolist()
    (batch,) = load_images(images, Transform(size=network.size, fit=made["fit"]), batch=len(some), order=some, workers=0)
    pixels = batch.pixels.to(device)
    runs: dict[str, Callable[[], object]] = {BACKBONE: partial(_quietly, network.maps, pixels)}
    maps = _quietly(network.maps, pixels)
    for pooling in store.poolings:
        layer = fitted(store, pooling, network.channels).to(device)
        pooled = partial(_pooled, layer, made["normalize"])
        runs[pooling] = partial(_quietly, pooled, maps)
    with one_thread() if device.type == "cpu" else nullcontext():
        times = take_turns(runs, device.type, rounds)
    return {name: time.median / len(pixels) for name, time in times.items()}


def fitted(store: FeatureStore, pooling: str, channels: int) -> nn.Module:
    """The pooling layer that a store was made with."""
    layer: Any = read_pooling(pooling).build(channels)
    if hasattr(layer, "fitted"):
        from safetensors.torch import load_file

        with undamaged(store.folder / FITTED):
            tensors = load_file(store.folder / FITTED)
        layer.load_state_dict({name: tensors[f"{pooling}/{name}"] for name in layer.state_dict()})
    return layer.eval()  # type: ignore[no-any-return]


def _pooled(layer: nn.Module, normalize: bool, maps: Tensor) -> Tensor:
    y: Tensor = layer(maps)
    return signed_sqrt_l2(y) if normalize else y


@torch.inference_mode()
def _quietly(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return function(x)
