"""What every request passes: who may ask, what a browser is told, what is counted."""

import hmac
import re
import secrets
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .metrics import Metrics

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
PAGE = ("/", "/page.css", "/page.js", "/icon.svg")
OPEN = (*PAGE, "/healthz", "/readyz", "/openapi.json")  # without a token: they tell nothing of anybody's images
KNOWN = (*OPEN, "/predict", "/search", "/metrics", "/about")
ID = re.compile(r"[\w.:-]{1,100}", re.ASCII)
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """Middleware around the whole application.

    Args:
        app: what it guards.
        metrics: what it counts in.
        token: that a request has to bring as ``Authorization: Bearer``; None for nobody's.
        hosts: names that a request may call the server by, None for any. A web page of somebody else's whose name is made to
            point to this machine still calls it by that name.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, token: str | None = None, hosts: tuple[str, ...] | None = None) -> None:
        self.app, self.metrics, self.hosts = app, metrics, hosts
        self.token = None if token is None else token.encode()
        self.accepted = self.answered = 0  # requests whose head was read, and whose answer was handed over whole

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, headers, status = time.perf_counter(), Headers(scope=scope), 0
        self.accepted += 1
        given = headers.get("x-request-id", "")
        own = {**HEADERS, "X-Request-ID": given if ID.fullmatch(given) else secrets.token_hex(8)}

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                said = MutableHeaders(scope=message)
                said.update(own)
                said.setdefault("Cache-Control", "no-store")
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                self.answered += 1
                endpoint = _endpoint(scope["path"])
                self.metrics.requests.labels(endpoint, status).inc()
                self.metrics.seconds.labels(endpoint).observe(time.perf_counter() - begun)

        try:
            await (self._refusal(scope["path"], headers) or self.app)(scope, receive, answer)
        except ClientDisconnect:  # in the middle of its upload: nobody is left to be answered
            self.accepted -= 1
            self.metrics.requests.labels(_endpoint(scope["path"]), "aborted").inc()

    def _refusal(self, path: str, headers: Headers) -> Response | None:
        host = headers.get("host", "").lower()
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if self.hosts is not None and name not in self.hosts:
            return _problem(421, "This server does not go by that name. Start it with --name NAME if it should.")
        if self.token is None or path in OPEN:
            return None
        scheme, _, brought = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(brought.encode(), self.token):
            return None
        refusal = _problem(401, "This server asks for a token: send the header Authorization: Bearer TOKEN.")
        refusal.headers["WWW-Authenticate"] = "Bearer"
        return refusal


def _problem(status: int, detail: str) -> Response:
    return JSONResponse({"detail": detail, "results": []}, status)


def _endpoint(path: str) -> str:
    return path if path in KNOWN else "/items" if path.startswith("/items/") else "other"
