"""Poolings as text: what is understood, what is built, and what a wrong text is told."""

import pytest
import torch

from compact_bilinear import FisherVector, PCABilinear, RandomProjection, TensorSketch
from compact_bilinear.fingerprint import fingerprint
from compact_bilinear.pooling.by_name import POOLINGS, NamedPooling, read_pooling

TEXTS = {
    "average-pool": 9,
    "fisher-vector:3": 2 * 3 * 9,
    "full-bilinear": 81,
    "full-bilinear-triangle": 45,
    "fully-connected": 9,
    "pca-bilinear:16": 16,
    "random-maclaurin:20": 20,
    "random-projection:20": 20,
    "random-projection:20,seed=3,sparse": 20,
    "tensor-sketch:20": 20,
    "tensor-sketch:20,seed=7": 20,
}


@pytest.mark.parametrize(("text", "dim"), TEXTS.items())
def test_a_text_becomes_a_layer_and_a_text_again(text: str, dim: int) -> None:
    pooling = read_pooling(text)
    assert str(pooling) == text
    layer = pooling.build(9)
    pooling.fit(layer, torch.randn(50, 9))
    assert layer(torch.randn(2, 9, 3, 5)).shape == (2, dim)
    assert layer.dim == dim


def test_all_names_are_tried_above() -> None:
    assert {read_pooling(text).name for text in TEXTS} == set(POOLINGS)


def test_a_projection_is_learned_where_there_is_one() -> None:
    for text in ("pca-bilinear:16", "random-maclaurin:20", "tensor-sketch:20"):
        assert [each.requires_grad for each in read_pooling(text).build(9, learnable=True).parameters()], text
        assert not list(read_pooling(text).build(9).parameters()), text
    with pytest.raises(ValueError, match="or leave it fixed"):
        read_pooling("average-pool").build(9, learnable=True)


def test_what_is_not_written_is_the_papers() -> None:
    assert str(read_pooling("tensor-sketch")) == "tensor-sketch:8192"
    assert str(read_pooling("fisher-vector,seed=0")) == "fisher-vector:64"
    assert read_pooling("tensor-sketch") == NamedPooling("tensor-sketch", 8192, seed=0, sparse=False)


def test_dim_seed_and_options_reach_the_layer() -> None:
    sketch = read_pooling("tensor-sketch:20,seed=7").build(9)
    assert fingerprint(sketch) == fingerprint(TensorSketch(9, 20, seed=7)) != fingerprint(TensorSketch(9, 20))
    projection = read_pooling("random-projection:20,sparse,seed=7").build(9)
    assert isinstance(projection, RandomProjection)
    assert projection.sparse
    assert projection.seed == 7


def test_fitting_is_that_of_the_layers() -> None:
    rows = torch.randn(60, 9)
    fisher, pca = read_pooling("fisher-vector:3,seed=5"), read_pooling("pca-bilinear:16")
    layers = fisher.build(9), pca.build(9)
    fisher.fit(layers[0], rows)
    pca.fit(layers[1], rows)
    assert fingerprint(layers[0]) == fingerprint(FisherVector(9, 3).fit(rows, seed=5))
    assert fingerprint(layers[1]) == fingerprint(PCABilinear(9, 16).fit(rows))
    assert fisher.before_relu
    assert not pca.before_relu


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ts:8192", r"no pooling 'ts'.\nKnown are average-pool, .*tensor-sketch; write tensor-sketch:8192"),
        ("", r"no pooling ''"),
        ("TensorSketch", r"no pooling 'TensorSketch'"),
        ("full-bilinear:512", r"full-bilinear has as many .* 'full-bilinear:512'.\nWrite full-bilinear alone."),
        ("tensor-sketch:", r"an output dimension ≥ 1 .* 'tensor-sketch:'.\nWrite tensor-sketch:8192"),
        ("tensor-sketch:0", r"an output dimension ≥ 1"),
        ("tensor-sketch:-5", r"an output dimension ≥ 1"),
        ("fisher-vector:many", r"a number of Gaussians ≥ 1 .*\nWrite fisher-vector:64"),
        ("tensor-sketch:8,seed", r"no option 'seed'.\nWrite tensor-sketch:8192,seed=1, for instance."),
        ("tensor-sketch:8,seed=-1", r"no option 'seed=-1'"),
        ("tensor-sketch:8,sparse", r"no option 'sparse'"),
        ("random-projection:8,sparse=1", r"no option 'sparse=1'.\nWrite random-projection:8192,seed=1,sparse, for"),
        ("average-pool,seed=1", r"no option 'seed=1'.\nWrite average-pool alone."),
    ],
)
def test_a_wrong_text_is_told_what_to_write(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_pooling(text)


def test_a_wrong_dim_for_the_channels_is_refused_by_the_layer() -> None:
    assert isinstance(read_pooling("pca-bilinear:16").build(4), PCABilinear)
    with pytest.raises(ValueError, match="Write dim=9"):
        read_pooling("pca-bilinear:16").build(3)
