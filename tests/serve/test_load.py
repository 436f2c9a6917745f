"""Good requests are answered while others are broken, huge, slow or gone; and when it is too much, that is said."""

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import torch

from compact_bilinear.images.decode import decode
from compact_bilinear.serve import Limits, Predictor, build_app
from compact_bilinear.serve.answers import ImageResult
from compact_bilinear.serve.predictor import Seen
from serving import answer, application, model, picture, running
from zoo import broken_images

GOOD, CLIENTS = 12, 8


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    return [picture(seed) for seed in range(GOOD)]


@pytest.fixture(scope="module")
def expected(files: Sequence[bytes]) -> list[list[float]]:
    made = model()
    with torch.no_grad():
        scores: list[list[float]] = made(torch.stack([made.transform.pixels(decode(file)) for file in files])).tolist()
    return scores


def check(response: httpx.Response, places: Sequence[int], expected: Sequence[Sequence[float]]) -> int:
    """Each image has the scores of that image and of no other; how many there were."""
    found = answer(response)
    assert len(found) == len(places)
    for result, place in zip(found, places, strict=True):
        scores = [each["score"] for each in sorted(result["classes"], key=lambda each: each["label"])]
        assert scores == pytest.approx(expected[place], abs=1e-3)
    return len(found)


def test_scores_tell_the_images_apart(expected: list[list[float]]) -> None:
    # or the comparison of answers would show nothing
    rows = torch.tensor(expected)
    assert float((torch.cdist(rows, rows) + 10 * torch.eye(GOOD)).min()) > 0.02


def test_each_client_is_given_its_own_answers(files: list[bytes], expected: list[list[float]]) -> None:
    with running(application(threads=3, batch=4, decoders=3)) as url:

        def ask(client: int) -> int:
            with httpx.Client(base_url=url, timeout=60) as connection:
                return sum(
                    check(
                        connection.post("/predict?top=3", files=[("image", files[place]) for place in places]), places, expected
                    )
                    for number in range(5)
                    for places in [[(client + 5 * number + each) % GOOD for each in range(1 + number % 3)]]
                )

        with ThreadPoolExecutor(CLIENTS) as clients:
            assert sum(clients.map(ask, range(CLIENTS))) == CLIENTS * 9


def broken(url: str) -> str:
    content = list(broken_images().values())[int(time.monotonic() * 1000) % len(broken_images())][0]
    return str(httpx.post(f"{url}/predict", files={"image": content}, timeout=60).status_code)


def huge(url: str) -> str:
    with socket.create_connection(address(url), 20) as connection:
        connection.sendall(
            b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        try:
            for _ in range(100):
                connection.sendall(b"186a0\r\n" + b"A" * 100_000 + b"\r\n")
        except ConnectionError:
            pass
        return connection.recv(12)[9:].decode()


def slow(url: str) -> str:
    with socket.create_connection(address(url), 20) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n")
        for _ in range(3):
            connection.sendall(b" ")
            time.sleep(0.1)
        return connection.recv(12)[9:].decode()


def aborted(url: str) -> str:
    with socket.create_connection(address(url), 20) as connection:
        connection.sendall(
            b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n{"
        )
    return "aborted"


def impatient(url: str) -> str:
    """Sends all of a good request, and does not wait for the answer."""
    request = httpx.Request("POST", f"{url}/predict", files={"image": picture(1)})
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: {request.headers['content-type']}\r\n"
    body = request.read()
    with socket.create_connection(address(url), 20) as connection:
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return "impatient"


def address(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


def test_good_requests_are_answered_among_all_others(files: list[bytes], expected: list[list[float]]) -> None:
    limits = Limits(request_bytes=400_000, held_bytes=4_000_000, pixels=10**6, upload_seconds=0.25)
    app = application(limits=limits, threads=2)
    with running(app) as url, httpx.Client(base_url=url, timeout=60) as good, ThreadPoolExecutor(8) as others:
        bad = [others.submit(each, url) for _ in range(6) for each in (broken, huge, slow, aborted, impatient)]
        answered = 0
        while answered < 30 or not all(each.done() for each in bad):
            place = answered % GOOD
            answered += check(good.post("/predict?top=3", files={"image": files[place]}), [place], expected)
        assert Counter(each.result() for each in bad) == {"422": 6, "413": 6, "408": 6, "aborted": 6, "impatient": 6}
        for _ in range(1000):  # the aborted ones are noticed in their own time
            said = good.get("/metrics").text
            if 'status="aborted"} 6.0' in said:
                break
            time.sleep(0.01)
        assert f'cbp_requests_total{{endpoint="/predict",status="200"}} {answered + 6}.0' in said
        assert 'cbp_requests_total{endpoint="/predict",status="aborted"} 6.0' in said
        assert 'status="500"' not in said
        assert "cbp_held_bytes 0.0" in said
        assert "cbp_images_waiting 0.0" in said
    assert app.accepted == app.answered, "but for those that went away"


class Held(Predictor):
    """A model that computes when it is told to."""

    def __init__(self) -> None:
        super().__init__(model())
        self.go_on = threading.Event()

    def __call__(self, images: Sequence[Seen]) -> list[ImageResult]:
        self.go_on.wait(20)
        return super().__call__(images)

    def warm_up(self) -> None:
        pass


@contextmanager
def held(limits: Limits) -> Iterator[tuple[Held, str]]:
    predictor = Held()
    with running(build_app(predictor, limits, batch=1)) as url:
        try:
            yield predictor, url
        finally:
            predictor.go_on.set()


def test_overload_is_said_and_what_was_accepted_is_answered(files: list[bytes], expected: list[list[float]]) -> None:
    with held(Limits(queue=6, images=3)) as (predictor, url):

        async def test() -> None:
            async with httpx.AsyncClient(base_url=url, timeout=60) as client:

                async def ask(place: int) -> httpx.Response:
                    return await client.post("/predict?top=3", files={"image": files[place]})

                accepted = [asyncio.create_task(ask(place)) for place in range(6)]
                while "cbp_images_waiting 6.0" not in (await client.get("/metrics")).text:
                    await asyncio.sleep(0.01)
                assert (await client.get("/readyz")).status_code == 503
                assert (await client.get("/healthz")).status_code == 200
                for response in [await ask(7) for _ in range(5)]:
                    assert response.status_code == 503
                    assert response.json()["detail"].startswith("The server is busy: 6 of 6 images are taken.")
                    assert 1 <= int(response.headers["retry-after"]) <= 60
                predictor.go_on.set()
                for place, response in enumerate(await asyncio.gather(*accepted)):
                    check(response, [place], expected)
                check(await ask(7), [7], expected)
                assert (await client.get("/readyz")).status_code == 200

        asyncio.run(test())


def test_several_images_find_room_together_or_not_at_all(files: list[bytes], expected: list[list[float]]) -> None:
    with held(Limits(queue=4, images=3)) as (predictor, url):

        async def test() -> None:
            async with httpx.AsyncClient(base_url=url, timeout=60) as client:

                async def ask(places: Sequence[int]) -> httpx.Response:
                    return await client.post("/predict?top=3", files=[("image", files[place]) for place in places])

                first = asyncio.create_task(ask([0, 1, 2]))
                while "cbp_images_waiting 3.0" not in (await client.get("/metrics")).text:
                    await asyncio.sleep(0.01)
                assert (await ask([3, 4])).status_code == 503
                second = asyncio.create_task(ask([5]))
                while "cbp_images_waiting 4.0" not in (await client.get("/metrics")).text:
                    await asyncio.sleep(0.01)
                predictor.go_on.set()
                check(await first, [0, 1, 2], expected)
                check(await second, [5], expected)

        asyncio.run(test())


def test_an_answer_that_takes_too_long_is_given_up_and_its_place_given_back(files: list[bytes]) -> None:
    with held(Limits(answer_seconds=0.2)) as (predictor, url), httpx.Client(base_url=url, timeout=60) as client:
        response = client.post("/predict", files={"image": files[0]})
        assert response.status_code == 504
        assert response.json()["detail"] == "The answer was not there after 0.2 s."
        assert "cbp_images_waiting 0.0" in client.get("/metrics").text
        predictor.go_on.set()
        answer(client.post("/predict", files={"image": files[0]}))


def test_a_model_that_fails_fails_one_request(files: list[bytes], capfd: pytest.CaptureFixture[str]) -> None:
    class Failing(Predictor):
        def __call__(self, images: Sequence[Seen]) -> list[ImageResult]:
            if any(image.wanted.classes == 2 for image in images):
                raise RuntimeError("out of memory")
            return super().__call__(images)

    with running(build_app(Failing(model()))) as url, httpx.Client(base_url=url, timeout=60) as client:
        response = client.post("/predict?top=2", files={"image": files[0]})
        assert response.status_code == 500
        assert response.json()["detail"] == "The server failed, RuntimeError; its log says where."
        answer(client.post("/predict?top=1", files={"image": files[0]}))
        assert "cbp_images_waiting 0.0" in client.get("/metrics").text
    assert "out of memory" in capfd.readouterr().err


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not say there what a process holds")
def test_attacks_leave_no_memory_behind(files: list[bytes]) -> None:
    """Bombs and oversized bodies, again and again: memory is where it was after the first few."""
    bomb = broken_images()["large.png"][0]
    limits = Limits(request_bytes=2_000_000, held_bytes=8_000_000)

    def attack(client: httpx.Client) -> None:
        assert client.post("/predict", files=[("image", bomb)] * 8).status_code == 422
        for body, status in (
            (b"[" * 1_900_000, 413),
            (b'{"images": [' + b"1," * 900_000 + b"1]}", 413),
            (b'"' * 1_900_000, 422),
        ):
            response = client.post("/predict", content=body, headers={"Content-Type": "application/json"})
            assert response.status_code == status
        assert (
            client.post(
                "/predict", content=iter([b"A" * 500_000] * 5), headers={"Content-Type": "application/json"}
            ).status_code
            == 413
        )
        assert client.post("/predict", files=[("image", b"x" * 1_900_000)]).status_code == 422

    with running(application(limits=limits)) as url, httpx.Client(base_url=url, timeout=60) as client:
        for _ in range(10):
            attack(client)
        before = _megabytes()
        for _ in range(30):
            attack(client)
        # 180 attacks of 2 MB and bombs of 360 MB: a single bomb unpacked, or one body in fifteen kept, would show
        assert _megabytes() - before < 16
        answer(client.post("/predict", files={"image": files[0]}))


def _megabytes() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1e3
