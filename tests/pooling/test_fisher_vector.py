"""Fisher vectors against their definition in loops, posteriors and fits against scikit-learn."""

import copy
import pickle
import sys
from math import exp, log, pi, sqrt

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn

import promises
from compact_bilinear import signed_sqrt_l2
from compact_bilinear.pooling.fisher_vector import FisherVector, fisher_vector
from contract import descriptors

Mixture = tuple[Tensor, Tensor, Tensor]


def some_mixture(k: int = 4, c: int = 7, seed: int = 3) -> Mixture:
    """Weights, means and variances in float64; Gaussians overlap, so that no posterior is 0 or 1."""
    draw = torch.Generator().manual_seed(seed)
    mixture = torch.rand(k, generator=draw, dtype=torch.float64) + 0.2
    means = torch.randn(k, c, generator=draw, dtype=torch.float64)
    variances = torch.rand(k, c, generator=draw, dtype=torch.float64) + 0.5
    return mixture / mixture.sum(), means, variances


def clusters(m: int = 200, c: int = 7, seed: int = 5) -> Tensor:
    """Descriptors (m, c) in three heaps."""
    draw = torch.Generator().manual_seed(seed)
    heap = torch.randint(3, (m, 1), generator=draw)
    return torch.randn(m, c, generator=draw, dtype=torch.float64) * (1 + heap) + 4 * heap


def fitted() -> FisherVector:
    pool = FisherVector(7, components=4).double()
    pool.load_state_dict(dict(zip(("mixture", "means", "variances"), some_mixture(), strict=True)))
    return pool


def definition(x: Tensor, mixture: Tensor, means: Tensor, variances: Tensor, weights: Tensor | None = None) -> Tensor:
    """The two formulas of tokens with floats in loops: one image, one Gaussian, one channel, one location after the other."""
    b, n, c = x.shape
    k = len(mixture)
    a = (x.new_ones(b, n) if weights is None else weights).tolist()
    xs, p, mu, var = x.tolist(), mixture.tolist(), means.tolist(), variances.tolist()
    features = []
    for i in range(b):
        gamma = []
        for s in range(n):
            density = [
                p[j] * exp(-sum(log(2 * pi * var[j][q]) + (xs[i][s][q] - mu[j][q]) ** 2 / var[j][q] for q in range(c)) / 2)
                for j in range(k)
            ]
            gamma.append([each / sum(density) for each in density])
        z = [[[(xs[i][s][q] - mu[j][q]) / sqrt(var[j][q]) for q in range(c)] for s in range(n)] for j in range(k)]
        total = sum(a[i])
        u, v = [], []
        for j in range(k):
            for q in range(c):
                u.append(sum(a[i][s] * gamma[s][j] * z[j][s][q] for s in range(n)) / (total * sqrt(p[j])))
                v.append(sum(a[i][s] * gamma[s][j] * (z[j][s][q] ** 2 - 1) for s in range(n)) / (total * sqrt(2 * p[j])))
        features.append(u + v)
    return torch.tensor(features, dtype=torch.float64)


# --- the definition ---


@pytest.mark.parametrize(("n", "c", "k"), [(1, 7, 4), (5, 7, 4), (13, 3, 1), (4, 1, 5)])
def test_is_its_definition(n: int, c: int, k: int) -> None:
    x, weights, mixture = descriptors(n=n, c=c), descriptors(n=n, c=1, seed=1)[..., 0].abs(), some_mixture(k, c)
    for a in (None, weights):
        y = fisher_vector(x, *mixture, weights=a)
        assert y.shape == (3, 2 * k * c)
        torch.testing.assert_close(y, definition(x, *mixture, a), rtol=1e-10, atol=1e-10)


def test_posteriors_are_those_of_scikit_learn() -> None:
    pool = FisherVector(7, components=3).fit(clusters())
    mixture, means, variances = pool.mixture.double(), pool.means.double(), pool.variances.double()
    model = GaussianMixture(3, covariance_type="diag")
    model.weights_, model.means_, model.covariances_ = mixture.numpy(), means.numpy(), variances.numpy()
    model.precisions_cholesky_ = 1 / np.sqrt(model.covariances_)
    # between the heaps, so that the posteriors say something
    x = clusters(50, seed=6) * 0.5 + 2
    # the u of a single location is γ (x − μ) / (σ √π)
    u = pool.double()(x[:, None]).reshape(50, 2, 3, 7)[:, 0]
    gamma = u * (mixture.unsqueeze(1) * variances).sqrt() / (x.unsqueeze(1) - means)
    expected = torch.from_numpy(model.predict_proba(x.numpy())).unsqueeze(2).expand(50, 3, 7)
    torch.testing.assert_close(gamma, expected, rtol=1e-8, atol=1e-8)
    assert ((expected > 0.01) & (expected < 0.99)).sum() > 50


def test_is_zero_on_average_for_descriptors_of_the_mixture() -> None:
    mixture, means, variances = some_mixture()
    draw, m = torch.Generator().manual_seed(0), 20_000
    heap = torch.multinomial(mixture, m, replacement=True, generator=draw)
    x = means[heap] + variances[heap].sqrt() * torch.randn(m, 7, generator=draw, dtype=torch.float64)
    each = fisher_vector(x[:, None], mixture, means, variances)
    standard_error = each.std(0) / m**0.5
    assert (each.mean(0).abs() < 5 * standard_error).all()
    torch.testing.assert_close(fisher_vector(x[None], mixture, means, variances)[0], each.mean(0), rtol=1e-10, atol=1e-10)
    # scaled by the Fisher information of well separated Gaussians, which bounds that of these
    assert ((each.std(0) > 0.3) & (each.std(0) < 1.05)).all()


def test_a_mask_that_leaves_nothing_gives_zeros() -> None:
    x, weights = promises.feature_map().requires_grad_(), promises.positive_weights()
    weights[1] = 0
    weights.requires_grad_()
    y = fitted()(x, weights=weights)
    assert torch.equal(y[1], torch.zeros_like(y[1]))
    assert (y[0] != 0).all()
    for gradient in torch.autograd.grad(y.square().sum(), (x, weights)):
        assert gradient.isfinite().all()
    assert torch.equal(fitted()(torch.zeros(2, 0, 7)), torch.zeros(2, 56))


def test_what_follows_it_makes_it_the_improved_fisher_vector() -> None:
    y = definition(descriptors(), *some_mixture())
    root = y.sign() * y.abs().sqrt()
    improved = root / root.norm(dim=1, keepdim=True)
    torch.testing.assert_close(signed_sqrt_l2(fitted()(descriptors())), improved, rtol=1e-10, atol=1e-10)


# --- how it computes ---


@pytest.mark.parametrize("offset", [0, 3000])
def test_float32_is_as_accurate_far_from_zero_as_its_definition_in_float32(offset: float) -> None:
    mixture, means, variances = (each.float() for each in some_mixture())
    x, means = descriptors(3, 50, 7).float() + offset, means + offset
    truth = definition(x, mixture, means, variances)
    z = (x.unsqueeze(2) - means) / variances.sqrt()
    gamma = (mixture.log() - (variances.log() + z.square()).sum(-1) / 2).softmax(-1).unsqueeze(-1)
    u = (gamma * z).mean(1) / mixture.sqrt().unsqueeze(1)
    v = (gamma * (z.square() - 1)).mean(1) / (2 * mixture).sqrt().unsqueeze(1)
    directly = torch.stack([u, v], 1).flatten(1)
    ours, theirs = (fisher_vector(x, mixture, means, variances) - truth).abs().max(), (directly - truth).abs().max()
    # a few products of sums more than the definition has; without centring the error at 3000 is above 1
    assert 0 < ours <= 4 * theirs
    assert theirs < 1e-5


def test_never_holds_every_descriptor_for_every_gaussian() -> None:
    b, n, k, c = 2, 50, 20, 30
    with promises.Largest() as largest:
        fisher_vector(descriptors(b, n, c).requires_grad_(), *some_mixture(k, c)).square().sum().backward()
    assert b * n * c <= largest.numbers <= b * max(n * c, n * k, 2 * k * c)


# --- the fit ---


def test_fit_is_that_of_scikit_learn() -> None:
    pool = FisherVector(7, components=3).fit(clusters(), seed=11)
    model = GaussianMixture(3, covariance_type="diag", reg_covar=1e-4, random_state=11).fit(clusters().numpy())
    for buffer, expected in ((pool.mixture, model.weights_), (pool.means, model.means_), (pool.variances, model.covariances_)):
        assert buffer.dtype == torch.float32
        torch.testing.assert_close(buffer, torch.from_numpy(expected).float())
    assert pool.dim == 2 * 3 * 7


def test_fit_takes_rows_maps_and_tokens() -> None:
    expected = FisherVector(7, components=3).fit(clusters()).state_dict()
    tokens = clusters().reshape(5, 40, 7)
    for given in (tokens, tokens.mT.reshape(5, 7, 8, 5), clusters().requires_grad_()):
        pool = FisherVector(7, components=3)
        assert pool.fit(given) is pool
        for name, value in pool.state_dict().items():
            torch.testing.assert_close(value, expected[name])
    assert FisherVector(7, components=3).fit(clusters().half()).means.isfinite().all()


def test_a_channel_that_does_not_vary_keeps_a_variance() -> None:
    x = clusters()
    x[:, 2] = 0
    pool = FisherVector(7, components=3).fit(x)
    torch.testing.assert_close(pool.variances[:, 2], torch.full((3,), 1e-4))
    assert pool(x[None].float()).isfinite().all()


def test_fit_is_reproducible_and_leaves_global_generators_alone() -> None:
    # numpy's legacy global generator is what scikit-learn would touch
    before, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, second, other = (FisherVector(7, components=5).fit(clusters(60), seed=seed).means for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == before_numpy).all()  # noqa: NPY002
    assert torch.equal(first, second)
    assert not torch.allclose(first, other)


def test_fit_takes_at_most_so_many_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = GaussianMixture.fit
    monkeypatch.setattr(GaussianMixture, "fit", lambda self, rows: [seen.append(rows), original(self, rows)][1])
    # by name: the package offers the function fisher_vector where the module of that name would be looked up
    module = sys.modules["compact_bilinear.pooling.fisher_vector"]
    assert module.LIMIT == 500_000
    monkeypatch.setattr(module, "LIMIT", 100)
    x = clusters()
    before = torch.get_rng_state()
    for seed in (1, 1, 2):
        FisherVector(7, components=2).fit(x, seed=seed)
    assert torch.equal(torch.get_rng_state(), before)
    every = {tuple(row) for row in x.tolist()}
    for rows in seen:
        assert len({tuple(row) for row in rows.tolist()} & every) == len(rows) == 100
    assert np.array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], seen[2])


def test_fit_refuses_what_it_cannot_use() -> None:
    pool, broken = FisherVector(7, components=3), clusters()
    broken[3, 2] = torch.inf
    with pytest.raises(ValueError, match=r"FisherVector\.fit takes finite descriptors but 1 of 200 hold NaN"):
        pool.fit(broken)
    with pytest.raises(
        ValueError, match=r"FisherVector.fit takes at least 3 descriptors to fit k=3 Gaussians, but got 2.\nPass"
    ):
        pool.fit(clusters(2))
    with pytest.raises(ValueError, match=r"FisherVector.fit takes at least 2 descriptors to fit k=1 Gaussians, but got 1"):
        FisherVector(7, components=1).fit(clusters(1))
    with pytest.raises(ValueError, match=r"FisherVector\.fit takes descriptors as rows \(m, c=7\), .* but got \(200, 6\)"):
        pool.fit(clusters(c=6))
    assert not pool.fitted


def test_fit_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.mixture", None)
    with pytest.raises(
        ImportError, match=r"takes scikit-learn to fit its mixture.*\nWrite `pip install 'compact-bilinear\[fit\]'`"
    ):
        FisherVector(7, components=3).fit(clusters())


# --- what is saved and loaded ---


def test_an_unfitted_layer_says_what_to_do() -> None:
    pool = FisherVector(7, components=3)
    with pytest.raises(ValueError, match=r"FisherVector encodes .* but has not been fitted.\nCall `.fit\(descriptors\)`"):
        pool(torch.zeros(2, 7, 3, 3))
    pool.load_state_dict(FisherVector(7, components=3).state_dict())
    with pytest.raises(ValueError, match="has not been fitted"):
        pool(torch.zeros(2, 7, 3, 3))


@pytest.mark.parametrize("assign", [False, True])
def test_a_fit_comes_back_from_a_state_dict(assign: bool) -> None:
    saved, x = FisherVector(7, components=3).fit(clusters()), descriptors()
    with torch.device("meta" if assign else "cpu"):
        fresh = nn.Sequential(FisherVector(7, components=3))
    fresh.load_state_dict({f"0.{name}": value for name, value in saved.state_dict().items()}, assign=assign)
    assert torch.equal(fresh(x), saved(x))
    assert not list(saved.parameters())
    assert sorted(saved.state_dict()) == ["means", "mixture", "variances"]


def test_copies_keep_the_fit() -> None:
    pool, x = fitted(), descriptors()
    for twin in (copy.deepcopy(pool), pickle.loads(pickle.dumps(pool))):
        assert torch.equal(twin(x), pool(x))
        twin.load_state_dict(FisherVector(7, components=4).state_dict())
        assert not twin.fitted
    assert pool.fitted, "a copy told its original that it was emptied"


# --- every layer's promises ---


def test_layouts() -> None:
    promises.check_layouts(fitted())


def test_images_do_not_see_each_other() -> None:
    promises.check_images_do_not_see_each_other(fitted())
    promises.check_no_images(fitted())
    promises.check_zeros(fitted())


def test_precision() -> None:
    promises.check_precision(fitted())


def test_gradients() -> None:
    x, weights, mixture = descriptors(2, 3, 2), promises.positive_weights(2, 3, 1).flatten(1), some_mixture(3, 2)
    promises.check_gradients(lambda x: fisher_vector(x, *mixture), x)
    promises.check_gradients(lambda x, a, *mixture: fisher_vector(x, *mixture, weights=a), x, weights, *mixture)


def test_torch_func() -> None:
    promises.check_transforms(fitted())


def test_compiles_and_exports() -> None:
    promises.check_compiles(fitted())
    promises.check_exports(fitted())


# --- what it refuses ---


def test_arguments_are_checked() -> None:
    mixture, means, variances = some_mixture()
    x = descriptors()
    with pytest.raises(ValueError, match="FisherVector takes channels as a positive integer"):
        FisherVector((7, 7))
    for components in (0, 1.5, True):
        with pytest.raises(
            ValueError, match=rf"takes components ≥ 1, .* but got {components}.\nWrite FisherVector\(7, components=64\)"
        ):
            FisherVector(7, components)
    with pytest.raises(
        ValueError, match=r"takes a mixture \(k,\), .* but got \(4,\), \(7, 4\) and \(4, 7\).\nPass scikit-learn's"
    ):
        fisher_vector(x, mixture, means.T, variances)
    with pytest.raises(ValueError, match=r"but got \(4,\), \(4, 7\) and \(4, 7, 7\)"):
        fisher_vector(x, mixture, means, variances.diag_embed())
    with pytest.raises(ValueError, match=r"takes a floating-point mixture, .* torch.int64 and torch.float64.\nPass each as"):
        fisher_vector(x, mixture, means.long(), variances)
    with pytest.raises(ValueError, match=r"fisher_vector takes a feature map \(b, c=7, h, w\)"):
        fisher_vector(descriptors(c=6), mixture, means, variances)
    assert repr(FisherVector(7)) == "FisherVector(channels=7, components=64, dim=896, fitted=False)"
