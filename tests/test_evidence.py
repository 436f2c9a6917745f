"""Evidence adds up to the score, and lies where the head's weights meet each location's own features."""

import pytest
import torch
from torch import Tensor, nn

from compact_bilinear.descriptors import load_backbone
from compact_bilinear.evidence import evidence
from compact_bilinear.images import Transform
from compact_bilinear.model import Model

CLASSES = ("crow", "wren", "Zaunkönig")
LOCAL = ("tensor-sketch:31", "random-maclaurin:31", "full-bilinear", "full-bilinear-triangle")
SUMS = (*LOCAL, "random-projection:7", "pca-bilinear:9")
MEANS = ("average-pool", "fisher-vector:3")


def images(b: int = 3) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(256, (b, 3, 40, 56), dtype=torch.uint8, generator=draw)


def model(pooling: str, backbone: nn.Module | None = None, **settings: bool) -> Model:
    made = Model(backbone or load_backbone("tiny"), pooling, CLASSES, transform=Transform(size=40), **settings)  # type: ignore[arg-type]
    draw = torch.Generator().manual_seed(2)
    if hasattr(made.pooling, "fitted"):
        made.pooling.fit(torch.randn(1000, 192, generator=draw))
    return made.set_head(torch.randn(3, made.pooling.dim, generator=draw), torch.tensor([0.3, -0.2, 0.1])).double().eval()


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", SUMS + MEANS)
def test_adds_up_to_the_score_without_its_bias(pooling: str, normalize: bool) -> None:
    made = model(pooling, normalize=normalize)
    assert made.head is not None
    labels = torch.tensor([[0, 2], [1, 0], [2, 1]])
    found = evidence(made, images(), labels)
    assert found.shape == (3, 2, 5, 7)
    expected = (made(images()) - made.head.bias).gather(1, labels)
    torch.testing.assert_close(found.sum((2, 3)), expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(evidence(made, images(), labels[:, 0]), found[:, 0])


@pytest.mark.parametrize("pooling", LOCAL)
def test_is_what_each_location_gives_by_itself(pooling: str) -> None:
    made = model(pooling)
    assert made.head is not None
    labels = torch.tensor([2, 0, 1])
    with torch.no_grad():
        maps = made.backbone(images())
        y = made.pooling(maps)
        g = made.head.weight[labels] / (y.abs() * y.abs().sum(1, keepdim=True)).sqrt()
        g = torch.where(y == 0, 0, g)
        expected = torch.einsum("bd,bdhw->bhw", g, made.pooling.local(maps))
    torch.testing.assert_close(evidence(made, images(), labels), expected, rtol=1e-10, atol=1e-10)


def test_a_mean_is_shared_among_its_locations() -> None:
    made = model("average-pool", normalize=False)
    assert made.head is not None
    with torch.no_grad():
        expected = torch.einsum("d,bdhw->bhw", made.head.weight[1], made.backbone(images())) / 35
    torch.testing.assert_close(evidence(made, images(), torch.tensor([1, 1, 1])), expected, rtol=1e-10, atol=1e-10)


def test_an_image_of_nothing_is_no_evidence() -> None:
    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.new_zeros(len(x), 8, 2, 3, dtype=torch.float64)

    made = Model(Nothing(), "full-bilinear", CLASSES, transform=Transform(size=40)).double().eval()
    found = evidence(made, images(), torch.tensor([0, 1, 2]))
    assert torch.equal(found, torch.zeros(3, 2, 3, dtype=found.dtype))


def test_leaves_no_gradient_behind() -> None:
    made = model("tensor-sketch:31")
    assert not evidence(made, images(), torch.tensor([0, 1, 2])).requires_grad
    assert all(parameter.grad is None for parameter in made.parameters())


class _Tokens(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).mT.double()[..., :3]


def test_what_it_refuses() -> None:
    made = model("tensor-sketch:31")
    with pytest.raises(ValueError, match=r"labels in \[0, 3\) but got 0 … 3\.\nPass the places"):
        evidence(made, images(), torch.tensor([0, 1, 3]))
    with pytest.raises(ValueError, match=r"with b=3 images, but got torch\.int64 of shape \(2,\)\.\nPass the places"):
        evidence(made, images(), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"nothing to find evidence for\.\nLoad one with classes"):
        evidence(Model(load_backbone("tiny"), "average-pool"), images(), torch.tensor([0, 1, 2]))
    tokens = Model(_Tokens(), "tensor-sketch:31", CLASSES, transform=Transform(size=40)).eval()
    with pytest.raises(ValueError, match=r"gives tokens \(3, 2240, 3\)\.\nTake a backbone"):
        evidence(tokens, images(), torch.tensor([0, 1, 2]))
    made.pooling = nn.Flatten()
    with pytest.raises(ValueError, match=r"tensor-sketch:31 is Flatten\.\nTake tensor-sketch or random-maclaurin"):
        evidence(made, images(), torch.tensor([0, 1, 2]))
