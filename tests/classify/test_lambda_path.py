"""Starting from the solution before gives the same solutions, and takes fewer steps."""

import torch

from compact_bilinear.classify.lambda_path import follow_path
from compact_bilinear.classify.losses import SigmoidLoss, SoftmaxLoss
from compact_bilinear.classify.newton import Stop, leading, minimise
from compact_bilinear.classify.spaces import Span

STOP = Stop(1e-12, 200)


def test_warm_starts_end_where_cold_ones_do() -> None:
    x = torch.randn(40, 60, dtype=torch.float64)
    y = torch.nn.functional.one_hot(torch.arange(40) % 3, 3).double()
    lambdas = [1.0, 0.1, 0.01]
    for loss in (SoftmaxLoss(y), SigmoidLoss(y)):
        space = Span(x @ x.mT)
        eigen = leading(space, y, 60)
        warm = list(follow_path(space, loss, 60, lambdas, STOP))
        for lambda_, vector in zip(lambdas, warm, strict=True):
            cold = minimise(space, loss, lambda_, eigen, STOP).vector
            # ‖f − f*‖² ≤ ‖K‖ gap/λ
            torch.testing.assert_close(vector.scores, cold.scores, rtol=1e-3, atol=1e-3)


def test_near_the_solution_it_is_not_far() -> None:
    x = torch.randn(40, 60, dtype=torch.float64)
    y = torch.nn.functional.one_hot(torch.arange(40) % 3, 3).double()
    space = Span(x @ x.mT)
    eigen = leading(space, y, 60)
    first = minimise(space, SoftmaxLoss(y), 0.1, eigen, STOP)
    again = minimise(space, SoftmaxLoss(y), 0.09, eigen, STOP, first.vector)
    cold = minimise(space, SoftmaxLoss(y), 0.09, eigen, STOP)
    assert again.iterations < cold.iterations
