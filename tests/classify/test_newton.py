"""The eigenvectors, the certificate, and that the preconditioner saves passes."""

import pytest
import torch
from torch import Tensor

from compact_bilinear.classify import newton
from compact_bilinear.classify.losses import SoftmaxLoss
from compact_bilinear.classify.newton import Stop, leading, minimise
from compact_bilinear.classify.spaces import Primal, Span, Vector


def problem(m: int = 60, d: int = 90, k: int = 4) -> tuple[Tensor, Tensor]:
    x = torch.randn(m, d, dtype=torch.float64) * torch.logspace(1, -2, d, dtype=torch.float64) + 5
    return x, torch.nn.functional.one_hot(torch.arange(m) % k, k).double()


@pytest.mark.parametrize("few", [False, True])
def test_leading_eigenvectors(monkeypatch: pytest.MonkeyPatch, few: bool) -> None:
    if few:
        monkeypatch.setattr(newton, "LEADING", 5)
    x, y = problem()
    for space in (Span(x @ x.mT), Primal(x)):
        eigen = leading(space, y, x.shape[1])
        count = len(eigen.values)
        identity = torch.eye(count, dtype=torch.float64)
        torch.testing.assert_close(space.products(eigen.vectors, eigen.vectors), identity, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(space.again(eigen.vectors).scores, eigen.vectors.scores, rtol=1e-6, atol=1e-6)
        centred = x - x.mean(0)
        expected = torch.linalg.svdvals(centred).square()[: count - 1].flip(0)
        torch.testing.assert_close(eigen.values[:-1], expected, rtol=1e-3, atol=1e-6)
        assert count == (6 if few else 60)  # 59 and the bias


def test_rows_that_are_there_twice_leave_no_eigenvector_twice() -> None:
    x, y = problem(30, 50)
    x, y = torch.cat([x, x]), torch.cat([y, y])
    for space in (Span(x @ x.mT), Primal(x)):
        eigen = leading(space, y, 50)
        assert len(eigen.values) == 30
        identity = torch.eye(30, dtype=torch.float64)
        torch.testing.assert_close(space.products(eigen.vectors, eigen.vectors), identity, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-6])
def test_the_gap_is_at_most_what_is_said(tolerance: float) -> None:
    x, y = problem()
    space, loss = Primal(x), SoftmaxLoss(y)
    eigen = leading(space, y, x.shape[1])

    def objective(vector: Vector) -> float:
        penalised = space.without_bias(vector)
        return (loss.value(vector.scores)[0] + 1e-2 * space.dot(penalised, vector).sum()).item()

    best = objective(minimise(space, loss, 1e-2, eigen, Stop(1e-14, 100)).vector)
    found = minimise(space, loss, 1e-2, eigen, Stop(tolerance, 100))
    assert found.converged
    assert best <= objective(found.vector) <= best / (1 - min(found.gap, tolerance)) + 1e-12


def test_preconditioning_saves_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = problem()
    passes = []
    for without in (False, True):
        space = Primal(x)
        eigen = leading(space, y, x.shape[1])
        if without:  # the bias alone
            eigen = eigen._replace(vectors=Vector(*(each[:, -1:] for each in eigen.vectors)), values=eigen.values[-1:])
        pull, count = space.pull, [0]

        def counting(*arguments: object, count: list[int] = count, pull: object = pull) -> Vector:
            count[0] += 1
            return pull(*arguments)

        monkeypatch.setattr(space, "pull", counting)
        assert minimise(space, SoftmaxLoss(y), 1e-3, eigen, Stop(1e-6, 100)).converged
        passes.append(count[0])
    assert passes[0] < 0.7 * passes[1]
