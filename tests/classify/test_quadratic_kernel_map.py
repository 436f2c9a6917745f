"""The quadratic kernel for scikit-learn: its contract, the layers it is made of, and how near it comes to the exact kernel."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import polynomial_kernel
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from compact_bilinear import RandomMaclaurin, TensorSketch
from compact_bilinear.classify import QuadraticKernelMap

METHODS = {"tensor-sketch": TensorSketch, "random-maclaurin": RandomMaclaurin}


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((9, 13))


@parametrize_with_checks([QuadraticKernelMap(dim=23), QuadraticKernelMap(dim=23, method="random-maclaurin")])
def test_scikit_learns_contract(estimator: QuadraticKernelMap, check: object) -> None:
    check(estimator)  # type: ignore[operator]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dim", [1, 7, 64])
def test_it_is_the_layer_at_one_location(rows: np.ndarray, method: str, dim: int) -> None:
    mapped = QuadraticKernelMap(dim, method, seed=5).fit_transform(rows)
    layer = METHODS[method](13, dim, seed=5).double()
    assert mapped.shape == (9, dim)
    # the definition, in float64: exact algebra
    outer = torch.from_numpy(rows)[:, :, None] * torch.from_numpy(rows)[:, None, :]
    expected = outer.flatten(1) @ layer.matrix().T
    assert np.allclose(mapped, expected.numpy(), rtol=0, atol=1e-10)


def kernels(make: object, rows: np.ndarray, repeats: int = 400) -> np.ndarray:
    """Estimates of the kernel matrix from so many seeds, (repeats, m, m)."""
    maps = [make(seed).fit_transform(rows) for seed in range(repeats)]  # type: ignore[operator]
    return np.stack([each @ each.T for each in maps])


@pytest.mark.parametrize("method", METHODS)
def test_unbiased_and_no_worse_than_scikit_learns(rows: np.ndarray, method: str) -> None:
    exact = polynomial_kernel(rows, degree=2, gamma=1, coef0=0)
    ours = kernels(lambda seed: QuadraticKernelMap(64, method, seed), rows)
    error = (ours.mean(0) - exact) / (ours.std(0, ddof=1) / np.sqrt(len(ours)))
    # 45 means of 400: beyond 4.5 standard errors is one in thousands
    assert np.abs(error).max() < 4.5
    theirs = kernels(
        lambda seed: PolynomialCountSketch(gamma=1, degree=2, coef0=0, n_components=64, random_state=seed), rows, repeats=100
    )
    # both are estimates of variance O(1/d); Random Maclaurin's is at most about twice that of a Tensor Sketch here
    assert np.median(ours.var(0)) < 2.5 * np.median(theirs.var(0))


def test_a_biased_map_would_be_noticed(rows: np.ndarray) -> None:
    class Equal(QuadraticKernelMap):
        """The same hashes twice: squares of a count sketch, whose kernel is another."""

        def fit(self, X: np.ndarray, y: None = None) -> "Equal":
            super().fit(X)
            self.layer_ = TensorSketch(X.shape[1], self.dim, bucket=self.layer_.bucket[[0, 0]], sign=self.layer_.sign[[0, 0]])
            return self

    exact = polynomial_kernel(rows, degree=2, gamma=1, coef0=0)
    wrong = kernels(lambda seed: Equal(64, seed=seed), rows)
    error = (wrong.mean(0) - exact) / (wrong.std(0, ddof=1) / np.sqrt(len(wrong)))
    assert np.abs(error).max() > 9


@pytest.mark.parametrize("method", METHODS)
def test_precision_is_kept(rows: np.ndarray, method: str) -> None:
    fitted = QuadraticKernelMap(16, method).fit(rows)
    for given, kept in (("float64", "float64"), ("float32", "float32"), ("float16", "float64"), ("int64", "float64")):
        assert fitted.transform(rows.astype(given)).dtype == kept
    # 13 products of numbers around 3 in float32
    assert np.allclose(fitted.transform(rows.astype("float32")), fitted.transform(rows), atol=1e-4)


def test_seeds_decide_and_nothing_global_does(rows: np.ndarray) -> None:
    np.random.seed(3)  # noqa: NPY002  # what must not matter, and not be touched
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = QuadraticKernelMap(32).fit_transform(rows)
    torch.manual_seed(9)
    assert np.array_equal(clone(QuadraticKernelMap(32).fit(rows)).fit_transform(rows), first)
    assert not np.allclose(QuadraticKernelMap(32, seed=1).fit_transform(rows), first)
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


def test_a_linear_model_after_it_is_a_quadratic_one() -> None:
    draw = np.random.default_rng(2)
    rows = draw.standard_normal((300, 6))
    inside = (rows**2).sum(1) < 5.3  # a ball, which no plane tells from the rest
    plain = LogisticRegression().fit(rows, inside)
    quadratic = make_pipeline(QuadraticKernelMap(dim=512), LogisticRegression(C=100)).fit(rows, inside)
    assert plain.score(rows, inside) < 0.7
    assert quadratic.score(rows, inside) > 0.95


def test_names_of_features(rows: np.ndarray) -> None:
    fitted = QuadraticKernelMap(dim=3).fit(rows)
    assert fitted.get_feature_names_out().tolist() == [f"quadratickernelmap{j}" for j in range(3)]
    assert fitted.set_output(transform="default").transform(rows).shape == (9, 3)


def test_what_cannot_be_meant_is_refused(rows: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"no method 'fisher'.\nWrite one of tensor-sketch, random-maclaurin"):
        QuadraticKernelMap(method="fisher").fit(rows)
    with pytest.raises(ValueError, match=r"(?s)TensorSketch.*0"):
        QuadraticKernelMap(dim=0).fit(rows)
