"""Maps that are kept: the right ones come back, whatever was interrupted, and descriptors are drawn from all of them."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from compact_bilinear.descriptors.kept_maps import KeptMaps, draw_places

PLACES = [2, 3, 5, 7, 11, 13, 17]


def maps_of(places: list[int], dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.stack([torch.arange(4 * 6).reshape(4, 2, 3) + 100.0 * place for place in places]).to(dtype)


def fill(kept: KeptMaps, broken: tuple[int, ...] = (), dtype: torch.dtype = torch.float32) -> None:
    for part in kept.missing():
        good = [place for place in part.places if place not in broken]
        kept.keep(part, good, maps_of(good, dtype) if good else torch.empty(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("batch", [1, 2, 3, 10])
def test_maps_come_back(tmp_path: Path, batch: int, dtype: torch.dtype) -> None:
    kept = KeptMaps(tmp_path / "maps", PLACES, batch)
    fill(kept, broken=(5,), dtype=dtype)
    assert kept.missing() == []
    here, absent = kept.split(range(4, 14))
    assert here == [7, 11, 13]
    assert absent == [4, 5, 6, 8, 9, 10, 12]
    assert torch.equal(kept.read(here), maps_of(here, dtype))
    with pytest.raises(ValueError, match="lacks 1"):
        kept.read([5, 7])


def test_another_process_finds_what_is_missing(tmp_path: Path) -> None:
    kept = KeptMaps(tmp_path, PLACES, 2)
    fill(kept)
    (tmp_path / "maps-00001-of-00004.safetensors").unlink()
    again = KeptMaps(tmp_path, PLACES, 2)
    assert [part.places for part in again.missing()] == [(5, 7)]
    assert again.split(PLACES) == ([2, 3, 11, 13, 17], [5, 7])


def test_descriptors_come_from_all_images_and_some_locations(tmp_path: Path) -> None:
    kept = KeptMaps(tmp_path, PLACES, 3)
    fill(kept)
    everything = kept.descriptors(limit=1000, seed=0)
    expected = maps_of(PLACES).flatten(2).mT.reshape(-1, 4)
    assert torch.equal(everything.sort(0).values, expected.sort(0).values)
    few = kept.descriptors(limit=17, seed=0)
    assert few.shape == (14, 4), "two of each image"
    assert (few[:, 0] // 100).tolist() == [place for place in PLACES for _ in range(2)]
    assert torch.equal(few, kept.descriptors(limit=17, seed=0))
    assert not torch.equal(few, kept.descriptors(limit=17, seed=1))
    assert len(kept.descriptors(limit=3, seed=0)) == 3


def test_a_broken_image_does_not_change_what_is_drawn_of_others(tmp_path: Path) -> None:
    whole, broken = KeptMaps(tmp_path / "whole", PLACES, 2), KeptMaps(tmp_path / "broken", PLACES, 2)
    fill(whole)
    fill(broken, broken=(5, 7))
    expected = whole.descriptors(limit=14, seed=0)
    assert torch.equal(
        broken.descriptors(limit=14, seed=0), expected[~((expected[:, 0] // 100 == 5) | (expected[:, 0] // 100 == 7))]
    )


def test_tokens_are_descriptors_too(tmp_path: Path) -> None:
    kept = KeptMaps(tmp_path, [4], 2)
    tokens = torch.randn(1, 6, 3)
    kept.keep(kept.parts[0], [4], tokens)
    assert torch.equal(kept.descriptors(100, seed=0).sort(0).values, tokens[0].sort(0).values)


def test_nothing_to_keep_needs_no_folder(tmp_path: Path) -> None:
    kept = KeptMaps(tmp_path / "maps", [], 2)
    assert kept.missing() == []
    assert kept.split(range(2)) == ([], [0, 1])
    kept.remove()
    assert not (tmp_path / "maps").exists()
    with pytest.raises(ValueError, match="none of those drawn could be read"):
        kept.descriptors(10, seed=0)


def test_removing(tmp_path: Path) -> None:
    kept = KeptMaps(tmp_path / "maps", PLACES, 2)
    fill(kept)
    kept.remove()
    assert not (tmp_path / "maps").exists()


def test_training_images_are_drawn_from_a_seed() -> None:
    splits = ["train", "test"] * 50
    drawn = draw_places(splits, 10, seed=0)
    assert drawn == sorted(set(drawn)) == draw_places(splits, 10, seed=0) != draw_places(splits, 10, seed=1)
    assert len(drawn) == 10
    assert all(place % 2 == 0 for place in drawn)
    assert draw_places(splits, 1000, seed=0) == list(range(0, 100, 2))
    assert draw_places([""] * 4, 1000, seed=0) == [0, 1, 2, 3], "where nobody said what is for training"
