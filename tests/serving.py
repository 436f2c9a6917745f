"""A small model, a small index of photographs, and a server of both in a thread of the test's own process."""

import io
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from compact_bilinear.descriptors import load_backbone
from compact_bilinear.images import Transform, load_images, read_images
from compact_bilinear.images.textures import texture
from compact_bilinear.model import Model
from compact_bilinear.serve import Limits, Predictor, build_app
from compact_bilinear.serve.guard import Guard
from compact_bilinear.serve.neighbours import Neighbours, Searchable
from compact_bilinear.serve.server import listen, server_of, url_of

CLASSES = ("bark", "brick", "moss")
SIDE = 40


def model(**settings: Any) -> Model:
    """Images to one of three classes, with a head that means nothing."""
    made = Model(load_backbone("tiny"), "tensor-sketch:64", CLASSES, transform=Transform(size=SIDE), **settings)
    draw = torch.Generator().manual_seed(5)
    return made.set_head(torch.randn(3, 64, generator=draw), torch.tensor([0.1, -0.2, 0.3])).eval()


def picture(seed: int, size: tuple[int, int] = (60, 50), format: str = "JPEG") -> bytes:
    """An image file, another one for each seed."""
    image = Image.fromarray(texture(seed % 7, seed, max(size)))
    stream = io.BytesIO()
    image.crop((0, 0, *size)).save(stream, format)
    return stream.getvalue()


class Shelf:
    """An index in memory, of all images in a folder, for a model."""

    def __init__(self, made: Model, folder: Path) -> None:
        self.folder, self.pooling, self.d, self.model = folder, str(made.named), made.pooling.dim, None
        self.images = read_images(folder)
        rows, places = [], []
        for batch in load_images(self.images, made.transform, workers=0):
            with torch.no_grad():
                rows.append(made.features(batch.pixels).numpy())
            places += batch.places.tolist()
        self.rows, self.numbers = np.concatenate(rows), np.array(places)

    def search(self, features: NDArray[np.floating], top: int = 10) -> Sequence[Any]:
        found = []
        for similarities in features @ self.rows.T:
            order = np.argsort(-similarities, kind="stable")[:top]
            found.append(SimpleNamespace(similarities=similarities[order], numbers=self.numbers[order]))
        return found

    def item(self, number: int) -> Any:
        path = self.images.paths[number]
        name = self.images.classes[self.images.labels[number]]
        return SimpleNamespace(path=path, name=name, file=self.folder / path)


def application(made: Model | None = None, index: Searchable | None = None, limits: Limits | None = None, **more: Any) -> Guard:
    made = made or model()
    return build_app(Predictor(made, None if index is None else Neighbours(index, made)), limits, **more)


@contextmanager
def running(app: Guard, port: int = 0) -> Iterator[str]:
    """The address of a server that answers until the context ends."""
    bound = listen("127.0.0.1", port)
    server = server_of(app, patience=9)
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    try:
        url = url_of(bound)
        while not server.started and thread.is_alive():
            threading.Event().wait(0.01)
        yield url
    finally:
        server.should_exit = True
        thread.join()


def raw(url: str, content: bytes, timeout: float = 20) -> tuple[int, dict[str, str], bytes]:
    """Send bytes as they are, and read what comes until the connection is closed: status, head and body."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout) as connection:
        connection.sendall(content)
        with connection.makefile("rb") as stream:
            status = int(stream.readline().split()[1])
            head = dict(line.decode().rstrip().lower().split(": ", 1) for line in iter(stream.readline, b"\r\n"))
            return status, head, stream.read(int(head["content-length"]))


def answer(response: httpx.Response) -> list[dict[str, Any]]:
    """The results of a good answer."""
    assert response.status_code == 200, response.text
    results: list[dict[str, Any]] = json.loads(response.content)["results"]
    return results
