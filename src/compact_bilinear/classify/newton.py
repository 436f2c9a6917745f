r"""Newton's method with conjugate gradients for :math:`\lambda\|W\|^2 + \sum_i l(\langle x_i, W\rangle + b, y_i)`.

Inner products are those of the weights, wherever these are kept (``spaces.py``), so that the problem is as well conditioned in
the span of the images as it is in the features. Each step solves

.. math:: (2\lambda \Pi + X^\top S X)\, u = -g

approximately, Π the projection that takes the bias away and S the second derivatives of the loss, one pass over the data an
iteration; and goes along u to where the objective is least, which takes none: scores are linear along a line.

What remains of bad conditioning comes from a few large eigenvalues of K, and is preconditioned away: for the leading
eigenvectors :math:`v_j` with eigenvalues :math:`\Lambda_j`, and mean curvature :math:`\bar s_c` of class c, the matrix is taken
for :math:`2\lambda + \bar s_c \Lambda_j`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .losses import Loss
from .spaces import Space, Vector

# eigenvectors that are found, and so many more columns so that they are found well
LEADING, SPARE = 200, 20
# Conjugate gradients stop when the preconditioned residual is this part of what it was: the next step has another matrix, and
# does not thank for more digits.
FORCING = 0.3
ITERATIONS = 500
# A point on a line is good when going on would lower the objective by this part of what was gained, to second order.
LINE = 0.1
# steps without a lower objective or gradient after which rounding errors are all that is left
PATIENCE = 5


class Leading(NamedTuple):
    """Leading eigenvectors of K, of length one, and last the bias; with their eigenvalues, and the mean of the others."""

    vectors: Vector
    values: Tensor
    rest: float


class Stop(NamedTuple):
    """When to."""

    tolerance: float
    """The gap to each problem's optimum that is small enough, relative to the objective."""
    max_iterations: int
    """Steps of Newton's method."""


@dataclass(frozen=True)
class Solution:
    """Where the method stopped."""

    vector: Vector
    iterations: int
    """Steps of Newton's method."""
    converged: bool
    gap: float
    """No problem's objective is further from its optimum, relative to itself."""


def leading(space: Space, scores: Tensor, d: int) -> Leading:
    """Find the leading eigenvectors by subspace iteration from random vectors.

    Args:
        space: whose K.
        scores: any (m, k), for its dtype and device.
        d: features; there are no more eigenvalues than min(m, d).
    """
    m = len(scores)
    count = min(m, d, LEADING + SPARE)
    draw = torch.Generator().manual_seed(0)
    basis = torch.randn(m, count, generator=draw, dtype=torch.float64).to(scores)
    # with room for all eigenvectors once is enough, and loses none of those with small eigenvalues to rounding
    for _ in range(2 if count < LEADING + SPARE else 3):
        basis, _ = torch.linalg.qr(basis)
        images = space.without_bias(space.pull(basis))
        basis, last = images.scores, basis
    values, rotation = torch.linalg.eigh((last.mT @ images.scores).double())
    kept = values > values.amax() * 100 * torch.finfo(scores.dtype).eps
    if count > LEADING:
        kept[:-LEADING] = False
    values, rotation = values[kept], rotation[:, kept] / values[kept].sqrt()
    ones = scores.new_ones(m, 1)
    bias = space.pull(ones / (m * space.bias))
    vectors = Vector(*(torch.cat([a @ rotation.to(a), b], 1) for a, b in zip(images, bias, strict=True)))
    bias_value = m * space.bias**2  # and the sum of all other eigenvalues, as β was chosen
    all_found = 0 < len(values) <= count < LEADING + SPARE
    rest = values.amin().item() if all_found else (bias_value - values.sum().item()) / (m - len(values))
    return Leading(vectors, torch.cat([values, values.new_tensor([bias_value])]), max(rest, 0.0))


def minimise(space: Space, loss: Loss, lambda_: float, eigen: Leading, stop: Stop, start: Vector | None = None) -> Solution:
    r"""Minimise the objective.

    It is :math:`\lambda\|W\|^2` and something convex, so that it is not further from its optimum than
    :math:`\|\nabla\|^2 / 4\lambda`. That is where to stop. The bias has no penalty; it is counted as if it had.

    Args:
        space: of the features.
        loss: of the labels.
        lambda_: λ.
        eigen: of this space.
        stop: when.
        start: where to; a bias alone if nothing is given.
    """
    tolerance, max_iterations = stop
    x = start or space.constant(loss.bias())
    values, probabilities = loss.value(x.scores)
    best, lowest, idle = torch.inf, torch.inf, 0
    for iteration in range(max_iterations + 1):
        penalised = space.without_bias(x)
        objective = values + lambda_ * loss.total(space.dot(penalised, x))
        g = space.pull(probabilities - loss.targets, penalised, 2 * lambda_)
        gaps = loss.total(space.dot(g, g)).clamp(min=0) / (4 * lambda_ * objective)
        gap = gaps.max().item()
        if gap <= tolerance:
            return Solution(x, iteration, True, gap)
        total = objective.sum().item()
        progress = gap < 0.5 * best or total < lowest - 4 * torch.finfo(x.scores.dtype).eps * abs(lowest)
        idle = 0 if progress else idle + 1
        best, lowest = min(best, gap), min(lowest, total)
        if iteration == max_iterations or idle == PATIENCE:
            break
        u = _step(space, loss, lambda_, eigen, probabilities, g, gaps > tolerance)
        x, values, probabilities = _search(space, loss, lambda_, x, u, loss.total(space.dot(g, u)))
    return Solution(x, iteration, False, gap)


def _step(space: Space, loss: Loss, lambda_: float, eigen: Leading, probabilities: Tensor, g: Vector, active: Tensor) -> Vector:
    """An approximate solution u of the linear system, by preconditioned conjugate gradients."""
    curvature = (probabilities * (1 - probabilities)).mean(0, dtype=torch.float64)
    rest = 1 / (2 * lambda_ + curvature * eigen.rest)
    factors = (1 / (2 * lambda_ + curvature * eigen.values.unsqueeze(1)) - rest).to(g.scores)
    others = rest.to(g.scores)

    def precondition(r: Vector) -> Vector:
        along = factors * space.products(eigen.vectors, r)
        return Vector(*(loss.determined((a * others).addmm_(v, along)) for a, v in zip(r, eigen.vectors, strict=True)))

    r = Vector(*(-a * active for a in g))
    u = Vector(*(torch.zeros_like(a) for a in g))
    z = p = precondition(r)
    rz = loss.total(space.dot(r, z))
    first = rz
    for _ in range(ITERATIONS):
        hp = space.pull(loss.curvature(probabilities, p.scores), space.without_bias(p), 2 * lambda_)
        curved = loss.total(space.dot(p, hp))
        length = torch.where(curved > 0, rz / curved, 0.0)
        for each, along in zip(u, p, strict=True):
            each.addcmul_(along, length.to(along))
        for each, along in zip(r, hp, strict=True):
            each.addcmul_(along, length.to(along), value=-1)
        z = precondition(r)
        before, rz = rz, loss.total(space.dot(r, z))
        if bool((rz <= FORCING**2 * first).all()):
            break
        ratio = torch.where(before > 0, rz / before, 0.0).to(r.scores)
        p = Vector(*(torch.addcmul(a, b, ratio) for a, b in zip(z, p, strict=True)))
    # Preconditioning adds up coefficients and scores each by itself. Where their terms cancel they would drift apart.
    return space.again(u)


def _search(space: Space, loss: Loss, lambda_: float, x: Vector, u: Vector, slope: Tensor) -> tuple[Vector, Tensor, Tensor]:
    """Go from x along u to where the objective is least: Newton's method in one dimension, within an interval that shrinks."""
    straight = space.without_bias(u)
    linear, quadratic = (lambda_ * loss.total(space.dot(straight, each)) for each in (x, u))
    step, low, high = torch.ones_like(slope), torch.zeros_like(slope), torch.full_like(slope, torch.inf)
    for trial in range(25):
        length = step.to(x.scores)
        values, probabilities = loss.value(torch.addcmul(x.scores, u.scores, length))
        residual = probabilities - loss.targets
        here = loss.total((residual * u.scores).sum(0, dtype=torch.float64)) + 2 * (linear + step * quadratic)
        bend = loss.total((loss.curvature(probabilities, u.scores) * u.scores).sum(0, dtype=torch.float64)) + 2 * quadratic
        good = here.square() <= LINE * bend * step * slope.abs()
        if bool(good.all()) or trial == 24:
            break
        high, low = torch.where(here > 0, step, high), torch.where(here > 0, low, step)
        newton = (step - here / bend).clamp(max=10 * step)
        middle = torch.where(high.isfinite(), (low + high) / 2, 2 * step)
        step = torch.where(good, step, torch.where((newton > low) & (newton < high), newton, middle))
    return Vector(*(torch.addcmul(a, b, length) for a, b in zip(x, u, strict=True))), values, probabilities
