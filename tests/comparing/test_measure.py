"""What a classifier said is kept as it was, and few images are drawn as far as there are any."""

from pathlib import Path

import numpy as np
import pytest

from compact_bilinear.comparing.measure import Linear, keep, kept


def test_what_is_kept_is_what_was_said(tmp_path: Path) -> None:
    assert kept(tmp_path, "tensor-sketch:64,seed=1") is None
    found = Linear(np.arange(6, dtype=np.float32).reshape(2, 3), 0.01)
    keep(tmp_path / "new", "tensor-sketch:64,seed=1", found)
    again = kept(tmp_path / "new", "tensor-sketch:64,seed=1")
    assert again is not None
    np.testing.assert_array_equal(again.scores, found.scores)
    assert again.lambda_ == found.lambda_
    assert kept(tmp_path / "new", "tensor-sketch:64") is None
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["tensor-sketch-64-seed=1.safetensors"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    keep(tmp_path, "average-pool", Linear(np.zeros((1, 2), np.float32), 0.001))
    (tmp_path / "average-pool.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"average-pool.safetensors is damaged: .*\nRemove it"):
        kept(tmp_path, "average-pool")
