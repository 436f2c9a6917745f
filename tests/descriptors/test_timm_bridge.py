"""timm's models through the bridge: with a stand-in for timm everywhere, and with timm itself where it can be imported."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from compact_bilinear.descriptors import load_backbone, load_timm


class Model(nn.Module):
    """What the bridge uses of a timm model."""

    def __init__(self, given: Callable[[Tensor], object], classes: int, **attributes: object) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 8, 8)
        self.norm = nn.BatchNorm2d(6)
        if classes:
            self.fc = nn.Linear(6, classes)
        self.given = given
        self.pretrained_cfg = {
            "mean": (0.5, 0.4, 0.3),
            "std": (0.2, 0.3, 0.4),
            "input_size": (3, 64, 64),
            "classifier": "fc",
        }
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward_features(self, x: Tensor) -> object:
        return self.given(self.norm(self.stem(x)))


def tokens(extra: int) -> Callable[[Tensor], Tensor]:
    """Tokens behind ``extra`` that are not of the image, which are NaN so that they cannot go unnoticed."""
    return lambda y: torch.cat([torch.full((len(y), extra, y.shape[1]), torch.nan), y.flatten(2).mT], 1)


MODELS: dict[str, tuple[Callable[[Tensor], object], dict[str, object]]] = {
    "resnet": (lambda y: y, {}),
    "swin": (lambda y: y.permute(0, 2, 3, 1), {"output_fmt": "NHWC"}),
    "vit": (tokens(1), {"num_prefix_tokens": 1, "cls_token": torch.zeros(1)}),
    "dino_registers": (tokens(5), {"num_prefix_tokens": 5, "cls_token": torch.zeros(1)}),
    "hiera": (tokens(0), {}),
    "mvit": (tokens(0), {"num_prefix_tokens": 0, "cls_token": None}),
    "volo": (tokens(1), {"cls_token": torch.zeros(1)}),
    "crossvit": (lambda y: [y, y], {}),
}


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    stand_in = ModuleType("timm")
    stand_in.pretrained = None  # type: ignore[attr-defined]

    def create_model(name: str, pretrained: bool, num_classes: int) -> Model:
        stand_in.pretrained = pretrained  # type: ignore[attr-defined]
        if pretrained and name == "resnet" and getattr(stand_in, "offline", False):
            raise RuntimeError("cannot reach the hub")
        given, attributes = MODELS[name]
        return Model(given, num_classes, **attributes)

    stand_in.create_model = create_model  # type: ignore[attr-defined]
    stand_in.is_model = MODELS.__contains__  # type: ignore[attr-defined]
    stand_in.list_models = lambda pretrained=False: ["resnet"] if pretrained else list(MODELS)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    return stand_in


@pytest.mark.parametrize("name", [name for name in MODELS if name != "crossvit"])
def test_gives_the_last_map_or_the_tokens_of_the_image(name: str, timm: ModuleType) -> None:
    backbone = load_backbone(f"timm:{name}")
    assert timm.pretrained
    assert not backbone.training
    x = torch.rand(2, 3, 64, 96)
    mean, std = (torch.tensor(numbers).view(3, 1, 1) for numbers in ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)))
    model: Any = backbone.module.model  # type: ignore[union-attr]
    expected = model.norm(model.stem((x - mean) / std))
    y = backbone(x)
    if name in ("resnet", "swin"):
        assert backbone.stride == 8
    else:
        expected = expected.flatten(2).mT
        assert backbone.stride is None
    torch.testing.assert_close(y, expected)
    assert (backbone.name, backbone.channels, backbone.image_size) == (f"timm:{name}", 6, 64)


def test_takes_a_file_of_weights_with_or_without_its_classifier(timm: ModuleType, tmp_path: Path) -> None:
    for classes, suffix in ((0, "safetensors"), (7, "pth")):
        saved = Model(*[MODELS["resnet"][0], classes])
        saved.norm.running_mean.add_(3)
        path = tmp_path / f"weights.{suffix}"
        save_file(saved.state_dict(), path) if suffix == "safetensors" else torch.save(saved.state_dict(), path)
        backbone = load_timm("resnet", path)
        assert timm.pretrained is False
        loaded: Any = backbone.module.model  # type: ignore[union-attr]
        assert torch.equal(loaded.stem.weight, saved.stem.weight)
        assert torch.equal(loaded.norm.running_mean, saved.norm.running_mean)
    save_file({"stem.weight": saved.stem.weight, "stem.bias": saved.stem.bias}, tmp_path / "half.safetensors")
    with pytest.raises(
        ValueError,
        match=r"timm:resnet takes norm.weight, norm.bias, .* but half.safetensors lacks them.\nTake a file that timm",
    ):
        load_timm("resnet", tmp_path / "half.safetensors")


def test_refuses_names_and_taps_that_it_does_not_have(timm: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"timm has no model 'resnet5'.\nSimilar names: resnet"):
        load_backbone("timm:resnet5")
    with pytest.raises(ValueError, match=r"timm has no model 'xylophone'.\nSimilar names: none"):
        load_backbone("timm:xylophone")
    with pytest.raises(ValueError, match=r"timm:resnet has no tap 'fc6': it gives its last features.\nLeave tap out"):
        load_backbone("timm:resnet", tap="fc6")
    with pytest.raises(ValueError, match="but timm:crossvit gives list"):
        load_backbone("timm:crossvit")


def test_says_what_to_do_without_a_connection(timm: ModuleType) -> None:
    timm.offline = True  # type: ignore[attr-defined]
    with pytest.raises(OSError, match=r"could not bring the weights of resnet: cannot reach the hub.\nGo online once, or pass"):
        load_timm("resnet")


def test_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(
        ImportError, match=r"take timm, but timm is not installed.\nWrite `pip install 'compact-bilinear\[timm\]'`"
    ):
        load_timm("resnet18")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import torchvision_that_nobody_has", "take timm, but torchvision_that_nobody_has is not installed"),
        (
            "raise RuntimeError('operator torchvision::nms does not exist')",
            r"cannot be imported here: operator torchvision::nms does not exist.\nMost likely torchvision was built",
        ),
    ],
)
def test_says_that_torchvision_is_the_trouble(code: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "timm.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(ImportError, match=message):
        load_timm("resnet18")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet10t", (2, 512, 6, 6)),
        ("swin_tiny_patch4_window7_224", (2, 768, 7, 7)),
        ("deit_tiny_distilled_patch16_224", (2, 196, 192)),
    ],
)
@pytest.mark.filterwarnings("ignore")  # timm's own
def test_with_timm_itself(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    try:
        import timm
    except Exception as failure:
        pytest.skip(f"timm cannot be imported here: {failure}")
    model = timm.create_model(name, pretrained=False, num_classes=0)
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    backbone = load_timm(name, tmp_path / "weights.pth")
    y = backbone(torch.rand(2, 3, backbone.image_size, backbone.image_size))
    assert y.shape == shape
    assert y.isfinite().all()
