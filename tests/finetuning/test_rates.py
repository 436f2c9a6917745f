"""Rates, decay and frozen layers reach the parameters that they are for, and no others."""

import pytest
import torch
from torch import nn

import tuned
from compact_bilinear.descriptors import TINY, VGG
from compact_bilinear.finetuning import FineTuning
from compact_bilinear.finetuning.rates import build_optimizer, fixed, layers_of, rate_at, rates_of, set_rate
from compact_bilinear.model import Model


def test_the_layers_of_a_network_are_its_convolutions_in_order() -> None:
    names = [layer[0].partition(".")[0] for layer in layers_of(VGG(TINY))]
    assert names == ["conv1", "conv2_1", "conv2_2", "conv3_1", "conv3_2", "conv4_1", "conv4_2", "conv4_3", "conv4_4"]
    assert all(layer == [f"{name}.weight", f"{name}.bias"] for name, layer in zip(names, layers_of(VGG(TINY)), strict=True))


def test_vectors_belong_to_the_matrix_before_them() -> None:
    transformer = nn.TransformerEncoderLayer(8, 2, 16)
    layers = layers_of(transformer)
    assert sorted(name for layer in layers for name in layer) == sorted(name for name, _ in transformer.named_parameters())
    assert ["linear1.weight", "linear1.bias"] in layers
    assert ["linear2.weight", "linear2.bias", "norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"] in layers


def test_rates_fall_layer_by_layer_and_are_their_own_on_top() -> None:
    settings = FineTuning(head_rate=10, projection_rate=3, backbone_rate=0.5, layer_decay=0.1, learn_projection=True)
    assert rates_of(tuned.model(learnable=True), settings) == {
        "head.weight": 10,
        "head.bias": 10,
        "pooling.sign": 3,
        "backbone.module.4.weight": 0.5,
        "backbone.module.4.bias": 0.5,
        "backbone.module.0.weight": 0.05,
        "backbone.module.0.bias": 0.05,
        "backbone.module.1.weight": 0.05,  # the normalisation goes with the convolution before it
        "backbone.module.1.bias": 0.05,
    }


@pytest.mark.parametrize(("freeze", "frozen"), [(0, ""), (1, "01"), (2, "014"), (9, "014"), ("backbone", "014")])
def test_frozen_layers_have_no_rate(freeze: int, frozen: str) -> None:
    rates = rates_of(tuned.model(), FineTuning(freeze=freeze))
    assert {name.split(".")[2] for name, rate in rates.items() if rate == 0} == set(frozen)
    assert rates["head.weight"] == 1


def test_nothing_that_learns_is_refused() -> None:
    with pytest.raises(ValueError, match="every rate is 0"):
        rates_of(tuned.model(), FineTuning(freeze="backbone", head_rate=0))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_step_without_gradient_is_the_rate_times_the_decay(optimizer: str) -> None:
    """With a gradient of 0 what is left of a step is its weight decay, which shows rate and decay of every parameter."""
    model = tuned.model(learnable=True)
    settings = FineTuning(
        optimizer=optimizer,  # type: ignore[arg-type]
        weight_decay=0.5,
        decay_biases=False,
        head_rate=2,
        layer_decay=0.5,
        freeze=1,
        learn_projection=True,
        projection_rate=3,
    )
    rates = rates_of(model, settings)
    before = tuned.state(model)
    optimizer_ = build_optimizer(model, settings, rates)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    set_rate(optimizer_, 0.1)
    optimizer_.step()
    for name, parameter in model.named_parameters():
        decay = 0.5 if parameter.ndim > 1 else 0
        expected = before[name] * (1 - 0.1 * rates[name] * decay)
        torch.testing.assert_close(parameter, expected, msg=name)
        assert torch.equal(parameter, before[name]) == (decay == 0 or rates[name] == 0), name


def test_biases_decay_as_in_the_paper_if_nothing_is_said() -> None:
    model = tuned.model()
    groups = build_optimizer(model, FineTuning(), rates_of(model, FineTuning())).param_groups
    assert [group["weight_decay"] for group in groups] == [5e-4]
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def test_schedules() -> None:
    def rates(**settings: object) -> list[float]:
        return [round(rate_at(FineTuning(rate=1, epochs=4, **settings), step, 2), 4) for step in range(8)]  # type: ignore[arg-type]

    assert rates() == [1] * 8
    assert rates(warm_up=1.5) == [0.3333, 0.6667, 1, 1, 1, 1, 1, 1]
    assert rates(schedule="step", step_epochs=2) == [1, 1, 1, 1, 0.1, 0.1, 0.1, 0.1]
    cosine = rates(schedule="cosine")
    assert cosine[0] == 1
    assert cosine[4] == 0.5
    assert cosine == sorted(cosine, reverse=True)
    assert rate_at(FineTuning(rate=1, epochs=4, schedule="cosine"), 8, 2) == 0


def test_what_is_frozen_or_normalises_stays_as_in_evaluation() -> None:
    def kinds(model: Model, settings: FineTuning) -> set[str]:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(rates_of(model, settings)[name] > 0)
        return {type(module).__name__ for module in fixed(model, settings)}

    assert kinds(tuned.model(), FineTuning()) == {"BatchNorm2d"}
    assert kinds(tuned.model(), FineTuning(batch_statistics=True)) == set()
    assert kinds(tuned.model(), FineTuning(batch_statistics=True, freeze=1)) == {"Conv2d", "BatchNorm2d"}
    assert "CustomBackbone" in kinds(tuned.model(), FineTuning(batch_statistics=True, freeze="backbone"))
