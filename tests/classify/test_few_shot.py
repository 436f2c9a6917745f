"""Few-shot: what is drawn, what is computed from it, and that planted answers come out."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax

from compact_bilinear.classify import LogisticRegression, NearestMean
from compact_bilinear.classify.few_shot import (
    CLASSIFIERS,
    Draws,
    Products,
    Score,
    coordinates,
    few_shot,
    most_shots,
)
from compact_bilinear.classify.metrics import error_rate, mean_average_precision
from compact_bilinear.features import FeatureStore
from planted import K, blurred, clear, noise, plant

NAMES = ("logistic", "one-vs-rest", "nearest-mean")


def scores(store: FeatureStore, draws: Draws, shots: list[int], pooling: str = "full-bilinear") -> list[Score]:
    return few_shot(Products.of(store, pooling, draws), draws, shots)


def test_draws_take_one_image_of_each_class_a_round(tmp_path: Path) -> None:
    store = plant(tmp_path / "store", unknown=4)
    draws = Draws.of(store, shots=7, draws=3, seed=0)
    assert draws.drawn.shape == (3, 7, K)
    assert (store.labels[draws.drawn] == np.arange(K)).all()
    assert set(store.splits[draws.drawn].flat) == {"train"}
    for drawn, scored in zip(draws.drawn, draws.scored, strict=True):
        assert len(np.unique(drawn)) == drawn.size
        assert np.array_equal(scored, np.flatnonzero((store.splits == "test") & (store.labels >= 0)))
    assert np.array_equal(draws.rows, np.unique([*draws.drawn.flat, *draws.scored[0]]))


def test_draws_are_nested_and_reproducible(tmp_path: Path) -> None:
    store = plant(tmp_path / "store")
    draws = Draws.of(store, shots=9, draws=4, seed=5)
    for shots, number in ((1, 2), (4, 1), (9, 4)):
        assert np.array_equal(Draws.of(store, shots, number, seed=5).drawn, draws.drawn[:number, :shots])
    assert not np.array_equal(Draws.of(store, 9, 4, seed=6).drawn, draws.drawn)
    assert not np.array_equal(draws.drawn[0], draws.drawn[1])


def test_draws_leave_global_chance_alone(tmp_path: Path) -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002  # what must not be touched
    Draws.of(plant(tmp_path / "store"), 2, 2, 0)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_every_image_is_drawn_equally_often(tmp_path: Path) -> None:
    store = plant(tmp_path / "store", train=4, test=1)
    draws = Draws.of(store, shots=1, draws=2000, seed=0)
    counts = np.unique(draws.drawn, return_counts=True)[1]
    assert len(counts) == 4 * K
    # binomial of 2000 and 1/4; 20 of them within 4.5 standard deviations
    assert np.abs(counts - 500).max() < 4.5 * np.sqrt(2000 * 3 / 16)


def test_without_a_test_split_what_is_not_drawn_is_scored(tmp_path: Path) -> None:
    store = plant(tmp_path / "store", train=(4, 5, 6, 7, 8), test=0, unknown=0)
    assert most_shots(store) == 3
    draws = Draws.of(store, shots=3, draws=2, seed=0)
    assert not draws.test_split
    for drawn, scored in zip(draws.drawn, draws.scored, strict=True):
        assert np.array_equal(np.sort([*drawn.flat, *scored]), np.arange(30))
    with pytest.raises(ValueError, match=r"4 images of each class .* has 3 of crow to draw from.\nAsk for 1 to 3"):
        Draws.of(store, shots=4, draws=2, seed=0)


def test_a_class_that_is_too_small_is_named(tmp_path: Path) -> None:
    store = plant(tmp_path / "store", train=(9, 8, 2, 9, 9))
    assert most_shots(store) == 2
    with pytest.raises(ValueError, match=r"3 images of each class .* has 2 of owl to draw from.\nAsk for 1 to 2") as refused:
        Draws.of(store, shots=3, draws=2, seed=0)
    assert len(str(refused.value).splitlines()) == 2
    empty = plant(tmp_path / "empty", train=(9, 8, 0, 9, 9))
    with pytest.raises(ValueError, match=r"1 or more images of each .* has 5, and 0 of owl.\nExtract images whose"):
        most_shots(empty)


def test_coordinates_have_the_same_inner_products() -> None:
    draw = np.random.default_rng(0)
    features, others = draw.standard_normal((11, 40)), draw.standard_normal((7, 40))
    seen, projected = coordinates(features @ features.T, others @ features.T)
    # but for the ridge, 1e-10 of 40
    assert np.allclose(seen @ seen.T, features @ features.T, rtol=0, atol=1e-8)
    assert np.allclose(projected @ seen.T, others @ features.T, rtol=0, atol=1e-8)
    assert (np.triu(seen, 1) == 0).all()
    first, few = coordinates(features[:4] @ features[:4].T, others @ features[:4].T)
    assert np.allclose(first, seen[:4, :4], atol=1e-8)
    assert np.allclose(few, projected[:, :4], atol=1e-8)


def test_what_is_in_the_span_already_adds_no_coordinate() -> None:
    draw = np.random.default_rng(0)
    features = draw.standard_normal((3, 40)).repeat(2, axis=0)
    features[5] = features[0] - 2 * features[2]
    seen, projected = coordinates(features @ features.T, features @ features.T)
    assert np.flatnonzero(seen.any(0)).tolist() == np.flatnonzero(projected.any(0)).tolist() == [0, 2, 4]
    assert np.allclose(seen @ seen.T, features @ features.T, rtol=0, atol=1e-7)
    assert np.allclose(seen, projected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("d", [3, 10, 200])  # below and above the number of drawn images
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_classifiers_answer_as_they_would_to_all_dimensions(tmp_path: Path, d: int, dtype: str) -> None:
    store = plant(tmp_path / "store", dims={"average-pool": d}, dtype=dtype)
    draws = Draws.of(store, shots=3, draws=2, seed=0)
    features = store.read("average-pool").astype(np.float64)
    for score in few_shot(Products.of(store, "average-pool", draws), draws, [1, 3], NAMES):
        drawn, scored = draws.drawn[score.draw, : score.shots].ravel(), draws.scored[score.draw]
        logistic = LogisticRegression(one_vs_rest=score.classifier == "one-vs-rest")
        classifier = NearestMean() if score.classifier == "nearest-mean" else logistic
        expected = classifier.fit(features[drawn], store.labels[drawn]).decision_function(features[scored])
        if score.classifier == "logistic":
            expected = log_softmax(expected, axis=1)
        # counts and ranks: the same as long as the solvers' last digits decide none
        assert score.accuracy == pytest.approx(1 - error_rate(expected, store.labels[scored]), abs=1e-12)
        assert score.mean_average_precision == pytest.approx(mean_average_precision(expected, store.labels[scored]), abs=1e-12)


def test_two_copies_of_an_image(tmp_path: Path) -> None:
    def copies(labels: np.ndarray, d: int) -> np.ndarray:
        return clear(np.arange(K), d)[labels % K]

    store = plant(tmp_path / "store", copies)
    for score in scores(store, Draws.of(store, 9, 2, 0), [1, 9]):
        assert score.mean_average_precision == score.accuracy == 1


@pytest.mark.parametrize("pooling", ["full-bilinear", "tensor-sketch:31"])
def test_what_is_clear_is_learned_from_one_image(tmp_path: Path, pooling: str) -> None:
    store = plant(tmp_path / "store", clear)
    results = scores(store, Draws.of(store, 2, 3, 0), [1, 2], pooling)
    assert [(score.draw, score.shots, score.classifier) for score in results] == [
        (draw, shots, name) for draw in range(3) for shots in (1, 2) for name in CLASSIFIERS
    ]
    assert all(score.mean_average_precision == score.accuracy == 1 for score in results)


def test_more_images_teach_more(tmp_path: Path) -> None:
    store = plant(tmp_path / "store", blurred, train=20, test=40)
    results = scores(store, Draws.of(store, 20, 6, 0), [1, 5, 20])
    for name in CLASSIFIERS:
        means = [np.mean([each.accuracy for each in results if (each.classifier, each.shots) == (name, s)]) for s in (1, 5, 20)]
        assert 1 / K < means[0] < means[1] < means[2]


def test_from_noise_nothing_is_learned_unless_drawn_images_are_scored(tmp_path: Path) -> None:
    store = plant(tmp_path / "store", noise, train=9, test=40)
    draws = Draws.of(store, 9, 10, 0)
    chance, several = 1 / K, [score.accuracy for score in scores(store, draws, [1, 9])]
    # each is a share of 200 images; drawing anew from the same 45 images averages out less than ten draws would
    assert np.abs(np.mean(several) - chance) < 4 * np.sqrt(chance * (1 - chance) / 200)
    leaky = Draws(draws.drawn, tuple(np.sort(drawn.ravel()) for drawn in draws.drawn), draws.labels, True)
    assert np.mean([score.accuracy for score in scores(store, leaky, [9])]) > 0.9


def test_two_classes(tmp_path: Path) -> None:
    store = plant(tmp_path / "store", clear, train=(5, 5), test=0)
    for score in scores(store, Draws.of(store, 2, 2, 0), [1, 2]):
        assert score.mean_average_precision == score.accuracy == 1


def test_as_many_draws_at_a_time_as_one_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = plant(tmp_path / "store")
    draws = Draws.of(store, 3, 5, 0)
    told: list[int] = []
    expected = few_shot(Products.of(store, "full-bilinear", draws), draws, [1, 3], advance=told.append)
    assert sum(told) == 5
    monkeypatch.setattr("torch.get_num_threads", lambda: 3)
    assert scores(store, draws, [1, 3]) == expected


def test_one_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"two classes or more, .* has 1.\nExtract images whose classes are known"):
        most_shots(plant(tmp_path / "store", train=(5,)))


def test_without_a_test_split_one_image_has_to_remain(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"with 2 or more images of each .* has 5, and 1 of jay."):
        most_shots(plant(tmp_path / "store", train=(5, 1, 3, 3, 3), test=0))
