"""Downloads from a server on this machine that misbehaves in every way known, one at a time."""

import errno
import hashlib
import http.client
import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from compact_bilinear import download as module
from compact_bilinear.download import DownloadError, download
from loopback import Server, serving

BODY = bytes(range(256)) * 1021  # not a multiple of any block
SHA256 = hashlib.sha256(BODY).hexdigest()
MD5 = hashlib.md5(BODY).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "PAUSE", 0)
    with serving({"/file.bin": BODY}) as server:
        yield server


def test_brings_the_file_into_a_new_folder(server: Server, tmp_path: Path) -> None:
    to = tmp_path / "deep" / "file.bin"
    assert download(f"{server.url}/file.bin", to, sha256=SHA256.upper(), md5=MD5, size=len(BODY)) == to
    assert to.read_bytes() == BODY
    assert [each.name for each in to.parent.iterdir()] == ["file.bin"]  # no .part is left


@pytest.mark.parametrize("promise", [{}, {"sha256": SHA256}, {"md5": MD5}, {"size": len(BODY)}])
def test_a_file_that_is_there_needs_no_server(tmp_path: Path, promise: dict[str, Any]) -> None:
    to = tmp_path / "file.bin"
    to.write_bytes(BODY)
    assert download("http://127.0.0.1:9/file.bin", to, **promise) == to


@pytest.mark.parametrize("promise", [{"sha256": "0" * 64}, {"md5": "0" * 32}, {"size": 1}])
def test_a_file_that_is_there_and_wrong_is_left_alone(tmp_path: Path, promise: dict[str, Any]) -> None:
    to = tmp_path / "file.bin"
    to.write_bytes(BODY)
    with pytest.raises(DownloadError, match=r"(?s)in place of.*Move it away"):
        download("http://127.0.0.1:9/file.bin", to, **promise)
    assert to.read_bytes() == BODY


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="it is not a file"):
        download("http://127.0.0.1:9/file.bin", tmp_path)


# --- what is cut goes on ---


def test_goes_on_by_itself_when_cut(server: Server, tmp_path: Path) -> None:
    server.cut_after = [100_000, 50_000]
    assert download(f"{server.url}/file.bin", tmp_path / "file.bin", sha256=SHA256).read_bytes() == BODY
    assert server.ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_goes_on_when_a_chunked_answer_is_cut(server: Server, tmp_path: Path) -> None:
    server.chunked, server.cut_after = True, [8192]
    assert download(f"{server.url}/file.bin", tmp_path / "file.bin", sha256=SHA256).read_bytes() == BODY
    assert server.ranges == [None, "bytes=8192-"]


def test_gives_up_after_some_tries_and_goes_on_in_the_next_call(server: Server, tmp_path: Path) -> None:
    to = tmp_path / "file.bin"
    server.cut_after = [1000] * module.TRIES
    with pytest.raises(DownloadError, match=rf"(?s)cut after {1000 * module.TRIES} bytes.*Run it again"):
        download(f"{server.url}/file.bin", to, sha256=SHA256)
    assert not to.exists()
    assert (tmp_path / "file.bin.part").read_bytes() == BODY[: 1000 * module.TRIES]
    server.ranges.clear()
    assert download(f"{server.url}/file.bin", to, sha256=SHA256).read_bytes() == BODY
    assert server.ranges == [f"bytes={1000 * module.TRIES}-"]


def test_does_not_try_for_ever_where_nothing_comes(server: Server, tmp_path: Path) -> None:
    server.cut_after = [0] * 10
    with pytest.raises(DownloadError, match="cut after 0 bytes"):
        download(f"{server.url}/file.bin", tmp_path / "file.bin", sha256=SHA256)
    assert server.ranges == [None]


def test_without_a_checksum_a_rest_is_not_trusted(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(b"of something else")
    assert download(f"{server.url}/file.bin", tmp_path / "file.bin").read_bytes() == BODY
    assert server.ranges == [None]


def test_a_server_that_ignores_ranges_sends_everything(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(BODY[:1000])
    server.ignores_range = True
    assert download(f"{server.url}/file.bin", tmp_path / "file.bin", sha256=SHA256).read_bytes() == BODY
    assert server.ranges == ["bytes=1000-"]


def test_a_server_that_sends_another_range_is_asked_for_everything(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(BODY[:1000])
    server.wrong_range = True
    assert download(f"{server.url}/file.bin", tmp_path / "file.bin", sha256=SHA256).read_bytes() == BODY
    assert server.ranges == ["bytes=1000-", None]


def test_a_server_that_sends_what_nobody_asked_for_is_refused(server: Server, tmp_path: Path) -> None:
    server.sends_parts_only = True
    with pytest.raises(DownloadError, match="a part that nobody asked for, 'bytes 9-261375/261376'"):
        download(f"{server.url}/file.bin", tmp_path / "file.bin", sha256=SHA256)


def test_a_part_that_is_whole_is_taken(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(BODY)
    assert download(f"{server.url}/file.bin", tmp_path / "file.bin", sha256=SHA256).read_bytes() == BODY
    assert server.ranges == [f"bytes={len(BODY)}-"]  # 416, with the total


def test_a_part_that_is_too_long_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(BODY + b"more")
    assert download(f"{server.url}/file.bin", tmp_path / "file.bin", sha256=SHA256).read_bytes() == BODY
    assert server.ranges == [f"bytes={len(BODY) + 4}-", None]


# --- what is refused ---


def test_a_wrong_checksum_is_said_and_not_kept(server: Server, tmp_path: Path) -> None:
    to = tmp_path / "file.bin"
    with pytest.raises(DownloadError, match=rf"(?s)its sha256 is {SHA256} in place of 0+\..*by hand .*put it at .*file\.bin"):
        download(f"{server.url}/file.bin", to, sha256="0" * 64)
    with pytest.raises(DownloadError, match=f"its md5 is {MD5}"):
        download(f"{server.url}/file.bin", to, md5="0" * 32)
    assert not list(tmp_path.iterdir())


def test_another_size_is_refused_before_it_is_downloaded(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=f"has a file of {len(BODY)} bytes there, not the expected one of 12"):
        download(f"{server.url}/file.bin", tmp_path / "file.bin", size=12)
    assert not list(tmp_path.iterdir())


def test_a_file_that_changed_on_the_server_is_refused_in_the_middle(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(BODY[:1000])
    server.files["/file.bin"] = BODY * 2
    with pytest.raises(DownloadError, match=f"{2 * len(BODY)} bytes there, not the expected one of {len(BODY)}"):
        download(f"{server.url}/file.bin", tmp_path / "file.bin", size=len(BODY))


def test_not_found_says_what_to_do_by_hand(server: Server, tmp_path: Path) -> None:
    server.files.clear()
    with pytest.raises(DownloadError, match=rf"(?s)answered 404.*by hand \(261376 bytes, sha256 {SHA256}\) and put it at"):
        download(f"{server.url}/file.bin", tmp_path / "file.bin", sha256=SHA256, size=len(BODY))
    assert not list(tmp_path.iterdir())


def test_offline_fails_at_once_and_says_what_to_do_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # taken and not listening: nobody answers there
        with pytest.raises(DownloadError, match=r"(?s)no connection to the server.*download the file by hand and put it at"):
            download(f"http://127.0.0.1:{taken.getsockname()[1]}/file.bin", tmp_path / "file.bin")


def test_a_silent_server_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(DownloadError, match=r"does not answer|timed out"):
        download(f"http://127.0.0.1:{silent.getsockname()[1]}/file.bin", tmp_path / "file.bin", timeout=0.05)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "file:///etc/hosts", "127.0.0.1/x", "https://"])
def test_only_http(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Write the whole address"):
        download(url, tmp_path / "x")


@pytest.mark.parametrize("elsewhere", ["ftp://127.0.0.1/x", "file:///etc/hosts"])
def test_is_not_led_away_from_http(server: Server, tmp_path: Path, elsewhere: str) -> None:
    server.redirect = elsewhere
    with pytest.raises(DownloadError, match="Could not download"):
        download(f"{server.url}/file.bin", tmp_path / "file.bin")


def test_a_disk_without_room_is_said_before_and_during(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
        with pytest.raises(DownloadError, match=r"the disk is full .*only 1000 are free"):
            download(f"{server.url}/file.bin", tmp_path / "file.bin", sha256=SHA256)

    @contextmanager
    def full(*_: Any) -> Iterator[Any]:
        def advance(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        yield advance

    monkeypatch.setattr(module, "transfer_bar", full)
    with pytest.raises(DownloadError, match="the disk is full"):
        download(f"{server.url}/file.bin", tmp_path / "file.bin", sha256=SHA256)
    assert (tmp_path / "file.bin.part").exists()  # to go on from, once there is room


def test_an_interrupted_download_leaves_only_its_part(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(response: http.client.HTTPResponse) -> Iterator[bytes]:
        yield response.read(1000)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_blocks", interrupted)
        with pytest.raises(KeyboardInterrupt):
            download(f"{server.url}/file.bin", tmp_path / "file.bin", sha256=SHA256)
    assert [each.name for each in tmp_path.iterdir()] == ["file.bin.part"]
    assert download(f"{server.url}/file.bin", tmp_path / "file.bin", sha256=SHA256).read_bytes() == BODY
    assert server.ranges == [None, "bytes=1000-"]


def test_processes_that_want_the_same_file_download_it_once(server: Server, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=download, args=(f"{server.url}/file.bin", tmp_path / "file.bin"), kwargs={"sha256": SHA256})
        for _ in "ab"
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert server.ranges == [None]
    assert [each.name for each in tmp_path.iterdir()] == ["file.bin"]


class Terminal:
    """Stands for stderr where a person is watching."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def test_shows_progress_to_a_terminal_only(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    download(f"{server.url}/file.bin", tmp_path / "quiet.bin")
    assert capsys.readouterr() == ("", "")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    download(f"{server.url}/file.bin", tmp_path / "watched.bin")
    assert "watched.bin" in terminal.text
