"""DTD in its real layout, whole, in miniature, and corrupted."""

from pathlib import Path

import pytest

import miniatures
from compact_bilinear.images import dtd, read_images


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return miniatures.write(miniatures.dtd(), tmp_path)


def test_trains_on_the_first_part_and_tests_on_the_two_others(root: Path) -> None:
    images = dtd.read(root / "dtd", check_counts=False)
    assert images.classes == miniatures.DTD_CLASSES
    assert images.counts() == {"train": 8, "test": 16}
    assert images.select("train").paths[:3] == ("banded/banded_0000.jpg", "banded/banded_0001.jpg", "blotchy/blotchy_0000.jpg")
    assert images.select("train").labels == (0, 0, 1, 1, 2, 2, 3, 3)
    assert set(images.select("test").labels) == {0, 1, 2, 3}


@pytest.mark.parametrize("partition", [1, 2, 10])
def test_has_ten_partitions(root: Path, partition: int) -> None:
    train = read_images(root, partition=partition, check_counts=False).select("train")
    assert train.paths[0] == f"banded/banded_{ {1: 0, 2: 1, 10: 3}[partition]:04d}.jpg"


@pytest.mark.parametrize("partition", [0, 11])
def test_has_no_other_partitions(root: Path, partition: int) -> None:
    with pytest.raises(ValueError, match=r"(?s)partitions 1 to 10, but got \d+\..*Write partition=1 for the paper's"):
        read_images(root, partition=partition)


def test_the_whole_has_the_papers_counts(tmp_path: Path) -> None:
    archive = tmp_path / "dtd-r1.0.1.tar.gz"
    archive.write_bytes(miniatures.tar(miniatures.whole_dtd()))
    images = read_images(archive)
    assert str(images) == "dtd: 5640 images of 47 classes (1880 train, 3760 test)"
    assert read_images(tmp_path, partition=10) != images


def test_a_missing_list_is_named(root: Path) -> None:
    (root / "dtd" / "labels" / "val3.txt").unlink()
    assert len(read_images(root, partition=2, check_counts=False)) == 24
    with pytest.raises(ValueError, match=r"(?s)DTD needs val3\.txt, but .* is missing\..*Unpack dtd-r1\.0\.1\.tar\.gz anew"):
        read_images(root, partition=3, check_counts=False)


def test_another_number_of_a_class_is_refused(root: Path) -> None:
    with pytest.raises(
        ValueError, match=r"(?s)40 images of every class in train1\.txt, but .* has 2 of banded.*check_counts off"
    ):
        read_images(root)


def test_missing_images_are_counted_and_the_first_is_named(root: Path) -> None:
    (root / "dtd" / "images" / "braided" / "braided_0005.jpg").unlink()
    with pytest.raises(ValueError, match=r"partition 1 names 24 images, but 1 of them .* first is braided/braided_0005\.jpg"):
        read_images(root, check_counts=False)


def test_parts_that_overlap_are_refused(root: Path) -> None:
    labels = root / "dtd" / "labels"
    (labels / "test1.txt").write_bytes((labels / "val1.txt").read_bytes())
    with pytest.raises(ValueError, match=r"lists of dtd have banded/banded_0002\.jpg 2 times"):
        read_images(root, check_counts=False)


def test_a_line_that_is_no_image_is_refused(root: Path) -> None:
    (root / "dtd" / "labels" / "val1.txt").write_text("banded/banded_0002.jpg\nblotchy\n")
    with pytest.raises(ValueError, match=r"Line 2 of .*val1\.txt should be CLASS/FILE, but is 'blotchy'"):
        read_images(root, check_counts=False)
