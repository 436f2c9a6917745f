"""Any module becomes a backbone, or is told why not."""

import pytest
import torch
from torch import Tensor, nn

from compact_bilinear import FullBilinear
from compact_bilinear.descriptors import CustomBackbone, look
from compact_bilinear.descriptors.custom import Seen


class Patches(nn.Module):
    """Tokens, as a vision transformer gives them."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Conv2d(3, 10, 16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(x).flatten(2).mT


class Answers(nn.Module):
    """Gives what it was told to give."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x: Tensor) -> object:
        return self.answer


def test_maps_and_tokens_go_on_into_a_pooling() -> None:
    for module, channels, stride in ((nn.Conv2d(3, 6, 8, 8), 6, 8), (Patches(), 10, None)):
        backbone = CustomBackbone(module, "mine", image_size=96)
        assert (backbone.channels, backbone.stride, backbone.name, backbone.image_size) == (channels, stride, "mine", 96)
        assert backbone.tap is None
        assert FullBilinear(backbone.channels)(backbone(torch.rand(2, 3, 96, 64))).shape == (2, channels**2)


def test_subtracts_the_mean_and_divides_by_the_scale() -> None:
    backbone = CustomBackbone(nn.Identity(), mean=(0.1, 0.2, 0.3), scale=(0.5, 0.25, 2))
    x = torch.rand(2, 3, 5, 4)
    expected = torch.stack([(x[:, 0] - 0.1) / 0.5, (x[:, 1] - 0.2) / 0.25, (x[:, 2] - 0.3) / 2], 1)
    torch.testing.assert_close(backbone(x), expected)
    assert torch.equal(CustomBackbone(nn.Identity())(x), x)
    pixels = (x * 255).to(torch.uint8)
    torch.testing.assert_close(CustomBackbone(nn.Identity())(pixels), pixels / 255)


def test_looking_leaves_the_module_as_it_was() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.Dropout().eval())).double()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert look(module, 20) == Seen(4, (18, 18), 18 * 18)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert [each.training for each in module.modules()] == [True, True, True, True, False]
    with pytest.raises(RuntimeError):
        look(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(7, 7)), 20)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (torch.zeros(1, 512), r"but custom gives a tensor \(1, 512\) of torch.float32 for one image.\nTake what comes before"),
        (torch.zeros(2, 5, 3, 3), r"gives a tensor \(2, 5, 3, 3\)"),
        (torch.zeros(1, 5, 3, 3, dtype=torch.int64), "of torch.int64"),
        ((torch.zeros(1, 5, 3, 3),), "gives tuple.\nWrap it in a module whose forward picks one tensor"),
        ({"out": torch.zeros(1, 5, 3, 3)}, "gives dict"),
    ],
)
def test_refuses_what_cannot_be_pooled(answer: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CustomBackbone(Answers(answer))


def test_refuses_images_at_the_door() -> None:
    with pytest.raises(ValueError, match=r"mine takes images \(b, 3, h, w\) but got \(2, 4, 8, 8\)"):
        CustomBackbone(nn.Identity(), "mine")(torch.zeros(2, 4, 8, 8))
    with pytest.raises(ValueError, match=r"mine takes scale as three numbers, .* but got \(2,\)"):
        CustomBackbone(nn.Identity(), "mine", scale=(1, 1))
