"""PCA-bilinear pooling against its definition, and its fit against scikit-learn's PCA."""

import copy
import pickle
import sys

import pytest
import torch
from sklearn.decomposition import PCA
from torch import Tensor, nn

import promises
from compact_bilinear.pooling.pca_bilinear import PCABilinear, pca_bilinear
from contract import descriptors


def samples(m: int = 60, c: int = 7, seed: int = 5) -> Tensor:
    """Descriptors (m, c) far from zero, whose principal components are well apart."""
    draw = torch.Generator().manual_seed(seed)
    mixing = torch.randn(c, c, generator=draw, dtype=torch.float64) * torch.linspace(3, 0.3, c, dtype=torch.float64)
    return torch.randn(m, c, generator=draw, dtype=torch.float64) @ mixing.T + 10


def fitted(learnable: bool = True) -> PCABilinear:
    return PCABilinear(7, 9, learnable).double().fit(samples())


def definition(x: Tensor, projection: Tensor, bias: Tensor, weights: Tensor | None = None) -> Tensor:
    """Σ a p pᵀ of tokens, one image and one location at a time."""
    b, n, _ = x.shape
    weights = x.new_ones(b, n) if weights is None else weights
    images = []
    for i in range(b):
        short = [projection @ x[i, s] + bias for s in range(n)]
        images.append(sum(weights[i, s] * torch.outer(p, p) for s, p in enumerate(short)).flatten())
    return torch.stack(images)


# --- the definition ---


@pytest.mark.parametrize(("n", "c", "k"), [(1, 7, 1), (5, 7, 3), (13, 7, 7), (4, 1, 1)])
def test_is_full_bilinear_pooling_of_projected_descriptors(n: int, c: int, k: int) -> None:
    x, weights = descriptors(n=n, c=c), descriptors(n=n, c=1, seed=1)[..., 0]
    projection, bias = descriptors(1, k, c, seed=2)[0], descriptors(1, 1, k, seed=3)[0, 0]
    layer = PCABilinear(c, k * k, projection=projection, bias=bias)
    assert layer.dim == k * k
    for a in (None, weights):
        expected = definition(x, projection, bias, a)
        torch.testing.assert_close(pca_bilinear(x, projection, bias, weights=a), expected, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(layer(x, weights=a), expected, rtol=1e-10, atol=1e-10)


def test_is_a_sum_over_locations() -> None:
    pool, x, y = fitted(), descriptors(seed=1), descriptors(n=4, seed=2)
    assert pool.additive
    torch.testing.assert_close(pool(torch.cat([x, y], dim=1)), pool(x) + pool(y), rtol=1e-10, atol=1e-10)


# --- the fit ---


@pytest.mark.parametrize("k", [1, 3, 7])
def test_fit_is_that_of_scikit_learn(k: int) -> None:
    pool, reference = PCABilinear(7, k * k).double().fit(samples()), PCA(k).fit(samples().numpy())
    components, mean = torch.from_numpy(reference.components_), torch.from_numpy(reference.mean_)
    same_or_opposite = (pool.projection * components).sum(1)
    torch.testing.assert_close(same_or_opposite.abs(), torch.ones(k, dtype=torch.float64), rtol=1e-10, atol=1e-10)
    projection = components * same_or_opposite.sign().unsqueeze(1)
    torch.testing.assert_close(pool.projection.data, projection, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(pool.bias.data, -projection @ mean, rtol=1e-10, atol=1e-10)


def test_fit_centres_and_decorrelates() -> None:
    pool, x = fitted(), samples()
    covariance = pool(x[None]).reshape(3, 3) / len(x)  # of the projected descriptors, if their mean is zero
    short = x @ pool.projection.T + pool.bias
    torch.testing.assert_close(short.mean(0), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-10)
    torch.testing.assert_close(covariance, covariance.diag().diag(), rtol=0, atol=1e-10)
    assert (covariance.diag().diff() < 0).all()


def test_fit_turns_each_component_the_same_way() -> None:
    for seed in range(10):
        projection = PCABilinear(7, 49).fit(samples(seed=seed)).projection
        assert (projection.gather(1, projection.abs().argmax(1, keepdim=True)) > 0).all()


def test_fit_takes_rows_maps_and_tokens() -> None:
    expected = fitted()
    tokens = samples().reshape(3, 20, 7)
    for given in (tokens, tokens.mT.reshape(3, 7, 4, 5), samples().requires_grad_()):
        pool = PCABilinear(7, 9).double()
        assert pool.fit(given) is pool
        torch.testing.assert_close(pool.projection, expected.projection, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(pool.bias, expected.bias, rtol=1e-10, atol=1e-10)


def test_fit_adds_up_blocks_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fitted()
    # by name: the package offers the function pca_bilinear where the module of that name would be looked up
    monkeypatch.setattr(sys.modules["compact_bilinear.pooling.pca_bilinear"], "ROWS", 17)
    torch.testing.assert_close(fitted().projection, expected.projection, rtol=1e-10, atol=1e-10)


def test_fit_is_in_float64_whatever_comes() -> None:
    x = (samples() + 1000).float()  # in float32 the covariance would keep about two digits
    wide, narrow = PCABilinear(7, 9).fit(x.double()), PCABilinear(7, 9).fit(x)
    assert torch.equal(narrow.projection, wide.projection)
    assert narrow.projection.dtype == torch.float32
    assert PCABilinear(7, 9).fit(samples().half()).projection.isfinite().all()


def test_fit_takes_as_many_descriptors_as_components() -> None:
    assert PCABilinear(7, 9).fit(samples(3)).projection.isfinite().all()
    with pytest.raises(ValueError, match=r"fit takes at least k=3 descriptors, one a component, but got 2.\n.*dim=4\)"):
        PCABilinear(7, 9).fit(samples(2))


def test_fit_refuses_what_it_cannot_use() -> None:
    pool, broken = PCABilinear(7, 9), samples()
    broken[3, 2] = torch.nan
    with pytest.raises(ValueError, match=r"PCABilinear\.fit takes finite descriptors but 1 of 60 hold NaN"):
        pool.fit(broken)
    with pytest.raises(ValueError, match=r"PCABilinear\.fit takes descriptors as rows \(m, c=7\), .* but got \(60, 6\)"):
        pool.fit(samples(c=6))
    assert not pool.fitted


# --- what is learned, saved and loaded ---


def test_learnable_or_not() -> None:
    assert sorted(name for name, _ in fitted().named_parameters()) == ["bias", "projection"]
    assert not list(fitted(learnable=False).parameters())
    assert sorted(name for name, _ in fitted(learnable=False).named_buffers()) == ["bias", "projection"]
    x = descriptors()
    assert torch.equal(fitted()(x), fitted(learnable=False)(x))


def test_a_step_of_training_moves_the_projection() -> None:
    pool = fitted()
    before = copy.deepcopy(pool.state_dict())
    pool(descriptors()).square().sum().backward()
    torch.optim.SGD(pool.parameters(), lr=0.1).step()
    assert all((pool.state_dict()[name] != value).all() for name, value in before.items())


@pytest.mark.parametrize("learnable", [False, True])
def test_an_unfitted_layer_says_what_to_do(learnable: bool) -> None:
    pool = PCABilinear(7, 9, learnable)
    with pytest.raises(ValueError, match=r"PCABilinear projects .* but has not been fitted.\nCall `.fit\(descriptors\)`"):
        pool(torch.zeros(2, 7, 3, 3))
    pool.load_state_dict(PCABilinear(7, 9, learnable).state_dict())
    with pytest.raises(ValueError, match="has not been fitted"):
        pool(torch.zeros(2, 7, 3, 3))


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("learnable", [False, True])
def test_a_fit_comes_back_from_a_state_dict(learnable: bool, assign: bool) -> None:
    saved, x = fitted(learnable), descriptors()
    with torch.device("meta" if assign else "cpu"):
        fresh = nn.Sequential(PCABilinear(7, 9, learnable).double())
    fresh.load_state_dict({f"0.{name}": value for name, value in saved.state_dict().items()}, assign=assign)
    assert torch.equal(fresh(x), saved(x))
    fresh.load_state_dict(nn.Sequential(PCABilinear(7, 9, learnable).double()).state_dict())
    with pytest.raises(ValueError, match="has not been fitted"):
        fresh(x)


def test_copies_keep_the_fit() -> None:
    pool, x = fitted(), descriptors()
    for twin in (copy.deepcopy(pool), pickle.loads(pickle.dumps(pool))):
        assert torch.equal(twin(x), pool(x))
        twin.load_state_dict(PCABilinear(7, 9).state_dict())
        assert not twin.fitted
    assert pool.fitted, "a copy told its original that it was emptied"


def test_given_projections_are_copied() -> None:
    projection, bias = torch.eye(3, 7), torch.zeros(3)
    pool = PCABilinear(7, 9, projection=projection, bias=bias)
    pool.fit(samples())
    assert torch.equal(projection, torch.eye(3, 7))
    assert not torch.equal(pool.projection, projection)


# --- every layer's promises ---


def test_layouts() -> None:
    promises.check_layouts(fitted())


def test_images_do_not_see_each_other() -> None:
    promises.check_images_do_not_see_each_other(fitted())
    promises.check_no_images(fitted())
    promises.check_zeros(fitted())


def test_precision() -> None:
    promises.check_precision(fitted())


def test_float32_is_as_accurate_as_its_definition_in_float32() -> None:
    pool, x = fitted(), samples(300).reshape(3, 100, 7)
    truth = pool(x)
    narrow = pool.float()
    worst = (definition(x.float(), narrow.projection, narrow.bias) - truth).abs().max()
    assert 0 < (narrow(x.float()) - truth).abs().max() <= 2 * worst


def test_gradients() -> None:
    x, weights = descriptors(2, 4, 3), descriptors(2, 4, 1)[..., 0]
    projection, bias = descriptors(1, 2, 3, seed=2)[0], descriptors(1, 1, 2, seed=3)[0, 0]
    promises.check_gradients(pca_bilinear, x, projection, bias)
    promises.check_gradients(lambda x, p, b, a: pca_bilinear(x, p, b, weights=a), x, projection, bias, weights)


def test_torch_func() -> None:
    promises.check_transforms(fitted())


@pytest.mark.parametrize("learnable", [False, True])
def test_compiles_and_exports(learnable: bool) -> None:
    promises.check_compiles(fitted(learnable))
    promises.check_exports(fitted(learnable))


# --- what it refuses ---


@pytest.mark.parametrize(
    ("channels", "dim", "remedy"),
    [
        (512, 8192, r"dim=8100 \(k=90\) or dim=8281 \(k=91\)"),
        (8, 2, r"dim=1 \(k=1\) or dim=4 \(k=2\)"),
        (8, 65, r"dim=64 \(k=8\)\.$"),
        (8, 81, r"dim=64 \(k=8\)\.$"),
        (8, 10_000, r"dim=64 \(k=8\)\.$"),
    ],
)
def test_dim_must_be_the_square_of_few_enough_components(channels: int, dim: int, remedy: str) -> None:
    with pytest.raises(ValueError, match=rf"takes dim = k².* k ≤ c={channels}, but got dim={dim}.\nWrite {remedy}"):
        PCABilinear(channels, dim)


def test_arguments_are_checked() -> None:
    eye, zeros = torch.eye(3, 7), torch.zeros(3)
    with pytest.raises(ValueError, match="PCABilinear takes channels as a positive integer"):
        PCABilinear((7, 7), 9)
    with pytest.raises(ValueError, match=r"takes an output dimension d ≥ 1, an integer, but got 9\.0"):
        PCABilinear(7, 9.0)
    for given in ({"projection": eye}, {"bias": zeros}):
        with pytest.raises(
            ValueError, match=r"takes projection and bias together, but got one of them.\nPass bias=-projection"
        ):
            PCABilinear(7, 9, **given)
    with pytest.raises(
        ValueError, match=r"takes a projection \(3, 7\) and a bias \(3,\), but got \(7, 3\) and \(3,\).\nThe comp"
    ):
        PCABilinear(7, 9, projection=eye.T, bias=zeros)
    with pytest.raises(
        ValueError, match=r"pca_bilinear takes a projection \(k, c\) and a bias \(k,\), but got \(3, 7\) and \(7,\)"
    ):
        pca_bilinear(torch.zeros(2, 5, 7), eye, torch.zeros(7))
    with pytest.raises(ValueError, match=r"takes a floating-point projection and bias, but got torch.int64 and torch.float32"):
        pca_bilinear(torch.zeros(2, 5, 7), eye.long(), zeros)
    with pytest.raises(ValueError, match=r"pca_bilinear takes a feature map \(b, c=7, h, w\)"):
        pca_bilinear(torch.zeros(2, 5, 6), eye, zeros)
    assert repr(PCABilinear(7, 9)) == "PCABilinear(channels=7, dim=9, learnable=True, fitted=False)"
