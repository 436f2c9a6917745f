"""Who may ask, and what every answer says to a browser."""

from collections.abc import Iterator

import httpx
import pytest

from compact_bilinear.serve.guard import HEADERS, LOOPBACK, Guard
from serving import application, picture, raw, running

TOKEN = "a-token-of-many-letters"


@pytest.fixture(scope="module")
def app() -> Guard:
    return application(token=TOKEN, hosts=(*LOOPBACK, "photos.example"))


@pytest.fixture(scope="module")
def client(app: Guard) -> Iterator[httpx.Client]:
    with running(app) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client


@pytest.mark.parametrize(
    "brought",
    [None, "", TOKEN, "Bearer", f"bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", f"Bearer  {TOKEN}", "Bearer é"],
)
def test_without_the_token_there_is_nothing(client: httpx.Client, brought: str | None) -> None:
    headers = {} if brought is None else {"Authorization": brought.encode()}
    for method, path in (
        ("POST", "/predict"),
        ("POST", "/search"),
        ("GET", "/about"),
        ("GET", "/metrics"),
        ("GET", "/items/1/image"),
    ):
        response = client.request(method, path, headers=headers, content=b"x" * 1000)  # type: ignore[arg-type]
        assert response.status_code == 401, path
        assert response.headers["www-authenticate"] == "Bearer"
        assert "Authorization: Bearer TOKEN" in response.json()["detail"]


def test_with_the_token_there_is_everything(client: httpx.Client) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert client.get("/about", headers=headers).status_code == 200
    assert client.get("/about", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200, "RFC 9110: of any case"
    assert client.post("/predict", headers=headers, files={"image": picture(1)}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/icon.svg", "/healthz", "/readyz", "/openapi.json"])
def test_what_tells_nothing_of_anybody_needs_none(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 200


@pytest.mark.parametrize("path", ["/", "/healthz", "/about", "/nothing"])
def test_every_answer_has_its_headers(client: httpx.Client, path: str) -> None:
    response = client.get(path)
    for name, value in HEADERS.items():
        assert response.headers[name] == value
    assert response.headers["cache-control"] in ("no-store", "no-cache")
    assert len(response.headers["x-request-id"]) == 16


def test_a_requests_own_number_comes_back(client: httpx.Client) -> None:
    assert client.get("/healthz", headers={"X-Request-ID": "photo-17:a"}).headers["x-request-id"] == "photo-17:a"
    for odd in ("a b", "x" * 101, "<script>"):
        assert client.get("/healthz", headers={"X-Request-ID": odd}).headers["x-request-id"] != odd


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8000", 200),
        ("[::1]", 200),
        ("photos.example", 200),
        ("evil.example", 421),
        ("localhost.evil.example:80", 421),
        ("[::1].evil.example", 421),
        ("", 421),
    ],
)
def test_it_goes_by_its_own_names_only(client: httpx.Client, host: str, status: int) -> None:
    # a page of another name that a browser resolves to this machine still says that name
    assert client.get("/healthz", headers={"Host": host}).status_code == status


def test_a_request_without_a_host(client: httpx.Client) -> None:
    assert raw(str(client.base_url).rstrip("/"), b"GET /healthz HTTP/1.0\r\n\r\n")[0] == 421


def test_it_counts_what_it_accepts_and_answers(app: Guard, client: httpx.Client) -> None:
    before = app.accepted
    for _ in range(3):
        client.get("/healthz")
    assert app.accepted == app.answered == before + 3
