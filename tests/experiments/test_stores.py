"""Images pass a backbone once, whatever is asked for, and however often."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import reproductions
from compact_bilinear.descriptors import VGG, VGG_M
from compact_bilinear.experiments.ledger import Ledger
from compact_bilinear.experiments.setting import Setting
from compact_bilinear.experiments.sources import find_sources
from compact_bilinear.experiments.stores import lacks_fully_connected, slug, stores_of
from compact_bilinear.recipes import extract


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    folder = reproductions.make(tmp_path)
    sources = find_sources([folder / "bark-and-brick"])
    weights = str(folder / "weights.safetensors")
    return Setting(Ledger(tmp_path / "out"), sources, weights=weights, size=reproductions.SIZE, workers=0)


def test_what_is_there_is_taken_and_the_rest_is_extracted(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    run = extract.run
    monkeypatch.setattr(extract, "run", lambda config: asked.append(config.pool) or run(config))
    (source,) = setting.sources
    both = ["tensor-sketch:8", "random-maclaurin:8"]
    first = stores_of(setting, source, 0, "tiny", both)
    assert first.keys() == set(both)
    assert stores_of(setting, source, 0, "tiny", reversed(both))["tensor-sketch:8"].folder == first["tensor-sketch:8"].folder
    more = stores_of(setting, source, 0, "tiny", [*both, "tensor-sketch:8,seed=1", "average-pool"])
    assert more.keys() == {*both, "tensor-sketch:8,seed=1", "average-pool"}
    assert asked == [("random-maclaurin:8", "tensor-sketch:8"), ("average-pool", "tensor-sketch:8,seed=1")]
    other = stores_of(setting, source, 1, "tiny", both)
    assert other["tensor-sketch:8"].folder != first["tensor-sketch:8"].folder
    assert len(asked) == 3


def test_a_store_that_was_cut_short_is_gone_on_with(setting: Setting) -> None:
    (source,) = setting.sources
    whole = stores_of(setting, source, 0, "tiny", ["tensor-sketch:8"])["tensor-sketch:8"]
    expected = whole.read("tensor-sketch:8")
    (shard,) = whole.folder.glob("shard-*")
    shard.unlink()
    again = stores_of(setting, source, 0, "tiny", ["tensor-sketch:8"])["tensor-sketch:8"]
    assert again.folder == whole.folder
    assert (again.read("tensor-sketch:8") == expected).all()


@pytest.fixture(scope="module")
def small_vgg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """VGG-M as it would be with few channels in the layers that take all the room, and without them."""
    folder = tmp_path_factory.mktemp("vgg")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_file(VGG(VGG_M, "conv5").state_dict(), folder / "convolutions.safetensors")
    return folder


def test_who_has_no_fully_connected_layers_says_so(small_vgg: Path) -> None:
    assert lacks_fully_connected("tiny", None) == "tiny has none"
    assert "fc6" in str(lacks_fully_connected("vgg-m", str(small_vgg / "convolutions.safetensors")))


def test_fully_connected_layers_have_a_store_of_their_own(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(extract, "run", lambda config: asked.append((config.pool, config.size)) or "a store")
    (source,) = setting.sources
    found = stores_of(replace(setting, weights=None), source, 0, "vgg-m", ["fully-connected", "full-bilinear"])
    assert asked == [(("full-bilinear",), reproductions.SIZE), (("fully-connected",), 0)]
    assert found == {"full-bilinear": "a store", "fully-connected": "a store"}


def test_names_of_files_are_plain() -> None:
    assert slug("Wälder & Seen", "", "timm:a/b", "seed 1") == "w-lder-seen-timm-a-b-seed-1"
