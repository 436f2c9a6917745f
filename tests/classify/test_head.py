"""The head of a model says what the classifier says that it was fitted as."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from compact_bilinear.classify import LogisticRegression
from compact_bilinear.classify.head import fit_head, labelled, scores_of
from compact_bilinear.descriptors import load_backbone
from compact_bilinear.features import FeatureStore, FeatureWriter
from compact_bilinear.model import Model

POOLING, D = "tensor-sketch:7", 7
CLASSES = ("crow", "owl", "wren")


def store(folder: Path, labels: list[int]) -> FeatureStore:
    """Features out of a normal distribution: the first two of three images are for training."""
    m = len(labels)
    items = SimpleNamespace(
        classes=CLASSES,
        paths=tuple(f"{number}.jpg" for number in range(m)),
        labels=tuple(labels),
        splits=tuple(("train", "train", "test")[number % 3] for number in range(m)),
    )
    poolings = {POOLING: {"dim": D, "seed": 0, "sha256": "ab" * 32}}
    writer = FeatureWriter(folder, items, poolings, settings={}, versions={}, dtype="float32", shard_size=5)
    x = np.random.default_rng(0).standard_normal((m, D)).astype(np.float32)
    for shard in writer.missing():
        with writer.start(shard) as rows:
            places = list(range(shard.first, shard.stop))
            rows.add(places, {POOLING: x[places]})
    writer.complete({"fitted": {}})
    return FeatureStore(folder)


def model() -> Model:
    return Model(load_backbone("tiny"), POOLING, CLASSES).eval()


@pytest.mark.parametrize("one_vs_rest", [False, True])
@pytest.mark.parametrize("classes", [(0, 1, 2), (0, 2)])
def test_probabilities_are_those_of_the_classifier(tmp_path: Path, classes: tuple[int, ...], one_vs_rest: bool) -> None:
    features = store(tmp_path, [classes[number // 2 % len(classes)] for number in range(31)])
    made = model()
    fit_head(made, features, POOLING, lambda_=1.0, one_vs_rest=one_vs_rest)
    train, test = (features.read(POOLING, split) for split in ("train", "test"))
    labels = features.labels[features.rows("train")]
    expected = LogisticRegression(1.0, one_vs_rest=one_vs_rest).fit(train, labels).predict_proba(test)
    scores, of_class = scores_of(made, features, POOLING)
    assert of_class.tolist() == features.labels[features.rows("test")].tolist()
    found = made.probabilities(scores)
    np.testing.assert_allclose(found[:, classes], expected, rtol=1e-4, atol=1e-6)
    assert made.link == ("sigmoid" if one_vs_rest and len(classes) > 2 else "softmax")


def test_images_without_a_class_and_those_left_out_are_not_seen(tmp_path: Path) -> None:
    features = store(tmp_path, [number % 4 - 1 for number in range(31)])
    read, labels = labelled(features, POOLING, "train", without=[1, 4])
    rows = [row for row in features.rows("train") if features.labels[row] >= 0 and row not in (1, 4)]
    np.testing.assert_array_equal(np.concatenate(list(read())), features.read(POOLING)[rows])
    assert labels.tolist() == features.labels[rows].tolist()


def test_what_cannot_be_fitted_is_refused(tmp_path: Path) -> None:
    alone = store(tmp_path / "alone", [1] * 9)
    with pytest.raises(ValueError, match=r"has training images of 1\.\nGive a folder with a folder of images for each class"):
        fit_head(model(), alone, POOLING)
    rare = store(tmp_path / "rare", [2, *[0, 1] * 6])
    with pytest.raises(ValueError, match=r"of 'wren' there is only one in .*\.\nGive λ a number, 0\.001"):
        fit_head(model(), rare, POOLING, lambda_="auto")
