"""The choice of the algorithm, and what it says of itself."""

import sys

import pytest
import torch

from compact_bilinear import RandomMaclaurin, TensorSketch
from compact_bilinear.pooling.plan import Shape, choose, random_maclaurin_costs, tensor_sketch_costs


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_both_ends_of_the_grid(device: str) -> None:
    """Where one plan is many times faster on any machine."""
    vgg, fusion = Shape(784, 512, 512, 8192, device), Shape(1, 2048, 2048, 8192, device)
    assert choose("auto", tensor_sketch_costs, vgg) == "gram"
    assert choose("auto", tensor_sketch_costs, fusion) == "fft"
    assert choose("auto", random_maclaurin_costs, vgg) == "gram"
    assert choose("auto", random_maclaurin_costs, fusion) == "direct"


def test_the_batch_does_not_decide() -> None:
    pool = TensorSketch(64, 512)
    assert pool.explain(torch.zeros(1, 49, 64)) == pool.explain(torch.zeros(1000, 49, 64))


def test_an_unknown_device_follows_the_rule_of_the_gpu() -> None:
    for costs in (tensor_sketch_costs, random_maclaurin_costs):
        assert costs(Shape(49, 64, 64, 512, "xpu")) == costs(Shape(49, 64, 64, 512, "cuda"))


@pytest.mark.parametrize("shape", [(2, 512, 28, 28), (2, 1, 512)])
@pytest.mark.parametrize(("cls", "other"), [(TensorSketch, "fft"), (RandomMaclaurin, "direct")])
def test_explains_itself(cls: type[TensorSketch], other: str, shape: tuple[int, ...]) -> None:
    x, n = torch.zeros(shape), 784 if len(shape) == 4 else 1
    auto = cls(512, 8192).explain(x)
    taken = "gram" if n == 784 else other
    assert auto.startswith(f'plan="auto" takes "{taken}": for n={n}, c=512, d=8192 on cpu the rule puts "gram" at about ')
    assert auto.count(" ms") == 2
    assert "\n" not in auto
    forced = cls(512, 8192, plan=other).explain(x)
    assert forced.startswith(f'"{other}" runs because plan="{other}" was asked for; ')
    assert ("would take the same" in forced) == (taken == other)


def test_explains_two_inputs() -> None:
    assert "c=64, c2=32, d=512" in TensorSketch((64, 32), 512).explain(torch.zeros(2, 5, 64), torch.zeros(2, 5, 32))


@pytest.mark.parametrize(("plan", "other"), [("gram", "fft"), ("fft", "gram")])
def test_an_explicit_plan_is_what_runs(monkeypatch: pytest.MonkeyPatch, plan: str, other: str) -> None:
    def refuse(*_: object) -> torch.Tensor:
        raise RuntimeError("the wrong plan ran")

    # by name: the package offers the function tensor_sketch where the module of that name would be looked up
    monkeypatch.setattr(sys.modules["compact_bilinear.pooling.tensor_sketch"], f"{other}_sketch", refuse)
    TensorSketch(8, 16, plan=plan)(torch.zeros(2, 5, 8))
    with pytest.raises(RuntimeError, match="the wrong plan ran"):
        TensorSketch(8, 16, plan=other)(torch.zeros(2, 5, 8))
