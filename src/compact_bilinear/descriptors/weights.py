"""Weights: which file, where it comes from, and how it becomes the state of a backbone, without executing anything.

Reads ``.safetensors``, PyTorch's ``.pth`` (tensors only: no pickled object is ever built) and MatConvNet's ``.mat``.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ..download import download
from .matconvnet import read_matconvnet
from .standardize import per_channel
from .vgg import VGG, VGG_D, Architecture, Conv, layers_to, read_tap


class Source(NamedTuple):
    """Where a file is published, and what its publisher says of it."""

    url: str
    size: int | None = None
    sha256: str | None = None
    md5: str | None = None


# the sums of the .mat files are those of the publisher's table, https://www.vlfeat.org/matconvnet/pretrained
SOURCES = {
    "vgg16-397923af.pth": Source(
        "https://download.pytorch.org/models/vgg16-397923af.pth",
        size=553_433_881,
        sha256="397923af8e79cdbb6a7127f12361acd7a2f83e06b05044ddf496e83de57a5bf0",
    ),
    "imagenet-vgg-m.mat": Source(
        "https://www.vlfeat.org/matconvnet/models/imagenet-vgg-m.mat", md5="29294d5f62578c96a3533859514235f2"
    ),
    "imagenet-vgg-verydeep-16.mat": Source(
        "https://www.vlfeat.org/matconvnet/models/imagenet-vgg-verydeep-16.mat", md5="f72d927587ca4c97fbd165ec9cb9997f"
    ),
}
# the first is what is downloaded if nothing is asked for; all have the fully connected layers
FILES = {"vgg16": ("vgg16-397923af.pth", "imagenet-vgg-verydeep-16.mat"), "vgg-m": ("imagenet-vgg-m.mat",)}

# a convolution of VGG-D → its place in torchvision's vgg16().features; the fully connected layers are named below
TORCHVISION = {
    layer.name: f"features.{place}"
    for layer, place in zip(
        [layer for layer in VGG_D.layers if layer.name.startswith("conv")],
        (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28),
        strict=True,
    )
} | {"fc6": "classifier.0", "fc7": "classifier.3"}
# what torchvision trained it with; VGG-D's own mean is another, and comes with the .mat file
TORCHVISION_MEAN, TORCHVISION_SCALE = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def cache_folder() -> Path:
    """Where downloaded weights are kept: $COMPACT_BILINEAR_CACHE, or compact-bilinear in $XDG_CACHE_HOME or ~/.cache."""
    if own := os.environ.get("COMPACT_BILINEAR_CACHE"):
        return Path(own)
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "compact-bilinear"


def find_weights(name: str, weights: Path | str | None = None) -> Path:
    """The file to read: the one given, or a published one, which is downloaded the first time.

    Args:
        name: of the architecture.
        weights: a file, or the name of a published one; None for the first of ``FILES[name]``.
    """
    if weights is not None and Path(weights).is_file():
        return Path(weights)
    wanted = FILES[name][0] if weights is None else str(weights)
    known = FILES.get(name, ())
    if wanted not in known:
        remedy = f"Check the path, or name a file that can be downloaded: {', '.join(known)}." if known else "Check the path."
        raise FileNotFoundError(f"There is no file {wanted} with weights for {name}.\n{remedy}")
    source = SOURCES[wanted]
    return download(source.url, cache_folder() / wanted, size=source.size, sha256=source.sha256, md5=source.md5)


def load_vgg(architecture: Architecture, path: Path, tap: str | None = None) -> VGG:
    """Build the layers up to a tap and fill them from a file, whatever its format and floating-point type.

    Args:
        architecture: ``VGG_M``, ``VGG_D`` or another table.
        path: .safetensors, .pth or .mat. What it holds beyond the tap is left aside.
        tap: as :class:`~compact_bilinear.descriptors.vgg.VGG` takes it.

    Returns:
        A float32 module in evaluation mode.
    """
    tap = read_tap(architecture, tap)
    if path.suffix.lower() == ".mat":
        tensors = read_matconvnet(path, architecture)
    else:
        tensors = read_tensors(path)
        if any(name.startswith("features.") for name in tensors):
            tensors = _from_torchvision(tensors)
    with torch.device("meta"):  # nothing is drawn only to be overwritten
        backbone = VGG(architecture, tap)
    wanted = {name: tuple(tensor.shape) for name, tensor in backbone.state_dict().items()}
    later = {layer.name for layer in architecture.layers if isinstance(layer, Conv)}
    later -= {layer.name for layer in layers_to(architecture, tap)}
    state = fitted(f"{architecture.name} at tap {tap}", path, wanted, tensors, later | {"fc8"}, _remedy(architecture, tap))
    for name in ("mean", "scale"):
        state[name] = per_channel(path.name, name, tensors[name])
    backbone.load_state_dict(state, assign=True)
    return backbone.eval()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The named tensors of a .safetensors or .pth file, in float32 where they are floating-point."""
    readers: dict[str, Callable[[Path], object]] = {".safetensors": _read_safetensors, ".pth": _read_pth, ".pt": _read_pth}
    suffix = path.suffix.lower()
    if suffix not in readers:
        raise ValueError(
            f"Weights are read from .safetensors, .pth, .pt or .mat files but got {path}.\n"
            "Convert it: `safetensors.torch.save_file(module.state_dict(), 'weights.safetensors')`."
        )
    try:
        tensors = readers[suffix](path)
    except FileNotFoundError:
        raise
    except Exception as failure:  # a file that is cut or is something else makes the readers stumble anywhere
        raise ValueError(
            f"{path} could not be read as tensors and nothing else ({(str(failure) or repr(failure)).splitlines()[0]}).\n"
            "If it was downloaded, download it again; pickled objects are refused, a state_dict of tensors is taken."
        ) from failure
    if not isinstance(tensors, Mapping) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise ValueError(
            f"{path} holds something else than named tensors.\nSave `module.state_dict()`, not the module or a checkpoint."
        )
    return {str(name): tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def fitted(
    owner: str,
    path: Path,
    wanted: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, Tensor],
    unused: set[str],
    remedy: str,
) -> dict[str, Tensor]:
    """What is wanted of ``tensors``, or a refusal that says what is missing, too much, misshapen or not a number.

    Args:
        owner: who wants it, for messages.
        path: the file, for messages.
        wanted: names and shapes. The shape of a mean is not compared: a colour or an image are both fine.
        tensors: what the file holds.
        unused: names of layers that may be there and are not wanted.
        remedy: what to do if a layer is missing.
    """
    missing = [name for name in wanted if name not in tensors]
    if missing:
        raise ValueError(f"{owner} takes {_few(missing)} from a file but {path.name} lacks them.\n{remedy}")
    unexpected = [name for name in tensors if name not in wanted and name.rpartition(".")[0] not in unused]
    if unexpected:
        raise ValueError(
            f"{owner} has no {_few(unexpected)}, which {path.name} holds.\nThe file belongs to another network: check its name."
        )
    for name, shape in wanted.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != shape and name not in ("mean", "scale"):
            raise ValueError(
                f"{owner} takes {name} of shape {shape} but {path.name} has {tuple(tensor.shape)}.\n"
                "The file belongs to another network, or its axes are in another order: check its name."
            )
        if not bool(tensor.isfinite().all()):
            raise ValueError(
                f"{owner} takes finite weights but {name} in {path.name} holds NaN or inf.\nThe file is damaged: make it anew."
            )
    return {name: tensors[name] for name in wanted}


def _remedy(architecture: Architecture, tap: str) -> str:
    known = FILES.get(architecture.name, ())
    whole = f"Take a file that has them: {' or '.join(known)}." if known else "Check that the file is whole."
    first, *_ = architecture.taps
    return whole if tap == first else f"{whole[:-1]}; without it, take tap={first!r}."


def _few(names: list[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _read_safetensors(path: Path) -> object:
    from safetensors.torch import load_file

    return load_file(path)


def _read_pth(path: Path) -> object:
    return torch.load(path, map_location="cpu", weights_only=True)


def _from_torchvision(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names and shapes of torchvision as ours. Other names stay, to be refused."""
    ours = {theirs: name for name, theirs in TORCHVISION.items()} | {"classifier.6": "fc8"}
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        layer, _, part = name.rpartition(".")
        renamed[f"{ours.get(layer, layer)}.{part}"] = tensor
    # a linear layer of a flattened map is a convolution as large as the map
    for name, side in (("fc6.weight", 7), ("fc7.weight", 1)):
        if name in renamed and renamed[name].ndim == 2 and renamed[name].shape[1] % side**2 == 0:
            renamed[name] = renamed[name].unflatten(1, (-1, side, side))
    mean, scale = (per_channel("torchvision", "mean", numbers) for numbers in (TORCHVISION_MEAN, TORCHVISION_SCALE))
    return {"mean": mean, "scale": scale} | renamed
