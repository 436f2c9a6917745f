"""Which numbers learn, how fast, and when: frozen layers, rates layer by layer, the optimiser, and its schedule."""

from collections.abc import Iterator
from math import cos, pi

import torch
from torch import nn

from ..model import Model
from .settings import FineTuning


def layers_of(backbone: nn.Module) -> list[list[str]]:
    """The names of a backbone's parameters, layer by layer, from the images on.

    A layer is a convolution or another module with a matrix, and whatever vectors (biases, normalisation) come before the next.

    >>> layers_of(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 1, bias=False)))
    [['0.weight', '0.bias', '1.weight', '1.bias'], ['3.weight']]
    """
    layers: list[list[str]] = []
    owner = None
    for name, parameter in backbone.named_parameters():
        module = name.rpartition(".")[0]
        if not layers or (parameter.ndim > 1 and module != owner):
            layers.append([])
            owner = module
        layers[-1].append(name)
    return layers


def rates_of(model: Model, settings: FineTuning) -> dict[str, float]:
    """The factor of the rate for every parameter; 0 for those that are frozen."""
    rates = {name: settings.head_rate for name, _ in model.named_parameters() if name.startswith("head.")}
    rates |= {name: settings.projection_rate for name, _ in model.named_parameters() if name.startswith("pooling.")}
    layers = layers_of(model.backbone)
    frozen = len(layers) if settings.freeze == "backbone" else settings.freeze
    for number, layer in enumerate(layers):
        above = len(layers) - 1 - number
        factor = 0.0 if number < frozen else settings.backbone_rate * settings.layer_decay**above
        rates |= {f"backbone.{name}": factor for name in layer}
    if not any(rates.values()):
        raise ValueError(
            "Fine-tuning needs something that learns, but every rate is 0.\nRaise one of head_rate, projection_rate and "
            "backbone_rate, or freeze less."
        )
    return rates


def build_optimizer(model: Model, settings: FineTuning, rates: dict[str, float]) -> torch.optim.Optimizer:
    """The optimiser, with a group for each factor of the rate; whatever has the factor 0 is in none."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if rates[name]:
            decay = settings.weight_decay if parameter.ndim > 1 or settings.decay_biases else 0.0
            groups.setdefault((rates[name], decay), []).append(parameter)
    described = [
        {"params": parameters, "factor": factor, "weight_decay": decay} for (factor, decay), parameters in groups.items()
    ]
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(described, settings.rate, betas=(settings.momentum, 0.999))
    return torch.optim.SGD(described, settings.rate, settings.momentum)


def rate_at(settings: FineTuning, step: int, steps: int) -> float:
    """The rate of a step, counted from 0, where an epoch has so many ``steps``.

    >>> settings = FineTuning(rate=1.0, schedule="cosine", epochs=4, warm_up=1)
    >>> [round(rate_at(settings, step, 2), 2) for step in range(8)]
    [0.5, 1.0, 1.0, 0.93, 0.75, 0.5, 0.25, 0.07]
    """
    warm = settings.warm_up * steps
    if step + 1 < warm:
        return settings.rate * (step + 1) / warm
    if settings.schedule == "cosine":
        whole = max(settings.epochs * steps - warm, 1)
        return settings.rate * (1 + cos(pi * min(max(step - warm, 0) / whole, 1))) / 2
    if settings.schedule == "step":
        return settings.rate * 0.1 ** (step // (settings.step_epochs * steps))
    return settings.rate


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group its share of the rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]


def fixed(model: Model, settings: FineTuning) -> Iterator[nn.Module]:
    """The modules that stay as in evaluation: those of which nothing learns, and normalisation by pretrained statistics."""
    for module in model.backbone.modules():
        parameters = list(module.parameters())
        frozen = bool(parameters) and not any(parameter.requires_grad for parameter in parameters)
        # the class that all batch and instance normalisations have in common has no public name
        normalizes = isinstance(module, nn.modules.batchnorm._NormBase)
        if frozen or (normalizes and not settings.batch_statistics):
            yield module
