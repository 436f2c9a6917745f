"""How strong the penalty should be: cross-validation over a path of λ, each solution the start of the next."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .losses import SigmoidLoss, SoftmaxLoss
from .newton import Stop, leading, minimise
from .spaces import Primal, Space, Span, Vector

Loss = type[SoftmaxLoss] | type[SigmoidLoss]


def follow_path(
    space: Space, loss: SoftmaxLoss | SigmoidLoss, d: int, lambdas: Sequence[float], stop: Stop
) -> Iterator[Vector]:
    """Solutions for one λ after the other, each begun where the one before ended."""
    eigen, at = leading(space, loss.targets, d), None
    for lambda_ in lambdas:
        at = minimise(space, loss, lambda_, eigen, stop, at).vector
        yield at


def cross_validate(
    data: Tensor,
    gram: bool,
    targets: Tensor,
    labels: NDArray[np.intp],
    loss: Loss,
    lambdas: Sequence[float],
    *,
    d: int,
    folds: int,
    stop: Stop,
) -> dict[str, NDArray[np.float64]]:
    """The mean loss of images that were held out, for each λ.

    Folds have the same share of each class. The loss is the one that is minimised, without the penalty: it asks for
    probabilities that are right, and changes smoothly with λ, as the number of errors does not.

    Args:
        data: X X^T (m, m), or X (m, d).
        gram: which of the two.
        targets: (m, k).
        labels: (m,), the class of each image.
        loss: of scores and targets.
        lambdas: the path, largest first: solutions grow along it.
        d: how many features there are.
        folds: at least 2, and not more than there are images of the smallest class.
        stop: of each solution.

    Returns:
        "lambda", "loss" and "error", the share of images whose class has not the largest score, (len(lambdas),); the last two
        also with "_spread", their standard deviation over the folds.
    """
    from sklearn.model_selection import StratifiedKFold

    losses, errors = (np.empty((folds, len(lambdas))) for _ in range(2))
    split = StratifiedKFold(folds, shuffle=True, random_state=0)
    for fold, rows in enumerate(split.split(labels[:, None], labels)):
        train, held = (torch.from_numpy(each).to(data.device) for each in rows)
        fitted = loss(targets[train])
        space = Span(data[train][:, train]) if gram else Primal(data[train])
        path = follow_path(space, fitted, d, lambdas, stop)
        for place, vector in enumerate(path):
            if isinstance(space, Span):
                coefficients, intercept = space.coefficients(vector)
                scores = data[held][:, train] @ coefficients + intercept
            else:
                weights, intercept = space.weights(vector)
                scores = data[held] @ weights.mT + intercept
            losses[fold, place] = loss(targets[held]).value(scores)[0].sum().item() / len(held)
            errors[fold, place] = (_decide(scores) != _decide(targets[held])).double().mean().item()
    return {
        "lambda": np.array(lambdas, np.float64),
        "loss": losses.mean(0),
        "loss_spread": losses.std(0),
        "error": errors.mean(0),
        "error_spread": errors.std(0),
    }


def _decide(scores: Tensor) -> Tensor:
    """The class of each image; of a single column, scores above 0 or targets of 1 are the second class."""
    return scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] > 0).long()
