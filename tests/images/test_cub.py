"""CUB-200-2011 in its real layout, whole, in miniature, and corrupted."""

from pathlib import Path

import pytest

import miniatures
from compact_bilinear.images import cub, read_images


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return miniatures.write(miniatures.cub(), tmp_path)


def test_reads_a_miniature(root: Path) -> None:
    images = cub.read(root / "CUB_200_2011", check_counts=False)
    assert images.classes == miniatures.CUB_CLASSES
    assert images.counts() == {"train": 6, "test": 3}
    assert [images.labels.count(label) for label in range(3)] == [3, 3, 3]
    for index, path in enumerate(images.paths):
        assert images.classes[images.labels[index]] == path.split("/")[0]
        assert images.file(index).is_file()


def test_numbers_decide_and_not_the_order_of_the_lines(root: Path) -> None:
    before = cub.read(root / "CUB_200_2011", check_counts=False)
    for table in cub.TABLES:
        file = root / "CUB_200_2011" / table
        file.write_bytes(miniatures.lines(file.read_text().splitlines()[::-1]))
    assert cub.read(root / "CUB_200_2011", check_counts=False) == before


def test_classes_may_have_gaps_in_their_numbers(root: Path) -> None:
    folder = root / "CUB_200_2011"
    (folder / "classes.txt").write_text("3 x\n10 y\n20 z\n")
    (folder / "image_class_labels.txt").write_text("".join(f"{n} {(3, 10, 20)[n % 3]}\n" for n in range(1, 10)))
    images = cub.read(folder, check_counts=False)
    assert images.classes == ("x", "y", "z")
    assert images.labels == (1, 2, 0) * 3


def test_the_whole_has_the_papers_counts(tmp_path: Path) -> None:
    archive = tmp_path / "CUB_200_2011.tgz"
    archive.write_bytes(miniatures.tar(miniatures.whole_cub()))
    images = read_images(archive)
    assert str(images) == "cub: 11788 images of 200 classes (5994 train, 5794 test)"
    split = images.root.parent / "train_test_split.txt"
    split.write_text(split.read_text().replace(" 1\n", " 0\n", 1))
    with pytest.raises(ValueError, match=r"(?s)5994 training images, 5794 .* has 5993, 5795 and 200\..*turn check_counts off"):
        read_images(tmp_path / "CUB_200_2011")
    assert len(read_images(tmp_path / "CUB_200_2011", check_counts=False)) == 11788


@pytest.mark.parametrize("table", cub.TABLES)
def test_a_missing_table_is_named(root: Path, table: str) -> None:
    (root / "CUB_200_2011" / table).unlink()
    with pytest.raises(
        ValueError, match=rf"(?s)CUB-200-2011 needs {table}, but .* is missing\..*Unpack CUB_200_2011\.tgz anew"
    ):
        read_images(root, check_counts=False)


def test_missing_images_are_counted_and_the_first_is_named(root: Path) -> None:
    images = cub.read(root / "CUB_200_2011", check_counts=False)
    images.file(4).unlink()
    images.file(7).unlink()
    with pytest.raises(ValueError, match=rf"(?s)names 9 images, but 2 of them are not .* first is {images.paths[4]}\..*Unpack"):
        read_images(root, check_counts=False)


@pytest.mark.parametrize(
    ("table", "old", "new", "sentence"),
    [
        ("images.txt", "3 001", "3001", r"Line 3 of .*images\.txt should be a number of its own and a value, but is '3001"),
        ("images.txt", "3 001", "2 001", r"Line 3 of .*images\.txt should be a number of its own"),
        ("images.txt", "3 001", "x 001", r"Line 3 of .*images\.txt should be a number of its own"),
        (
            "image_class_labels.txt",
            "9 3\n",
            "",
            r"images\.txt and image_class_labels\.txt .* not list the same images.* only one has 9",
        ),
        ("image_class_labels.txt", "9 3", "9 4", r"gives image 9 the class 4, which classes\.txt lacks"),
        ("image_class_labels.txt", "9 3", "9 three", r"gives image 9 the class three, which classes\.txt lacks"),
        (
            "train_test_split.txt",
            "9 ",
            "10 ",
            r"images\.txt and train_test_split\.txt .* not list the same images.* only one has 9",
        ),
        ("train_test_split.txt", "1 1", "1 2", r"train_test_split\.txt says '2' of image 1 in place of 0 or 1"),
    ],
)
def test_a_corrupt_table_is_refused(root: Path, table: str, old: str, new: str, sentence: str) -> None:
    file = root / "CUB_200_2011" / table
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=rf"(?s){sentence}.*\nUnpack CUB_200_2011\.tgz anew"):
        read_images(root, check_counts=False)


def test_a_table_that_is_no_text_is_refused(root: Path) -> None:
    (root / "CUB_200_2011" / "classes.txt").write_bytes(b"\xff\xd8\xff\xe0")
    with pytest.raises(ValueError, match=r"classes\.txt is not a text file in UTF-8: invalid start byte at byte 0"):
        read_images(root, check_counts=False)
