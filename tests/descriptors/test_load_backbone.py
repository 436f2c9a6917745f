"""Backbones by name; and that VGG-16's real weights, where they are at hand, see what they should."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import normalize

from compact_bilinear import TensorSketch, signed_sqrt_l2
from compact_bilinear.descriptors import TINY, VGG, VGG_D, VGG_M, load_backbone
from compact_bilinear.descriptors import weights as weights_module
from compact_bilinear.descriptors.tiny import WEIGHTS

SHARED = Path(__file__).parents[3] / "shared"
REAL = SHARED / "weights" / "vgg16-conv-fp16.safetensors"


@pytest.mark.parametrize(("name", "architecture"), [("vgg16", VGG_D), ("vgg-d", VGG_D), ("vgg-m", VGG_M), ("tiny", TINY)])
def test_names(name: str, architecture: object, tmp_path: Path) -> None:
    saved = VGG(architecture)  # type: ignore[arg-type]
    save_file(saved.state_dict(), tmp_path / "weights.safetensors")
    backbone = load_backbone(name, tmp_path / "weights.safetensors")
    assert repr(backbone) == repr(saved)
    x = torch.rand(1, 3, 64, 72)
    assert torch.equal(backbone(x), saved(x))
    assert backbone.channels == backbone(x).shape[1]


def test_weights_are_found_by_the_name_of_the_architecture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def download(url: str, to: Path, **_: object) -> Path:
        asked.append(url.rpartition("/")[2])
        raise OSError("no network in tests")

    monkeypatch.setenv("COMPACT_BILINEAR_CACHE", str(tmp_path))
    monkeypatch.setattr(weights_module, "download", download)
    for name, weights in (("vgg16", None), ("vgg-d", None), ("vgg-m", None), ("vgg16", "imagenet-vgg-verydeep-16.mat")):
        with pytest.raises(OSError, match="no network"):
            load_backbone(name, weights)
    assert asked == ["vgg16-397923af.pth", "vgg16-397923af.pth", "imagenet-vgg-m.mat", "imagenet-vgg-verydeep-16.mat"]


def test_a_file_for_tiny_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError, match=r"^There is no file nofile with weights for tiny.\nCheck the path.$"):
        load_backbone("tiny", "nofile")


def test_unknown_names_list_the_known_ones() -> None:
    for name in ("vgg19", "timm:", "", "Tiny"):
        with pytest.raises(ValueError, match=rf"no backbone '{name}'.\nKnown are vgg16, vgg-d, vgg-m, tiny and timm:<name>"):
            load_backbone(name)


@pytest.fixture(scope="module")
def vgg16() -> VGG:
    if not REAL.exists():
        pytest.skip("the real weights of VGG-16, ../shared/weights/vgg16-conv-fp16.safetensors, are not here")
    backbone = load_backbone("vgg16", REAL)
    assert isinstance(backbone, VGG)
    return backbone.to(memory_format=torch.channels_last)


def pixels(folder: Path, side: int) -> tuple[Tensor, np.ndarray]:
    files = sorted(folder.glob("*/*.jpg"))
    stack = np.stack([np.asarray(Image.open(file).convert("RGB").resize((side, side))) for file in files])
    return torch.from_numpy(stack).permute(0, 3, 1, 2), np.array([file.parent.name for file in files])


def test_real_weights_tell_textures_apart(vgg16: VGG) -> None:
    data = SHARED / "data" / "textures40"
    if not data.exists():
        pytest.skip("the photographs, ../shared/data/textures40, are not here")
    pool = TensorSketch(512, 8192)

    @torch.inference_mode()
    def features(part: str) -> tuple[Tensor, np.ndarray]:
        images, labels = pixels(data / part, 96)
        return torch.cat([signed_sqrt_l2(pool(vgg16(some))) for some in images.split(16)]), labels

    (train, train_labels), (test, test_labels) = features("train"), features("test")
    classes = np.unique(train_labels)
    assert (len(classes), len(train), len(test)) == (40, 320, 320)
    means = torch.stack([normalize(train[torch.from_numpy(train_labels == each)].mean(0), dim=0) for each in classes])
    error = float((classes[(test @ means.T).argmax(1).numpy()] != test_labels).mean())
    assert error < 0.05


def test_the_fully_connected_layers_are_not_among_the_real_weights(vgg16: VGG) -> None:
    assert vgg16.conv5_3.weight.dtype == torch.float32
    with pytest.raises(
        ValueError, match=r"vgg16-conv-fp16.safetensors lacks them.\nTake a file that has them: vgg16-397923af.pth"
    ):
        load_backbone("vgg16", REAL, tap="fc7")


def test_the_trunk_that_ships_is_small_and_works_offline() -> None:
    assert WEIGHTS.stat().st_size <= 4e6
    backbone = load_backbone("tiny")
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (2, 3, 64, 48), generator=draw, dtype=torch.uint8)
    maps = backbone(images)
    assert maps.shape == (2, 192, 8, 6)
    assert maps.isfinite().all()
    # trained, so that images differ: channels are neither dead nor all alike
    assert (maps.flatten(2).std(2) > 0).float().mean() > 0.5
