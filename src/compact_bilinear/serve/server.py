"""A process that listens, answers, and ends when it is asked to, once everything that it accepted is answered."""

import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..progress import note
from .guard import Guard

# Seconds after which a thread hands the interpreter on. In Python's own 5 ms a core would stand idle: the threads that compute
# need it for a moment between two layers, while the event loop has it.
SWITCH = 0.0005
HEAD = 2**16  # bytes


class Http(HttpToolsProtocol):
    """The protocol of uvicorn, which keeps whatever comes before a body, or after it, with a bound on that.

    A single read of the socket may go over it.
    """

    beside = 0  # bytes of the request that are not of its body

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.beside += len(data)
        super().data_received(data)
        if self.beside <= HEAD or self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.send_400_response(f"The head of a request may have {HEAD} bytes.")
        else:
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        """Some of them are of a body."""
        self.beside -= 2 * len(body)  # which has small heads between its chunks
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The next is another request's."""
        self.beside = 0
        super().on_message_complete()


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound, so that a wrong port is found out before a model is loaded."""
    if not 0 <= port <= 65535:
        raise ValueError(f"A port is a number from 0 to 65535, but got {port}.\nWrite --port 8000, or 0 for one that is free.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        if hasattr(socket, "SO_REUSEADDR") and hasattr(signal, "SIGHUP"):  # on Windows it would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(address)
            bound.listen(2048)
        except OSError:
            bound.close()
            raise
    except OSError as fault:
        raise ValueError(
            f"The server cannot listen at {host}, port {port}: {(fault.strerror or str(fault)).lower()}.\n"
            "Write another --port, 0 for one that is free, or a --host of this machine."
        ) from fault
    return bound


def url_of(bound: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = bound.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(app: Guard, *, patience: float, log: bool = False) -> uvicorn.Server:
    """The server of uvicorn, with the arguments of :func:`run_until_asked`."""
    config = uvicorn.Config(
        app,
        http=Http,
        log_level="info" if log else "warning",
        access_log=log,
        server_header=False,
        timeout_graceful_shutdown=int(patience) + 1,
        lifespan="on",
    )
    return uvicorn.Server(config)


def run_until_asked(app: Guard, bound: socket.socket, *, patience: float, log: bool = False) -> None:
    """Answer until SIGTERM or Ctrl-C; then take no more, answer what was accepted, and return. A second Ctrl-C ends at once.

    Args:
        app: that :func:`~compact_bilinear.serve.build_app` built.
        bound: where to listen.
        patience: seconds that uploads and answers may take at the end.
        log: a line for each request.
    """
    sys.setswitchinterval(SWITCH)
    server = server_of(app, patience=patience, log=log)
    with _a_signal_is_no_failure(server):
        try:
            server.run([bound])
        except SystemExit:  # which is how uvicorn says it
            raise RuntimeError("The server could not begin; what is above says why.") from None
    note(f"serve: ended, {app.answered} of {app.accepted} accepted requests were answered")


@contextmanager
def _a_signal_is_no_failure(server: uvicorn.Server) -> Iterator[None]:
    # uvicorn hears signals once it runs; and when it has ended, it sends itself again those that it was sent
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        server.should_exit = True

    before = {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
