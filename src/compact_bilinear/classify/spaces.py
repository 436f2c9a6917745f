r"""Where the weights are looked for: as weights of d features, or in the span of m images.

Both are the same Hilbert space to the solver. It knows a :class:`Vector` by its coefficients and by the scores that it gives
the images, and asks for two things only: inner products, and :meth:`pull`, the adjoint of taking scores.

Features are centred, and a further feature β that is the same for every image carries the bias. Since the bias is not penalised
that changes nothing but the conditioning: the mean of ℓ₂-normalised features would be an eigenvector far above all others. With
features centred, the scores of weights have the mean zero, and those of a bias are nothing but their mean, so that
:func:`without_bias` is the same in both spaces. β² is the mean of the centred features' squared norms.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Vector(NamedTuple):
    """An element (weights and bias) for each of k columns."""

    coefficients: Tensor
    """(m, k) in the span, (d + 1, k) as weights."""
    scores: Tensor
    """(m, k)"""


class Space(Protocol):
    """A Hilbert space of weights and biases."""

    bias: float
    """β"""

    def pull(self, residual: Tensor, more: Vector | None = None, factor: float = 0.0) -> Vector:
        """The vector v + factor·more, v the one for which ⟨v, u⟩ = Σ residual ∘ u.scores, for every u: one pass over the data.

        Its scores are computed from its coefficients, also where both terms all but cancel.
        """

    def constant(self, scores: Tensor) -> Vector:
        """The bias that gives all images the same scores (k,)."""

    def again(self, a: Vector) -> Vector:
        """The same coefficients, and their scores computed from them."""

    def products(self, a: Vector, b: Vector) -> Tensor:
        """⟨a_i, b_j⟩ for all columns i of a and j of b."""

    def dot(self, a: Vector, b: Vector) -> Tensor:
        """⟨a_j, b_j⟩ for each column, in float64."""

    def without_bias(self, a: Vector) -> Vector:
        """The part that is penalised."""


class Span:
    r"""Weights :math:`W = X^\top A`, by their coefficients A and the Gram matrix of the images.

    .. math:: K = H X X^\top H + \beta^2 \mathbf 1 \mathbf 1^\top, \qquad H = I - \tfrac1m \mathbf 1 \mathbf 1^\top

    Scores are KA, inner products :math:`\langle A, B\rangle = \operatorname{tr} A^\top K B`, the mean of A is the bias, and the
    adjoint of taking scores is the residual itself. So a pass is one product (m, m)·(m, k), whatever d is.

    Args:
        gram: X Xᵀ (m, m), which is overwritten with K.
    """

    def __init__(self, gram: Tensor) -> None:
        self.means = gram.mean(1)  # ⟨x_i, μ⟩
        gram -= self.means
        gram -= (self.means - self.means.mean()).unsqueeze(1)
        self.bias = _size(gram.diagonal().mean().item())
        # A direction in which K is nothing would be one in which coefficients are free to grow. This is a rounding error of K.
        gram.diagonal().add_(torch.finfo(gram.dtype).eps * self.bias**2)
        self.gram = gram.add_(self.bias**2)

    def pull(self, residual: Tensor, more: Vector | None = None, factor: float = 0.0) -> Vector:
        coefficients = residual if more is None else torch.add(residual, more.coefficients, alpha=factor)
        return Vector(coefficients, self.gram @ coefficients)

    def constant(self, scores: Tensor) -> Vector:
        rows = scores.expand(len(self.gram), -1)
        return Vector(rows / (len(rows) * self.bias**2), rows.clone())

    def again(self, a: Vector) -> Vector:
        return self.pull(a.coefficients)

    def products(self, a: Vector, b: Vector) -> Tensor:
        return a.coefficients.mT @ b.scores

    def dot(self, a: Vector, b: Vector) -> Tensor:
        return (a.coefficients * b.scores).sum(0, dtype=torch.float64)

    def without_bias(self, a: Vector) -> Vector:
        return Vector(*(each - each.mean(0) for each in a))

    def coefficients(self, a: Vector) -> tuple[Tensor, Tensor]:
        """A (m, k) with W = Xᵀ A for features as they are, not centred; and the intercepts (k,)."""
        weights = a.coefficients - a.coefficients.mean(0)
        return weights, a.coefficients.sum(0) * self.bias**2 - self.means @ weights


class Primal:
    """Weights as they are. A pass is a product with the features and one with their transpose.

    Args:
        features: X, (m, d).
    """

    def __init__(self, features: Tensor) -> None:
        m, d = features.shape
        self.mean = features.mean(0)
        self.features = features.new_empty(m, d + 1)
        torch.sub(features, self.mean, out=self.features[:, :d])
        self.bias = _size(self.features[:, :d].square().sum(dtype=torch.float64).item() / m)
        self.features[:, d] = self.bias

    def pull(self, residual: Tensor, more: Vector | None = None, factor: float = 0.0) -> Vector:
        coefficients = self.features.mT @ residual
        if more is not None:
            coefficients.add_(more.coefficients, alpha=factor)
        return Vector(coefficients, self.features @ coefficients)

    def constant(self, scores: Tensor) -> Vector:
        coefficients = scores.new_zeros(self.features.shape[1], len(scores))
        coefficients[-1] = scores / self.bias
        return Vector(coefficients, scores.expand(len(self.features), -1).clone())

    def again(self, a: Vector) -> Vector:
        return Vector(a.coefficients, self.features @ a.coefficients)

    def products(self, a: Vector, b: Vector) -> Tensor:
        return a.coefficients.mT @ b.coefficients

    def dot(self, a: Vector, b: Vector) -> Tensor:
        return (a.coefficients * b.coefficients).sum(0, dtype=torch.float64)

    def without_bias(self, a: Vector) -> Vector:
        coefficients = a.coefficients.clone()
        coefficients[-1] = 0
        return Vector(coefficients, a.scores - a.scores.mean(0))

    def weights(self, a: Vector) -> tuple[Tensor, Tensor]:
        """W (k, d) for features as they are, not centred; and the intercepts (k,)."""
        weights = a.coefficients[:-1]
        return weights.mT, a.coefficients[-1] * self.bias - self.mean @ weights


def _size(square: float) -> float:
    return square**0.5 if square > 0 else 1.0
