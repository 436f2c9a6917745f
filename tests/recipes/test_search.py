"""``cbp search`` as its users run it: a file, a folder, what is inside; broken images among them; twins."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import clustered
import photos
from compact_bilinear import cli
from compact_bilinear.search import Index, IndexWriter


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs, and an index of them that has its model."""
    folder = tmp_path_factory.mktemp("search")
    settings = ["--backbone", "tiny", "--size", str(photos.SIZE), "--pool", "tensor-sketch:512", "--workers", "0"]
    assert cli.main(["extract", str(photos.photos(folder / "photos")), "--out", str(folder / "features"), *settings]) == 0
    assert cli.main(["index", str(folder / "features"), "--out", str(folder / "index")]) == 0
    (folder / "features").rename(folder / "moved")  # the index is all that a search takes
    return folder


def search(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> tuple[str, list[str]]:
    """What a command prints, and what it tells by the way."""
    capsys.readouterr()
    assert cli.main(["search", *map(str, words)]) == code
    printed = capsys.readouterr()
    return printed.out, printed.err.splitlines()


def test_a_file_finds_itself_first_and_its_class_next(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "photos/train/brick/03.jpg"
    out, told = search(capsys, folder / "index", file, "--format", "jsonl", "--top", 4)
    assert told == []
    (found,) = map(json.loads, out.splitlines())
    assert found["query"] == str(file)
    assert [each["rank"] for each in found["neighbours"]] == [1, 2, 3, 4]
    first = found["neighbours"][0]
    assert (first["path"], first["class"], first["split"]) == ("train/brick/03.jpg", "brick", "train")
    # computed again, in a batch of another size, and compared with float16
    assert first["similarity"] == pytest.approx(1, abs=1e-3)
    index = Index(folder / "index")
    inside, _ = search(capsys, folder / "index", "train/brick/03.jpg", "--format", "jsonl", "--top", 3)
    (others,) = map(json.loads, inside.splitlines())
    assert [each["path"] for each in others["neighbours"]] == [each["path"] for each in found["neighbours"][1:]]
    numbers = index.neighbours(index.find("train/brick/03.jpg"), 3).numbers
    assert [each["path"] for each in others["neighbours"]] == [index.item(number).path for number in numbers]


def test_formats_say_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = (folder / "index", "test/moss/05.jpg", "train/bark/00.jpg", "--top", 3)
    records = [json.loads(line) for line in search(capsys, *asked, "--format", "jsonl")[0].splitlines()]
    table = list(csv.DictReader(search(capsys, *asked, "--format", "csv")[0].splitlines()))
    text = search(capsys, *asked)[0].splitlines()
    flat = [(record["query"], each["path"], each["similarity"]) for record in records for each in record["neighbours"]]
    assert [(row["query"], row["path"], float(row["similarity"])) for row in table] == flat
    assert [line for line in text if not line.startswith(" ")] == ["test/moss/05.jpg", "train/bark/00.jpg"]
    assert [line.split()[3] for line in text if line.startswith(" ")] == [path for _, path, _ in flat]
    assert text[1].split()[0] == "1"


def test_a_folder_with_broken_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, told = search(capsys, folder / "index", folder / "photos/test", "--format", "jsonl", "--top", 1, code=1)
    found = [json.loads(line) for line in out.splitlines()]
    names = sorted(str(each) for each in (folder / "photos/test").rglob("*.jpg"))
    broken = str(folder / "photos/test/bark/04.jpg")
    assert [each["query"] for each in found] == [name for name in names if name != broken]
    assert all(each["query"].endswith(each["neighbours"][0]["path"]) for each in found)
    assert told == [
        f"left out: {broken}: the file is empty",
        f"Images that gave no features: 1; the first is {broken}: the file is empty.",
        "Mend or remove what is named above; for all else is printed what was found.",
    ]


def test_files_folders_and_what_is_inside_together(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(folder / "photos/test/moss/06.jpg", tmp_path / "new é.jpg")
    (tmp_path / "broken.jpg").write_bytes(b"nothing")
    (tmp_path / "more").mkdir()
    Image.open(folder / "photos/test/brick/06.jpg").resize((90, 70)).save(tmp_path / "more" / "large.png")
    monkeypatch.chdir(tmp_path)
    asked = ("train/moss/01.jpg", "new é.jpg", "broken.jpg", "more", "test/brick/07.jpg")
    out, told = search(capsys, folder / "index", *asked, "--format", "csv", "--top", 1, "--batch", 1, code=1)
    rows = list(csv.DictReader(out.splitlines()))
    assert [row["query"] for row in rows] == ["train/moss/01.jpg", "new é.jpg", "more/large.png", "test/brick/07.jpg"]
    assert rows[1]["path"] == "test/moss/06.jpg"
    assert told[0] == "left out: broken.jpg: not an image in a known format"


def test_an_image_whose_features_are_zero(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compact_bilinear.model.Model.features", lambda self, pixels: self.pooling(self.backbone(pixels)) * 0)
    file = folder / "photos/train/brick/03.jpg"
    out, told = search(capsys, folder / "index", file, code=1)
    assert out == ""
    assert told[0] == f"left out: {file}: its features are zero"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break otherwise there")
def test_a_reader_that_has_read_enough(folder: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "compact_bilinear", "search", folder / "index", "test/moss/05.jpg"]
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writes)
    assert (done.returncode, done.stderr) == (0, "")


def test_duplicates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = clustered.rows(60, 64, classes=60)
    x[[20, 40]] = x[3]
    x[50] = x[9] + 0.001
    store = clustered.store(tmp_path / "features", x, paths=[f"{n}.jpg" for n in range(60)])
    IndexWriter(tmp_path / "index").make(store, "tensor-sketch:64")
    asked = (tmp_path / "index", "--duplicates")
    out, told = search(capsys, *asked)
    assert [line.split()[-2] if line.startswith(" ") else line for line in out.splitlines()] == [
        *("1", "3.jpg", "20.jpg", "40.jpg"),
        *("2", "9.jpg", "50.jpg"),
    ]
    assert told[-1] == "groups with a similarity of 0.95 or more: 2, of 5 of 60 images"
    groups = [json.loads(line) for line in search(capsys, *asked, "--format", "jsonl")[0].splitlines()]
    assert [[each["path"] for each in group["images"]] for group in groups] == [
        ["3.jpg", "20.jpg", "40.jpg"],
        ["9.jpg", "50.jpg"],
    ]
    assert all(each["similarity"] > 0.999 for group in groups for each in group["images"])
    assert search(capsys, *asked, "--threshold", 0.99999)[1][-1].startswith("groups with a similarity of 0.99999 or more: ")


def test_what_is_written_wrongly_is_told_in_two_lines(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = clustered.store(tmp_path / "features", clustered.rows(9, 33))
    IndexWriter(tmp_path / "index").make(store, "tensor-sketch:33")
    (tmp_path / "empty").mkdir()
    file = folder / "photos/train/brick/03.jpg"
    for words, told, remedy in (
        ([tmp_path / "absent", file], "absent does not exist.", "Check its name"),
        ([folder / "index"], "but neither was asked for.", "IMAGE`, or `cbp search"),
        ([folder / "index", file, "--duplicates"], "but both were asked for.", "--duplicates`."),
        ([folder / "index", "wren.jpg"], "has no image wren.jpg.", "Name a file or a folder"),
        ([folder / "index", tmp_path / "empty"], "empty has no images.", "Name a folder"),
        ([tmp_path / "index", file], "has no model", "Search for images that are inside"),
        ([folder / "index", file, "--top", 0], "got 0, None and 0.", "Leave them out"),
        ([folder / "index", "--duplicates", "--threshold", 95], "but got 95.0.", "Write --threshold 0.95"),
    ):
        out, err = search(capsys, *words, code=2)
        assert out == ""
        first, second = err[-2:]
        assert told in first
        assert remedy in second


def test_a_damaged_index_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(folder / "index", tmp_path / "index")
    file = next((tmp_path / "index" / "model-00001").glob("*.safetensors"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    _, told = search(capsys, tmp_path / "index", "train/brick/03.jpg", code=2)
    assert told == [f"{file} is damaged: its checksum does not fit.", "Copy the folder anew, or index anew."]
