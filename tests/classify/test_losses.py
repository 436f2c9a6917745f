"""The derivatives are those of the values, by autograd; the bias is the best one; far scores stay finite."""

import pytest
import torch
from torch import Tensor

from compact_bilinear.classify.losses import SigmoidLoss, SoftmaxLoss

LOSSES = [SoftmaxLoss, SigmoidLoss]


def scores_and_targets(m: int = 11, k: int = 4) -> tuple[Tensor, Tensor]:
    labels = torch.arange(m).square() % k
    labels[:k] = torch.arange(k)
    return torch.randn(m, k, dtype=torch.float64), torch.nn.functional.one_hot(labels, k).double()


def plain(loss: type, scores: Tensor, targets: Tensor) -> Tensor:
    if loss is SoftmaxLoss:
        return torch.nn.functional.cross_entropy(scores, targets, reduction="sum").reshape(1)
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, targets, reduction="none").sum(0)


@pytest.mark.parametrize("loss", LOSSES)
def test_values_and_derivatives(loss: type) -> None:
    scores, targets = scores_and_targets()
    direction = torch.randn_like(scores)
    value, probabilities = loss(targets).value(scores.clone())
    torch.testing.assert_close(value, plain(loss, scores, targets))

    def total(s: Tensor) -> Tensor:
        return plain(loss, s, targets).sum()

    torch.testing.assert_close(probabilities - targets, torch.func.grad(total)(scores))
    _, bend = torch.autograd.functional.hvp(total, scores, direction)
    torch.testing.assert_close(loss(targets).curvature(probabilities, direction), bend)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_best_bias_has_no_gradient(loss: type) -> None:
    _, targets = scores_and_targets()
    _, probabilities = loss(targets).value(loss(targets).bias().expand_as(targets))
    torch.testing.assert_close(probabilities.sum(0), targets.sum(0))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_far_from_zero(loss: type, dtype: torch.dtype) -> None:
    targets = torch.eye(3, dtype=dtype)
    right, probabilities = loss(targets).value(1e4 * (2 * targets - 1))
    assert right.tolist() == [0] * len(right)
    assert torch.equal(probabilities, targets)
    wrong, _ = loss(targets).value(-1e4 * (2 * targets - 1))
    assert wrong.isfinite().all()
    assert (wrong > 1e4).all()


def test_a_softmax_does_not_see_what_all_columns_share() -> None:
    scores, targets = scores_and_targets()
    loss = SoftmaxLoss(targets)
    torch.testing.assert_close(loss.value(loss.determined(scores.clone()))[0], loss.value(scores)[0])
    assert torch.equal(SigmoidLoss(targets).determined(scores), scores)
