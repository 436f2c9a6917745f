"""Which files are ours, and that a manifest tells when it was changed."""

import json
from pathlib import Path

import pytest

from compact_bilinear.search.layout import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    check_files,
    facts_of,
    generation_of,
    name_of,
    read_manifest,
    sweep,
    write_manifest,
)

HEAD = {"format": FORMAT, "format_version": FORMAT_VERSION, "generation": 3}


@pytest.mark.parametrize(
    ("name", "generation"),
    [
        ("rows-00003.faiss", 3),
        ("model-00012", 12),
        ("deleted-123456.npy", 123456),
        (".rows-00003.faiss.01234567.part", 0),
        ("rows-3.faiss", 0),
        ("holiday-00003.jpg", 0),
        (MANIFEST, 0),
    ],
)
def test_generations(name: str, generation: int) -> None:
    assert generation_of(name) == generation
    if generation and "." in name:
        what, _, suffix = name.partition(".")
        assert name_of(what.partition("-")[0], generation, f".{suffix}") == name


def test_only_what_is_ours_and_nobodys_is_removed(tmp_path: Path) -> None:
    for name in (
        "rows-00002.faiss",
        "rows-00003.faiss",
        ".items-00003.arrow.01234567.part",
        "notes.txt",
        ".lock",
        "rows-3.faiss",
    ):
        (tmp_path / name).write_text("")
    (tmp_path / "model-00001").mkdir()
    (tmp_path / "model-00002").mkdir()
    (tmp_path / "model-00002" / "model.json").write_text("")
    sweep(tmp_path, HEAD | {"files": {"rows-00003.faiss": {}, "model-00001/model.json": {}}})
    assert {each.name for each in tmp_path.iterdir()} == {
        "rows-00003.faiss",
        "model-00001",
        "notes.txt",
        ".lock",
        "rows-3.faiss",
    }


def test_a_manifest_that_was_changed(tmp_path: Path) -> None:
    write_manifest(tmp_path, HEAD | {"classes": ["Zaunkönig"], "files": {}})
    assert read_manifest(tmp_path) == HEAD | {"classes": ["Zaunkönig"], "files": {}}
    text = (tmp_path / MANIFEST).read_text("utf-8")
    (tmp_path / MANIFEST).write_text(text.replace("Zaunkönig", "Amsel"), "utf-8")
    with pytest.raises(ValueError, match=r"is damaged: its checksum does not fit\.\nCopy the folder anew"):
        read_manifest(tmp_path)
    for strange in ("", "[]", "{}", json.dumps(HEAD | {"format_version": 2}), text[:-20]):
        (tmp_path / MANIFEST).write_text(strange, "utf-8")
        with pytest.raises(ValueError, match=r"manifest.json (is no manifest of an index|says).*\n"):
            read_manifest(tmp_path)


def test_files_that_were_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows-00001.faiss"
    file.write_bytes(b"0123456789")
    manifest = {"files": {file.name: facts_of(file)}}
    check_files(tmp_path, manifest)
    file.write_bytes(b"0123456780")
    with pytest.raises(ValueError, match="checksum does not fit"):
        check_files(tmp_path, manifest)
    monkeypatch.setattr("compact_bilinear.search.layout.CHEAP", 9)
    check_files(tmp_path, manifest)
    with pytest.raises(ValueError, match="checksum does not fit"):
        check_files(tmp_path, manifest, full=True)
    file.write_bytes(b"012345678")
    with pytest.raises(ValueError, match="should have 10 bytes, but has 9"):
        check_files(tmp_path, manifest)
