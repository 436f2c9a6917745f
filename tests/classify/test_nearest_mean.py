"""The nearest class mean: scikit-learn's contract, the definition, and what only this classifier does."""

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from compact_bilinear.classify import NearestMean


@pytest.fixture
def images() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 5, 83)
    # lengths say nothing here, and mislead whoever listens to them
    return (draw.standard_normal((83, 17)) + 2 * np.eye(5, 17)[labels]) * draw.exponential(3, (83, 1)), labels


@parametrize_with_checks([NearestMean()])
def test_scikit_learns_contract(estimator: NearestMean, check: object) -> None:
    check(estimator)  # type: ignore[operator]


def test_the_definition(images: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = images
    scores = NearestMean().fit(x, y).decision_function(x)
    for i in range(len(x)):
        for label in range(5):
            mean = sum(each / np.sqrt(each @ each) for each in x[y == label])
            assert scores[i, label] == pytest.approx(x[i] @ mean / np.sqrt((x[i] @ x[i]) * (mean @ mean)), abs=1e-12)
    names = np.array(["wren", "crow", "owl", "Zaunkönig", "jay"])
    named = NearestMean().fit(x, names[y])
    assert named.classes_.tolist() == sorted(names)
    # another order of classes is another order of columns, and nothing else
    assert np.array_equal(named.predict(x), names[scores.argmax(1)])


def test_lengths_make_no_difference(images: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = images
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    one, other = NearestMean().fit(x, y), NearestMean().fit(units, y)
    assert np.allclose(one.decision_function(x), other.decision_function(units), atol=1e-12)
    summed = np.stack([x[y == label].sum(0) for label in range(5)])  # means of images that are not normalised
    summed /= np.linalg.norm(summed, axis=1, keepdims=True)
    assert not np.allclose(summed, one.means_, atol=0.01)


def test_two_classes_have_one_score(images: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = images[0], images[1] > 2
    fitted = NearestMean().fit(x, y)
    cosines = (x / np.linalg.norm(x, axis=1, keepdims=True)) @ fitted.means_.T
    assert np.allclose(fitted.decision_function(x), cosines[:, 1] - cosines[:, 0])
    assert np.array_equal(fitted.predict(x), cosines[:, 1] > cosines[:, 0])


@pytest.mark.parametrize(("given", "kept"), [("float16", "float64"), ("float32", "float32"), ("int64", "float64")])
def test_precision(given: str, kept: str) -> None:
    x = np.array([[3, 4], [1, 0], [0, 2]], given)
    assert NearestMean().fit(x, [0, 1, 2]).decision_function(x).dtype == kept


def test_an_image_of_zeros_is_like_none() -> None:
    fitted = NearestMean().fit([[1.0, 0], [0, 1], [0, 0]], [0, 1, 2])
    assert fitted.means_.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert fitted.decision_function([[0.0, 0]]).tolist() == [[0, 0, 0]]


def test_one_image_of_each_class_without_a_warning() -> None:
    assert NearestMean().fit(np.eye(40), range(40)).predict(np.eye(40)).tolist() == list(range(40))


def test_in_a_pipeline(images: tuple[np.ndarray, np.ndarray]) -> None:
    assert cross_val_score(make_pipeline(StandardScaler(with_mean=False), NearestMean()), *images, cv=3).mean() > 0.6


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at least two, but got one class, crow.\nGive images of another class"):
        NearestMean().fit([[1.0], [2.0]], ["crow", "crow"])


def test_it_has_no_probabilities() -> None:
    assert not hasattr(NearestMean(), "predict_proba")
