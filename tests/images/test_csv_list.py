"""Lists of images as people and spreadsheets write them."""

from pathlib import Path

import pytest

from compact_bilinear.images import csv_list, read_images
from miniatures import write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(dict.fromkeys(["a.jpg", "b.jpg", "c.jpg", "deep/d, e.jpg"], b""), tmp_path)


def read(root: Path, text: str, **options: float) -> csv_list.ImageList:
    (root / "list.csv").write_bytes(text.encode())
    return csv_list.read(root / "list.csv", **options)  # type: ignore[arg-type]


def test_reads_path_label_and_split(root: Path) -> None:
    images = read(root, 'path,label,split\na.jpg,wren,train\nb.jpg,crow,Train\n"deep/d, e.jpg",wren,test\nc.jpg,crow,val\n')
    assert (images.name, images.root, images.classes) == ("list", root, ("crow", "wren"))
    assert images.paths == ("a.jpg", "b.jpg", "deep/d, e.jpg", "c.jpg")
    assert images.labels == (1, 0, 1, 0)
    assert images.splits == ("train", "train", "test", "val")


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffpath;label;split\r\na.jpg;wren;train\r\nb.jpg;wren;test\r\n",
        "Label\tSplit\tremark\tPath\nwren\ttrain\t\ta.jpg\nwren\ttest\tblurred\tb.jpg",
        "\n path , label , split \n\n a.jpg , wren , train \n b.jpg , wren , test \n\n",
        "path,label,split\n./a.jpg,wren,train\nb.jpg,wren,test\n",
    ],
)
def test_reads_what_spreadsheets_write(root: Path, text: str) -> None:
    images = read(root, text)
    assert (images.paths, images.classes, images.splits) == (("a.jpg", "b.jpg"), ("wren",), ("train", "test"))


def test_without_splits_one_is_drawn(root: Path) -> None:
    images = read(root, "path,label\na.jpg,x\nb.jpg,x\nc.jpg,x\n", test_share=0.3, seed=1)
    assert images.counts() == {"train": 2, "test": 1}


def test_without_labels_nothing_is_split(root: Path) -> None:
    images = read(root, "path\na.jpg\nb.jpg\n")
    assert (images.classes, images.labels, images.splits) == ((), (-1, -1), ("", ""))


def test_all_may_be_there_to_test_on(root: Path) -> None:
    assert read(root, "path,label,split\na.jpg,x,test\nb.jpg,y,test\n").counts() == {"test": 2}


def test_absolute_paths_stay(root: Path) -> None:
    images = read(root, f"path\n{root}/a.jpg\n")
    assert images.file(0) == root / "a.jpg"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"has columns path, label and split, but the first line of .* is ''"),
        ("file,label\na.jpg,x\n", r"first line of .* is 'file,label'\.\nWrite `path,label,split` there"),
        ("path,path\na.jpg,b.jpg\n", r"first line of .* is 'path,path'"),
        ("path,label,split\n", r"lists no image\.\nAdd a line"),
        ("path,label\na.jpg,x\nb.jpg\n", r"Line 3 of .* has 1 values for 2 columns"),
        ("path,label\na.jpg,x\nb.jpg,\n", r"Line 3 of .* has no label\.\nFill it in"),
        ("path,label\n,x\nb.jpg,x\n", r"Line 2 of .* has no path\.\nFill it in"),
        ("path,label,split\na.jpg,x,train\nb.jpg,x,\n", r"Line 3 of .* has no split\.\nFill it in"),
        ("path,label,split\na.jpg,x,trian\n", r"Line 2 of .* has the split 'trian'\.\nWrite train, test or val"),
        ("path,label\na.jpg,x\nb.jpg,x\n./a.jpg,x\n", r"Line 4 of .* lists \./a\.jpg, as line 2 does\.\nRemove one"),
        ("path,label\na.jpg,x\nz.jpg,x\n", r"names 2 images, but 1 of them .* first is z\.jpg\.\nPaths start from the folder"),
        ("path,label,split\na.jpg,x,train\nb.jpg,y,test\n", r"but 1 have none, y for one\.\nAdd lines of theirs"),
        ('path,label\n"a.jpg,x\n', r"Line 2 of .* cannot be read: unexpected end of data\.\nMend its quotes"),
    ],
)
def test_refuses(root: Path, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){sentence}"):
        read(root, text)


def test_refuses_another_encoding(root: Path) -> None:
    (root / "list.csv").write_bytes("path,label\na.jpg,grün\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"(?s)is not in UTF-8: .* at byte 19\.\nSave it in that encoding"):
        csv_list.read(root / "list.csv")


MATERIALS = Path(__file__).parents[2].parent / "shared" / "data" / "materials"


@pytest.mark.skipif(not MATERIALS.is_dir(), reason="the photographs of materials are not at ../shared/data/materials")
@pytest.mark.parametrize("number", range(5))
def test_reads_the_splits_of_materials(number: int) -> None:
    images = read_images(MATERIALS / f"split{number}.csv")
    assert (len(images), len(images.classes)) == (286, 23)
    assert images.counts()["train"] + images.counts()["test"] == 286
