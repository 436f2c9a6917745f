"""Average pooling against its definition in loops."""

import pytest
import torch
from torch import Tensor

import promises
from compact_bilinear.pooling.average_pool import AveragePool, average_pool


def definition(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """Σ a x / Σ a of tokens, one image and one channel at a time."""
    b, n, c = x.shape
    weights = x.new_ones(b, n) if weights is None else weights
    means = [
        sum(float(weights[i, s] * x[i, s, k]) for s in range(n)) / sum(float(weights[i, s]) for s in range(n))
        for i in range(b)
        for k in range(c)
    ]
    return torch.tensor(means, dtype=torch.float64).reshape(b, c)


@pytest.mark.parametrize(("n", "c"), [(1, 1), (1, 7), (5, 1), (13, 7)])
def test_is_the_mean_over_locations(n: int, c: int) -> None:
    x, weights = promises.feature_map(3, c, n, 1).flatten(2).mT, promises.positive_weights(3, n, 1).flatten(1)
    for pool in (average_pool, AveragePool(c)):
        torch.testing.assert_close(pool(x), definition(x), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(pool(x, weights=weights), definition(x, weights), rtol=1e-10, atol=1e-10)


def test_ignores_the_scale_of_weights() -> None:
    x, weights = promises.feature_map(), promises.positive_weights()
    torch.testing.assert_close(average_pool(x, weights=100 * weights), average_pool(x, weights=weights))
    torch.testing.assert_close(average_pool(x, weights=torch.full_like(weights, 3)), average_pool(x))


def test_a_mask_that_leaves_nothing_gives_zeros_and_no_gradient() -> None:
    x, weights = promises.feature_map().requires_grad_(), promises.positive_weights()
    weights[1] = 0
    weights.requires_grad_()
    y = average_pool(x, weights=weights)
    assert torch.equal(y[1], torch.zeros_like(y[1]))
    for gradient in torch.autograd.grad(y.square().sum() + y.sum(), (x, weights)):
        assert torch.equal(gradient[1], torch.zeros_like(gradient[1]))
        assert gradient.isfinite().all()
        assert (gradient[[0, 2]] != 0).all()


def test_no_locations_give_zeros() -> None:
    x = torch.zeros(2, 0, 7)
    assert torch.equal(average_pool(x), torch.zeros(2, 7))
    assert torch.equal(average_pool(x, weights=torch.zeros(2, 0)), torch.zeros(2, 7))


def test_channels_are_checked_where_they_are_given() -> None:
    assert AveragePool(7).dim == 7
    assert AveragePool().dim is None
    assert AveragePool()(torch.zeros(2, 5, 3, 3)).shape == (2, 5)
    with pytest.raises(
        ValueError, match=r"AveragePool takes a feature map \(b, c=7, h, w\) or tokens .* but x is \(2, 5, 3, 3\)"
    ):
        AveragePool(7)(torch.zeros(2, 5, 3, 3))
    for channels in (0, -1, 2.5, True):
        with pytest.raises(
            ValueError, match=r"AveragePool takes channels as a positive integer, but got .*\nWrite AveragePool"
        ):
            AveragePool(channels)
    assert repr(AveragePool(7)) == "AveragePool(channels=7)"


def test_inputs_are_checked() -> None:
    with pytest.raises(ValueError, match="average_pool takes a tensor but x is list"):
        average_pool([1.0])
    with pytest.raises(ValueError, match=r"AveragePool takes weights \(b, h, w\) = \(2, 3, 3\).* but got \(2, 9\)"):
        AveragePool()(torch.zeros(2, 5, 3, 3), weights=torch.ones(2, 9))


def test_layouts() -> None:
    promises.check_layouts(AveragePool(7))


def test_images_do_not_see_each_other() -> None:
    promises.check_images_do_not_see_each_other(AveragePool(7))
    promises.check_no_images(AveragePool(7))
    promises.check_zeros(AveragePool(7))


def test_precision() -> None:
    promises.check_precision(AveragePool(7))
    x, weights = promises.feature_map().half(), promises.positive_weights().half()
    assert average_pool(x, weights=weights).dtype == torch.float32
    assert average_pool(promises.feature_map()).dtype == torch.float64
    # 70 000 does not fit into float16
    assert torch.equal(average_pool(torch.full((1, 7, 1), 10_000.0, dtype=torch.float16)), torch.tensor([[10_000.0]]))


def test_gradients() -> None:
    x, weights = promises.feature_map(2, 3, 2, 2), promises.positive_weights(2, 2, 2)
    promises.check_gradients(average_pool, x)
    promises.check_gradients(lambda x, a: average_pool(x, weights=a), x, weights)


def test_torch_func() -> None:
    promises.check_transforms(AveragePool(7))


def test_compiles_and_exports() -> None:
    promises.check_compiles(AveragePool(7))
    promises.check_exports(AveragePool(7))
