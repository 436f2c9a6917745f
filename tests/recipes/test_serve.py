"""The command as its users run it: what it refuses, what it says, and how it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import photos
from compact_bilinear import cli
from compact_bilinear.recipes.serve import TOKEN, Serve
from serving import CLASSES, answer, model, picture

ENDED = re.compile(r"serve: ended, (\d+) of (\d+) accepted requests were answered")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve")
    model().save(folder / "model")
    return folder


@contextmanager
def process(*flags: object, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`cbp serve` at a free port, and its address."""
    command = [sys.executable, "-m", "compact_bilinear", "serve", *map(str, flags), "--port", "0"]
    started = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        start_new_session=True,
    )
    assert started.stderr is not None
    try:
        line = started.stderr.readline()
        found = re.search(r" at (http://\S+?)(,|$)", line)
        assert found, line + started.stderr.read()
        with httpx.Client(base_url=found[1]) as client:
            while client.get("/readyz").status_code != 200:
                time.sleep(0.01)
        yield started, found[1]
    finally:
        started.kill()
        started.communicate()


def test_answers_with_an_index_and_the_token_of_a_file(saved: Path, tmp_path: Path) -> None:
    folder = photos.photos(tmp_path / "photos")
    features, index, run = (str(tmp_path / name) for name in ("features", "index", "model"))
    settings = ["--backbone", "tiny", "--size", "40", "--workers", "0", "--threads", "1"]
    assert cli.main(["extract", str(folder), "--pool", "tensor-sketch:64", "--out", features, *settings]) == 0
    assert cli.main(["index", features, "--out", index, "--images", str(folder)]) == 0
    model().save(run)
    token = tmp_path / "token"
    token.write_text("a-token-of-many-letters\n")
    with process(run, "--index", index, "--token-file", token) as (started, url):
        with httpx.Client(base_url=url, headers={"Authorization": "Bearer a-token-of-many-letters"}) as client:
            inside = (folder / "train/moss/01.jpg").read_bytes()
            (found,) = answer(client.post("/predict?evidence=1&neighbours=3", files={"image": inside}))
            assert found["neighbours"][0]["path"] == "train/moss/01.jpg"
            assert found["neighbours"][0]["similarity"] > 0.99
            assert {each["name"] for each in found["classes"]} == set(CLASSES)
            number = found["neighbours"][1]["item"]
            assert client.get(f"/items/{number}/thumbnail").status_code == 200
            (on,) = answer(client.post("/search", json={"images": [{"item": number}]}))
            assert number not in [each["item"] for each in on["neighbours"]]
        assert httpx.get(f"{url}/about").status_code == 401
        started.terminate()
        assert started.wait(30) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_load_loses_nothing_that_was_accepted(saved: Path, sign: signal.Signals) -> None:
    """Every client that was answered is counted by the server, and nobody is left with a part of an answer."""
    with process(saved / "model", "--threads", "2") as (started, url):
        said = httpx.get(f"{url}/metrics").text.splitlines()
        before = 1 + sum(float(line.split()[-1]) for line in said if line.startswith("cbp_requests_total{"))
        counted: Counter[str] = Counter()
        clients = [threading.Thread(target=_ask_until_gone, args=(url, seed, counted)) for seed in range(8)]
        for client in clients:
            client.start()
        while counted["answered"] < 40:
            time.sleep(0.005)
        os.killpg(started.pid, sign)  # as a terminal does
        _, told = started.communicate(timeout=60)
        for client in clients:
            client.join()
        assert started.returncode == 0, told
        ended = ENDED.fullmatch(told.splitlines()[-1])
        assert ended, told
        assert "Traceback" not in told
        assert ended[1] == ended[2]
        assert int(ended[1]) == before + counted["answered"]
        assert counted["torn"] == 0
        assert counted["not taken"] == 8


def _ask_until_gone(url: str, seed: int, counted: Counter[str]) -> None:
    """Send an image over a new connection each time, until nobody takes it any more."""
    host, port = url.removeprefix("http://").split(":")
    request = httpx.Request("POST", f"{url}/predict?top=1", files=[("image", picture(seed + each)) for each in range(3)])
    body = request.read()
    head = f"POST /predict?top=1 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    head += f"Content-Type: {request.headers['content-type']}\r\nContent-Length: {len(body)}\r\n\r\n"
    while True:
        came = b""
        try:
            with socket.create_connection((host, int(port)), 30) as connection:
                connection.sendall(head.encode() + body)
                while piece := connection.recv(65536):
                    came += piece
        except OSError:
            counted["torn" if came else "not taken"] += 1
            return
        if not came:
            counted["not taken"] += 1
            return
        said, _, content = came.partition(b"\r\n\r\n")
        whole = said.startswith(b"HTTP/1.1 200") and len(json.loads(content)["results"]) == 3
        counted["answered" if whole else "torn"] += 1


def test_what_it_cannot_serve_is_told_in_two_lines(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = tmp_path / "short"
    short.write_text("secret\n")
    run = str(saved / "model")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for flags, told in (
            ([str(tmp_path)], "A model is a folder that `cbp train` made, but"),
            ([str(tmp_path / "absent")], "does not exist."),
            ([run, "--port", port], f"The server cannot listen at 127.0.0.1, port {port}: address already in use."),
            ([run, "--port", "65536"], "A port is a number from 0 to 65535, but got 65536."),
            ([run, "--host", "nobody.invalid"], "The server cannot listen at nobody.invalid, port 8000: "),
            ([run, "--index", str(tmp_path)], "An index is a folder that `cbp index` made, but"),
            ([run, "--token-file", str(short)], "A token has at least 16 letters and digits"),
            ([run, "--token-file", str(tmp_path / "absent")], "--token-file names a file with a token"),
            ([run, "--queue", "3"], "never fits a queue of 3 images"),
            ([run, "--megapixels", "0"], "A server's limits are above 0, but pixels is 0."),
            ([run, "--batch", "-1"], "--batch takes a number ≥ 0, but got -1."),
            ([run, "--device", "tpu"], "There is no device 'tpu'."),
        ):
            arguments = ["serve", *flags] if "--port" in flags or "--host" in flags else ["serve", *flags, "--port", "0"]
            assert cli.main(arguments) == 2, flags
            lines = capsys.readouterr().err.splitlines()
            assert told in lines[0]
            assert len(lines) == 2
        monkeypatch.setenv(TOKEN, "with a space in it")
        assert cli.main(["serve", run, "--port", "0"]) == 2
        assert capsys.readouterr().err.startswith(
            "A token has at least 16 letters and digits, without spaces, but CBP_TOKEN has"
        )


def test_without_fastapi_it_says_what_to_install(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    for name in [name for name in sys.modules if name.startswith("compact_bilinear.serve")]:
        monkeypatch.delitem(sys.modules, name)
    assert cli.main(["serve", str(saved / "model")]) == 2
    assert capsys.readouterr().err.endswith('\nWrite `pip install "compact-bilinear[serve]"`.\n')


def test_it_listens_to_this_machine_alone_unless_told_otherwise() -> None:
    assert Serve(Path("model")).host == "127.0.0.1"
