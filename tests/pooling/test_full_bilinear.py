"""What is particular to full bilinear pooling: its triangle, and that it keeps nothing."""

import pytest
import torch

from compact_bilinear import FullBilinear
from compact_bilinear.pooling import full_bilinear
from contract import bilinear, descriptors


def test_by_hand() -> None:
    x = torch.tensor([[[1.0, 2.0], [0.0, 3.0]]])
    assert full_bilinear(x).tolist() == [[1.0, 2.0, 2.0, 13.0]]
    torch.testing.assert_close(full_bilinear(x, triangle=True), torch.tensor([[1.0, 2 * 2**0.5, 13.0]]))


def test_is_vec_b() -> None:
    x, z = descriptors(c=4), descriptors(c=3, seed=1)
    torch.testing.assert_close(FullBilinear((4, 3))(x, z), bilinear(x, z), rtol=1e-12, atol=1e-12)
    assert torch.equal(FullBilinear((4, 3)).matrix(), torch.eye(12))


def test_the_triangle_has_the_same_inner_products() -> None:
    full, triangle = FullBilinear(7), FullBilinear(7, triangle=True)
    x, y = descriptors(seed=1), descriptors(seed=2)
    assert triangle.dim == 28 == triangle(x).shape[1]
    torch.testing.assert_close((triangle(x) * triangle(y)).sum(1), (full(x) * full(y)).sum(1), rtol=1e-12, atol=1e-12)
    # the kernel that the paper states: the sum of all squared inner products
    torch.testing.assert_close((full(x) * full(y)).sum(1), (x @ y.mT).square().sum((1, 2)), rtol=1e-12, atol=1e-12)


def test_keeps_nothing() -> None:
    assert not FullBilinear(7).state_dict()


def test_a_triangle_takes_one_input() -> None:
    with pytest.raises(ValueError, match="triangle=True with one input only"):
        FullBilinear((4, 3), triangle=True)
    with pytest.raises(ValueError, match="triangle=True with one input only"):
        FullBilinear(4, triangle=True)(descriptors(c=4), descriptors(c=4))
