"""Random projection: against its own matrix, what that matrix is drawn from, and how little of it is ever in memory."""

import pytest
import torch
from torch import Tensor, nn

import promises
from compact_bilinear import RandomProjection
from compact_bilinear.pooling import random_projection as module
from contract import bilinear, check_matches_matrix, check_unbiased, descriptors

both = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where c = 7, two rows of a dense matrix at a time, and seven of a sparse one."""
    monkeypatch.setattr(module, "DRAWN", 100)
    monkeypatch.setattr(module, "GATHERED", 49)


# --- the definition ---


@pytest.mark.parametrize("d", [1, 2, 7, 8, 33])
@both
def test_matches_its_matrix(sparse: bool, d: int) -> None:
    pool = RandomProjection(7, d, sparse=sparse).double()
    assert pool.matrix().shape == (d, 49)
    check_matches_matrix(pool, descriptors())
    check_matches_matrix(pool, descriptors(n=1), weights=descriptors(n=1, c=1, seed=1)[..., 0])


@pytest.mark.parametrize("d", [1, 2, 7, 8, 33])
@pytest.mark.usefixtures("small_blocks")
@both
def test_blocks_of_rows_add_up(sparse: bool, d: int) -> None:
    pool, x = RandomProjection(7, d, sparse=sparse).double(), descriptors()
    check_matches_matrix(pool, x)
    matrix = pool.matrix()
    _, ours = promises.features_and_gradients(pool, x)
    _, expected = promises.features_and_gradients(lambda x: bilinear(x) @ matrix.T, x)
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


@both
def test_is_a_sum_over_locations(sparse: bool) -> None:
    pool, x, y = RandomProjection(7, 16, sparse=sparse).double(), descriptors(seed=1), descriptors(n=4, seed=2)
    assert pool.additive
    torch.testing.assert_close(pool(torch.cat([x, y], dim=1)), pool(x) + pool(y), rtol=1e-10, atol=1e-10)
    assert torch.equal(pool(x[:, :0]), torch.zeros(3, 16, dtype=torch.float64))


@both
def test_kernel_is_unbiased(sparse: bool) -> None:
    pools = [RandomProjection(7, 16, seed=seed, sparse=sparse).double() for seed in range(500)]
    check_unbiased(pools, descriptors(seed=1), descriptors(seed=2))


# --- what is drawn ---


def test_entries_of_the_dense_matrix_are_gaussian() -> None:
    c, d = 16, 400
    entries = RandomProjection(c, d).matrix().double().flatten() * d**0.5
    m = len(entries)
    # standard errors of the first four moments of m standard Gaussians: √(1, 2, 15, 96)/√m
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(entries.pow(power).mean() - moment) < 5 * (variance / m) ** 0.5
    assert len(entries.unique()) > 0.95 * m


def test_entries_of_the_sparse_matrix_are_those_of_li() -> None:
    c, d = 16, 1000
    matrix = RandomProjection(c, d, sparse=True).matrix().double()
    size = (c / d) ** 0.5
    torch.testing.assert_close(matrix.unique(), torch.tensor([-size, 0, size], dtype=torch.float64))
    assert ((matrix != 0).view(d, c, c).sum(2) == 1).all(), "one number of each row of B"
    nonzero = c * d
    assert abs((matrix > 0).sum() - nonzero / 2) < 5 * (nonzero / 4) ** 0.5
    # Pearson's statistic over the c² places: its mean is one for each degree of freedom, of which a row of B has c - 1
    expected, freedom = d / c, c * (c - 1)
    statistic = (((matrix != 0).sum(0) - expected) ** 2 / expected).sum()
    assert abs(statistic - freedom) < 5 * (2 * freedom) ** 0.5
    # neither places nor signs of one output say anything of another's: rows are as if orthogonal, in standard errors
    inner = (matrix @ matrix.T)[torch.triu_indices(d, d, 1).unbind()]
    assert abs(inner.mean()) < 5 * inner.std() / len(inner) ** 0.5


@both
def test_the_seed_decides(sparse: bool) -> None:
    before = torch.get_rng_state()
    first, second, other = (RandomProjection(7, 64, seed=seed, sparse=sparse) for seed in (3, 3, 4))
    x = descriptors().float()
    assert torch.equal(first(x), second(x))
    assert not torch.allclose(first(x), other(x))
    assert torch.equal(torch.get_rng_state(), before), "the global generator was touched"


@both
def test_dtypes_and_devices_change_nothing_drawn(sparse: bool) -> None:
    pool = RandomProjection(7, 64, seed=3, sparse=sparse)
    expected = pool.matrix()
    torch.testing.assert_close(pool.double().matrix(), expected.double(), rtol=1e-6, atol=0)
    assert pool.half().matrix().dtype == torch.float16
    torch.testing.assert_close(pool.float().matrix(), expected, rtol=0, atol=0)
    torch.set_default_dtype(torch.float64)
    try:
        wide = RandomProjection(7, 64, seed=3, sparse=sparse)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(wide.matrix().float(), expected)
    with torch.device("meta"):
        assert {value.device.type for value in RandomProjection(7, 64, sparse=sparse).state_dict().values()} == {"meta"}


@both
def test_weights_come_back_from_a_state_dict(sparse: bool) -> None:
    saved, loaded, x = (*(RandomProjection(7, 16, seed=seed, sparse=sparse) for seed in (1, 2)), descriptors().float())
    assert not torch.allclose(loaded(x), saved(x))
    loaded.load_state_dict(saved.state_dict())
    assert torch.equal(loaded(x), saved(x))
    assert torch.equal(loaded.matrix(), saved.matrix())
    assert sorted(saved.state_dict()) == (["column", "sign"] if sparse else ["key"])
    assert not list(saved.parameters())


# --- how it computes ---


@both
def test_never_holds_the_matrix(monkeypatch: pytest.MonkeyPatch, sparse: bool) -> None:
    b, c, d, block = 2, 16, 2000, 4096
    monkeypatch.setattr(module, "DRAWN", block)
    monkeypatch.setattr(module, "GATHERED", block)
    pool, x = RandomProjection(c, d, sparse=sparse).double(), descriptors(b, 9, c)
    with promises.Largest() as largest:
        promises.features_and_gradients(pool, x)
    # the places of a sparse matrix are kept, c numbers a row; the dense matrix would be d·c² = 512 000
    assert largest.numbers <= (max(b * block, d * c) if sparse else block)
    with promises.Largest() as largest:
        pool.matrix()
    assert largest.numbers == d * c**2, "the count misses what it is to count"


@both
def test_float32_is_as_accurate_as_its_definition_in_float32(sparse: bool) -> None:
    pool, x = RandomProjection(31, 64, sparse=sparse), descriptors(4, 50, 31)
    matrix = pool.matrix()
    narrow, definition = pool(x.float()), bilinear(x.float()) @ matrix.T
    truth = pool.double()(x)
    worst = (definition - truth).abs().max()
    assert worst > 0, "nothing was rounded: the comparison says nothing"
    assert (narrow - truth).abs().max() <= 2 * worst


# --- every layer's promises ---


@both
def test_layouts(sparse: bool) -> None:
    promises.check_layouts(RandomProjection(7, 16, sparse=sparse).double())


@both
def test_images_do_not_see_each_other(sparse: bool) -> None:
    pool = RandomProjection(7, 16, sparse=sparse).double()
    promises.check_images_do_not_see_each_other(pool)
    promises.check_no_images(pool)
    promises.check_zeros(pool)


@both
def test_precision(sparse: bool) -> None:
    promises.check_precision(RandomProjection(7, 16, sparse=sparse))


@both
def test_half_layers_keep_their_numbers(sparse: bool) -> None:
    x = descriptors(c=70).float()
    # places, and a seed that no half could hold, stay integers
    whole, half = (RandomProjection(70, 16, seed=2**31 - 1, sparse=sparse) for _ in range(2))
    assert torch.equal(half.half()(x), whole(x))


@pytest.mark.usefixtures("small_blocks")
@both
def test_gradients(sparse: bool) -> None:
    pool, x, weights = RandomProjection(7, 5, sparse=sparse).double(), descriptors(2, 3), descriptors(2, 3, 1)[..., 0]
    promises.check_gradients(lambda x, a: pool(x, weights=a), x, weights)


@both
def test_torch_func(sparse: bool) -> None:
    promises.check_transforms(RandomProjection(7, 16, sparse=sparse).double())


@both
def test_compiles_and_exports(sparse: bool) -> None:
    promises.check_compiles(RandomProjection(7, 16, sparse=sparse).double())
    promises.check_exports(RandomProjection(7, 16, sparse=sparse).double())


def test_the_operator_keeps_its_contract_with_torch() -> None:
    projection = torch.ops.compact_bilinear.gaussian_projection
    for transposed in (False, True):
        x = torch.randn(3, 8, dtype=torch.float64)
        torch.library.opcheck(projection.default, (x, torch.tensor(3), 6, transposed), test_utils="test_schema")
        torch.library.opcheck(projection.default, (x, torch.tensor(3), 6, transposed), test_utils="test_faketensor")
    x, y = torch.randn(3, 8, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    forth, back = projection(x, torch.tensor(3), 6, False), projection(y, torch.tensor(3), 8, True)
    torch.testing.assert_close((forth * y).sum(), (x * back).sum(), rtol=1e-10, atol=1e-10)


# --- what it refuses ---


def test_arguments_are_checked() -> None:
    for channels in (0, 2.0, (7, 7), True):
        with pytest.raises(ValueError, match=r"channels as a positive integer, but got .*\n.*it pools one input"):
            RandomProjection(channels, 16)
    for dim in (0, -1, 2.5, None):
        with pytest.raises(ValueError, match="RandomProjection takes an output dimension d ≥ 1"):
            RandomProjection(7, dim)
    pool = RandomProjection(7, 16)
    with pytest.raises(ValueError, match=r"RandomProjection takes a feature map \(b, c=7, h, w\)"):
        pool(torch.zeros(2, 5, 6))
    with pytest.raises(ValueError, match=r"RandomProjection takes weights \(b, n\) = \(2, 5\)"):
        pool(torch.zeros(2, 5, 7), weights=torch.ones(2, 6))
    assert repr(RandomProjection(7, 16, sparse=True)) == "RandomProjection(channels=7, dim=16, sparse=True)"


# --- the tests are tested: each of these is wrong in one way ---


class NotScaled(RandomProjection):
    def forward(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        return 1.2 * super().forward(x, weights=weights)

    def matrix(self) -> Tensor:
        return 1.2 * super().matrix()


class AnotherDrawInTheBackwardPass(RandomProjection):
    def forward(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        other = RandomProjection(self.channels, self.dim, seed=self.seed + 1).double()
        return other(x, weights=weights) + (super().forward(x, weights=weights) - other(x, weights=weights)).detach()


def test_unbiased_check_catches() -> None:
    with pytest.raises(AssertionError, match="biased by"):
        check_unbiased([NotScaled(7, 16, seed=seed).double() for seed in range(500)], descriptors(seed=1), descriptors(seed=2))


def test_gradient_check_catches() -> None:
    wrong: nn.Module = AnotherDrawInTheBackwardPass(7, 5).double()
    check_matches_matrix(wrong, descriptors())
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        promises.check_gradients(wrong, descriptors(2, 3))
