r"""How far a compact kernel strays from the kernel it estimates: exact variances over the drawn numbers, for any two images.

Write A and C for the matrices B of two images. Random Maclaurin and Tensor Sketch both have
:math:`\mathbb{E}\langle y, y'\rangle = \langle A, C\rangle`. The variance of that inner product says which d an application
needs. The derivations are in ``docs/mathematics.md``.
"""

from math import gcd

from torch import Tensor


def random_maclaurin_variance(a: Tensor, c: Tensor, d: int) -> Tensor:
    r"""Variance of :math:`\langle y, y'\rangle` under Random Maclaurin with d independent pairs of random signs.

    With :math:`u = A w_2`, :math:`v = C w_2`, :math:`P = A^\top A`, :math:`Q = C^\top C`, S the symmetric part of
    :math:`A^\top C`, and ∘ entrywise,

    .. math:: d \operatorname{Var} = \mathbb{E}\bigl[|u|^2|v|^2 + 2\langle u,v\rangle^2 - 2\textstyle\sum_i u_i^2 v_i^2\bigr]
        - \langle A, C\rangle^2,

    and each expectation over the signs :math:`w_2` is again of this form:

    .. math::
        \mathbb{E}|u|^2|v|^2 = \operatorname{tr}P \operatorname{tr}Q + 2\langle P,Q\rangle - 2\textstyle\sum_k P_{kk}Q_{kk}
        \qquad
        \mathbb{E}\langle u,v\rangle^2 = (\operatorname{tr}S)^2 + 2|S|^2 - 2\textstyle\sum_k S_{kk}^2
        \qquad
        \mathbb{E}\,u_i^2v_i^2 = |a_i|^2|c_i|^2 + 2\langle a_i,c_i\rangle^2 - 2|a_i \circ c_i|^2

    Args:
        a, c: B of two images, (c, c2).
        d: output dimension.

    >>> random_maclaurin_variance(torch.eye(2), torch.eye(2), d=8)
    tensor(0.5000)
    """
    p, q, product = a.mT @ a, c.mT @ c, a.mT @ c
    symmetric = (product + product.mT) / 2
    trace = (a * c).sum()
    norms = (p.trace() * q.trace()) + 2 * (p * q).sum() - 2 * (p.diagonal() * q.diagonal()).sum()
    inner = trace**2 + 2 * symmetric.square().sum() - 2 * symmetric.diagonal().square().sum()
    rows = a.square().sum(1) * c.square().sum(1) + 2 * (a * c).sum(1) ** 2 - 2 * (a * c).square().sum(1)
    return (norms + 2 * inner - 2 * rows.sum() - trace**2) / d


def tensor_sketch_variance(a: Tensor, c: Tensor, d: int) -> Tensor:
    r"""Variance of :math:`\langle y, y'\rangle` under Tensor Sketch with uniform buckets and random signs.

    Entries (i, k) of A and (i', k') of C meet in a bin by chance, and the signs make all their products uncorrelated but for
    three groups. Where only k differs, or only i, with probability 1/d:

    .. math:: V_1 = \tfrac1d \bigl(|A^\top C|^2 + \langle A^\top C, C^\top A\rangle - 2\textstyle\sum_k (A^\top C)_{kk}^2\bigr),
        \qquad V_2 \text{ likewise with } A C^\top.

    Where both differ, the pairs (i, k), (i', k') and (i, k'), (i', k) carry the same signs, and meet together with probability
    gcd(2, d)/d²:

    .. math:: V_3 = \sum_{i \ne i',\, k \ne k'} \tfrac1d \bigl(A_{ik}^2 C_{i'k'}^2 + A_{ik}C_{ik}A_{i'k'}C_{i'k'}\bigr)
        + \tfrac{\gcd(2,d)}{d^2} \bigl(A_{ik}A_{ik'}C_{i'k}C_{i'k'} + A_{ik}A_{i'k}C_{ik'}C_{i'k'}\bigr)

    and Var = V₁ + V₂ + V₃.

    Args:
        a, c: B of two images, (c, c2).
        d: output dimension.

    >>> tensor_sketch_variance(torch.eye(2), torch.eye(2), d=8)
    tensor(0.5000)
    """
    by_row, by_column = (a * c).sum(1).square().sum(), (a * c).sum(0).square().sum()
    rows = (a.square().sum(1) * c.square().sum(1)).sum()
    columns = (a.square().sum(0) * c.square().sum(0)).sum()
    both = (a * c).square().sum()
    # sums over i ≠ i', k ≠ k' by inclusion and exclusion: all, less i = i', less k = k', plus both
    squares = a.square().sum() * c.square().sum() - rows - columns + both
    products = (a * c).sum() ** 2 - by_row - by_column + both
    crossed_rows = ((a.mT @ a) * (c.mT @ c)).sum() - by_row - columns + both
    crossed_columns = ((a @ a.mT) * (c @ c.mT)).sum() - rows - by_column + both
    alone = _off_diagonal_pairs(a.mT @ c) + _off_diagonal_pairs(a @ c.mT)
    return (alone + squares + products) / d + gcd(2, d) * (crossed_rows + crossed_columns) / d**2


def _off_diagonal_pairs(product: Tensor) -> Tensor:
    return product.square().sum() + (product * product.mT).sum() - 2 * product.diagonal().square().sum()
