"""MIT Indoor in its real layout, whole, in miniature, and corrupted."""

from pathlib import Path

import pytest

import miniatures
from compact_bilinear.images import mit_indoor, read_images


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return miniatures.write(miniatures.mit(), tmp_path)


def test_reads_a_miniature(root: Path) -> None:
    images = mit_indoor.read(root, check_counts=False)
    assert images.classes == miniatures.MIT_CLASSES
    assert images.counts() == {"train": 6, "test": 3}
    assert images.paths[:2] == ("airport_inside/shopping 0.jpg", "concert_hall/shopping 1.jpg")
    assert images.labels == (0, 1, 2) * 3
    assert "airport_inside/in_no_list.jpg" not in images.paths
    assert all(images.file(index).is_file() for index in range(len(images)))


@pytest.mark.parametrize("below", ["indoorCVPR_09", "indoorCVPR_09/indoorCVPR_09"])
def test_lists_may_lie_above_what_was_unpacked(tmp_path: Path, below: str) -> None:
    files = {name if name.endswith(".txt") else f"{below}/{name}": content for name, content in miniatures.mit().items()}
    images = read_images(miniatures.write(files, tmp_path), check_counts=False)
    assert (images.name, len(images)) == ("mit", 9)


def test_the_whole_has_the_usual_counts(tmp_path: Path) -> None:
    files = miniatures.whole_mit()
    archive = tmp_path / "indoorCVPR_09.tar"
    archive.write_bytes(miniatures.tar({name: content for name, content in files.items() if name.startswith("Images")}, "w"))
    with pytest.raises(
        ValueError, match=r"(?s)needs TrainImages\.txt, but .* is missing\..*put TrainImages\.txt and TestImages"
    ):
        read_images(archive)
    miniatures.write({name: content for name, content in files.items() if name.endswith(".txt")}, tmp_path)
    assert str(read_images(archive)) == "mit: 6700 images of 67 classes (5360 train, 1340 test)"
    lines = (tmp_path / "TestImages.txt").read_text().splitlines()
    (tmp_path / "TestImages.txt").write_text("\n".join(lines[:-1]))
    with pytest.raises(ValueError, match=r"5360 training images, 1340 test images and 67 classes, but .* 5360, 1339 and 67\."):
        read_images(tmp_path)


@pytest.mark.parametrize("name", ["TrainImages.txt", "TestImages.txt"])
def test_a_missing_list_is_named(root: Path, name: str) -> None:
    (root / name).unlink()
    with pytest.raises(ValueError, match=rf"MIT Indoor needs {name}, but .*{name} is missing"):
        read_images(root, check_counts=False)


def test_missing_images_are_counted_and_the_first_is_named(root: Path) -> None:
    (root / "Images" / "mall" / "shopping 2.jpg").unlink()
    with pytest.raises(ValueError, match=r"names 9 images, but 1 of them .* first is mall/shopping 2\.jpg"):
        read_images(root, check_counts=False)


def test_an_image_in_both_lists_is_refused(root: Path) -> None:
    with (root / "TestImages.txt").open("a") as file:
        file.write("\nmall/shopping 2.jpg")
    with pytest.raises(ValueError, match=r"lists of mit have mall/shopping 2\.jpg 2 times"):
        read_images(root, check_counts=False)


def test_a_line_that_is_no_image_is_refused(root: Path) -> None:
    (root / "TestImages.txt").write_text("<html>Not found\n")
    with pytest.raises(ValueError, match=r"Line 1 of .*TestImages\.txt should be CLASS/FILE, but is '<html>Not found'"):
        read_images(root, check_counts=False)
