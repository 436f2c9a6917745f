"""A server on this machine that misbehaves in every way known, one at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    """Serves ``files`` by their paths and notes the range of every request."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.ranges: list[str | None] = []
        self.ignores_range = False
        self.wrong_range = False
        self.sends_parts_only = False
        self.chunked = False
        self.redirect = ""
        self.cut_after: list[int] = []  # bytes of the first answer, of the second, ...
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: Any) -> None:
        pass  # clients that go away are what is tested


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        server, body = self.server, self.server.files.get(self.path)
        self.close_connection = True
        asked = self.headers.get("Range")
        server.ranges.append(asked)
        if server.redirect:
            self.answer(302, b"", Location=server.redirect)
        elif body is None:
            self.answer(404, b"nothing here")
        elif asked is None and server.sends_parts_only:
            self.answer(206, body[9:], **{"Content-Range": f"bytes 9-{len(body) - 1}/{len(body)}"})
        elif asked is None or server.ignores_range:
            self.answer(200, body)
        elif (start := int(asked.removeprefix("bytes=").removesuffix("-"))) >= len(body):
            self.answer(416, b"", **{"Content-Range": f"bytes */{len(body)}"})
        else:
            start = 0 if server.wrong_range else start
            self.answer(206, body[start:], **{"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"})

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header(*(("Transfer-Encoding", "chunked") if self.server.chunked else ("Content-Length", str(len(body)))))
        self.end_headers()
        cut = self.server.cut_after.pop(0) if self.server.cut_after else None
        for at in range(0, len(body), 4096):
            block = body[at : at + 4096] if cut is None else body[at : min(at + 4096, cut)]
            if not block:
                break
            self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block) if self.server.chunked else block)
        if self.server.chunked and cut is None:
            self.wfile.write(b"0\r\n\r\n")


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Server]:
    with Server(files) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
