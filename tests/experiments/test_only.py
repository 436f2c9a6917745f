"""A part of an experiment, named as in the paper or as in the package."""

import pytest

from compact_bilinear.experiments.only import Only, read_backbone


@pytest.mark.parametrize("text", ["CUB/VGG-D/TS", "ts/cub/vgg-d", "cub/vgg16/tensor-sketch", "CUB/vgg-d/tensor-sketch:8192"])
def test_both_languages_in_any_order(text: str) -> None:
    only = Only.of([text])
    assert only.allows("CUB", "vgg16", "tensor-sketch:8192")
    assert not only.allows("CUB", "vgg-m", "tensor-sketch:8192")
    assert not only.allows("DTD", "vgg16", "tensor-sketch:8192")
    assert not only.allows("CUB", "vgg16", "random-maclaurin:8192")


def test_each_of_the_papers_names() -> None:
    for short, pooling in {
        "FC": "fully-connected",
        "FV": "fisher-vector:64",
        "Fisher": "fisher-vector:64",
        "FB": "full-bilinear",
        "RM": "random-maclaurin:8192",
        "PCA": "pca-bilinear:256",
        "RP": "random-projection:512,sparse",
    }.items():
        assert Only.of([short]).allows("CUB", "vgg-m", pooling)
        assert not Only.of([short]).allows("CUB", "vgg-m", "tensor-sketch:512")


def test_a_dimension_is_taken_at_its_word() -> None:
    only = Only.of(["TS:512"])
    assert only.allows("CUB", "vgg-m", "tensor-sketch:512")
    assert not only.allows("CUB", "vgg-m", "tensor-sketch:5120")


def test_full_bilinear_is_not_its_triangle() -> None:
    assert not Only.of(["FB"]).allows("CUB", "vgg-m", "full-bilinear-triangle")


def test_several_are_taken_together() -> None:
    for texts in (["RM,TS/CUB"], ["RM", "TS/CUB"], ["CUB", "rm", "ts"]):
        only = Only.of(texts)
        assert only.allows("CUB", "tiny", "random-maclaurin:8")
        assert only.allows("CUB", "tiny", "tensor-sketch:8")
        assert not only.allows("MIT", "tiny", "tensor-sketch:8")


def test_nothing_is_everything() -> None:
    assert Only.of([]).allows("moss", "timm:resnet18", "average-pool")


def test_ones_own_data() -> None:
    assert Only.of(["moss/TS"], ["moss"]).data == {"moss"}
    with pytest.raises(ValueError, match=r"none of them\.\nData sets are CUB, MIT, DTD; backbones"):
        Only.of(["moss/TS"])


def test_backbones_have_two_names() -> None:
    assert [read_backbone(each) for each in ("VGG-D", "vgg-d", "vgg16", "VGG-M", "tiny", "timm:Big")] == [
        "vgg16",
        "vgg16",
        "vgg16",
        "vgg-m",
        "tiny",
        "timm:Big",
    ]
