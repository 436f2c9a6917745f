"""Fetching the data sets of the paper from a publisher on this machine."""

import functools
import hashlib
import socket
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import miniatures
from compact_bilinear.download import DownloadError
from compact_bilinear.images import read_images
from compact_bilinear.recipes import fetch
from compact_bilinear.recipes.fetch import FILES, Fetch, run
from loopback import Server, serving


@functools.cache
def published() -> dict[str, dict[str, bytes]]:
    """What is offered for each data set, by the names of its files."""
    mit = miniatures.whole_mit()
    images = {name: content for name, content in mit.items() if name.startswith("Images")}
    return {
        "cub": {"CUB_200_2011.tgz": miniatures.tar(miniatures.whole_cub())},
        "dtd": {"dtd-r1.0.1.tar.gz": miniatures.tar(miniatures.whole_dtd())},
        "mit": {
            "TrainImages.txt": mit["TrainImages.txt"],
            "TestImages.txt": mit["TestImages.txt"],
            "indoorCVPR_09.tar": miniatures.tar(images, "w"),
        },
    }


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving({}) as server:
        for data, files in published().items():
            server.files.update({f"/{name}": content for name, content in files.items()})
            offered = [
                fetch._File(f"{server.url}/{name}", len(content), sha256=hashlib.sha256(content).hexdigest())
                for name, content in files.items()
            ]
            assert [file.name for file in FILES[data]] == [file.name for file in offered]
            monkeypatch.setitem(FILES, data, offered)
        yield server


@pytest.mark.parametrize(("data", "count"), [("cub", 11788), ("dtd", 5640), ("mit", 6700)])
def test_fetches_unpacks_and_counts(server: Server, data: str, count: int, tmp_path: Path) -> None:
    config = Fetch(data, tmp_path / "new")  # type: ignore[arg-type]
    images = run(config)
    assert (images.name, len(images)) == (data, count)
    assert read_images(tmp_path / "new") == images
    requests = len(server.ranges)
    assert run(config) == images
    assert len(server.ranges) == requests  # it is there


def test_the_archive_can_be_removed(server: Server, tmp_path: Path) -> None:
    run(Fetch("dtd", tmp_path))
    assert (tmp_path / "dtd-r1.0.1.tar.gz").exists()
    images = run(Fetch("dtd", tmp_path, remove_archive=True))
    assert not (tmp_path / "dtd-r1.0.1.tar.gz").exists()
    requests = len(server.ranges)
    assert run(Fetch("dtd", tmp_path)) == images
    assert len(server.ranges) == requests


def test_what_was_downloaded_by_hand_is_taken(server: Server, tmp_path: Path) -> None:
    (tmp_path / "dtd-r1.0.1.tar.gz").write_bytes(server.files["/dtd-r1.0.1.tar.gz"])
    server.files.clear()
    assert len(run(Fetch("dtd", tmp_path))) == 5640


def test_what_was_damaged_since_is_said(server: Server, tmp_path: Path) -> None:
    images = run(Fetch("dtd", tmp_path))
    images.file(0).unlink()
    with pytest.raises(ValueError, match=r"names 5640 images, but 1 of them are not in"):
        run(Fetch("dtd", tmp_path))


def test_what_is_there_and_wrong_keeps_its_own_remedy(server: Server, tmp_path: Path) -> None:
    (tmp_path / "TrainImages.txt").write_text("another list")
    with pytest.raises(DownloadError, match=r"TrainImages.txt is there, but not as expected: .*\nMove it away"):
        run(Fetch("mit", tmp_path))
    with pytest.raises(ValueError, match=r"TrainImages.txt is a file.\nGive a folder"):
        run(Fetch("mit", tmp_path / "TrainImages.txt"))
    assert server.ranges == []


@pytest.mark.parametrize("data", FILES)
def test_offline_it_says_at_once_what_to_download_by_hand(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # taken and not listening: nobody answers there
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setitem(FILES, data, [file._replace(url=f"{nobody}/{file.name}") for file in FILES[data]])
        with pytest.raises(DownloadError) as failure:
            run(Fetch(data, tmp_path))  # type: ignore[arg-type]
    message = str(failure.value)
    assert "no connection to the server" in message
    assert f"by hand, put what comes into {tmp_path}, and run it again" in message
    assert all(file.url in message for file in FILES[data])
    assert message.count("\n") == 1


def test_files_are_promised_with_what_their_checksums_look_like() -> None:
    for file in [each for files in FILES.values() for each in files]:
        assert file.url.startswith("http")
        assert file.size > 0
        assert file.sha256 or file.md5
        for checksum, length in ((file.sha256, 64), (file.md5, 32)):
            assert checksum is None or (len(checksum) == length and int(checksum, 16))


def test_settings_are_ready_to_become_flags() -> None:
    assert [field.name for field in fields(Fetch)] == ["data", "to", "remove_archive", "timeout"]
    tyro = pytest.importorskip("tyro")
    assert tyro.cli(Fetch, args=["dtd", "--to", "x"]) == Fetch("dtd", Path("x"))
