"""Inner products in blocks are those of all features at once."""

from pathlib import Path

import numpy as np
import pytest

from compact_bilinear.classify import inner_products as module
from compact_bilinear.classify.inner_products import inner_products, squared_lengths
from planted import plant

ROWS, COLUMNS = np.array([0, 3, 4, 11, 12, 40, 61, 74]), np.array([3, 5, 6, 7, 40, 73])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("at_once", [1, 3, 1000])  # features
@pytest.mark.parametrize("wide", [5, 64, 1000])
def test_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, at_once: int, wide: int) -> None:
    store = plant(tmp_path / "store", dtype=dtype)
    for name, value in (("HELD", at_once * np.dtype(dtype).itemsize * 64), ("ROWS", at_once + 1), ("WIDE", wide)):
        monkeypatch.setattr(module, name, value)
    features = store.read("full-bilinear").astype(np.float64)
    told: list[int] = []
    products = inner_products(store, "full-bilinear", ROWS, COLUMNS, advance=told.append)
    # exact but for the order of 64 sums in float64
    assert np.allclose(products, features[ROWS] @ features[COLUMNS].T, rtol=0, atol=1e-13)
    assert np.allclose(squared_lengths(store, "full-bilinear", ROWS), np.square(features[ROWS]).sum(1), rtol=0, atol=1e-13)
    assert sum(told) == len(ROWS)


def test_a_feature_larger_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = plant(tmp_path / "store")
    monkeypatch.setattr(module, "HELD", 1)
    features = store.read("tensor-sketch:31").astype(np.float64)
    products = inner_products(store, "tensor-sketch:31", ROWS, COLUMNS)
    assert np.allclose(products, features[ROWS] @ features[COLUMNS].T, rtol=0, atol=1e-13)


def test_float32_would_not_do(tmp_path: Path) -> None:
    # the Gram matrix of more images than dimensions has zeros among its eigenvalues, which rounding makes negative
    store = plant(tmp_path / "store")
    everything = np.arange(len(store))
    smallest = np.linalg.eigvalsh(inner_products(store, "tensor-sketch:31", everything, everything))[0]
    features = store.read("tensor-sketch:31")
    rounded = np.linalg.eigvalsh((features @ features.T).astype(np.float64))[0]
    assert smallest > -1e-13
    assert rounded < -1e-8
