"""What serving adds to the model that it serves: how many images a second, how long each waits, and whether any is lost.

    python benchmarks/serve.py                         a table; two minutes
    python benchmarks/serve.py --json > benchmarks/results/serve-cpu.jsonl

`cbp serve` runs as its users start it, in a process of its own that listens to this machine alone. In turns are timed: the
model by itself, in this process, on batches of images that are decoded already, one in each core, of which the fastest size
counts; one client, which sends an image, waits for its answer, and sends the next; and 32 such clients at once. They send the
bytes of JPEG files as a browser would, over connections that they keep. They run in this process, on the same cores, so what
they take is measured too.

Every answer is compared with what the model says of that image in this process, and brings back the number of its request: none
may be lost, come twice, or be another's. At last 64 clients ask a server with a short queue for more than it can do. Some are
told to come again; the others must have their answers by the time that a full queue takes, and the batches that were begun
before it.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from compact_bilinear.descriptors import load_backbone
from compact_bilinear.device import side_by_side
from compact_bilinear.images import Transform, load_images, read_images
from compact_bilinear.images.loader import available_cpus
from compact_bilinear.model import Model
from compact_bilinear.timing import machine
from extract import write_photographs

CLASSES = 47  # as many as the textures of DTD
DISTINCT = 64
CLOSE = 1e-3  # of a score; batches of other sizes round otherwise, in the seventh digit
SHORT_QUEUE, BATCH = 16, 4


@dataclass
class Load:
    """What some clients saw."""

    seconds: list[float] = field(default_factory=list)  # of each answer
    refused: int = 0
    took: float = 0.0
    client_seconds: float = 0.0  # of the processor

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.seconds) / self.took


class Clients:
    """Clients of a server, each with a connection that it keeps.

    Args:
        port: where it listens.
        files: the images that they send.
        expected: the label and score that the model gives each.
    """

    def __init__(self, port: int, files: Sequence[bytes], expected: Sequence[tuple[int, float]]) -> None:
        self.port, self.expected = port, expected
        self.bodies = [_multipart(file) for file in files]
        self.sent = 0

    def run(self, clients: int, requests: int) -> Load:
        """So many requests in all, by so many clients at once."""
        load, begun, used = Load(), time.perf_counter(), time.process_time()
        asyncio.run(self._run(clients, requests, load))
        load.took, load.client_seconds = time.perf_counter() - begun, time.process_time() - used
        return load

    async def _run(self, clients: int, requests: int, load: Load) -> None:
        left = iter(range(requests))
        await asyncio.gather(*(self._client(left, load) for _ in range(clients)))

    async def _client(self, left: Iterator[int], load: Load) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for _ in left:
            number, self.sent = self.sent, self.sent + 1
            image = number % len(self.bodies)
            begun = time.perf_counter()
            writer.write(self._head(number, len(self.bodies[image])) + self.bodies[image])
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            body = await reader.readexactly(int(_value("content-length", head)))
            if _value("x-request-id", head) != f"request-{number}":
                raise AssertionError(f"request {number} was given the answer to {_value('x-request-id', head)}")
            if head.startswith("http/1.1 503"):
                load.refused += 1
                await asyncio.sleep(0.05)  # a polite client would wait as long as Retry-After says, which is longer
                continue
            load.seconds.append(time.perf_counter() - begun)
            first = json.loads(body)["results"][0]["classes"][0]
            label, score = self.expected[image]
            if first["label"] != label or abs(first["score"] - score) > CLOSE:
                raise AssertionError(f"image {image} is {label} ({score}), but was answered with {first}")
        writer.close()
        await writer.wait_closed()

    def _head(self, number: int, size: int) -> bytes:
        return (
            f"POST /predict?top=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-ID: request-{number}\r\n"
            f"Content-Type: multipart/form-data; boundary=edge\r\nContent-Length: {size}\r\n\r\n"
        ).encode()


def _multipart(file: bytes) -> bytes:
    head = b'--edge\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\nContent-Type: image/jpeg\r\n\r\n'
    return head + file + b"\r\n--edge--\r\n"


def _value(name: str, head: str) -> str:
    found = re.search(rf"\n{name}: (.*)\r", head)
    return found[1] if found else ""


@contextmanager
def server(run: Path, *flags: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """`cbp serve` until the context ends: its port and process."""
    command = [sys.executable, "-m", "compact_bilinear", "serve", str(run), "--port", "0", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r":(\d+)(,|$)", line)
        if found is None:
            raise RuntimeError(line + process.stderr.read())
        yield int(found[1]), process
    finally:
        process.terminate()
        said = process.stderr.read()
        if process.wait() != 0:
            raise RuntimeError(said)


def by_itself(model: Model, pixels: torch.Tensor, batch: int, threads: int) -> float:
    """Images a second of the model on batches in memory, one in each core."""
    batches = [pixels[start : start + batch] for start in range(0, len(pixels), batch)]
    begun = time.perf_counter()
    for _ in side_by_side(model, batches, threads):
        pass
    return len(pixels) / (time.perf_counter() - begun)


def measure(folder: Path, size: int, rounds: int, requests: int) -> Iterator[dict[str, Any]]:
    """One record for each kind of load."""
    threads = available_cpus()
    files, model, pixels, expected = prepare(folder, size)
    rates: dict[int, list[float]] = {batch: [] for batch in (1, 4, 16)}
    loads: dict[int, list[Load]] = {1: [], 32: []}
    used: dict[int, float] = dict.fromkeys(loads, 0.0)  # seconds of the processor in the server
    used_alone = 0.0
    with server(folder / "model") as (port, process):
        clients = Clients(port, files, expected)
        clients.run(32, 2 * len(files))
        for _ in range(rounds):
            begun = time.process_time()
            for batch, of_batch in rates.items():
                of_batch.append(by_itself(model, pixels, batch, threads))
            used_alone += time.process_time() - begun
            for number, of_number in loads.items():
                begun = _processor_seconds(process.pid)
                of_number.append(clients.run(number, requests if number > 1 else requests // 4))
                used[number] += _processor_seconds(process.pid) - begun
        held = _megabytes(process.pid)
    batch = max(rates, key=lambda each: median(rates[each]))
    alone, one = median(rates[batch]), median(load.rate for load in loads[1])
    yield {
        "name": "the model by itself",
        "batch": batch,
        "images_a_second": _spread(rates[batch]),
        "ratio": 1.0,
        "processor_ms": used_alone / (len(pixels) * len(rates) * rounds) * 1e3,
    }
    for number, of_number in loads.items():
        rate = median(load.rate for load in of_number)
        seconds = [each for load in of_number for each in load.seconds]
        yield {
            "name": f"{number} client{'s' * (number > 1)}",
            "images_a_second": _spread([load.rate for load in of_number]),
            "ratio": rate / alone,
            "ratio_to_one_client": rate / one,
            "ms": [median(seconds) * 1e3, _high(seconds) * 1e3],
            "processor_ms": used[number] / len(seconds) * 1e3,
            "client_ms": sum(load.client_seconds for load in of_number) / len(seconds) * 1e3,
            "answers": len(seconds),
            "lost_or_twice": clients.sent - 2 * len(files) - sum(len(each.seconds) for one in loads.values() for each in one),
            "server_mb": held,
        }
    yield overload(folder, files, expected, requests)


def overload(folder: Path, files: Sequence[bytes], expected: Sequence[tuple[int, float]], requests: int) -> dict[str, Any]:
    """More clients than a short queue has places."""
    flags = ("--queue", str(SHORT_QUEUE), "--images", "1", "--batch", str(BATCH))
    with server(folder / "model", *flags) as (port, _):
        clients = Clients(port, files, expected)
        clients.run(1, 8)
        load = clients.run(64, 4 * requests)
    return {
        "name": f"64 clients, a queue of {SHORT_QUEUE}",
        "images_a_second": [load.rate] * 3,
        "answers": len(load.seconds),
        "refused": load.refused,
        "lost_or_twice": clients.sent - 8 - len(load.seconds) - load.refused,
        "ms": [median(load.seconds) * 1e3, _high(load.seconds) * 1e3],
        "bound_ms": (SHORT_QUEUE + BATCH * available_cpus()) / load.rate * 1e3,
    }


def prepare(folder: Path, size: int) -> tuple[list[bytes], Model, torch.Tensor, list[tuple[int, float]]]:
    """Files, a model that is saved, the files' pixels, and what the model says of each."""
    images = read_images(write_photographs(folder / "photos", DISTINCT, (size, size))).select("train")
    classes = [f"class {label}" for label in range(CLASSES)]
    model = Model(load_backbone("tiny"), "tensor-sketch:8192", classes, transform=Transform(size=size)).eval()
    draw = torch.Generator().manual_seed(0)
    model.set_head(torch.randn(CLASSES, 8192, generator=draw), torch.zeros(CLASSES))
    model.backbone.to(memory_format=torch.channels_last)
    model.save(folder / "model")
    (batch,) = load_images(images, model.transform, batch=len(images), workers=0)
    with torch.inference_mode():
        scores, labels = torch.cat([model(some) for some in batch.pixels.split(4)]).max(1)
    files = [images.file(place).read_bytes() for place in range(len(images))]
    return files, model, batch.pixels, list(zip(labels.tolist(), scores.tolist(), strict=True))


def _spread(values: Sequence[float]) -> list[float]:
    return [median(values), min(values), max(values)]


def _high(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=100)[-1]


def _processor_seconds(pid: int) -> float:
    """What a process has used of the processors so far; not a number where the system does not say."""
    status = Path(f"/proc/{pid}/stat")
    if not status.exists():
        return float("nan")
    user, system = status.read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _megabytes(pid: int) -> float:
    """The most memory that a process held; of this one where the system does not say."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="utf-8"))
    return int(found[1]) / 1e3 if found else 0.0


def main() -> None:
    """Print a table, or one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=160, help="side of the images, in the files and in the model")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is timed")
    parser.add_argument("--requests", type=int, default=320, help="of 32 clients in a round; one client sends a quarter")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    about = {
        "backbone": "tiny",
        "size": arguments.size,
        "load_before": os.getloadavg()[0],
    }  # others' work, which belongs elsewhere
    with tempfile.TemporaryDirectory() as folder:
        for record in measure(Path(folder), arguments.size, arguments.rounds, arguments.requests):
            if arguments.json:
                print(json.dumps({"benchmark": "serve", **machine("cpu"), **record, **about}), flush=True)
            else:
                cells = (f"{name} {_shown(value)}" for name, value in record.items() if name != "name")
                print(f"{record['name']:<28}{'   '.join(cells)}", flush=True)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " … ".join(f"{each:.4g}" for each in value)
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
