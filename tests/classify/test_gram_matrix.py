"""However features are cut into blocks and whatever is held, the sums are those of the whole; and how often they are read."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from compact_bilinear.classify import gram_matrix as module
from compact_bilinear.classify.gram_matrix import gram_matrix, read_whole, weighted_sum

CPU = torch.device("cpu")


class Blocks:
    """Counts how often it is read."""

    def __init__(self, x: np.ndarray, sizes: list[int]) -> None:
        self.parts = np.split(x, np.cumsum(sizes)[:-1])
        self.times = 0

    def __call__(self) -> Iterator[np.ndarray]:
        self.times += 1
        return iter(self.parts)


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 7)
    monkeypatch.setattr(module, "COLUMNS", 5)


def features(m: int = 29, d: int = 13, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(0).normal(size=(m, d)).astype(dtype)


@pytest.mark.parametrize("sizes", [[29], [1, 0, 20, 8], [10, 10, 9]])
@pytest.mark.parametrize("held", [1, 800, 10**9])
def test_every_pair_is_there(sizes: list[int], held: int) -> None:
    x = features()
    blocks = Blocks(x, sizes)
    gram = gram_matrix(blocks, 29, torch.float64, CPU, held)
    torch.testing.assert_close(gram, torch.from_numpy(x @ x.T), rtol=1e-12, atol=1e-12)
    if held == 10**9:
        assert blocks.times == 1


def test_half_precision_is_multiplied_in_single() -> None:
    x = features(dtype="float16")
    gram = gram_matrix(Blocks(x, [29]), 29, torch.float32, CPU)
    wide = torch.from_numpy(x).double()
    assert gram.dtype == torch.float32
    torch.testing.assert_close(gram.double(), wide @ wide.mT, rtol=1e-6, atol=1e-5)


def test_rounding_errors_do_not_grow_with_columns() -> None:
    # a million products of one sign: added up in float32 one after the other they would lose the third digit
    x = np.full((2, 200_000), 0.1, np.float32)
    module.COLUMNS = 1000
    gram = gram_matrix(Blocks(x, [2]), 2, torch.float32, CPU)
    assert gram[0, 1].item() == pytest.approx(200_000 * float(np.float32(0.1)) ** 2, rel=1e-6)


def test_sums_over_images() -> None:
    x, weights = features(), torch.randn(29, 3, dtype=torch.float64)
    torch.testing.assert_close(weighted_sum(Blocks(x, [4, 25]), weights), weights.mT @ torch.from_numpy(x))


def test_the_whole() -> None:
    x = features()
    assert torch.equal(read_whole(Blocks(x, [4, 25]), 29, torch.float64, CPU), torch.from_numpy(x))
