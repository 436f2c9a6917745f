r"""Where in an image the evidence for a class lies: one number for each location, which together make the score.

Pooled features are a sum over locations, :math:`y = \sum_s \varphi(x_s)`, and so is what a linear head makes of them, once the
divisors of the normalisation are taken as they are:

.. math:: \text{score}_k - \text{bias}_k = \sum_i \frac{w_{ki}}{\sqrt{|y_i|\,\|y\|_1}}\, y_i = \sum_s \text{evidence}_s,
    \qquad \text{evidence}_s = \langle g, \varphi(x_s)\rangle, \quad g_i = \frac{w_{ki}}{\sqrt{|y_i|\,\|y\|_1}}

(0 where :math:`y_i = 0`). What is positive speaks for the class, what is negative against it. No descriptor is pooled by
itself: :math:`\langle g, \varphi(x_s)\rangle` is the derivative of :math:`\langle g, y\rangle` by the weight of location s.
"""

import torch
from torch import Tensor

from .model import Model
from .pooling import AveragePool, FisherVector
from .precision import accumulation_dtype


@torch.no_grad()
def evidence(model: Model, images: Tensor, labels: Tensor) -> Tensor:
    """What each location of each image says for a class.

    Args:
        model: with classes, in evaluation mode.
        images: (b, 3, h, w), as the model takes them.
        labels: (b,) classes; or (b, k), several for each image.

    Returns:
        (b, rows, columns) of the backbone's map, or (b, k, rows, columns); summed over the map it is score − bias.

    >>> from compact_bilinear.descriptors import load_backbone
    >>> model = Model(load_backbone("tiny"), "tensor-sketch:64", classes=("crow", "wren"))
    >>> evidence(model.eval(), torch.zeros(3, 3, 40, 40, dtype=torch.uint8), torch.tensor([0, 1, 1])).shape
    torch.Size([3, 5, 5])
    """
    check_evidence(model)
    k = len(model.classes)
    if labels.is_floating_point() or labels.ndim not in (1, 2) or len(labels) != len(images):
        raise ValueError(
            f"evidence takes labels (b,) or (b, k) as integers, with b={len(images)} images, but got {labels.dtype} of shape "
            f"{tuple(labels.shape)}.\nPass the places of the classes in `model.classes`, or `model(images).argmax(1)`."
        )
    if labels.numel() and not (int(labels.min()) >= 0 and int(labels.max()) < k):
        raise ValueError(
            f"evidence takes labels in [0, {k}) but got {int(labels.min())} … {int(labels.max())}.\n"
            "Pass the places of the classes in `model.classes`."
        )
    maps = model.backbone(images)
    if maps.ndim != 4:
        raise ValueError(
            f"Evidence lies on a map (b, c, h, w) but {model.backbone.name} gives tokens {tuple(maps.shape)}.\n"
            "Take a backbone, or a tap, that gives a map."
        )
    found = evidence_on(model, maps, labels if labels.ndim == 2 else labels[:, None])[1]
    return found if labels.ndim == 2 else found[:, 0]


def check_evidence(model: Model) -> None:
    """Refuse a model whose scores are not sums over locations."""
    if model.head is None:
        raise ValueError("This model has no classes, and so nothing to find evidence for.\nLoad one with classes.")
    if not (_is_sum(model) or _is_mean(model)):
        raise ValueError(
            f"Evidence is found where the pooling is a sum or a mean over locations, with `weights=`, but {model.named} is "
            f"{type(model.pooling).__name__}.\nTake tensor-sketch or random-maclaurin, or give it `additive = True`."
        )


@torch.no_grad()
def evidence_on(model: Model, maps: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The same from maps that are there already, and what the pooling makes of them, so that both take one backbone pass.

    Args:
        model: that :func:`check_evidence` lets pass.
        maps: (b, c, h, w) that its backbone gave.
        labels: (b, k).

    Returns:
        Pooled y (b, d), and evidence (b, k, h, w).
    """
    assert model.head is not None
    weights = maps.new_ones(maps.shape[0], *maps.shape[2:], dtype=accumulation_dtype(maps)).requires_grad_()
    with torch.enable_grad():
        pooled = model.pooling(maps.detach(), weights=weights)
    y = pooled.detach()
    divisor = (y.abs() * y.abs().sum(1, keepdim=True)).sqrt() if model.normalize else torch.ones_like(y)
    share = torch.where(divisor > 0, 1 / divisor, 0)
    found = []
    for of_image in labels.unbind(1):
        g = (model.head.weight[of_image] * share).to(y.dtype)
        (each,) = torch.autograd.grad(pooled, weights, g, retain_graph=True)
        if _is_mean(model):  # a mean's weights are shares, of which the derivative takes the mean itself away
            each = each + ((g * y).sum(1) / max(weights[0].numel(), 1))[:, None, None]
        found.append(each)
    return y, torch.stack(found, 1) if found else weights.detach()[:, None][:, :0]


def _is_sum(model: Model) -> bool:
    return getattr(model.pooling, "additive", False) is True


def _is_mean(model: Model) -> bool:
    return isinstance(model.pooling, (AveragePool, FisherVector))
