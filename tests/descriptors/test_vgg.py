"""VGG-M and VGG-D against their definition written out here, call by call, with weights drawn here."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from compact_bilinear.descriptors import VGG, VGG_D, VGG_M, Architecture
from compact_bilinear.descriptors.vgg import read_tap
from narrow import NARROW_D, NARROW_M

MEAN, SCALE = (0.4, 0.5, 0.3), (0.2, 0.25, 0.3)
TAPS = ("conv5", "conv5-pre-relu", "fc6", "fc7")


def drawn(backbone: VGG) -> VGG:
    """Weights that keep the signal's size from layer to layer, in float64."""
    draw = torch.Generator().manual_seed(0)
    for name, parameter in backbone.named_parameters():
        fan_in = parameter[0].numel() if name.endswith("weight") else 25
        parameter.data = torch.randn(parameter.shape, generator=draw) * (2 / fan_in) ** 0.5
    return backbone.double()


def images(b: int, h: int, w: int) -> Tensor:
    return torch.rand(b, 3, h, w, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def whitened(x: Tensor) -> Tensor:
    mean, scale = (torch.tensor(each, dtype=torch.float32).double().reshape(3, 1, 1) for each in (MEAN, SCALE))
    return (x - mean) / scale


def lrn(x: Tensor) -> Tensor:
    """MatConvNet's: [5 2 0.0001 0.75], the sum over two channels on either side."""
    squares = F.pad(x.square(), (0, 0, 0, 0, 2, 2))
    total = sum(squares[:, i : i + x.shape[1]] for i in range(5))
    return x / (2 + 0.0001 * total) ** 0.75


def vgg_m(w: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
    def conv(x: Tensor, name: str, stride: int = 1, padding: int = 0) -> Tensor:
        return F.conv2d(x, w[f"{name}.weight"], w[f"{name}.bias"], stride, padding)

    x = F.max_pool2d(lrn(F.relu(conv(whitened(x), "conv1", stride=2))), 3, 2)
    x = lrn(F.relu(conv(x, "conv2", stride=2, padding=1)))
    x = F.max_pool2d(F.pad(x, (0, 1, 0, 1), value=-torch.inf), 3, 2)
    x = F.relu(conv(x, "conv3", padding=1))
    x = F.relu(conv(x, "conv4", padding=1))
    pre = conv(x, "conv5", padding=1)
    taps = {"conv5-pre-relu": pre, "conv5": F.relu(pre)}
    if "fc6.weight" in w:
        taps["fc6"] = F.relu(conv(F.max_pool2d(taps["conv5"], 3, 2), "fc6"))
    if "fc7.weight" in w:
        taps["fc7"] = F.relu(conv(taps["fc6"], "fc7"))
    return taps


def vgg_d(w: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
    def conv(x: Tensor, name: str, padding: int = 1) -> Tensor:
        return F.conv2d(x, w[f"{name}.weight"], w[f"{name}.bias"], padding=padding)

    x = whitened(x)
    for block, depth in ((1, 2), (2, 2), (3, 3), (4, 3)):
        for i in range(1, depth + 1):
            x = F.relu(conv(x, f"conv{block}_{i}"))
        x = F.max_pool2d(x, 2)
    pre = conv(F.relu(conv(F.relu(conv(x, "conv5_1")), "conv5_2")), "conv5_3")
    taps = {"conv5-pre-relu": pre, "conv5": F.relu(pre)}
    if "fc6.weight" in w:
        taps["fc6"] = F.relu(conv(F.max_pool2d(taps["conv5"], 2), "fc6", padding=0))
    if "fc7.weight" in w:
        taps["fc7"] = F.relu(conv(taps["fc6"], "fc7", padding=0))
    return taps


BOTH = pytest.mark.parametrize(("architecture", "definition"), [(NARROW_M, vgg_m), (NARROW_D, vgg_d)], ids=["m", "d"])
Definition = Callable[[dict[str, Tensor], Tensor], dict[str, Tensor]]


@pytest.mark.parametrize("size", [(224, 224), (231, 265)])
@pytest.mark.parametrize("tap", TAPS)
@BOTH
def test_is_its_definition_at_every_tap(
    architecture: Architecture, definition: Definition, tap: str, size: tuple[int, int]
) -> None:
    backbone = drawn(VGG(architecture, tap, mean=MEAN, scale=SCALE))
    x = images(2, *size)
    expected = definition(backbone.state_dict(), x)[tap]
    y = backbone(x)
    assert expected.std() > 0.01, "the definition gives next to nothing: there is nothing to compare"
    torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)
    assert y.shape[1] == backbone.channels
    assert bool((y < 0).any()) == (tap == "conv5-pre-relu")


@pytest.mark.parametrize("size", [(97, 64), (100, 131), (65, 255), (118, 118), (119, 121)])
@BOTH
def test_is_its_definition_at_odd_sizes(architecture: Architecture, definition: Definition, size: tuple[int, int]) -> None:
    backbone = drawn(VGG(architecture, mean=MEAN, scale=SCALE))
    torch.testing.assert_close(
        backbone(images(1, *size)), definition(backbone.state_dict(), images(1, *size))["conv5"], rtol=1e-10, atol=1e-10
    )


# --- what the tables say ---


def test_has_the_layers_of_the_papers() -> None:
    with torch.device("meta"):
        m, d = VGG(VGG_M, "fc7"), VGG(VGG_D, "fc7")
    widths = [(parameter.shape[0], parameter.shape[-1]) for name, parameter in m.named_parameters() if name.endswith("weight")]
    assert widths == [(96, 7), (256, 5), (512, 3), (512, 3), (512, 3), (4096, 6), (4096, 1)]
    widths = [parameter.shape[0] for name, parameter in d.named_parameters() if name.endswith("weight")]
    assert widths == [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512, 4096, 4096]
    # 138 357 544 with the last layer, 4096 × 1000 and its biases
    assert sum(parameter.numel() for parameter in d.parameters()) == 138_357_544 - 4097 * 1000


@pytest.mark.parametrize(("architecture", "layers", "grid"), [(VGG_M, 14, 27), (VGG_D, 30, 28)])
def test_conv5_is_the_paper_s_cut_at_448(architecture: Architecture, layers: int, grid: int) -> None:
    with torch.device("meta"):
        backbone = VGG(architecture)
        y = backbone(torch.zeros(2, 3, 448, 448))
    assert len(list(backbone.children())) == layers
    assert y.shape == (2, 512, grid, grid)
    assert (backbone.channels, backbone.stride, backbone.tap, backbone.image_size) == (512, 16, "conv5", 448)


@pytest.mark.parametrize("architecture", [VGG_M, VGG_D])
def test_fully_connected_taps_give_one_location_at_224(architecture: Architecture) -> None:
    with torch.device("meta"):
        for tap in ("fc6", "fc7"):
            backbone = VGG(architecture, tap)
            assert backbone(torch.zeros(2, 3, 224, 224)).shape == (2, 4096, 1, 1)
            assert (backbone.image_size, backbone.stride) == (224, 32)


def test_does_not_build_what_it_does_not_run() -> None:
    names = [name for name, _ in VGG(NARROW_M, "conv5-pre-relu").named_children()]
    assert names[-1] == "conv5"
    assert "fc6" not in names


# --- how images come in ---


def test_bytes_are_from_0_to_255() -> None:
    backbone = VGG(NARROW_M)
    pixels = torch.randint(256, (2, 3, 80, 90), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    torch.testing.assert_close(backbone(pixels), backbone(pixels / 255))
    torch.testing.assert_close(backbone.double()(pixels), backbone(pixels.double() / 255))


def test_a_mean_image_is_resized_as_pillow_resizes() -> None:
    mean = torch.rand(3, 20, 24, generator=torch.Generator().manual_seed(2))
    backbone = drawn(VGG(NARROW_D, mean=mean, scale=(1.0, 1.0, 1.0)))
    x = images(1, 67, 80)
    resized = [np.array(Image.fromarray(channel).resize((80, 67), Image.Resampling.BICUBIC)) for channel in mean.numpy()]
    centred = x - torch.from_numpy(np.stack(resized)).double()
    plain = drawn(VGG(NARROW_D, mean=(0.0, 0.0, 0.0), scale=(1.0, 1.0, 1.0)))
    # Pillow resizes in float32
    torch.testing.assert_close(backbone(x), plain(centred), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(backbone(images(1, 20, 24).float()), plain(images(1, 20, 24) - mean), rtol=1e-6, atol=1e-6)


def test_a_colour_and_a_constant_mean_image_are_the_same() -> None:
    colour = drawn(VGG(NARROW_M, mean=MEAN))
    image = drawn(VGG(NARROW_M, mean=torch.tensor(MEAN).reshape(3, 1, 1).expand(3, 30, 40)))
    torch.testing.assert_close(image(images(2, 80, 71)), colour(images(2, 80, 71)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("assign", [False, True])
def test_a_mean_image_comes_back_from_a_state_dict(assign: bool) -> None:
    saved = drawn(VGG(NARROW_M, mean=torch.rand(3, 30, 40))).float()
    fresh = torch.nn.Sequential(VGG(NARROW_M))
    fresh.load_state_dict({f"0.{name}": value for name, value in saved.state_dict().items()}, assign=assign)
    x = images(1, 90, 81).float()
    assert torch.equal(fresh(x), saved(x))
    broken = {name: value for name, value in saved.state_dict().items() if name != "mean"} | {"mean": torch.zeros(4)}
    with pytest.raises(RuntimeError, match="size mismatch for mean"):
        VGG(NARROW_M).load_state_dict(broken)


def test_half_weights_take_float_images() -> None:
    backbone = drawn(VGG(NARROW_D)).bfloat16()
    y = backbone(images(1, 64, 64).float())
    assert y.dtype == torch.bfloat16
    assert y.isfinite().all()


def test_gradients_reach_images_and_every_weight() -> None:
    backbone, x = drawn(VGG(NARROW_M)), images(1, 80, 80).requires_grad_()
    backbone(x).square().sum().backward()
    assert x.grad is not None
    assert (x.grad != 0).any()
    for name, parameter in backbone.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad != 0).any(), name


def test_exports_for_any_number_of_images() -> None:
    backbone = drawn(VGG(NARROW_M)).float().eval()
    b = torch.export.Dim("b", min=2)
    exported = torch.export.export(backbone, (torch.zeros(3, 3, 80, 80),), dynamic_shapes=({0: b},)).module()
    x = images(5, 80, 80).float()
    torch.testing.assert_close(exported(x), backbone(x))


# --- what it refuses ---


@pytest.mark.parametrize("tap", TAPS)
@pytest.mark.parametrize("architecture", [NARROW_M, NARROW_D])
def test_knows_the_smallest_image(architecture: Architecture, tap: str) -> None:
    backbone = VGG(architecture, tap)
    side = backbone.smallest
    assert backbone(torch.zeros(1, 3, side, side + 3)).shape[2:] == (1, 1)
    with pytest.raises(
        ValueError, match=rf"takes images of at least {side}×{side} pixels but got {side - 1}×{side + 3}.\nResize"
    ):
        backbone(torch.zeros(1, 3, side - 1, side + 3))


def test_refuses_what_is_not_a_batch_of_images() -> None:
    backbone = VGG(NARROW_M)
    for x, message in (
        (np.zeros((2, 80, 80, 3)), r"vgg-m takes a tensor of images .* got ndarray.\nPass `torch.as_tensor\(array\).permute"),
        (torch.zeros(3, 80, 80), r"but got \(3, 80, 80\).\nThis is one image: pass `images\[None\]`"),
        (torch.zeros(2, 80, 80, 3), r"Channels come second: pass `images.permute\(0, 3, 1, 2\)`"),
        (torch.zeros(2, 1, 80, 80), r"These are grey: pass `images.expand\(-1, 3, -1, -1\)`"),
        (torch.zeros(2, 4, 80, 80), "Red, green and blue come second"),
        (torch.zeros(2, 3, 80, 80, dtype=torch.int64), r"got torch.int64.\nPass `images.to\(torch.uint8\)`"),
    ):
        with pytest.raises(ValueError, match=message):
            backbone(x)


def test_refuses_a_tap_and_a_mean_that_it_does_not_have() -> None:
    with pytest.raises(ValueError, match=r"vgg16 has no tap 'pool5'.\nIts taps are conv5, conv5-pre-relu, fc6, fc7."):
        VGG(VGG_D, "pool5")
    assert read_tap(VGG_D, None) == "conv5"
    with pytest.raises(ValueError, match=r"vgg-m takes mean as three numbers, .* but got \(4,\).\nPass mean=\(0.485"):
        VGG(NARROW_M, mean=torch.zeros(4))
