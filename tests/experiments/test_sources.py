"""Which images an experiment is given: the paper's, anybody's, in one split or several."""

from pathlib import Path

import pytest

import miniatures
import photos
import reproductions
from compact_bilinear.experiments import sources
from compact_bilinear.experiments.sources import find_sources, write_source


def test_the_papers_data_sets_get_the_papers_names(tmp_path: Path) -> None:
    miniatures.write(miniatures.cub(), tmp_path / "birds")
    miniatures.write(miniatures.mit(), tmp_path / "rooms")
    miniatures.write(miniatures.dtd(), tmp_path / "textures")
    folders = [tmp_path / name for name in ("birds", "rooms", "textures")]
    whole = find_sources(folders)
    assert [(source.name, source.of_paper) for source in whole] == [("CUB", True), ("MIT", True), ("DTD", True)]
    with pytest.raises(ValueError, match="5994 training images, 5794 test images and 200 classes"):
        whole[0].images()
    parts = find_sources(folders, check_counts=False)
    assert [(source.name, source.of_paper) for source in parts] == [
        (f"{name}, a part", False) for name in ("CUB", "MIT", "DTD")
    ]
    assert [len(source.images().classes) for source in parts] == [3, 3, 4]


def test_a_folder_called_cub_is_not_cub(tmp_path: Path) -> None:
    (source,) = find_sources([photos.photos(tmp_path / "cub")])
    assert (source.name, source.of_paper) == ("cub", False)


def test_lists_in_one_folder_are_splits_of_one_data_set(tmp_path: Path) -> None:
    (source,) = find_sources([reproductions.splits(tmp_path / "bark")])
    assert source.name == "bark"
    assert [source.split(source.number(repetition)) for repetition in range(5)] == ["split0", "split1"] * 2 + ["split0"]
    first, second = (source.images(number) for number in range(2))
    assert first.paths == second.paths
    assert first.splits != second.splits


def test_one_list_has_one_split_without_a_name(tmp_path: Path) -> None:
    (source,) = find_sources([reproductions.splits(tmp_path / "bark") / "split1.csv"])
    assert (source.name, source.split(0), len(source.lists)) == ("split1", "", 1)


def test_textures_are_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "TEXTURES", {"classes": 2, "images_per_class": 4, "size": 32})
    first = write_source(tmp_path / "images" / "textures")
    times = {file: file.stat().st_mtime_ns for file in first.lists[0].rglob("*.png")}
    assert len(times) == 8
    again = write_source(tmp_path / "images" / "textures")
    assert again == first
    assert times == {file: file.stat().st_mtime_ns for file in again.lists[0].rglob("*.png")}


def test_what_cannot_be_learned_from_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist\\.\nCheck its name; `cbp fetch cub"):
        find_sources([tmp_path / "nowhere"])
    both = [photos.photos(tmp_path / "a" / "photos"), photos.photos(tmp_path / "b" / "photos")]
    with pytest.raises(ValueError, match=r"are called photos\.\nLeave one out, or rename"):
        find_sources(both)
    miniatures.write({"one.jpg": miniatures.picture(1), "two.jpg": miniatures.picture(2)}, tmp_path / "bare")
    (source,) = find_sources([tmp_path / "bare"])
    with pytest.raises(ValueError, match=r"two classes or more .*\nGive a folder with a folder of images for each class"):
        source.images()
