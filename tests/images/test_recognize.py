"""What lies there is found out, and what was asked for in vain is said."""

import subprocess
import sys
from pathlib import Path

import pytest

import miniatures
from compact_bilinear.images import read_images

MINIATURES = {
    "cub": miniatures.cub(),
    "mit": miniatures.mit(),
    "dtd": miniatures.dtd(),
    "folder": {f"{label}/{number}.jpg": b"" for label in "ab" for number in range(2)},
}
BELOW = {"cub": "CUB_200_2011", "mit": ".", "dtd": "dtd", "folder": "."}


@pytest.mark.parametrize("kind", MINIATURES)
def test_every_data_set_is_recognized_where_it_lies_and_above(kind: str, tmp_path: Path) -> None:
    miniatures.write(MINIATURES[kind], tmp_path / "data")
    images = read_images(tmp_path / "data", check_counts=False)
    assert images.name == ("data" if kind == "folder" else kind)
    assert read_images(tmp_path / "data" / BELOW[kind], check_counts=False) == images
    assert read_images(str(tmp_path / "data"), kind, check_counts=False) == images  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", MINIATURES)
@pytest.mark.parametrize("asked", [*MINIATURES, "csv"])
def test_another_kind_than_asked_for_is_named(kind: str, asked: str, tmp_path: Path) -> None:
    if kind == asked:
        return
    miniatures.write(MINIATURES[kind], tmp_path)
    with pytest.raises(
        ValueError, match=rf"(?s)should be of the kind {asked}, which is .*, but looks like {kind}\..*Ask for {kind}"
    ):
        read_images(tmp_path, asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", [".tgz", ".tar.gz", ".TAR"])
@pytest.mark.parametrize("kind", MINIATURES)
def test_an_archive_is_as_good_as_its_folder(kind: str, suffix: str, tmp_path: Path) -> None:
    archive = tmp_path / f"data{suffix}"
    archive.write_bytes(miniatures.tar(MINIATURES[kind], "w" if suffix == ".TAR" else "w:gz"))
    images = read_images(archive, check_counts=False)
    assert images.root.is_relative_to(tmp_path / "data")
    assert all(images.file(index).is_file() for index in range(len(images)))


def test_an_archive_may_have_one_folder_around_everything(tmp_path: Path) -> None:
    archive = tmp_path / "photos.tgz"
    archive.write_bytes(miniatures.tar({f"photos 2024/{name}": content for name, content in MINIATURES["folder"].items()}))
    images = read_images(archive)
    assert (images.classes, images.root) == (("a", "b"), tmp_path / "photos" / "photos 2024")


def test_a_csv_is_recognized_by_its_name(tmp_path: Path) -> None:
    miniatures.write({"list.CSV": b"path\na.jpg\n", "list.tsv": b"path\tlabel\na.jpg\tx\n", "a.jpg": b""}, tmp_path)
    assert read_images(tmp_path / "list.CSV").paths == read_images(tmp_path / "list.tsv").paths == ("a.jpg",)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"(?s)nowhere does not exist.*Check its name"):
        read_images(tmp_path / "nowhere")


def test_what_is_neither_folder_nor_list_nor_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"(?s)a\.jpg is none of them by its name.*Rename it if it is one: \.csv, \.tsv, or \.tar "
    ):
        read_images(tmp_path / "a.jpg")


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"knows the kinds auto, cub, mit, dtd, folder, csv, but got 'cifar'"):
        read_images(tmp_path, "cifar")  # type: ignore[arg-type]


def test_the_layers_do_without_the_road(tmp_path: Path) -> None:
    """``import compact_bilinear`` needs torch alone, and images say which extra they miss."""
    program = (
        "import sys; sys.modules['PIL'] = None\n"
        "import compact_bilinear\n"
        "print('compact_bilinear.images' in sys.modules, 'rich' in sys.modules, 'scipy' in sys.modules)\n"
        "import compact_bilinear.images"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "False False False\n"
    assert 'PIL cannot be imported.\nWrite `pip install "compact-bilinear[road]"`' in done.stderr
