"""What is particular to Tensor Sketch: its convolution, hashes from elsewhere, and its errors."""

import pytest
import torch

from compact_bilinear import TensorSketch
from compact_bilinear.pooling import count_sketch, tensor_sketch, tensor_sketch_matrix
from contract import bilinear, check_matches_matrix, descriptors

PLANS = ["gram", "fft", "auto"]


@pytest.mark.parametrize("plan", PLANS)
def test_by_hand(plan: str) -> None:
    # sketches (1, -1, 0, 0) and (-2, 0, 1, 3), convolved modulo 4
    bucket, sign = torch.tensor([[0, 1, 1], [2, 0, 3]]), torch.tensor([[1.0, 1.0, -1.0], [1.0, -1.0, 1.0]])
    y = tensor_sketch(torch.tensor([[[1.0, 2.0, 3.0]]]), bucket, sign, 4, plan=plan)
    torch.testing.assert_close(y, torch.tensor([[-5.0, 2.0, 1.0, 2.0]]))


def test_count_sketch_by_hand() -> None:
    sketch = count_sketch(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([3, 0, 3]), torch.tensor([1.0, -1.0, -1.0]), 5)
    assert sketch.tolist() == [[-2.0, 0.0, 0.0, -3.0, 0.0]]


def test_the_definition_term_by_term() -> None:
    pool = TensorSketch((3, 2), 5, seed=1)
    (h1, h2), (s1, s2) = pool.bucket.tolist(), pool.sign.tolist()
    matrix = torch.zeros(5, 6)
    for i in range(3):
        for k in range(2):
            matrix[(h1[i] + h2[k]) % 5, 2 * i + k] += s1[i] * s2[k]
    assert torch.equal(pool.matrix(), matrix)


@pytest.mark.parametrize("d", [31, 32])
@pytest.mark.parametrize("plan", PLANS)
def test_is_the_fourier_way_of_the_paper(plan: str, d: int) -> None:
    pool, x = TensorSketch(7, d, plan=plan).double(), descriptors()
    h, s = pool.bucket, pool.sign
    first, second = (torch.stack([(x * s[k] * (h[k] == j)).sum(-1) for j in range(d)], -1) for k in (0, 1))
    convolved = torch.fft.ifft(torch.fft.fft(first) * torch.fft.fft(second)).real
    torch.testing.assert_close(pool(x), convolved.sum(1), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("plan", PLANS)
def test_hashes_of_another_implementation(plan: str) -> None:
    buckets = torch.tensor([0, 4, 4]), torch.tensor([1, 3])
    signs = torch.tensor([1.0, -1.0, 1.0]), torch.tensor([-1.0, -1.0])
    pool = TensorSketch((3, 2), 5, bucket=buckets, sign=signs, plan=plan).double()
    x, z = descriptors(c=3), descriptors(c=2, seed=1)
    check_matches_matrix(pool, x, z)
    expected = bilinear(x, z) @ tensor_sketch_matrix(buckets, signs, 5).double().T
    torch.testing.assert_close(tensor_sketch(x, buckets, signs, 5, z, plan=plan), expected, rtol=1e-10, atol=1e-10)


def test_given_buckets_may_be_narrow_integers() -> None:
    pool = TensorSketch(3, 5, bucket=torch.tensor([[0, 4, 4], [1, 3, 0]], dtype=torch.int32))
    assert pool.bucket.dtype == torch.int64
    assert torch.equal(pool.sign, TensorSketch(3, 5).sign), "signs are drawn where they are not given"


@pytest.mark.parametrize("plan", ["gram", "fft"])
def test_only_the_signs_learn(plan: str) -> None:
    pool, x = TensorSketch(7, 16, learnable=True, plan=plan), descriptors().float()
    buckets = pool.bucket.clone()
    losses = []
    for _ in range(5):
        loss = (pool(x) - 1).square().mean()
        (slope,) = torch.autograd.grad(loss, pool.sign)
        with torch.no_grad():
            pool.sign -= 0.1 * slope / slope.abs().max()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert torch.equal(pool.bucket, buckets)


def test_both_plans_never_hold_a_number_for_each_location_and_bin() -> None:
    b, n, c, d = 2, 400, 64, 4096
    for plan in ("gram", "fft"):
        pool, x = TensorSketch(c, d, plan=plan), torch.randn(b, n, c, requires_grad=True)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            pool(x).sum().backward()
        held = peak = 0
        for event in profile.profiler.kineto_results.events():
            if event.name() == "[memory]":
                held += event.nbytes()
                peak = max(peak, held)
        assert 0 < peak < b * n * d * 4 / 2, plan


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"bucket": torch.tensor([[1, 5], [0, 0]])}, r"buckets in \[0, 5\) but got 1 … 5.\n.*pass `bucket - 1`"),
        ({"bucket": torch.tensor([[0.0, 1.0], [0.0, 0.0]])}, "integer buckets but got torch.float32"),
        ({"bucket": torch.tensor([[0, 1, 2], [0, 0, 0]])}, "bucket as two rows of lengths 2 and 2"),
        ({"bucket": [[0, 1], [0, 0]]}, r"bucket as a tensor, or two of them, but got list.\nPass `torch.as_tensor\(bucket\)`"),
        ({"bucket": 3}, "bucket as a tensor, or two of them, but got int"),
        ({"bucket": torch.ones(2, 2, dtype=torch.bool)}, "integer buckets but got torch.bool"),
        ({"sign": [[1.0, 1.0], [1.0, 1.0]]}, "sign as a tensor, or two of them, but got list"),
        ({"sign": torch.tensor([[1, -1], [1, 1]])}, "floating-point signs but got torch.int64"),
        ({"sign": torch.ones(3, 2)}, "sign as two rows"),
        ({"plan": "direct"}, 'the plans "auto", "gram" and "fft" but got \'direct\''),
    ],
)
def test_what_cannot_be_built(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TensorSketch(2, 5, **arguments)  # type: ignore[arg-type]


def test_bad_hashes_at_the_function() -> None:
    x, sign = torch.zeros(1, 4, 3), torch.ones(2, 3)
    with pytest.raises(ValueError, match="bucket as two rows"):
        tensor_sketch(x, torch.zeros(3, 3, dtype=torch.long), sign, 5)
    with pytest.raises(ValueError, match="sign as two rows"):
        tensor_sketch(x, torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 2), 5)
    with pytest.raises(ValueError, match="output dimension d ≥ 1"):
        tensor_sketch(x, torch.zeros(2, 3, dtype=torch.long), sign, 0)


def test_narrow_buckets_at_the_function() -> None:
    x, bucket, sign = descriptors(c=3), torch.tensor([[0, 4, 4], [1, 3, 0]]), torch.ones(2, 3, dtype=torch.float64)
    for plan in PLANS:
        expected = tensor_sketch(x, bucket, sign, 5, plan=plan)
        for dtype in (torch.uint8, torch.int8, torch.int32):
            assert torch.equal(tensor_sketch(x, bucket.to(dtype), sign, 5, plan=plan), expected)
            assert torch.equal(tensor_sketch_matrix(bucket.to(dtype), sign, 5), tensor_sketch_matrix(bucket, sign, 5))


def test_weights_of_a_larger_layer_are_refused() -> None:
    with pytest.raises(ValueError, match=r"TensorSketch of d=8 takes buckets in \[0, 8\) but was given weights with 1\d"):
        TensorSketch(20, 8).load_state_dict(TensorSketch(20, 16).state_dict())


def test_what_is_drawn_is_where_the_rest_was_given() -> None:
    with torch.device("meta"):
        pool = TensorSketch(6, 8, sign=torch.ones(2, 6))
    assert {each.device.type for each in pool.state_dict().values()} == {"meta"}
