"""What is measured is what was planted: exact is exact, fewer bytes find less, and every option is there."""

import json
from pathlib import Path

import numpy as np
import pytest

import clustered
from compact_bilinear.search import measure
from compact_bilinear.search.measure import OPTIONS, as_record


def test_every_option_beside_the_exact_one(tmp_path: Path) -> None:
    store = clustered.store(
        tmp_path, clustered.rows(1100, 64, classes=31), labels=[n % 31 for n in range(1100)], classes=[*map(str, range(31))]
    )
    found = {(each.engine, each.codes): each for each in measure(store, "tensor-sketch:64", queries=40)}
    assert tuple(found) == OPTIONS
    exact = found["flat", "float32"]
    assert (exact.recall_at_1, exact.recall_at_10, exact.mean_average_precision, exact.times_faster) == (1, 1, 1, 1)
    assert exact.same_class is not None
    assert exact.same_class > 0.9
    for each in found.values():
        assert 0 <= each.mean_average_precision <= each.recall_at_10 <= 1
        assert each.times_faster == pytest.approx(exact.milliseconds / each.milliseconds)
    assert found["flat", "float16"].recall_at_10 > 0.99
    assert found["hnsw", "float16"].recall_at_10 > 0.9
    assert found["ivf-pq", "pq"].recall_at_10 < found["ivf-pq", "float16"].recall_at_10
    # of 64 numbers: 4 bytes, 2, 1, and an eighth; names and headers come on top
    for key, size in ((("flat", "float32"), 256), (("flat", "float16"), 128), (("flat", "8-bit"), 64)):
        assert size < found[key].bytes_an_image < size + 60
    assert 128 + 128 < found["hnsw", "float16"].bytes_an_image < 128 + 260
    assert found["ivf-pq", "pq"].bytes_an_image < 64 + 8 + 150
    json.dumps([as_record(each) for each in found.values()])


def test_ragged_data(tmp_path: Path) -> None:
    x = clustered.rows(63, 33)
    x[::9] = 0
    store = clustered.store(tmp_path / "a", x, labels=[-1] * 63)
    found = list(measure(store, "tensor-sketch:33", images=20, queries=5))
    assert [each.engine for each in found] == ["flat", "flat", "flat", "hnsw", "hnsw"], "too few to train on"
    assert {each.same_class for each in found} == {None}
    with pytest.raises(ValueError, match=r"at least 10 images, but .* has 9\.\nExtract more"):
        list(measure(clustered.store(tmp_path / "b", np.ones((9, 3), np.float32)), "tensor-sketch:3"))
    nothing = clustered.store(tmp_path / "c", np.zeros((20, 3), np.float32))
    with pytest.raises(ValueError, match=r"others that ask, but .* 0 and 0 are neither zero nor infinite\.\nExtract"):
        list(measure(nothing, "tensor-sketch:3"))
