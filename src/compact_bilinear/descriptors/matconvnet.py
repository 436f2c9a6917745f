"""Networks as MatConvNet saves them: ``imagenet-vgg-m.mat``, ``imagenet-vgg-verydeep-16.mat`` and their kin.

What is in such a file, and what becomes of it:

- ``layers``, a cell of structs. A convolution has its ``filters`` and ``biases``, in newer files both in the cell ``weights``.
  Filters are height × width × in × out and become out × in × height × width.
- ``meta.normalization.averageImage``, ``normalization.averageImage`` in older files: a colour, or an image height × width × 3,
  from 0 to 255, which the network wants subtracted from images from 0 to 255. It becomes a mean from 0 to 1 and a scale 1/255.

Channels are red, green, blue: files that came from Caffe were turned around when they were made.

The layers of the file are compared with those of the architecture one by one, geometry and all: VGG-S has filters of VGG-M's
shapes and would otherwise be taken for it.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .vgg import Architecture, Conv, Layer, Norm, Pool


def read_matconvnet(path: Path, architecture: Architecture) -> dict[str, Tensor]:
    """Read a .mat file as the state of a :class:`~compact_bilinear.descriptors.vgg.VGG`: weights, biases, mean and scale.

    Args:
        path: the file.
        architecture: what the file must hold, from the first layer on. It may end earlier, and may go on with other layers.
    """
    net = _load(path)
    found = [layer for layer in _structs(net["layers"]) if layer.get("type") in ("conv", "lrn", "normalize", "pool")]
    tensors: dict[str, Tensor] = {}
    for place, (struct, layer) in enumerate(zip(found, architecture.layers, strict=False), 1):
        seen, arrays = _understood(path, struct)
        if not _same(seen, layer):
            raise ValueError(
                f"{architecture.name} takes {_in_words(layer)} as layer {place} but {path.name} has {_in_words(seen)}.\n"
                "It is another network: check the file's name, or build the one that it holds."
            )
        for part, array in arrays.items():
            tensors[f"{layer.name}.{part}"] = torch.from_numpy(array)
    mean = _mean(path, net)
    return tensors | {"mean": mean, "scale": torch.full((3, 1, 1), 1 / 255)}


def _load(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    try:
        net: dict[str, Any] = loadmat(path, simplify_cells=True, variable_names=["layers", "meta", "normalization"])
    except NotImplementedError as failure:  # what scipy raises for MATLAB's format of 2006, which is HDF5
        raise ValueError(
            f"{path} is in MATLAB's -v7.3 format, which scipy does not read.\nSave it again in MATLAB with `save(..., '-v7')`."
        ) from failure
    except Exception as failure:  # a broken file makes scipy stumble anywhere
        raise ValueError(
            f"{path} is not a whole .mat file ({failure or type(failure).__name__}).\nIf it was downloaded, download it again."
        ) from failure
    if "layers" not in net:
        raise ValueError(
            f"{path} has no variable `layers`, the cell of a simple MatConvNet network.\n"
            "Networks in the DagNN form are not read: take imagenet-vgg-m.mat or imagenet-vgg-verydeep-16.mat."
        )
    return net


def _structs(layers: Any) -> list[dict[str, Any]]:
    return [layer for layer in np.atleast_1d(np.asarray(layers, dtype=object)) if isinstance(layer, dict)]


def _understood(path: Path, struct: dict[str, Any]) -> tuple[Layer, dict[str, np.ndarray]]:
    """One struct as a row of our tables, with the arrays of a convolution."""
    name = str(struct.get("name", "?"))
    if struct["type"] == "pool":
        return Pool(name, _one(struct.get("pool", 1)), _one(struct.get("stride", 1))), {}
    if struct["type"] != "conv":
        size, k, alpha, beta = np.asarray(struct["param"], dtype=float).ravel()
        return Norm(name, int(size), float(k), float(alpha * size), float(beta)), {}
    given = struct["weights"] if "weights" in struct else [struct.get("filters"), struct.get("biases")]
    if len(given) != 2 or any(array is None or np.size(array) == 0 for array in given):
        raise ValueError(
            f"{path} has no filters and biases in its layer {name}.\nTake a file with weights, not one with the bare layers."
        )
    filters, biases = (np.asarray(array, dtype=np.float32) for array in given)
    # reading squeezes axes of length 1 away: filters of the last layers are 1 × 1 × in × out
    filters = filters.reshape((1,) * (4 - filters.ndim) + filters.shape)
    arrays = {"weight": np.ascontiguousarray(filters.transpose(3, 2, 0, 1)), "bias": biases.ravel()}
    kernel = filters.shape[0] if filters.shape[0] == filters.shape[1] else -1
    return Conv(name, filters.shape[3], kernel, _one(struct.get("stride", 1)), _one(struct.get("pad", 0))), arrays


def _one(numbers: Any) -> int:
    """The one number that both axes, or all four sides, have; −1 if they differ, which fits no layer of ours."""
    distinct = np.unique(np.asarray(numbers, dtype=float))
    return int(distinct[0]) if len(distinct) == 1 else -1


def _same(seen: Layer, layer: Layer) -> bool:
    match seen, layer:
        case Conv(), Conv():
            return seen[1:] == layer[1:]
        case Pool(), Pool():
            return seen[1:3] == layer[1:3]  # how the edge is padded is left to the table
        case Norm(), Norm():
            return np.allclose(seen[1:], layer[1:], rtol=1e-5, atol=0)
    return False


def _in_words(layer: Layer) -> str:
    match layer:
        case Conv(_, channels, kernel, stride, padding):
            return f"a convolution {kernel}×{kernel} to {channels} channels with stride {stride} and padding {padding}"
        case Pool(_, kernel, stride):
            return f"a pool {kernel}×{kernel} with stride {stride}"
        case Norm(_, size, k, alpha, beta):
            return f"a normalisation with size {size}, k {k:g}, alpha {alpha:g} and beta {beta:g}"


def _mean(path: Path, net: dict[str, Any]) -> Tensor:
    meta = net.get("meta")
    normalization = meta.get("normalization") if isinstance(meta, dict) else net.get("normalization")
    average = normalization.get("averageImage") if isinstance(normalization, dict) else None
    array = np.asarray([] if average is None else average, dtype=np.float32)
    if array.shape != (3,) and (array.ndim != 3 or array.shape[2] != 3):
        raise ValueError(
            f"{path} has no mean of three channels in normalization.averageImage, but an array {array.shape}.\n"
            "Without it the descriptors would be others than the network was trained to give: take the original file."
        )
    return torch.from_numpy(np.ascontiguousarray(array.reshape(*(array.shape[:-1] or (1, 1)), 3).transpose(2, 0, 1))) / 255
