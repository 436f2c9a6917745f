"""The images that are shown are those that the numbers speak of."""

from pathlib import Path

import numpy as np
import pytest

import photos
from compact_bilinear.comparing.examples import Examples
from compact_bilinear.features import FeatureStore
from compact_bilinear.images import read_images
from compact_bilinear.recipes import extract


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    folder = photos.make(tmp_path_factory.mktemp("examples"))
    weights = str(folder / "weights.safetensors")
    store = extract.run(
        extract.Extract(folder / "photos", folder / "features", ("tensor-sketch:64",), weights=weights, **photos.SETTINGS)  # type: ignore[arg-type]
    )
    assert isinstance(store, FeatureStore)
    labels = store.labels[store.splits == "test"]
    scores = np.eye(3, dtype=np.float32)[labels] * np.arange(1, len(labels) + 1, dtype=np.float32)[:, None]
    scores[:3] = [0, 0, 9], [0, 0, 3], [0, 2, 0]  # three of bark, taken for moss twice and for brick once
    return Examples(store, read_images(folder / "photos"), "tensor-sketch:64", scores)


def test_mistakes_stand_beside_the_most_similar_image_of_the_other_class(examples: Examples) -> None:
    first, second = examples.confused()
    assert (first.left.label, first.right.label, first.caption) == ("bark", "moss", "bark taken for moss: twice")
    assert (second.right.label, second.caption) == ("brick", "bark taken for brick: once")
    store = examples.store
    features = store.read("tensor-sketch:64").astype(np.float64)
    rows = np.flatnonzero(store.splits == "test")
    worst = features[rows[0]]  # 9 is surer than 3
    moss = np.flatnonzero((store.splits == "train") & (store.labels == 2))
    cosines = features[moss] @ worst / np.linalg.norm(features[moss], axis=1)
    assert Path(str(first.left.image)) == examples.images.file(int(store.indices[rows[0]]))
    assert Path(str(first.right.image)) == examples.images.file(int(store.indices[moss[cosines.argmax()]]))
    assert first.left.right is False


def test_the_surest_and_the_least_sure(examples: Examples) -> None:
    rows = examples.by_confidence()
    assert list(rows) == ["Surest, and right", "Surest, and wrong", "Least sure"]
    assert all(each.right for each in rows["Surest, and right"])
    assert [each.note for each in rows["Surest, and wrong"]] == [
        "taken for moss, over 99\u00a0%\u00a0sure",
        "taken for moss, 91\u00a0%\u00a0sure",
        "taken for brick, 79\u00a0%\u00a0sure",
    ]
    assert "79" in rows["Least sure"][0].note


def test_neighbours_are_training_images_the_nearest_first(examples: Examples) -> None:
    store = examples.store
    strips = examples.neighbours()
    assert [query.label for query, _ in strips] == ["bark", "brick", "moss"]
    training = {examples.images.file(int(store.indices[row])) for row in np.flatnonzero(store.splits == "train")}
    for query, found in strips:
        cosines = [float(each.note.removeprefix("cosine ")) for each in found]
        assert cosines == sorted(cosines, reverse=True)
        assert {each.image for each in found} <= training
        assert all(each.right == (each.label == query.label) for each in found)
