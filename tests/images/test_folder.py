"""Folders that nobody cleaned."""

import os
import sys
from pathlib import Path

import pytest

from compact_bilinear.images import folder
from compact_bilinear.images.image_list import ImageList, stratified
from miniatures import write


def make(root: Path, *names: str) -> Path:
    return write(dict.fromkeys(names, b""), root)


def split(images: ImageList) -> dict[str, str]:
    return dict(zip(images.paths, images.splits, strict=True))


# --- what lies there ---


def test_a_split_that_was_made(tmp_path: Path) -> None:
    make(tmp_path, "train/wren/a.jpg", "train/crow/b.jpeg", "train/crow/a.PNG", "test/crow/c.webp", "val/wren/d.tif")
    images = folder.read(tmp_path)
    assert images.classes == ("crow", "wren")
    assert split(images) == {
        "test/crow/c.webp": "test",
        "train/crow/a.PNG": "train",
        "train/crow/b.jpeg": "train",
        "train/wren/a.jpg": "train",
        "val/wren/d.tif": "val",
    }
    assert [images.classes[label] for label in images.labels] == [path.split("/")[1] for path in images.paths]
    assert images.left_out == ()


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    make(tmp_path, *(f"{name}/{number}.jpg" for name in ("crow", "wren") for number in range(7)))
    images = folder.read(tmp_path)
    assert images.counts() == {"train": 6, "test": 8}
    assert [images.select("train").labels.count(label) for label in (0, 1)] == [3, 3]
    assert folder.read(tmp_path) == images
    assert folder.read(tmp_path, seed=1).splits != images.splits
    assert folder.read(tmp_path, test_share=0.1).counts() == {"train": 12, "test": 2}


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    make(tmp_path, *(f"{name}/{number}.jpg" for name in ("bus", "train") for number in range(2)))
    assert folder.read(tmp_path).classes == ("bus", "train")


def test_images_alone_have_no_labels(tmp_path: Path) -> None:
    make(tmp_path, "b.jpg", "a.png", "notes.txt", ".hidden.jpg")
    images = folder.read(tmp_path)
    assert (images.paths, images.labels, images.classes) == (("a.png", "b.jpg"), (-1, -1), ())
    assert images.left_out == ("notes.txt",)
    assert str(images) == f"{tmp_path.name}: 2 images (2 in no split)"


def test_the_folder_one_is_in_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a.jpg")
    monkeypatch.chdir(tmp_path)
    images = folder.read(Path())
    assert (images.name, images.paths) == (tmp_path.name, ("a.jpg",))


def test_images_may_lie_deep_in_their_class(tmp_path: Path) -> None:
    make(tmp_path, "crow/2019/may/a.jpg", "crow/2020/a.jpg", "wren/a.jpg", "wren/b.jpg")
    images = folder.read(tmp_path)
    assert images.paths == ("crow/2019/may/a.jpg", "crow/2020/a.jpg", "wren/a.jpg", "wren/b.jpg")
    assert images.labels == (0, 0, 1, 1)


def test_what_systems_strew_is_passed_over_and_the_rest_is_listed(tmp_path: Path) -> None:
    strewn = (
        ".DS_Store",
        "crow/.DS_Store",
        "crow/._a.jpg",
        "crow/Thumbs.db",
        "__MACOSX/crow/._a.jpg",
        ".git/x.jpg",
        "desktop.ini",
    )
    make(tmp_path, "crow/a.jpg", "crow/b.jpg", "crow/label.xml", "crow/noname", "crow/a.heic", "stray.doc", *strewn)
    images = folder.read(tmp_path)
    assert images.paths == ("crow/a.jpg", "crow/b.jpg")
    assert images.left_out == ("crow/a.heic", "crow/label.xml", "crow/noname", "stray.doc")


def test_what_lies_beside_the_classes_of_a_split_is_listed(tmp_path: Path) -> None:
    make(tmp_path, "train/crow/a.jpg", "test/crow/a.jpg", "train/stray.xml", "README.md")
    assert folder.read(tmp_path).left_out == ("README.md", "train/stray.xml")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names themselves")
def test_a_name_that_is_no_text_is_left_out_and_can_be_printed(tmp_path: Path) -> None:
    make(tmp_path, "crow/a.jpg", "crow/b.jpg")
    (tmp_path / "crow" / os.fsdecode(b"gr\xfcn.jpg")).write_bytes(b"")
    (tmp_path / os.fsdecode(b"\xff.txt")).write_bytes(b"")
    images = folder.read(tmp_path)
    assert len(images) == 2
    assert images.left_out == ("\\udcff.txt", "crow/gr\\udcfcn.jpg")


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/a.jpg", "elsewhere/b.jpg", "data/wren/a.jpg", "data/wren/b.jpg")
    (tmp_path / "data" / "crow").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "wren" / "again").symlink_to(tmp_path / "data" / "wren")
    images = folder.read(tmp_path / "data")
    assert images.paths == ("crow/a.jpg", "crow/b.jpg", "wren/a.jpg", "wren/b.jpg")


# --- what is refused ---


@pytest.mark.parametrize("names", [("train/crow/a.jpg",), ("test/crow/a.jpg",), ("val/x/a.jpg", "test/x/a.jpg")])
def test_half_a_split_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    make(tmp_path, *names)
    with pytest.raises(ValueError, match=r"(?s)holds train/ and test/, but .* holds .*/\..*Add what is missing, or give"):
        folder.read(tmp_path)


def test_a_folder_around_the_folders_of_classes_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "images/crow/a.jpg", "images/wren/b.jpg", "split0.csv")
    with pytest.raises(ValueError, match=r"(?s)holds one folder, which holds others.*Give .*images or split0\.csv\."):
        folder.read(tmp_path)
    assert folder.read(tmp_path / "images").classes == ("crow", "wren")


def test_two_folders_for_one_split_are_refused(tmp_path: Path) -> None:
    make(tmp_path, "train/x/a.jpg", "val/x/a.jpg", "validation/x/a.jpg")
    with pytest.raises(ValueError, match=r"holds train/, val/, validation/\."):
        folder.read(tmp_path)


@pytest.mark.parametrize(
    "names", [("crow/a.jpg", "wren/notes.txt"), ("train/crow/a.jpg", "train/wren/a.txt", "test/crow/b.jpg")]
)
def test_a_class_without_images_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    make(tmp_path, *names)
    with pytest.raises(ValueError, match=r"(?s)Every class needs an image, but .*wren has none.*Remove the folder or fill it"):
        folder.read(tmp_path)


@pytest.mark.parametrize("stray", ["stray.jpg", "train/stray.jpg", "test/stray.jpg"])
def test_images_beside_the_folders_of_classes_are_refused(tmp_path: Path, stray: str) -> None:
    make(tmp_path, "train/crow/a.jpg", "test/crow/a.jpg", stray)
    with pytest.raises(
        ValueError, match=rf"(?s)but 1 lie beside such folders in .*, {stray} for one\..*Move them into a class"
    ):
        folder.read(tmp_path)


def test_a_class_without_test_images_is_fine(tmp_path: Path) -> None:
    make(tmp_path, "train/crow/a.jpg", "train/wren/a.jpg", "test/crow/b.jpg", "test/wren/readme.txt")
    assert folder.read(tmp_path).counts() == {"train": 2, "test": 1}


@pytest.mark.parametrize("part", ["test", "val"])
def test_classes_that_are_only_tested_are_refused(tmp_path: Path, part: str) -> None:
    make(tmp_path, "train/crow/a.jpg", f"{part}/crow/b.jpg", f"{part}/wren/b.jpg", f"{part}/emu/b.jpg")
    with pytest.raises(ValueError, match=rf"classes in {part}/ should be in train/ too, but 2 are not, emu for one"):
        folder.read(tmp_path)


@pytest.mark.parametrize(("one", "other"), [("Crow", "crow"), ("Gru\u0308n", "Gr\u00fcn")])
def test_classes_that_differ_only_in_how_they_are_written_are_refused(tmp_path: Path, one: str, other: str) -> None:
    make(tmp_path, f"train/{one}/a.jpg", f"test/{other}/a.jpg")
    with pytest.raises(ValueError, match=r"(?s)differ only in how they are written.*give both folders one name"):
        folder.read(tmp_path)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "a.txt")
    with pytest.raises(
        ValueError, match=r"(?s)no file that ends in one of \.apng .*Give the folder that holds train/ and test/"
    ):
        folder.read(tmp_path)


# --- splits ---


def test_a_split_has_the_same_share_of_every_class_and_never_empties_one() -> None:
    sizes = (1, 2, 3, 10, 101)
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    splits = stratified([f"{index}.jpg" for index in range(len(labels))], labels, 0.3, seed=0)
    tested = [sum(split == "test" for split, label in zip(splits, labels, strict=True) if label == each) for each in range(5)]
    assert tested == [0, 1, 1, 3, 30]
    most = stratified([str(index) for index in range(4)], [0] * 4, 0.99, seed=0)
    assert most.count("train") == 1


def test_a_split_depends_on_names_alone_and_new_images_hardly_move_it() -> None:
    names = [f"crow/{number}.jpg" for number in range(50)] + [f"wren/{number}.jpg" for number in range(50)]
    labels = [0] * 50 + [1] * 50
    before = dict(zip(names, stratified(names, labels, 0.5, seed=3), strict=True))
    backwards = dict(zip(names[::-1], stratified(names[::-1], labels[::-1], 0.5, seed=3), strict=True))
    assert before == backwards
    after = dict(zip(["crow/new.jpg", *names], stratified(["crow/new.jpg", *names], [0, *labels], 0.5, seed=3), strict=True))
    moved = [name for name in names if before[name] != after[name]]
    assert len(moved) <= 1
    assert all(name.startswith("crow") for name in moved)


@pytest.mark.parametrize("share", [0, 1, -0.5, 20])
def test_a_share_lies_between_none_and_all(tmp_path: Path, share: float) -> None:
    make(tmp_path, "crow/a.jpg", "crow/b.jpg")
    with pytest.raises(ValueError, match=r"(?s)between 0 and 1, but got .*Write test_share=0\.5"):
        folder.read(tmp_path, test_share=share)


def test_a_split_that_is_not_there_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "crow/a.jpg", "crow/b.jpg")
    with pytest.raises(ValueError, match=r"'val' .* was asked for, but there are only 'train' \(1\), 'test' \(1\)"):
        folder.read(tmp_path).select("val")
