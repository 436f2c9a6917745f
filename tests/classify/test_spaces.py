"""Both spaces are the same Hilbert space: adjoints, inner products, bias; and their weights give the scores they say."""

import pytest
import torch
from torch import Tensor

from compact_bilinear.classify.spaces import Primal, Span


def features(m: int = 9, d: int = 14) -> Tensor:
    return torch.randn(m, d, dtype=torch.float64) + 2


def both(x: Tensor) -> list[Span | Primal]:
    return [Span(x @ x.mT), Primal(x)]


@pytest.mark.parametrize("which", [0, 1])
def test_pulling_is_the_adjoint_of_taking_scores(which: int) -> None:
    space = both(features())[which]
    a, b = (torch.randn(9, 3, dtype=torch.float64) for _ in range(2))
    u, v = space.pull(a), space.pull(b)
    torch.testing.assert_close(space.dot(u, v), (a * v.scores).sum(0))
    torch.testing.assert_close(space.products(u, v), a.mT @ v.scores)
    more = space.pull(a, v, 0.3)
    torch.testing.assert_close(more.scores, u.scores + 0.3 * v.scores)
    torch.testing.assert_close(space.again(more).scores, more.scores)


def test_the_spaces_agree() -> None:
    span, primal = both(features())
    assert span.bias == pytest.approx(primal.bias)
    residual = torch.randn(9, 3, dtype=torch.float64)
    for change in (lambda space: space.pull(residual), lambda space: space.without_bias(space.pull(residual))):
        torch.testing.assert_close(change(span).scores, change(primal).scores)
        torch.testing.assert_close(span.dot(change(span), change(span)), primal.dot(change(primal), change(primal)))


@pytest.mark.parametrize("which", [0, 1])
def test_weights_give_the_scores(which: int) -> None:
    x = features()
    space = both(x)[which]
    v = space.pull(torch.randn(9, 3, dtype=torch.float64))
    if isinstance(space, Span):
        coefficients, intercept = space.coefficients(v)
        weights = coefficients.mT @ x
    else:
        weights, intercept = space.weights(v)
    torch.testing.assert_close(x @ weights.mT + intercept, v.scores, rtol=1e-10, atol=1e-10)
    penalised = space.without_bias(v)
    torch.testing.assert_close(space.dot(penalised, v), weights.square().sum(1))


@pytest.mark.parametrize("which", [0, 1])
def test_a_bias_is_nothing_but_a_bias(which: int) -> None:
    space = both(features())[which]
    scores = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    v = space.constant(scores)
    torch.testing.assert_close(space.again(v).scores, scores.expand(9, -1))
    torch.testing.assert_close(space.without_bias(v).scores, torch.zeros(9, 3, dtype=torch.float64))


def test_features_that_say_nothing_have_a_bias_all_the_same() -> None:
    assert [space.bias for space in both(torch.ones(4, 2, dtype=torch.float64))] == [1.0, 1.0]
