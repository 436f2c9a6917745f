"""What is particular to Random Maclaurin: projections from elsewhere, its blocks of rows, and its errors."""

import pytest
import torch

from compact_bilinear import RandomMaclaurin
from compact_bilinear.pooling import random_maclaurin, random_maclaurin_matrix
from contract import bilinear, check_gradients_equal, descriptors

PLANS = ["gram", "direct", "auto"]


@pytest.mark.parametrize("plan", PLANS)
def test_by_hand(plan: str) -> None:
    # projections (3, -1) and (1, 3) of one descriptor
    w = torch.tensor([[[1.0, 1.0], [1.0, -1.0]], [[-1.0, 1.0], [1.0, 1.0]]])
    y = random_maclaurin(torch.tensor([[[1.0, 2.0]]]), w, plan=plan)
    torch.testing.assert_close(y, torch.tensor([[3.0, -3.0]]) / 2**0.5)


@pytest.mark.parametrize("plan", PLANS)
def test_is_the_algorithm_of_the_paper(plan: str) -> None:
    pool, x = RandomMaclaurin(7, 33, plan=plan).double(), descriptors()
    locations = [(pool.w[0] @ x[:, s].T) * (pool.w[1] @ x[:, s].T) for s in range(5)]
    torch.testing.assert_close(pool(x), torch.stack(locations).sum(0).T / 33**0.5, rtol=1e-10, atol=1e-10)


def test_projections_are_signs() -> None:
    w = RandomMaclaurin(40, 50).w
    assert w.shape == (2, 50, 40)
    assert set(w.unique().tolist()) == {-1.0, 1.0}
    assert w.mean().abs() < 5 / w.numel() ** 0.5
    assert not torch.equal(w[0], w[1])


@pytest.mark.parametrize("plan", PLANS)
def test_projections_of_another_implementation(plan: str) -> None:
    w = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    pool = RandomMaclaurin((3, 2), 5, w=w, plan=plan)
    x, z = descriptors(c=3), descriptors(c=2, seed=1)
    expected = bilinear(x, z) @ random_maclaurin_matrix(w).T
    torch.testing.assert_close(pool(x, z), expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(random_maclaurin(x, w, z, plan=plan), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("d", [511, 512, 513, 1100])
def test_blocks_of_rows_add_up(d: int) -> None:
    gram, direct = (RandomMaclaurin((6, 4), d, learnable=True, plan=plan).double() for plan in ("gram", "direct"))
    check_gradients_equal(gram, direct, descriptors(c=6), descriptors(c=4, seed=1))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"w": torch.zeros(2, 5, 3)}, r"w as two matrices \(5, 2\) and \(5, 2\), but got shapes \[\(5, 3\), \(5, 3\)\]"),
        ({"w": torch.zeros(2, 4, 2)}, r"but got shapes \[\(4, 2\), \(4, 2\)\]"),
        ({"w": torch.ones(2, 5, 2, dtype=torch.int8)}, "floating-point projections but got torch.int8"),
        ({"w": [[1.0]]}, r"w as a tensor, or two of them, but got list.\nPass `torch.as_tensor\(w\)`"),
        ({"plan": "fft"}, 'the plans "auto", "gram" and "direct" but got \'fft\''),
    ],
)
def test_what_cannot_be_built(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        RandomMaclaurin(2, 5, **arguments)  # type: ignore[arg-type]


def test_bad_projections_at_the_function() -> None:
    with pytest.raises(ValueError, match=r"w as two matrices \(d, c\) and \(d, c2\)"):
        random_maclaurin(torch.zeros(1, 4, 3), torch.zeros(5, 3))
