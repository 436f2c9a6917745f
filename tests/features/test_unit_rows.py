"""Rows of length 1, whatever they were; and those that have no direction."""

from pathlib import Path

import numpy as np
import pytest

import clustered
from compact_bilinear.features.unit_rows import unit, unit_blocks


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_length_and_direction(dtype: str, scale: float) -> None:
    x = (clustered.rows(11, 33) * scale).astype(dtype)
    rows, kept = unit(x)
    assert kept.all()
    assert rows.dtype == np.float32
    # float32 has 24 bits; the sum of 33 squares loses a few of them
    assert np.abs(np.linalg.norm(rows.astype(np.float64), axis=1) - 1).max() < 1e-6
    assert np.abs(rows - clustered.unit(x)).max() < 1e-6


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_squares_that_float32_does_not_hold(scale: float) -> None:
    rows, kept = unit(np.array([[3, -4]], np.float32) * np.float32(scale))
    assert kept.all()
    assert np.allclose(rows, [[0.6, -0.8]], rtol=1e-6)


def test_rows_without_a_direction() -> None:
    x = np.ones((6, 3), np.float32)
    x[1], x[2, 0], x[3, 1], x[4, 2] = 0, np.nan, np.inf, -np.inf
    rows, kept = unit(x)
    assert kept.tolist() == [True, False, False, False, False, True]
    assert rows.shape == (2, 3)


def test_blocks_are_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compact_bilinear.features.unit_rows.BLOCK", 33 * 5)
    x = clustered.rows(23, 33)
    x[7] = 0
    store = clustered.store(tmp_path, x)
    blocks = list(unit_blocks(store, "tensor-sketch:33"))
    assert [block.first for block in blocks] == [0, 5, 10, 15, 20]
    kept = np.concatenate([block.kept for block in blocks])
    assert np.flatnonzero(~kept).tolist() == [7]
    assert np.abs(np.concatenate([block.rows for block in blocks]) - clustered.unit(x[kept])).max() < 1e-6
    (train,) = [block.rows for block in unit_blocks(store, "tensor-sketch:33", "train")][:1]
    assert np.abs(train - clustered.unit(x[::2][:5])).max() < 1e-6
