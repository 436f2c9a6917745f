"""Archives that are honest, broken and malicious."""

import errno
import io
import multiprocessing
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import miniatures
from compact_bilinear.images import archives
from compact_bilinear.images.archives import unpack

FILES = {"data/a.txt": b"one", "data/deep/b.bin": bytes(3000), "top.txt": b""}


def zipped(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b"") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, content


def contents(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name != archives.NOTE
    }


MAKERS: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "tar": lambda files: miniatures.tar(files, "w"),
    "tgz": lambda files: miniatures.tar(files, "w:gz"),
    "tar.bz2": lambda files: miniatures.tar(files, "w:bz2"),
    "tar.xz": lambda files: miniatures.tar(files, "w:xz"),
    "zip": zipped,
}


@pytest.mark.parametrize("suffix", MAKERS)
def test_unpacks_beside_itself_and_once(suffix: str, tmp_path: Path) -> None:
    archive = tmp_path / f"some.data.{suffix}"
    archive.write_bytes(MAKERS[suffix](FILES))
    folder = unpack(archive)
    assert folder == tmp_path / "some.data"
    assert contents(folder) == FILES
    assert sorted(each.name for each in tmp_path.iterdir()) == ["some.data", archive.name]  # no lock, nothing unfinished
    (folder / "top.txt").write_bytes(b"touched")
    assert unpack(archive) == folder
    assert (folder / "top.txt").read_bytes() == b"touched"


def test_links_inside_become_copies(tmp_path: Path) -> None:
    archive = tmp_path / "links.tar"
    hard, soft = member("deep/hard", tarfile.LNKTYPE, "deep/a"), member("deep/other/soft", tarfile.SYMTYPE, "../a")
    archive.write_bytes(tar_of(member("deep/a", content=b"one"), hard, soft))
    folder = unpack(archive)
    assert contents(folder) == {"deep/a": b"one", "deep/hard": b"one", "deep/other/soft": b"one"}
    assert not any(each.is_symlink() for each in folder.rglob("*"))


def test_links_inside_a_zip_become_copies(tmp_path: Path) -> None:
    archive = tmp_path / "links.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("deep/a", b"one")
        link = zipfile.ZipInfo("deep/soft")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(link, "a")
    assert contents(unpack(archive)) == {"deep/a": b"one", "deep/soft": b"one"}


def test_backslashes_of_windows_are_folders(tmp_path: Path) -> None:
    archive = tmp_path / "windows.zip"
    archive.write_bytes(zipped({"data\\a.txt": b"one"}))
    assert contents(unpack(archive)) == {"data/a.txt": b"one"}


# --- what is dangerous ---

OUT = "leads out of the folder"
LINK = "is a link to .*, not to a file that came before it"
DEVICE = "is a device, or something else that is neither file nor folder"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (member("../evil", content=b"x"), OUT),
        (member("deep/../../evil", content=b"x"), OUT),
        (member("/evil", content=b"x"), OUT),
        (member("C:/evil", content=b"x"), OUT),
        (member("..", tarfile.DIRTYPE), OUT),
        (member("soft", tarfile.SYMTYPE, "/etc/hosts"), LINK),
        (member("soft", tarfile.SYMTYPE, "../secret"), LINK),
        (member("deep/soft", tarfile.SYMTYPE, "../../secret"), LINK),
        (member("soft", tarfile.SYMTYPE, "."), LINK),
        (member("soft", tarfile.SYMTYPE, "later"), LINK),
        (member("hard", tarfile.LNKTYPE, "../secret"), LINK),
        (member("hard", tarfile.LNKTYPE, "/etc/hosts"), LINK),
        (member("pipe", tarfile.FIFOTYPE), DEVICE),
        (member("disk", tarfile.BLKTYPE), DEVICE),
        (member("tty", tarfile.CHRTYPE), DEVICE),
    ],
    ids=lambda value: f"{value[0].name}->{value[0].linkname}" if isinstance(value, tuple) else "",
)
def test_what_would_leave_the_folder_is_refused_and_nothing_stays(
    tmp_path: Path, bad: tuple[tarfile.TarInfo, bytes], why: str
) -> None:
    (tmp_path / "secret").write_text("kept")
    archive = tmp_path / "bad.tar"
    archive.write_bytes(tar_of(member("good", content=b"x"), bad, member("later", content=b"x")))
    with pytest.raises(
        ValueError, match=rf"(?s)bad\.tar is not unpacked, for .* in it {why}.*Get the archive from its publisher"
    ):
        unpack(archive)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["bad.tar", "secret"]
    assert (tmp_path / "secret").read_text() == "kept"


@pytest.mark.parametrize("name", ["../evil", "/evil", "deep\\..\\..\\evil", "C:\\evil"])
def test_a_zip_cannot_leave_the_folder_either(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "bad.zip"
    archive.write_bytes(zipped({"good": b"x", name: b"x"}))
    with pytest.raises(ValueError, match=OUT):
        unpack(archive)
    assert [each.name for each in tmp_path.iterdir()] == ["bad.zip"]


@pytest.mark.parametrize("suffix", MAKERS)
def test_bombs_are_refused(suffix: str, tmp_path: Path) -> None:
    archive = tmp_path / f"bomb.{suffix}"
    archive.write_bytes(MAKERS[suffix]({"a": bytes(600_000), "b": bytes(600_000)}))
    with pytest.raises(ValueError, match=r"(?s)more than \d+ files or 1000000 bytes\..*unpack it yourself"):
        unpack(archive, max_bytes=1_000_000)
    archive.write_bytes(MAKERS[suffix]({str(number): b"" for number in range(11)}))
    with pytest.raises(ValueError, match="more than 10 files"):
        unpack(archive, max_files=10)
    assert [each.name for each in tmp_path.iterdir()] == [archive.name]


def test_copies_of_links_count(tmp_path: Path) -> None:
    archive = tmp_path / "bomb.tar"
    links = (member(str(number), tarfile.LNKTYPE, "a") for number in range(100))
    archive.write_bytes(tar_of(member("a", content=bytes(10_000)), *links))
    with pytest.raises(ValueError, match="more than"):
        unpack(archive, max_bytes=100_000)


# --- what is broken ---


@pytest.mark.parametrize("suffix", MAKERS)
def test_a_cut_archive_is_refused_and_nothing_stays(suffix: str, tmp_path: Path) -> None:
    archive = tmp_path / f"cut.{suffix}"
    whole = MAKERS[suffix]({f"data/{number}": os.urandom(5000) for number in range(20)})
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"(?s)cannot be unpacked into .*cut: .*Download it anew; it may be incomplete"):
        unpack(archive)
    assert [each.name for each in tmp_path.iterdir()] == [archive.name]


@pytest.mark.parametrize("suffix", MAKERS)
@pytest.mark.parametrize("content", [b"", b"<html>404 Not Found</html>"])
def test_what_is_no_archive_is_refused(suffix: str, content: bytes, tmp_path: Path) -> None:
    archive = tmp_path / f"no.{suffix}"
    archive.write_bytes(content)
    with pytest.raises(ValueError, match=r"Download it anew"):
        unpack(archive)


def test_damage_is_noticed(tmp_path: Path) -> None:
    archive = tmp_path / "damaged.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("a", b"some content")
    archive.write_bytes(archive.read_bytes().replace(b"some content", b"sane content"))
    with pytest.raises(ValueError, match=r"Bad CRC-32 for file 'a'\.\nDownload it anew"):
        unpack(archive)


def test_what_has_no_name_of_an_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ends in one of \.tar .*data\.rar"):
        unpack(tmp_path / "data.rar")


# --- what is there already, or in the way ---


def test_a_folder_of_that_name_is_not_touched(tmp_path: Path) -> None:
    archive = tmp_path / "photos.tgz"
    archive.write_bytes(miniatures.tar(FILES))
    miniatures.write({"a.txt": b"mine"}, tmp_path / "photos")
    with pytest.raises(
        ValueError, match=r"(?s)photos, which is there already and was not unpacked from it.*Give .*photos itself"
    ):
        unpack(archive)
    assert contents(tmp_path / "photos") == {"a.txt": b"mine"}


def test_another_archive_of_the_same_name_is_noticed(tmp_path: Path) -> None:
    archive = tmp_path / "photos.tgz"
    archive.write_bytes(miniatures.tar(FILES))
    unpack(archive)
    archive.write_bytes(miniatures.tar({**FILES, "more": b"x"}))
    with pytest.raises(ValueError, match="there already"):
        unpack(archive)


def test_what_a_killed_process_left_does_not_matter(tmp_path: Path) -> None:
    archive = tmp_path / "photos.tgz"
    archive.write_bytes(miniatures.tar(FILES))
    miniatures.write({"half": b"x"}, tmp_path / ".photos.unpacking")
    (tmp_path / ".photos.lock").write_bytes(b"")
    assert contents(unpack(archive)) == FILES
    assert sorted(each.name for each in tmp_path.iterdir()) == ["photos", "photos.tgz"]


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "photos.tgz"
    archive.write_bytes(miniatures.tar(FILES))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(archives.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match=r"(?s)photos: the disk is full\..*where there is room"):
        unpack(archive)
    assert [each.name for each in tmp_path.iterdir()] == ["photos.tgz"]


def test_processes_that_want_the_same_archive_unpack_it_once(tmp_path: Path) -> None:
    archive = tmp_path / "photos.tgz"
    archive.write_bytes(miniatures.tar({f"data/{number}": b"x" for number in range(300)}))
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=unpack, args=(archive,)) for _ in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(contents(tmp_path / "photos")) == 300
    assert sorted(each.name for each in tmp_path.iterdir()) == ["photos", "photos.tgz"]
