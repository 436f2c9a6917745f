"""The two losses of logistic regression: their values, and their first and second derivatives by the scores.

Scores are (m, k): m images, k columns. A softmax couples all columns into one problem; with sigmoids each column is a problem
by itself. So that one solver does both, whatever there is one of for a problem, its objective, a step length, is a row (1,) or
(k,) in float64 that broadcasts against scores. :meth:`total` makes such a row of a number for each column.
"""

from typing import Protocol

import torch
from torch import Tensor


class Loss(Protocol):
    """A sum over images, of scores whose labels it knows."""

    targets: Tensor
    """Y, (m, k): 1 where the image is of the class, 0 elsewhere."""

    def total(self, columns: Tensor) -> Tensor:
        """What a problem has, from what its columns have."""

    def bias(self) -> Tensor:
        """The scores (k,) with the least loss among those that are the same for every image."""

    def value(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each problem, and the probabilities P (m, k). The gradient by the scores is P − Y."""

    def curvature(self, probabilities: Tensor, direction: Tensor) -> Tensor:
        """The second derivative by the scores, applied to a direction (m, k)."""

    def determined(self, rows: Tensor) -> Tensor:
        """Coefficients or scores without the part that changes no loss."""


class SoftmaxLoss:
    r"""One problem: :math:`l(s, y) = \log\sum_c e^{s_c} - s_y`, its second derivative :math:`\mathrm{diag}(p) - pp^\top`."""

    def __init__(self, targets: Tensor) -> None:
        self.targets = targets

    def total(self, columns: Tensor) -> Tensor:
        return columns.sum(0, keepdim=True)

    def bias(self) -> Tensor:
        logarithms = self.targets.mean(0).log()
        return logarithms - logarithms.mean()

    def value(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        # from the largest score on: a loss near zero would otherwise be the difference of two large numbers
        shifted = scores - scores.amax(1, keepdim=True)
        own = (shifted * self.targets).sum(1)
        probabilities = shifted.exp_()
        sums = probabilities.sum(1, keepdim=True)
        loss = (sums.squeeze(1).log() - own).sum(dtype=torch.float64)
        return loss.reshape(1), probabilities.div_(sums)

    def curvature(self, probabilities: Tensor, direction: Tensor) -> Tensor:
        weighted = probabilities * direction
        return weighted.addcmul_(probabilities, weighted.sum(1, keepdim=True), value=-1)

    def determined(self, rows: Tensor) -> Tensor:
        # a softmax does not see what is the same in all columns
        return rows.sub_(rows.mean(1, keepdim=True))


class SigmoidLoss:
    r"""k problems: :math:`l(s, y) = \log(1 + e^s) - ys`, with the second derivative :math:`p(1 - p)`."""

    def __init__(self, targets: Tensor) -> None:
        self.targets = targets

    def total(self, columns: Tensor) -> Tensor:
        return columns

    def bias(self) -> Tensor:
        return self.targets.mean(0).logit()

    def value(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        # log(1 + e^s) − s where y = 1 is log(1 + e^−s)
        turned = torch.where(self.targets > 0, -scores, scores)
        return torch.nn.functional.softplus(turned).sum(0, dtype=torch.float64), scores.sigmoid()

    def curvature(self, probabilities: Tensor, direction: Tensor) -> Tensor:
        return direction * probabilities * (1 - probabilities)

    def determined(self, rows: Tensor) -> Tensor:
        return rows
