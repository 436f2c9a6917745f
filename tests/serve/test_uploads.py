"""What is refused of a request, with which status, and that nothing of it is left behind."""

import base64
import json
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from compact_bilinear.serve import Limits
from serving import answer, application, picture, raw, running
from zoo import broken_images

LIMITS = Limits(
    request_bytes=200_000, image_bytes=100_000, pixels=10_000, images=4, queue=8, held_bytes=300_000, upload_seconds=0.7
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running(application(limits=LIMITS)) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=20) as client:
        yield client
        held = [
            line
            for line in client.get("/metrics").text.splitlines()
            if line.startswith(("cbp_held_bytes ", "cbp_images_waiting "))
        ]
        assert held == ["cbp_images_waiting 0.0", "cbp_held_bytes 0.0"], "whatever was refused, all is given back"


def post(url: str, body: bytes, *heads: str) -> tuple[int, str]:
    head = "\r\n".join(["POST /predict HTTP/1.1", "Host: localhost", "Connection: close", *heads])
    status, _, said = raw(url, head.encode() + b"\r\n\r\n" + body)
    return status, json.loads(said)["detail"]


def post_kept(url: str, body: bytes) -> bytes:
    """All that comes until the server closes the connection, which the client would keep."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(f"POST /predict HTTP/1.1\r\nHost: x\r\n{FORM}\r\nContent-Length: 5000\r\n\r\n".encode() + body)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def form(*parts: bytes) -> bytes:
    return b"".join(b"--edge\r\n" + part + b"\r\n" for part in parts) + b"--edge--\r\n"


FILE = b'Content-Disposition: form-data; name="image"; filename="a.jpg"\r\n\r\n'
FORM = "Content-Type: multipart/form-data; boundary=edge"
JSON = "Content-Type: application/json"


@pytest.mark.parametrize(
    ("body", "kind", "status", "told"),
    [
        (b"", FORM, 422, "has no image"),
        (b"nothing of the sort", FORM, 400, "cannot be read"),
        (form(FILE + b"x"), "Content-Type: multipart/form-data", 400, "Missing boundary"),
        (form(b'Content-Disposition: form-data; name="top"\r\n\r\n3'), FORM, 422, "A field that is no file"),
        (form(b"X: y\r\n\r\n3"), FORM, 400, "Content-Disposition"),
        (form(), FORM, 422, "has no image"),
        (form(b"X: y\r\n" * 20_000 + FILE + b"x"), FORM, 400, "cannot be read"),
        (form(b"X: " + b"y" * 100_000 + b"\r\n" + FILE + b"x"), FORM, 400, "cannot be read"),
        (form(*[FILE + b"x"] * 5), FORM, 413, "may have 4 images"),
        (form(FILE + b"x" * 200_000), FORM, 413, "may have 200,000 bytes"),
        (b"", JSON, 422, "body: Invalid JSON"),
        (b"{", JSON, 422, "body: Invalid JSON"),
        (b"[" * 4_000, JSON, 422, "body: Invalid JSON"),
        (b"[" * 100_000, JSON, 413, "more parts than that of a request of 4 images"),
        (b"[]", JSON, 422, "body: Input should be an object"),
        (b"{}", JSON, 422, "images: Field required"),
        (b'{"images": []}', JSON, 422, "images: List should have at least 1 item"),
        (b'{"images": [{}]}', JSON, 422, "an image has either data or item"),
        (b'{"images": [{"data": "", "item": 1}]}', JSON, 422, "an image has either data or item"),
        (b'{"images": [{"path": "/etc/passwd"}]}', JSON, 422, "images.0.path: Extra inputs are not permitted"),
        (b'{"images": [{"item": "../1"}]}', JSON, 422, "images.0.item: Input should be a valid integer"),
        (b'{"images": [{"item": 1e400}]}', JSON, 422, "images.0.item: "),
        (json.dumps({"images": [{"data": "AAAA"}] * 5}).encode(), JSON, 413, "may have 4 images"),
        (b'{"images": [{"data": "' + b"A" * 250_000 + b'"}]}', JSON, 413, "may have 200,000 bytes"),
        (b'{"images": [{"data": "\xff\xfe"}]}', JSON, 422, "body: Invalid JSON"),
        (picture(0), "Content-Type: image/jpeg", 415, "as multipart/form-data, or as application/json"),
        (b"a=1", "Content-Type: application/x-www-form-urlencoded", 415, "as multipart/form-data, or as application/json"),
        (b"", "X: y", 415, "as multipart/form-data, or as application/json"),
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_refused(client: httpx.Client, url: str, body: bytes, kind: str, status: int, told: str, chunked: bool) -> None:
    if chunked:
        pieces = [body[start : start + 10_000] for start in range(0, len(body), 10_000)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        length = "Transfer-Encoding: chunked"
    else:
        length = f"Content-Length: {len(body)}"
    found, detail = post(url, body, kind, length)
    assert (found, told in detail) == (status, True), detail


@pytest.mark.parametrize("name", broken_images())
def test_files_that_are_no_images_are_told_so(client: httpx.Client, name: str) -> None:
    content, _ = broken_images()[name]
    response = client.post("/predict", files={"image": (name, content)})
    assert response.status_code == 422
    (result,) = response.json()["results"]
    assert result["name"] == name
    assert result["error"]


def test_a_bomb_is_refused_by_its_header(client: httpx.Client) -> None:
    content, _ = broken_images()["large.png"]
    (result,) = client.post("/predict", files={"image": content}).json()["results"]
    assert result["error"] == "12000×10000 pixels are more than the limit of 10000"
    (result,) = client.post("/predict", files={"image": picture(0, (101, 100))}).json()["results"]
    assert result["error"] == "101×100 pixels are more than the limit of 10000"
    assert answer(client.post("/predict", files={"image": picture(0, (100, 100))}))[0]["error"] is None


def test_an_image_has_a_limit_of_its_own(client: httpx.Client) -> None:
    for request in (
        {"files": {"image": b"x" * 150_000}},
        {"json": {"images": [{"data": base64.b64encode(b"x" * 140_000).decode()}]}},
    ):
        (result,) = client.post("/predict", **request).json()["results"]  # type: ignore[arg-type]
        assert "bytes, more than the limit of 100,000" in result["error"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "C:\\boot.ini", "a\x00b", "<b>.jpg", "é" * 300, ""])
def test_a_name_is_only_a_name(client: httpx.Client, name: str) -> None:
    images = {"images": [{"name": name, "data": base64.b64encode(picture(0)).decode()}]}
    assert answer(client.post("/predict", json=images))[0]["name"] == name[:200]


@pytest.mark.parametrize("part", ['{"item":1}', "{}", "1", '""', "[]"])
def test_json_of_many_small_parts_is_refused_before_they_are_objects(client: httpx.Client, part: str) -> None:
    body = '{"images": [' + ",".join([part] * (190_000 // (len(part) + 1))) + "]}"
    response = client.post("/predict", content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["detail"].partition(" has ")[0]) == (413, "The JSON")


def test_json_as_full_of_parts_as_may_be(client: httpx.Client) -> None:
    data = base64.b64encode(picture(0)).decode()
    images = [{"name": name * 1000, "data": data, "item": None} for name in ",[{}"]
    found = answer(client.post("/predict", json={"images": images}))
    assert [each["name"] for each in found] == [name * 200 for name in ",[{}"]


def test_a_slow_upload_is_given_up(client: httpx.Client, url: str) -> None:
    status, detail = post(url, form(FILE + picture(0))[:100], FORM, "Content-Length: 5000")
    assert (status, detail) == (408, "The body was not there after 0.7 s.")
    assert post_kept(url, form(FILE + picture(0))[:100]).startswith(b"HTTP/1.1 408"), "and nobody waits for more of it"


def test_a_length_that_is_too_large_is_refused_before_a_byte_of_it(client: httpx.Client, url: str) -> None:
    status, detail = post(url, b"", FORM, "Content-Length: 9999999999")
    assert (status, detail.partition(".")[0]) == (413, "A request may have 200,000 bytes")


@pytest.mark.parametrize(
    ("begin", "more"),
    [(b"GET /", b"a"), (b"GET / HTTP/1.1\r\nX: ", b"a"), (b"GET / HTTP/1.1\r\n", b"a: b\r\n"), (None, b"a: b\r\n")],
    ids=["its line", "a header", "many headers", "trailers"],
)
def test_what_is_beside_a_body_has_a_limit(client: httpx.Client, url: str, begin: bytes | None, more: bytes) -> None:
    """16 MB of headers would be 300 MB of objects."""
    if begin is None:
        begin = f"POST /predict HTTP/1.1\r\nHost: x\r\n{JSON}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n0\r\n".encode()
    host, port = url.removeprefix("http://").split(":")
    piece, sent = more * (60_000 // len(more)), 0
    with socket.create_connection((host, int(port)), 20) as connection:
        try:
            connection.sendall(begin)
            while sent < 16_000_000:
                connection.sendall(piece)
                sent += len(piece)
        except ConnectionError:
            pass
    assert sent < 16_000_000
    assert client.get("/healthz").status_code == 200


def test_a_body_in_small_chunks_is_no_head(client: httpx.Client, url: str) -> None:
    body = form(FILE + picture(0) + b" " * 90_000)
    chunks = b"".join(b"10\r\n%s\r\n" % body[start : start + 16].ljust(16, b" ") for start in range(0, len(body), 16))
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{FORM}\r\nTransfer-Encoding: chunked\r\n\r\n"
    status, _, _ = raw(url, head.encode() + chunks + b"0\r\n\r\n")
    assert status == 200


def test_all_requests_together_have_a_limit(client: httpx.Client, url: str) -> None:
    """Two that are each allowed do not fit while a third holds its bytes."""
    host, port = url.removeprefix("http://").split(":")
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\n{FORM}\r\nContent-Length: 190000\r\n\r\n".encode()
    with socket.create_connection((host, int(port))) as holding:
        holding.sendall(head + form(FILE + b"x" * 180_000)[:180_000])
        for _ in range(500):
            if "cbp_held_bytes 180000.0" in client.get("/metrics").text:
                break
            threading.Event().wait(0.01)
        response = client.post("/predict", files={"image": b"x" * 150_000})
        assert response.status_code == 503
        assert "of 300000 bytes are taken" in response.json()["detail"]
        assert int(response.headers["retry-after"]) >= 1
    assert answer(client.post("/predict", files={"image": picture(0)}))
