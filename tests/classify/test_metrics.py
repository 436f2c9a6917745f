"""Metrics against scikit-learn's, by hand where the answer is plain, and on scores whose calibration is planted."""

import numpy as np
import pytest
from sklearn import metrics as theirs

from compact_bilinear.classify import metrics

M, K = 237, 11  # images, classes
SCORES = [metrics.error_rate, metrics.top_k_accuracy, metrics.per_class_accuracy, metrics.average_precision]
SCORES += [metrics.mean_average_precision, metrics.confusion_matrix, metrics.most_confused]
PROBABILITIES = [metrics.reliability, metrics.expected_calibration_error, metrics.negative_log_likelihood]


@pytest.fixture(params=["smooth", "tied", "float16"])
def scored(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(3)
    labels = draw.integers(0, K - 1, M)  # the last class has no images
    scores = draw.standard_normal((M, K)) + 1.5 * np.eye(K)[labels]
    if request.param == "tied":
        scores = np.round(scores)
    return scores.astype(np.float16 if request.param == "float16" else np.float64), labels


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def test_average_precision_is_scikit_learns(scored: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = scored
    expected = [theirs.average_precision_score(labels == label, scores[:, label]) for label in range(K - 1)]
    assert np.allclose(metrics.average_precision(scores, labels), [*expected, np.nan], rtol=1e-12, atol=0, equal_nan=True)
    assert metrics.mean_average_precision(scores, labels) == pytest.approx(np.mean(expected), rel=1e-12)


def test_errors_and_confusions_are_scikit_learns(scored: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = scored
    predicted = scores.argmax(1)
    assert metrics.error_rate(scores, labels) == pytest.approx(1 - theirs.accuracy_score(labels, predicted))
    matrix = theirs.confusion_matrix(labels, predicted, labels=range(K))
    assert np.array_equal(metrics.confusion_matrix(scores, labels), matrix)
    assert matrix.shape == (K, K)
    recall = theirs.recall_score(labels, predicted, labels=range(K - 1), average=None)
    assert np.allclose(metrics.per_class_accuracy(scores, labels), [*recall, np.nan], equal_nan=True)
    pairs = metrics.most_confused(scores, labels, limit=1000)
    assert sum(pair.images for pair in pairs) == (predicted != labels).sum()
    assert all(matrix[pair.true, pair.predicted] == pair.images > 0 for pair in pairs)
    assert [pair.images for pair in pairs] == sorted((pair.images for pair in pairs), reverse=True)
    assert metrics.most_confused(scores, labels, limit=3) == pairs[:3]


def test_top_k_accuracy_is_scikit_learns_without_ties() -> None:
    draw = np.random.default_rng(0)
    scores, labels = draw.standard_normal((M, K)), draw.integers(0, K, M)
    for top in (1, 2, 5, K - 1):
        expected = theirs.top_k_accuracy_score(labels, scores, k=top, labels=range(K))
        assert metrics.top_k_accuracy(scores, labels, top) == pytest.approx(expected)
    assert metrics.top_k_accuracy(scores, labels, K) == 1


def test_top_1_is_one_minus_the_error_with_ties_too(scored: tuple[np.ndarray, np.ndarray]) -> None:
    assert metrics.top_k_accuracy(*scored, top=1) == pytest.approx(1 - metrics.error_rate(*scored))
    assert metrics.top_k_accuracy(np.zeros((5, 4)), np.array([0, 1, 2, 3, 3]), top=2) == pytest.approx(2 / 5)


def test_average_precision_by_hand() -> None:
    # in order of their scores: ours, another's, ours, ours and another's with the same score
    scores = np.array([0.9, 0.8, 0.7, 0.5, 0.5])
    labels = np.array([0, 1, 0, 0, 1])
    by_hand = (1 / 1 + 2 / 3 + 3 / 5) / 3
    assert metrics.average_precision(np.stack([scores, -scores], 1), labels)[0] == pytest.approx(by_hand)


def test_log_loss_is_scikit_learns(scored: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = scored
    probabilities = softmax(scores.astype(np.float64))
    expected = theirs.log_loss(labels, probabilities, labels=range(K))
    for each in (probabilities, probabilities.astype(np.float32)):
        assert metrics.negative_log_likelihood(each, labels) == pytest.approx(expected, rel=1e-6)
    sure = np.eye(K)[(labels + 1) % K]
    assert metrics.negative_log_likelihood(sure, labels) == pytest.approx(-np.log(np.finfo(float).eps))


def test_reliability_by_hand() -> None:
    probabilities = np.array([[0.5, 0.5], [0.6, 0.4], [0.1, 0.9], [0.3, 0.7], [0.0, 1.0]])
    table = metrics.reliability(probabilities, np.array([0, 1, 1, 1, 0]), bins=4)
    assert np.allclose(table.lower, [0, 0.25, 0.5, 0.75])
    assert np.allclose(table.upper, [0.25, 0.5, 0.75, 1])
    assert table.images.tolist() == [0, 1, 2, 2], "a probability at an edge is in the bin that it ends"
    assert np.allclose(table.confidence, [np.nan, 0.5, 0.65, 0.95], equal_nan=True)
    assert np.allclose(table.accuracy, [np.nan, 1, 0.5, 0.5], equal_nan=True)
    expected = (1 * 0.5 + 2 * 0.15 + 2 * 0.45) / 5
    assert metrics.expected_calibration_error(probabilities, [0, 1, 1, 1, 0], bins=4) == pytest.approx(expected)


@pytest.mark.parametrize("sharper", [1, 3])
def test_planted_calibration(sharper: float) -> None:
    m = 20_000
    draw = np.random.default_rng(1)
    scores = 2 * draw.standard_normal((m, 5))
    truth = softmax(scores)
    labels = (truth.cumsum(1) < draw.random((m, 1))).sum(1)
    error = metrics.expected_calibration_error(softmax(sharper * scores), labels)
    said, right = softmax(sharper * scores).max(1).mean(), (scores.argmax(1) == labels).mean()
    if sharper == 1:
        # a bin of m/15 images has a standard error of at most 0.5/√(m/15), and the mean of 15 of them is below two of these
        assert error < 2 * 0.5 / np.sqrt(m / 15)
    else:
        assert error > 0.1
        # all bins but the lowest promise too much, so that hardly anything cancels
        assert error == pytest.approx(said - right, abs=0.01)


def test_ties_would_be_noticed() -> None:
    draw = np.random.default_rng(3)
    labels, scores = draw.integers(0, K, M), np.round(draw.standard_normal((M, K)))
    hopeful = []  # images with the same score come after, which is what a sort without care makes of some of them
    for label in range(K):
        own, column = scores[labels == label, label], scores[:, label]
        hopeful.append(np.mean([((own > each).sum() + 1) / ((column > each).sum() + 1) for each in own]))
    assert not np.allclose(metrics.average_precision(scores, labels), hopeful, rtol=0.01)


@pytest.mark.parametrize("metric", SCORES + PROBABILITIES)
@pytest.mark.parametrize(
    ("scores", "labels", "told"),
    [
        ([[0.5, 0.5]] * 3, [0, -1, -1], r"labels in 0 ... 1, but 2 of 3 are not, -1 for one.*\nLeave such images out"),
        ([[0.5, 0.5]] * 3, [0, 2, 1], r"labels in 0 ... 1, but 1 of 3 are not, 2 for one"),
        ([[0.5, 0.5]] * 3, [0, 1], r"got \(3, 2\) and \(2,\).\nGive each image a row"),
        ([0.5, 0.5], [0, 1], r"got \(2,\) and \(2,\).\n.*of two classes give both columns"),
        (np.empty((0, 2)), np.empty(0, int), r"m ≥ 1 images"),
        ([[0.5, 0.5]] * 2, [0.0, 1.0], r"integer labels.*but got float64.\n.*return_inverse"),
        ([[0.5, 0.5]] * 2, ["a", "b"], r"integer labels"),
        ([[0.5, 0.5], [np.nan, 1]], [0, 1], r"1 of 2 rows have NaN.\nLook where they come from"),
    ],
)
def test_what_cannot_be_scored_is_refused(metric: object, scores: object, labels: object, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        metric(scores, labels)  # type: ignore[operator]
    assert len(str(refused.value).splitlines()) == 2
    assert str(refused.value).startswith(metric.__name__)  # type: ignore[attr-defined]


@pytest.mark.parametrize("metric", PROBABILITIES)
@pytest.mark.parametrize("scores", [[[2.0, -1.0]], [[0.7, 0.7]], [[-0.5, 1.5]]])
def test_scores_are_no_probabilities(metric: object, scores: object) -> None:
    with pytest.raises(ValueError, match=r"rows ≥ 0 that sum to 1.*\nGive what predict_proba returns"):
        metric(scores, [0])  # type: ignore[operator]


def test_impossible_numbers_of_classes_and_bins() -> None:
    for top in (0, 3):
        with pytest.raises(ValueError, match=r"top from 1 to k=2 classes.*\nWrite top=2"):
            metrics.top_k_accuracy([[0.5, 0.5]], [0], top)
    with pytest.raises(ValueError, match=r"at least one bin.*\nWrite bins=15"):
        metrics.reliability([[0.5, 0.5]], [0], 0)


def test_nothing_that_was_given_is_changed(scored: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = scored
    before = scores.copy(), labels.copy()
    for metric in SCORES:
        metric(scores, labels)
    assert np.array_equal(scores, before[0])
    assert np.array_equal(labels, before[1])
