"""Recall and mean average precision: by hand, against scikit-learn, and over splits."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

import clustered
from compact_bilinear.retrieval import Retrieval, retrieval


def by_hand(x: np.ndarray, labels: np.ndarray, asking: np.ndarray, searched: np.ndarray, ks: tuple[int, ...]) -> list[float]:
    """Scores of scikit-learn, query after query."""
    similarities, scores = clustered.unit(x) @ clustered.unit(x).T, []
    for query in asking:
        others = searched[searched != query]
        right = labels[others] == labels[query]
        if labels[query] < 0 or not right.any():
            continue
        order = np.argsort(-similarities[query, others], kind="stable")
        scores.append([average_precision_score(right, similarities[query, others]), *(right[order][:k].any() for k in ks)])
    return np.mean(scores, axis=0).tolist()


def test_an_example_small_enough_to_do_by_hand(tmp_path: Path) -> None:
    angles = np.deg2rad([0, 10, 25, 90, 100, 180])
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    store = clustered.store(tmp_path, x, labels=[0, 1, 0, 1, 1, 2], splits=["train"] * 6, classes=("a", "b", "c"))
    found = retrieval(store, "tensor-sketch:2", ks=(1, 2))
    # ranks of its class, query by query: 2 | 3, 4 | 2 | 1, 3 | 1, 4 | nobody: it asks nothing
    precision = [1 / 2, (1 / 3 + 2 / 4) / 2, 1 / 2, (1 + 2 / 3) / 2, (1 + 2 / 4) / 2]
    assert found == Retrieval({1: 2 / 5, 2: 4 / 5}, pytest.approx(np.mean(precision)), queries=5, gallery=6, left_out=1)
    assert str(found) == "recall@1 40.0, recall@2 80.0, mAP 60.0 % (5 queries in 6 images)"
    assert found.to_record() == {
        "recall@1": 0.4,
        "recall@2": 0.8,
        "mAP": found.mean_average_precision,
        "queries": 5,
        "gallery": 6,
    }


@pytest.mark.parametrize("splits", [(None, None), ("test", "train"), ("train", "train"), ("test", None)])
@pytest.mark.parametrize(("ranked", "held"), [(1, 10**6), (100, 10**6), (10**6, 4 * 33 * 7), (10**6, 10**6)])
def test_against_scikit_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, splits: tuple[str | None, str | None], ranked: int, held: int
) -> None:
    monkeypatch.setattr("compact_bilinear.features.unit_rows.BLOCK", 33 * 10)
    monkeypatch.setitem(retrieval.__globals__, "RANKED", ranked)
    monkeypatch.setitem(retrieval.__globals__, "HELD", held)
    x = clustered.rows(67, 33, noise=2)
    labels = np.arange(67) % 7
    labels[[4, 9]] = -1
    x[20] = 0
    store = clustered.store(tmp_path, x, labels=labels.tolist())
    found = retrieval(store, "tensor-sketch:33", *splits, ks=(1, 3, 10))
    asking, searched = (np.array([row for row in store.rows(split) if row != 20]) for split in splits)
    expected = by_hand(np.where(x == 0, 1, x), labels, asking, searched, (1, 3, 10))
    assert [found.mean_average_precision, *found.recall.values()] == pytest.approx(expected, abs=1e-6)
    assert found.gallery == len(searched)
    assert found.queries + found.left_out == len(store.rows(splits[0]))
    assert 0.2 < found.mean_average_precision < 0.9, "neither trivial nor hopeless"


def test_perfect_clusters(tmp_path: Path) -> None:
    found = retrieval(clustered.store(tmp_path, clustered.rows(70, 33, noise=0.05)), "tensor-sketch:33")
    assert found.recall == {1: 1.0, 5: 1.0, 10: 1.0}
    assert found.mean_average_precision == 1


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    store = clustered.store(tmp_path / "a", clustered.rows(7, 33))
    with pytest.raises(ValueError, match=r"has none from 'test' in 'train'\.\nGive the images classes"):
        retrieval(store, "tensor-sketch:33", "test", "train")
    with pytest.raises(ValueError, match=r"but got ks=\(0, 1\)\.\nWrite ks=\(1, 5, 10\)"):
        retrieval(store, "tensor-sketch:33", ks=(0, 1))
    with pytest.raises(ValueError, match="no rows of the split 'val'"):
        retrieval(store, "tensor-sketch:33", "val")
