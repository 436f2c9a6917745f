"""The contract of every pooling that is a linear map of B, for every plan; and broken poolings that it must catch."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

from compact_bilinear import TensorSketch
from contract import COMPACT, EVERY, TWO_INPUTS, Make, bilinear, check_matches_matrix, check_unbiased, descriptors

every = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY.keys())
two_inputs = pytest.mark.parametrize("make", TWO_INPUTS.values(), ids=TWO_INPUTS.keys())
compact = pytest.mark.parametrize("make", COMPACT.values(), ids=COMPACT.keys())


# --- the definition ---


@pytest.mark.parametrize("d", [1, 2, 7, 8, 33])  # odd, even, below and above c
@every
def test_matches_its_matrix(make: Make, d: int) -> None:
    check_matches_matrix(make(7, d).double(), descriptors(c=7))


@pytest.mark.parametrize("c", [127, 128, 129, 300])  # around and beyond the blocks of rows that the Gram plans work in
@compact
def test_matches_its_matrix_over_several_blocks(make: Make, c: int) -> None:
    check_matches_matrix(make(c, 37).double(), descriptors(2, 3, c))


@every
def test_matches_its_matrix_with_weights(make: Make) -> None:
    check_matches_matrix(make(7, 16).double(), descriptors(), weights=descriptors(c=1, seed=1)[..., 0])


@pytest.mark.parametrize("channels", [(7, 7), (7, 4), (3, 7), (1, 200), (200, 1)])
@two_inputs
def test_matches_its_matrix_with_two_inputs(make: Make, channels: tuple[int, int]) -> None:
    x, z = descriptors(c=channels[0]), descriptors(c=channels[1], seed=1)
    check_matches_matrix(make(channels, 16).double(), x, z)
    check_matches_matrix(make(channels, 16).double(), x, z, weights=descriptors(c=1, seed=2)[..., 0])


@two_inputs
def test_the_same_input_twice_is_one_input(make: Make) -> None:
    pool, x = make(7, 16).double(), descriptors()
    torch.testing.assert_close(pool(x, x), pool(x), rtol=1e-10, atol=1e-10)


@every
def test_a_single_location(make: Make) -> None:
    check_matches_matrix(make(7, 16).double(), descriptors(n=1))


@every
def test_no_images_and_no_locations(make: Make) -> None:
    pool = make(7, 16).double()
    assert pool(descriptors(b=0)).shape == (0, pool.dim)
    assert torch.equal(pool(descriptors(n=0)), torch.zeros(3, pool.dim, dtype=torch.float64))
    for x in (descriptors(b=0), descriptors(n=0)):
        pool(x.requires_grad_()).sum().backward()
        assert torch.equal(x.grad, torch.zeros_like(x))
        if getattr(pool, "plan", "auto") != "gram":
            assert pool.local(x).shape == (*x.shape[:2], pool.dim)


@every
def test_is_a_sum_over_locations_and_quadratic(make: Make) -> None:
    pool, x, y = make(7, 16).double(), descriptors(seed=1), descriptors(seed=2)
    torch.testing.assert_close(pool(torch.cat([x, y], dim=1)), pool(x) + pool(y))
    torch.testing.assert_close(pool(x.flip(1)), pool(x))
    torch.testing.assert_close(pool(-3 * x), 9 * pool(x))


# --- layouts ---


@every
def test_maps_in_every_memory_layout_are_tokens(make: Make) -> None:
    pool, tokens = make(7, 16).double(), descriptors(n=12)
    weights = descriptors(n=12, c=1, seed=1)[..., 0]
    expected = pool(tokens, weights=weights)
    as_map = tokens.mT.reshape(3, 7, 4, 3)
    layouts = {
        "contiguous": as_map.contiguous(),
        "channels_last": as_map.contiguous(memory_format=torch.channels_last),
        "strided": torch.cat([as_map, as_map], dim=1)[:, :7],
        "transposed": as_map.mT.contiguous().mT,
    }
    for name, x in layouts.items():
        torch.testing.assert_close(pool(x, weights=weights.reshape(3, 4, 3)), expected, msg=name)


@pytest.mark.parametrize("shape", [(3, 7, 4, 3), (3, 12, 7)])
@every
def test_local_is_what_the_pool_sums(make: Make, shape: tuple[int, ...]) -> None:
    pool = make(7, 16).double()
    if getattr(pool, "plan", "auto") == "gram":
        with pytest.raises(ValueError, match='plan="gram" sums over the locations before'):
            pool.local(torch.zeros(shape))
        return
    x = torch.randn(shape, dtype=torch.float64)
    local = pool.local(x)
    is_map = len(shape) == 4
    assert local.shape == ((3, pool.dim, 4, 3) if is_map else (3, 12, pool.dim))
    torch.testing.assert_close(local.sum((2, 3) if is_map else 1), pool(x), rtol=1e-10, atol=1e-10)
    first = x[:, :, :1, :1] if is_map else x[:, :1]
    torch.testing.assert_close(local[:, :, 0, 0] if is_map else local[:, 0], pool(first), rtol=1e-10, atol=1e-10)


@two_inputs
def test_local_of_two_inputs(make: Make) -> None:
    pool, x, z = make((7, 4), 16).double(), descriptors(), descriptors(c=4, seed=1)
    if getattr(pool, "plan", "auto") != "gram":
        torch.testing.assert_close(pool.local(x, z).sum(1), pool(x, z), rtol=1e-10, atol=1e-10)


# --- precision ---


@pytest.mark.parametrize("d", [5, 64])
@every
def test_float32_is_as_accurate_as_its_definition_in_float32(make: Make, d: int) -> None:
    pool, x = make(31, d), descriptors(4, 50, 31)
    truth = make(31, d).double()(x)
    definition = bilinear(x.float()) @ pool.matrix().T
    worst = (definition - truth).abs().max()
    assert (pool(x.float()) - truth).abs().max() <= 2 * worst
    assert worst > 0, "nothing was rounded: the comparison says nothing"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every
def test_half_inputs_give_float32_features(make: Make, dtype: torch.dtype) -> None:
    pool, x = make(31, 64), descriptors(4, 50, 31).to(dtype).requires_grad_()
    y = pool(x)
    assert y.dtype == torch.float32
    # the products of two halves are exact in float32, so only the sums are rounded
    torch.testing.assert_close(y, pool(x.float()))
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == dtype


@every
def test_half_layers_keep_whole_buckets(make: Make) -> None:
    x = descriptors(4, 50, 31)
    # ±1 is exact in every dtype, so halving the layer changes nothing
    torch.testing.assert_close(make(31, 4000).half()(x.float()), make(31, 4000)(x.float()))


@every
def test_autocast_does_not_round_the_sums(make: Make) -> None:
    pool, x = make(31, 64), descriptors(4, 50, 31).float().requires_grad_()
    (expected,) = torch.autograd.grad(pool(x).square().sum(), x)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            y = pool(x)
        assert y.dtype == torch.float32
        torch.testing.assert_close(y, pool(x))
        (gradient,) = torch.autograd.grad(y.square().sum(), x)
        torch.testing.assert_close(gradient, expected)


# --- gradients ---


def check_gradients(function: object, *inputs: Tensor) -> None:
    leaves = tuple(t.detach().clone().requires_grad_() for t in inputs)
    assert gradcheck(function, leaves)
    assert gradgradcheck(function, leaves)


@pytest.mark.parametrize("d", [4, 5])
@every
def test_gradients_of_one_input_and_weights(make: Make, d: int) -> None:
    pool, x, a = make(3, d).double(), descriptors(2, 4, 3), descriptors(2, 4, 1)[..., 0]
    check_gradients(pool, x)
    check_gradients(lambda x, a: pool(x, weights=a), x, a)


@two_inputs
def test_gradients_of_two_inputs_and_weights(make: Make) -> None:
    pool, x, z, a = make((3, 2), 5).double(), descriptors(2, 4, 3), descriptors(2, 4, 2), descriptors(2, 4, 1)[..., 0]
    check_gradients(pool, x, z)
    check_gradients(lambda x, z, a: pool(x, z, weights=a), x, z, a)


@pytest.mark.parametrize("channels", [3, (3, 2)])
@compact
def test_gradients_of_what_is_learned(make: Make, channels: int | tuple[int, int]) -> None:
    pool = make(channels, 5, learnable=True).double()
    (name, value) = next(iter(pool.named_parameters()))
    inputs = [descriptors(2, 4, 3)] if channels == 3 else [descriptors(2, 4, 3), descriptors(2, 4, 2)]
    a = descriptors(2, 4, 1)[..., 0]

    def function(value: Tensor, a: Tensor, *inputs: Tensor) -> Tensor:
        return torch.func.functional_call(pool, {name: value}, inputs, {"weights": a})

    # signs that are no longer ±1, as after a step of training
    check_gradients(function, value + 0.1 * torch.randn_like(value), a, *inputs)
    check_gradients(function, value, a, *inputs)


@compact
def test_learnable_or_not_gives_the_same_numbers(make: Make) -> None:
    x = descriptors()
    learned = make(7, 16, learnable=True).double()
    assert [name for name, _ in learned.named_parameters()] in (["sign"], ["w"])
    assert not list(make(7, 16).parameters())
    torch.testing.assert_close(learned(x), make(7, 16).double()(x), rtol=1e-12, atol=1e-12)


@every
def test_maps_of_zeros_have_finite_features_and_gradients(make: Make) -> None:
    x = torch.zeros(2, 7, 3, 3, requires_grad=True)
    y = make(7, 16)(x)
    y.sum().backward()
    assert torch.equal(y, torch.zeros_like(y))
    assert x.grad is not None
    assert x.grad.isfinite().all()


# --- images do not see each other ---


@every
def test_features_do_not_depend_on_the_batch(make: Make) -> None:
    pool, x = make(31, 64), descriptors(6, 50, 31).float()
    together = pool(x)
    for image in range(6):
        torch.testing.assert_close(pool(x[image : image + 1])[0], together[image])
    torch.testing.assert_close(pool(x.flip(0)), together.flip(0))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@every
def test_a_broken_image_does_not_reach_another(make: Make, bad: float) -> None:
    pool, x = make(7, 16).double(), descriptors()
    clean = x.clone().requires_grad_()
    broken = x.clone()
    broken[1, 2, 3] = bad
    broken.requires_grad_()
    expected, y = pool(clean), pool(broken)
    assert torch.equal(y[[0, 2]], expected[[0, 2]])
    assert not y[1].isfinite().all()
    expected.square().sum().backward()
    y.square().sum().backward()
    assert clean.grad is not None
    assert broken.grad is not None
    assert torch.equal(broken.grad[[0, 2]], clean.grad[[0, 2]])


# --- what is drawn ---


@compact
def test_the_seed_decides(make: Make) -> None:
    x = descriptors().float()
    before = torch.get_rng_state()
    first, second, other = make(7, 64, seed=3), make(7, 64, seed=3), make(7, 64, seed=4)
    assert torch.equal(torch.get_rng_state(), before), "the global generator was touched"
    assert torch.equal(first(x), second(x))
    assert not torch.allclose(first(x), other(x))


@compact
def test_the_default_dtype_and_device_change_nothing_drawn(make: Make) -> None:
    expected = make(7, 64, seed=3).state_dict()
    torch.set_default_dtype(torch.float64)
    try:
        wide = make(7, 64, seed=3).state_dict()
    finally:
        torch.set_default_dtype(torch.float32)
    for name, value in expected.items():
        assert torch.equal(wide[name].to(value.dtype), value)
    with torch.device("meta"):
        assert {v.device.type for v in make(7, 64, seed=3).state_dict().values()} == {"meta"}


DRAWN = """
import torch
from compact_bilinear import RandomMaclaurin, RandomProjection, TensorSketch
torch.rand(7)
sketch, maclaurin = TensorSketch(7, 64, seed=3), RandomMaclaurin(7, 64, seed=3)
dense, sparse = (RandomProjection(7, 5, seed=3, sparse=sparse).matrix() for sparse in (False, True))
drawn = [each.tolist() for each in (sketch.bucket, sketch.sign, maclaurin.w, dense, sparse)]
"""


def test_the_same_seed_draws_the_same_in_a_fresh_process() -> None:
    here: dict[str, object] = {}
    exec(DRAWN, here)
    there = subprocess.run([sys.executable, "-c", DRAWN + "print(drawn)"], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == str(here["drawn"])


@pytest.mark.parametrize("learnable", [False, True])
@compact
def test_weights_come_back_from_a_state_dict(make: Make, learnable: bool) -> None:
    x, saved = descriptors().float(), make(7, 16, seed=1, learnable=learnable)
    loaded = make(7, 16, seed=2, learnable=learnable)
    assert not torch.allclose(loaded(x), saved(x))
    loaded.load_state_dict(saved.state_dict())
    assert torch.equal(loaded(x), saved(x))


@compact
def test_kernel_is_unbiased(make: Make) -> None:
    check_unbiased([make(7, 16, seed=seed).double() for seed in range(500)], descriptors(seed=1), descriptors(seed=2))


# --- the tests are tested: each of these is wrong in one way, and the contract must say so ---


class Zero(TensorSketch):
    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        return 0 * super().forward(x, z, weights=weights)


class MeanOverLocations(TensorSketch):
    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        return super().forward(x, z, weights=weights) / x.shape[1]


class BucketsFromOne(TensorSketch):  # unbiased all the same: only its matrix tells
    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        return super().forward(x, z, weights=weights).roll(1, dims=-1)


class EqualHashes(TensorSketch):  # has a matrix that it matches: only its bias tells
    def __init__(self, channels: int, dim: int, **options: object) -> None:
        super().__init__(channels, dim, **options)  # type: ignore[arg-type]
        self.bucket[1] = self.bucket[0]
        self.sign[1] = self.sign[0]


class IgnoresWeights(TensorSketch):
    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        return super().forward(x, z)


class LeaksBetweenImages(TensorSketch):
    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        return super().forward(x, z, weights=weights) + 0 * x.sum()


class WrongBackward(TensorSketch):
    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        return super().forward(x, x.detach() if z is None else z, weights=weights)


@pytest.mark.parametrize("wrong", [Zero, MeanOverLocations, BucketsFromOne])
def test_matrix_check_catches(wrong: type[nn.Module]) -> None:
    with pytest.raises(AssertionError):
        check_matches_matrix(wrong(7, 16).double(), descriptors())


@pytest.mark.parametrize("wrong", [Zero, MeanOverLocations, EqualHashes])
def test_unbiased_check_catches(wrong: type[nn.Module]) -> None:
    with pytest.raises(AssertionError):
        check_unbiased([wrong(7, 16, seed=seed).double() for seed in range(500)], descriptors(seed=1), descriptors(seed=2))


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (IgnoresWeights, test_matches_its_matrix_with_weights),
        (LeaksBetweenImages, lambda make: test_a_broken_image_does_not_reach_another(make, float("nan"))),
        (WrongBackward, lambda make: test_gradients_of_one_input_and_weights(make, 5)),
        (MeanOverLocations, test_is_a_sum_over_locations_and_quadratic),
        (Zero, test_the_seed_decides),
    ],
)
def test_the_rest_of_the_contract_catches(wrong: type[nn.Module], check: object) -> None:
    with pytest.raises((AssertionError, RuntimeError)):  # gradcheck raises the second
        check(wrong)  # type: ignore[operator]
