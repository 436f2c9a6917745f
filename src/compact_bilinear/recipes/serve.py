"""Serve: a model behind HTTP, with a page for people, until it is asked to end."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional, UseAppendAction

from ..device import Precision, choose_precision, find_device
from ..model import load_model
from ..processes import Processes
from ..progress import note

if TYPE_CHECKING:  # it is imported in run(): `cbp --help` does without it
    from ..serve import Limits

TOKEN = "CBP_TOKEN"


@dataclass(frozen=True)
class Serve:
    """Answer over HTTP what a model says of images, and show it on a page.

    For instance, and then open http://127.0.0.1:8000 in a browser:

        cbp serve model --index index

    It listens to this machine alone unless --host says otherwise. Ctrl-C or SIGTERM end it, once everything that it accepted is
    answered; that is no failure, and the exit code is 0.
    """

    run: Positional[Path]
    """The folder of a model."""
    index: Path | None = None
    """An index of features of the same model, to find neighbours in."""
    host: str = "127.0.0.1"
    """Where to listen: 0.0.0.0 is everywhere."""
    port: int = 8000
    """Where to listen; 0 takes a port that is free, and says which."""
    token_file: Path | None = None
    """A file whose content every request must bring as its bearer token; the variable CBP_TOKEN in the environment does the
    same."""
    name: UseAppendAction[tuple[str, ...]] = ()
    """A name that requests may call the server by, if a proxy is in front of it; may be repeated. On 127.0.0.1 it otherwise
    goes by localhost and its number only, elsewhere by any."""
    device: str = "auto"
    """cpu or cuda."""
    precision: Precision = "auto"
    """What the backbone computes in: on a GPU bfloat16 where it can, and float32 on a CPU."""
    batch: int = 0
    """Images at a time, at most; 0 is 32 on a GPU and 4 on a CPU."""
    wait: float | None = None
    """Milliseconds that an idle thread waits for more images once it has one: 5 on a GPU and 0 on a CPU if not given."""
    threads: int = 0
    """On a CPU, batches that are computed at a time, each in a thread; 0 is one for each core."""
    decoders: int = 0
    """Images that are decoded at a time; 0 is one for two cores."""
    queue: int = 256
    """Images that are accepted and not answered yet; who comes when it is full gets 503 and a time to come again."""
    images: int = 32
    """In one request, at most."""
    image_megabytes: float = 20
    """Of one image file, at most."""
    request_megabytes: float = 64
    """Of one request, at most."""
    held_megabytes: float = 256
    """Of all requests at a time, at most."""
    megapixels: float = 50
    """Of one image, at most; a larger one is refused before it is unpacked."""
    upload_seconds: float = 30
    """Until all of a request has to be there."""
    answer_seconds: float = 60
    """From there to its answer."""
    log: bool = False
    """Write a line for each request."""


def run(config: Serve) -> None:
    """Load the model and the index, listen, and answer until asked to end."""
    from ..images.loader import available_cpus
    from ..serve import Predictor, build_app
    from ..serve.guard import LOOPBACK
    from ..serve.neighbours import Neighbours
    from ..serve.server import listen, run_until_asked, url_of

    _check(config)
    limits, token = _limits(config), _read_token(config)
    device = find_device(config.device, Processes.from_environment())
    on_gpu = device.type == "cuda"
    bound = listen(config.host, config.port)
    try:
        model = load_model(config.run, device)
        neighbours = None
        if config.index is not None:
            from ..search import Index

            neighbours = Neighbours(Index(config.index), model)
        local = bound.getsockname()[0] in ("127.0.0.1", "::1")
        app = build_app(
            Predictor(model, neighbours, precision=choose_precision(config.precision, device)),
            limits,
            token=token,
            hosts=(*LOOPBACK, *map(str.lower, config.name)) if local or config.name else None,
            threads=1 if on_gpu else config.threads or available_cpus(),
            batch=config.batch or (32 if on_gpu else 4),
            wait=(config.wait if config.wait is not None else 5 if on_gpu else 0) / 1e3,
            decoders=config.decoders or max(1, available_cpus() // 2),
        )
        note(f"serve: {config.run} at {url_of(bound)}" + ("" if local or token else ", for whoever can reach it"))
        run_until_asked(app, bound, patience=config.upload_seconds + config.answer_seconds, log=config.log)
    finally:
        bound.close()


def _check(config: Serve) -> None:
    for name, value, least in (
        ("batch", config.batch, 0),
        ("threads", config.threads, 0),
        ("wait", config.wait or 0, 0),
        ("decoders", config.decoders, 0),
    ):
        if value < least:
            raise ValueError(f"--{name} takes a number ≥ {least}, but got {value}.\nWrite a larger one, or leave it out.")


def _limits(config: Serve) -> "Limits":
    from ..serve import Limits

    return Limits(
        request_bytes=int(config.request_megabytes * 1e6),
        image_bytes=int(config.image_megabytes * 1e6),
        pixels=int(config.megapixels * 1e6),
        images=config.images,
        queue=config.queue,
        held_bytes=int(config.held_megabytes * 1e6),
        upload_seconds=config.upload_seconds,
        answer_seconds=config.answer_seconds,
    )


def _read_token(config: Serve) -> str | None:
    """The token without the newline that an editor adds; None where there is to be none."""
    if config.token_file is None and TOKEN not in os.environ:
        return None
    source = TOKEN if config.token_file is None else str(config.token_file)
    if config.token_file is None:
        token = os.environ[TOKEN].strip()
    elif config.token_file.is_file():
        token = config.token_file.read_text(encoding="utf-8").strip()
    else:
        raise ValueError(f"--token-file names a file with a token, but {source} is none.\nWrite one into it, or leave it out.")
    if len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(
            f"A token has at least 16 letters and digits, without spaces, but {source} has {len(token)} that will not do.\n"
            "Make one with `python -c 'import secrets; print(secrets.token_urlsafe())'`."
        )
    return token
