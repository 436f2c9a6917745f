"""How it begins and ends, apart from what `cbp serve` says of it."""

import signal
import sys
import threading
from collections.abc import Iterator

import pytest
import uvicorn

from compact_bilinear.serve import Predictor, build_app
from compact_bilinear.serve.server import listen, run_until_asked
from serving import application, model


@pytest.fixture(autouse=True)
def _switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_uvicorn_hears_any_ends_it_too(monkeypatch: pytest.MonkeyPatch, sign: signal.Signals) -> None:
    run, late = uvicorn.Server.run, []

    def signalled(server: uvicorn.Server, sockets: object) -> None:
        signal.raise_signal(sign)
        run(server, sockets)  # type: ignore[arg-type]

    def end_it() -> None:
        late.append(True)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(uvicorn.Server, "run", signalled)
    otherwise = threading.Timer(20, end_it)
    otherwise.start()
    with listen("127.0.0.1", 0) as bound:
        run_until_asked(application(), bound, patience=1)
    otherwise.cancel()
    assert not late


def test_a_model_that_cannot_compute_ends_it_and_its_threads() -> None:
    class Failing(Predictor):
        def warm_up(self) -> None:
            raise RuntimeError("out of memory")

    before = set(threading.enumerate())
    with listen("127.0.0.1", 0) as bound, pytest.raises(RuntimeError, match="could not begin"):
        run_until_asked(build_app(Failing(model()), threads=2), bound, patience=1)
    # a thread that still waits for images would keep the process for ever
    assert set(threading.enumerate()) <= before
