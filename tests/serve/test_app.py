"""The endpoints, asked over a socket as anybody would."""

import base64
import io
import re
from collections.abc import Iterator

import httpx
import pytest
import torch
from PIL import Image

import photos
from compact_bilinear.images import Transform
from compact_bilinear.images.decode import decode
from compact_bilinear.model import Model
from serving import CLASSES, Shelf, answer, application, model, picture, running


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(model(), photos.photos(tmp_path_factory.mktemp("app")))


@pytest.fixture(scope="module")
def client(shelf: Shelf) -> Iterator[httpx.Client]:
    with running(application(model(), shelf, threads=2)) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client


@pytest.fixture(scope="module")
def bare() -> Iterator[httpx.Client]:
    """A model without classes, and no index."""
    made = Model(model().backbone, "tensor-sketch:64", transform=Transform(size=40)).eval()
    with running(application(made)) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client


def parts(*contents: bytes) -> list[tuple[str, tuple[str, bytes]]]:
    return [("image", (f"{place}.jpg", content)) for place, content in enumerate(contents)]


def test_several_images_in_one_call_each_with_its_own_result(client: httpx.Client) -> None:
    files = [picture(seed) for seed in range(6)]
    with torch.no_grad():
        expected = model()(torch.stack([model().transform.pixels(decode(file)) for file in files]))
    found = answer(client.post("/predict?top=3", files=parts(*files)))
    assert [(each["image"], each["name"]) for each in found] == [(place, f"{place}.jpg") for place in range(6)]
    for row, each in enumerate(found):
        scores = {one["name"]: one["score"] for one in each["classes"]}
        assert [scores[name] for name in CLASSES] == pytest.approx(expected[row].tolist(), abs=1e-4)
        assert each["evidence"] == each["neighbours"] == []


def test_json_says_the_same_as_multipart(client: httpx.Client) -> None:
    files = [picture(seed, format=format) for seed, format in ((1, "PNG"), (2, "WEBP"))]
    images = [{"data": base64.b64encode(file).decode(), "name": f"{place}.jpg"} for place, file in enumerate(files)]
    query = "/predict?top=2&evidence=1&neighbours=3"
    of_json, of_parts = (
        answer(client.post(query, json={"images": images})),
        answer(client.post(query, files=parts(*files))),
    )
    # they may have been in batches of other sizes, which round otherwise
    for one, other in zip(of_json, of_parts, strict=True):
        assert [each["label"] for each in one["classes"]] == [each["label"] for each in other["classes"]]
        assert [each["item"] for each in one["neighbours"]] == [each["item"] for each in other["neighbours"]]
        assert one["classes"][0]["score"] == pytest.approx(other["classes"][0]["score"], abs=1e-4)


def test_each_image_has_its_own_error(client: httpx.Client) -> None:
    found = answer(client.post("/predict", files=parts(picture(0), b"", b"words", picture(1))))
    assert [each["error"] for each in found] == [None, "the file is empty", "not an image in a known format", None]
    images = [{"data": "§"}, {"data": base64.b64encode(picture(0)).decode()}, {"item": 99}, {"item": 3}]
    found = answer(client.post("/predict", json={"images": images}))
    assert [each["error"] for each in found] == ["its data is not base64", None, "The index has no item 99", None]
    assert [len(each["classes"]) for each in found] == [0, 3, 0, 3]


def test_a_request_of_nothing_but_broken_images_is_at_fault_itself(client: httpx.Client) -> None:
    response = client.post("/predict", files=parts(b"words", b""))
    assert response.status_code == 422
    said = response.json()
    assert said["detail"] == "There is no image that could be read. 0.jpg: not an image in a known format."
    assert [each["error"] for each in said["results"]] == ["not an image in a known format", "the file is empty"]


def test_an_item_is_searched_on_from_without_itself(client: httpx.Client, shelf: Shelf) -> None:
    (found,) = answer(client.post("/search?neighbours=4", json={"images": [{"item": 5}]}))
    similarities = shelf.rows @ shelf.rows[shelf.numbers.tolist().index(5)]
    expected = [int(shelf.numbers[place]) for place in (-similarities).argsort()]
    assert [each["item"] for each in found["neighbours"]] == [number for number in expected if number != 5][:4]
    assert found["classes"] == []
    first = found["neighbours"][0]
    assert first["path"] == shelf.images.paths[first["item"]]
    assert first["has_image"]


@pytest.mark.parametrize(("what", "side"), [("thumbnail", 320), ("image", 1600)])
def test_pictures_of_items(client: httpx.Client, what: str, side: int) -> None:
    response = client.get(f"/items/3/{what}")
    assert (response.status_code, response.headers["content-type"]) == (200, "image/jpeg")
    assert response.headers["cache-control"] == "no-store", "its number may soon be another image's"
    assert max(Image.open(io.BytesIO(response.content)).size) == 40 < side
    for other in (99, -1, 10**30):
        assert client.get(f"/items/{other}/{what}").status_code == 404
    for path in ("..%2F..%2Fetc%2Fpasswd", "%2e%2e", "3%00", "3.5", "test/bark/00.jpg"):
        assert client.get(f"/items/{path}/{what}").status_code in (404, 422)


def test_what_is_not_there_is_said_in_a_sentence(client: httpx.Client, bare: httpx.Client) -> None:
    for path, told in (
        ("/search", "This server has no index to search. Start it with --index INDEX"),
        ("/predict", "This model has no classes to predict. Ask /search"),
    ):
        response = bare.post(path, files=parts(picture(0)))
        assert response.status_code == 404
        assert response.json()["detail"].startswith(told)
    assert bare.get("/items/3/image").status_code == 404
    assert client.get("/nothing").json() == {"detail": "Not Found.", "results": []}
    assert client.get("/predict").status_code == 405


@pytest.mark.parametrize("query", ["top=many", "top=-1", "top=101", "evidence=1e3", "neighbours=-2"])
def test_wrong_options(client: httpx.Client, query: str) -> None:
    response = client.post(f"/predict?{query}", files=parts(picture(0)))
    assert response.status_code == 422
    assert response.json()["detail"].startswith(f"{query.partition('=')[0]}: Input should be ")


def test_about_health_and_metrics(client: httpx.Client, bare: httpx.Client) -> None:
    about = client.get("/about").json()
    assert about["classes"] == list(CLASSES)
    assert (about["evidence"], about["neighbours"], about["indexed"]) == (True, True, 27)
    assert about["model"][1].startswith("→ tiny")
    none = bare.get("/about").json()
    assert (none["classes"], none["evidence"], none["neighbours"]) == ([], False, False)
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}
    before = numbers(client)
    client.post("/predict", files=parts(picture(0), b"words"))
    after = numbers(client)
    grown = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    assert grown['cbp_requests_total{endpoint="/predict",status="200"}'] == 1
    assert grown['cbp_images_total{outcome="answered"}'] == grown['cbp_images_total{outcome="refused"}'] == 1
    assert grown["cbp_batch_images_count"] == grown["cbp_batch_images_sum"] == grown["cbp_model_seconds_count"] == 1
    assert after["cbp_images_waiting"] == after["cbp_held_bytes"] == 0


def numbers(client: httpx.Client) -> dict[str, float]:
    lines = client.get("/metrics").text.splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_the_page_and_its_files_need_no_other_server(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'; style-src 'self'" in page.headers["content-security-policy"]
    for file in re.findall(r'(?:src|href)="([^"#]+)"', page.text):
        assert client.get(f"/{file}").status_code == 200, file
    for file in ("/", "/page.js", "/page.css"):
        text = client.get(file).text
        assert "http://" not in text.replace("http://www.w3.org", "")
        assert "https://" not in text
    assert not re.search(r"<script(?![^>]*src)|<style|\son\w+=|\sstyle=", page.text)


def test_openapi_describes_every_endpoint(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {
        "/predict",
        "/search",
        "/items/{item}/thumbnail",
        "/items/{item}/image",
        "/about",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    body = schema["paths"]["/predict"]["post"]["requestBody"]["content"]
    assert set(body) == {"multipart/form-data", "application/json"}
    named = set(re.findall(r"#/components/schemas/(\w+)", str(schema)))
    assert named <= set(schema["components"]["schemas"])
