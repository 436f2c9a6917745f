"""Files as MatConvNet writes them, made here with scipy, in the fields of old and of new versions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat

from compact_bilinear.descriptors import Architecture, Conv, Norm, Pool, load_vgg
from narrow import NARROW_D, NARROW_M

COLOUR = np.array([123.68, 116.779, 103.939])
IMAGE = np.random.default_rng(0).uniform(90, 130, (11, 13, 3))


def structs(architecture: Architecture, style: str, last: str = "fc8") -> list[dict[str, Any]]:
    """The layers of a file, with everything else that MatConvNet puts there, up to the layer called ``last``."""
    draw, c, layers = np.random.default_rng(1), 3, []
    for layer in (*architecture.layers, Conv("fc8", 10, 1)):
        match layer:
            case Conv(name, channels, kernel, stride, padding):
                filters = draw.normal(size=(kernel, kernel, c, channels)).astype(np.float32) / (kernel**2 * c) ** 0.5
                biases = draw.normal(size=(1, channels)).astype(np.float32)
                struct = {"name": name, "type": "conv", "stride": float(stride), "pad": float(padding)}
                if style == "new":
                    cell = np.empty((1, 2), dtype=object)
                    cell[0, 0], cell[0, 1] = filters, biases
                    struct |= {"weights": cell, "stride": [float(stride)] * 2, "pad": [float(padding)] * 4}
                else:
                    struct |= {"filters": filters, "biases": biases}
                layers += [struct, {"name": name.replace("conv", "relu"), "type": "relu"}]
                c = channels
            case Norm(name, size, k, alpha, beta):
                kind = "lrn" if style == "new" else "normalize"
                layers.append({"name": name, "type": kind, "param": np.array([size, k, alpha / size, beta])})
            case Pool(name, kernel, stride, ceil):
                pad = [0.0, 1.0, 0.0, 1.0] if ceil or style == "old" else [0.0] * 4
                layers.append(
                    {"name": name, "type": "pool", "method": "max", "pool": [kernel] * 2, "stride": [stride] * 2, "pad": pad}
                )
        if layer.name == last:
            break
    return [*layers, {"name": "prob", "type": "softmax"}]


def save(path: Path, layers: list[dict[str, Any]], average: Any, style: str) -> Path:
    cell = np.empty((1, len(layers)), dtype=object)
    cell[0, :] = layers
    normalization = {"averageImage": average, "imageSize": [224.0, 224.0, 3.0], "interpolation": "bilinear"}
    meta = {"meta": {"normalization": normalization}} if style == "new" else {"normalization": normalization}
    savemat(path, {"layers": cell, "classes": {"name": "n01440764"}} | meta)
    return path


@pytest.mark.parametrize("style", ["new", "old"])
@pytest.mark.parametrize("average", [COLOUR, COLOUR.reshape(1, 1, 3), IMAGE], ids=["colour", "1x1", "image"])
@pytest.mark.parametrize("architecture", [NARROW_M, NARROW_D], ids=["m", "d"])
def test_is_what_was_saved(architecture: Architecture, average: np.ndarray, style: str, tmp_path: Path) -> None:
    layers = structs(architecture, style)
    backbone = load_vgg(architecture, save(tmp_path / "net.mat", layers, average, style), "fc7")
    assert not backbone.training
    state = backbone.state_dict()
    for struct in layers:
        if struct["type"] == "conv" and struct["name"] != "fc8":
            filters, biases = struct["weights"][0] if style == "new" else (struct["filters"], struct["biases"])
            weight = state[f"{struct['name']}.weight"]
            assert weight.dtype == torch.float32
            for position in ((0, 0, 0, 0), tuple(size - 1 for size in weight.shape), (1, 2, 0, 0), (4, 0, -1, 0)):
                n, c, h, w = position
                assert weight[n, c, h, w] == filters[h, w, c, n]
            torch.testing.assert_close(state[f"{struct['name']}.bias"], torch.from_numpy(biases[0]))
    # the network wants the mean subtracted from images from 0 to 255
    h, w = average.shape[:2] if average.ndim == 3 and average.shape[0] > 1 else (8, 9)
    pixels = torch.randint(256, (1, 3, h, w), generator=torch.Generator().manual_seed(0)).float()
    expected = pixels - torch.from_numpy(np.broadcast_to(average, (h, w, 3)).transpose(2, 0, 1).astype(np.float32))
    torch.testing.assert_close((pixels / 255 - state["mean"]) / state["scale"], expected[0:1], rtol=1e-4, atol=1e-4)


def test_old_and_new_files_give_the_same_descriptors(tmp_path: Path) -> None:
    x = torch.rand(1, 3, 75, 83)
    old, new = (
        load_vgg(NARROW_M, save(tmp_path / f"{style}.mat", structs(NARROW_M, style), IMAGE, style))(x)
        for style in ("old", "new")
    )
    assert torch.equal(old, new)
    assert old.std() > 0


def test_a_file_without_the_last_layers_will_do_until_they_are_asked_for(tmp_path: Path) -> None:
    path = save(tmp_path / "convs.mat", structs(NARROW_M, "new", last="conv5"), COLOUR, "new")
    assert load_vgg(NARROW_M, path).tap == "conv5"
    with pytest.raises(
        ValueError,
        match=r"vgg-m at tap fc6 takes fc6.weight, fc6.bias from a file but convs.mat lacks them.\n"
        "Take a file that has them: imagenet-vgg-m.mat; without it, take tap='conv5'",
    ):
        load_vgg(NARROW_M, path, "fc6")


# --- what it refuses ---


def broken(layers: list[dict[str, Any]], name: str, **changes: Any) -> list[dict[str, Any]]:
    return [layer | changes if layer["name"] == name else layer for layer in layers]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("pool1", {"stride": [3.0, 3.0]}, "takes a pool 3×3 with stride 2 as layer 3 but net.mat has a pool 3×3 with stride 3"),
        ("conv2", {"stride": 1.0}, r"a convolution 5×5 to \d+ channels with stride 1 and padding 1"),
        ("conv2", {"pad": [1.0, 2.0, 1.0, 2.0]}, "with stride 2 and padding -1"),
        ("norm1", {"param": [5.0, 1.0, 1e-4, 0.75]}, "has a normalisation with size 5, k 1, alpha 0.0005 and beta 0.75"),
        ("norm1", {"type": "pool", "pool": 3.0, "stride": 2.0}, "takes a normalisation .* as layer 2 .* has a pool"),
        ("norm2", {"type": "relu"}, "as layer 5 but net.mat has a pool 3×3"),
        ("conv3", {"weights": np.empty((1, 2), dtype=object)}, "no filters and biases in its layer conv3.\nTake a file with"),
    ],
)
def test_refuses_another_network(name: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    # VGG-S, for one, has filters of exactly VGG-M's shapes
    if "weights" in changes:
        changes["weights"][0] = [np.zeros((0, 0)), np.zeros((0, 0))]
    layers = broken(structs(NARROW_M, "new"), name, **changes)
    with pytest.raises(ValueError, match=message):
        load_vgg(NARROW_M, save(tmp_path / "net.mat", layers, COLOUR, "new"))


def test_refuses_vgg_m_for_vgg_d(tmp_path: Path) -> None:
    path = save(tmp_path / "m.mat", structs(NARROW_M, "new"), COLOUR, "new")
    with pytest.raises(
        ValueError, match=r"vgg16 takes a convolution 3×3 .* as layer 1 but m.mat has a convolution 7×7.*\nIt is"
    ):
        load_vgg(NARROW_D, path)


@pytest.mark.parametrize("average", [[], 117.0, np.zeros((4, 4))])
def test_refuses_a_file_without_a_mean(average: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "net.mat", structs(NARROW_M, "new"), average, "new")
    with pytest.raises(ValueError, match=r"net.mat has no mean of three channels in normalization.averageImage"):
        load_vgg(NARROW_M, path)


def test_refuses_what_is_no_simple_network(tmp_path: Path) -> None:
    savemat(tmp_path / "dag.mat", {"params": {"name": "conv1_filter"}, "vars": 1.0})
    (tmp_path / "text.mat").write_bytes(b"<html>404</html>" * 40)
    (tmp_path / "empty.mat").write_bytes(b"")
    (tmp_path / "new.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(512))
    whole = save(tmp_path / "net.mat", structs(NARROW_M, "new"), COLOUR, "new").read_bytes()
    (tmp_path / "cut.mat").write_bytes(whole[: len(whole) // 2])
    for name, message in (
        ("dag", r"no variable `layers`.*\nNetworks in the DagNN form are not read"),
        ("text", r"text.mat is not a whole .mat file .*\nIf it was downloaded, download it again"),
        ("empty", "is not a whole .mat file"),
        ("cut", "is not a whole .mat file"),
        ("new", r"-v7.3 format, which scipy does not read.\nSave it again in MATLAB"),
    ):
        with pytest.raises(ValueError, match=message):
            load_vgg(NARROW_M, tmp_path / f"{name}.mat")
