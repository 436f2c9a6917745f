"""The application: its endpoints, and what stands between a request and the model."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from .. import __version__
from .answers import About, Answer, Health, ImagesInJson, Problem
from .guard import Guard
from .limits import Limits, RefusedError
from .metrics import CONTENT_TYPE, Metrics
from .neighbours import LARGE, THUMBNAIL
from .predictor import Predictor, Wanted
from .service import NO_INDEX, Service, as_json

TOP = 100  # classes, evidence maps or neighbours that may be asked for each image
FILES = {"/": "page.html", "/page.css": "page.css", "/page.js": "page.js", "/icon.svg": "icon.svg"}
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The body cannot be read"},
    401: {"model": Problem, "description": "The token is missing or wrong"},
    404: {"model": Problem, "description": "This server has no such thing"},
    408: {"model": Problem, "description": "The body did not come in time"},
    413: {"model": Problem, "description": "Too many bytes or images"},
    415: {"model": Problem, "description": "The body is of another kind"},
    421: {"model": Problem, "description": "The server does not go by that name"},
    422: {"model": Problem, "description": "The request is not as described, or each of its images is at fault"},
    503: {"model": Problem, "description": "Too much to do; Retry-After says when to come again"},
    504: {"model": Problem, "description": "The answer was not there in time"},
}
FEW: dict[int | str, dict[str, Any]] = {status: PROBLEMS[status] for status in (401, 404, 421, 422, 503)}
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"image": {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}},
                    "required": ["image"],
                    "additionalProperties": False,
                }
            },
            "application/json": {"schema": {"$ref": "#/components/schemas/ImagesInJson"}},
        },
    }
}

Count = Annotated[int, Query(ge=0, le=TOP)]


NO_CLASSES = "This model has no classes to predict. Ask /search for neighbours, or serve a model that `cbp train` made."


def build_app(
    predictor: Predictor,
    limits: Limits | None = None,
    *,
    token: str | None = None,
    hosts: tuple[str, ...] | None = None,
    threads: int = 1,
    batch: int = 4,
    wait: float = 0.0,
    decoders: int = 2,
    metrics: Metrics | None = None,
) -> Guard:
    """The application, for uvicorn or any other server of ASGI.

    Args:
        predictor: the model, and the index if there is one.
        limits: of what is taken.
        token: that all but the page, /healthz and /readyz ask for.
        hosts: names that the server goes by; None for any.
        threads: batches that are computed at a time.
        batch: images in one, at most.
        wait: seconds that an idle thread waits for more images, once it has one.
        decoders: images that are decoded at a time.
        metrics: what is counted in.
    """
    limits, metrics = limits or Limits(), metrics or Metrics()
    predictor.measured = metrics.note_batch

    @asynccontextmanager
    async def begin_and_end(app: FastAPI) -> AsyncIterator[None]:
        service = Service(predictor, limits, metrics, threads=threads, batch=batch, wait=wait, decoders=decoders)
        metrics.waiting.set_function(lambda: service.images.taken)
        metrics.held.set_function(lambda: service.held.taken)
        try:
            await asyncio.get_running_loop().run_in_executor(service.pool, predictor.warm_up)
            app.state.service = service
            yield
        finally:
            app.state.service = None
            await service.close()

    app = FastAPI(
        title="Compact Bilinear",
        version=__version__,
        summary="Classes, evidence and neighbours of images.",
        lifespan=begin_and_end,
        docs_url=None,  # their pages load scripts from elsewhere; this server's own page is at /
        redoc_url=None,
    )
    _add_endpoints(app, predictor, limits, metrics)
    _add_page(app)
    _add_explanations(app)
    return Guard(app, metrics, token, hosts)


def _add_endpoints(app: FastAPI, predictor: Predictor, limits: Limits, metrics: Metrics) -> None:
    @app.post("/predict", response_model=Answer, responses=PROBLEMS, openapi_extra=BODY)
    async def predict(request: Request, top: Count = 5, evidence: Count = 0, neighbours: Count = 0) -> Response:
        """The classes of each image; with `evidence`, maps for so many of them; with `neighbours`, so many of the index."""
        if not predictor.model.classes:
            raise RefusedError(404, NO_CLASSES)
        if evidence and not predictor.has_evidence:
            raise RefusedError(404, "This model's pooling or backbone leaves no map of evidence. Ask without it.")
        if neighbours and predictor.neighbours is None:
            raise RefusedError(404, NO_INDEX)
        return await _service(app).answer(request, Wanted(top, evidence, neighbours))

    @app.post("/search", response_model=Answer, responses=PROBLEMS, openapi_extra=BODY)
    async def search(request: Request, neighbours: Annotated[int, Query(ge=1, le=TOP)] = 10) -> Response:
        """The nearest images of the index."""
        if predictor.neighbours is None:
            raise RefusedError(404, NO_INDEX)
        return await _service(app).answer(request, Wanted(neighbours=neighbours))

    for what, side in (("thumbnail", THUMBNAIL), ("image", LARGE)):
        app.get(
            f"/items/{{item}}/{what}",
            name=what,
            description=f"An image of the index as a JPEG of at most {side} pixels on its longer side.",
            response_class=Response,
            responses={200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}, **FEW},
        )(_show(app, side))

    @app.get("/about", response_model=About, responses={status: PROBLEMS[status] for status in (401, 421)})
    async def about() -> About:
        """What this server can do, and what it takes."""
        return About(
            classes=list(predictor.model.classes),
            evidence=predictor.has_evidence,
            neighbours=predictor.neighbours is not None,
            indexed=0 if predictor.neighbours is None else len(predictor.neighbours),
            model=description,
            images=limits.images,
            image_bytes=limits.image_bytes,
            request_bytes=limits.request_bytes,
            pixels=limits.pixels,
        )

    description = predictor.model.describe().splitlines()

    @app.get("/healthz", response_model=Health, responses={421: PROBLEMS[421]})
    async def healthz() -> Health:
        """The process is alive."""
        return Health(status="alive")

    @app.get("/readyz", response_model=Health, responses={status: PROBLEMS[status] for status in (421, 503)})
    async def readyz() -> Health:
        """The model is there, and there is room for an image."""
        service = _service(app)
        if service.images.taken >= service.images.size:
            raise RefusedError(503, "All places are taken.", 1)
        return Health(status="ready")

    text = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, 401: PROBLEMS[401], 421: PROBLEMS[421]}

    @app.get("/metrics", response_class=Response, responses=text)  # type: ignore[arg-type]
    async def measured() -> Response:
        """Counters and times, as Prometheus reads them."""
        return Response(metrics.text(), media_type=CONTENT_TYPE)


def _show(app: FastAPI, side: int) -> Callable[[int], Any]:
    async def show(item: int) -> Response:
        return await _service(app).picture(item, side)

    return show


def _add_page(app: FastAPI) -> None:
    folder = files(__package__).joinpath("page")
    for path, file in FILES.items():
        content, kind = folder.joinpath(file).read_bytes(), KINDS[Path(file).suffix]
        page = partial(Response, content, media_type=kind, headers={"Cache-Control": "no-cache"})
        app.add_route(path, _give(page), methods=["GET"], include_in_schema=False)


def _give(page: Callable[[], Response]) -> Callable[[Request], Any]:
    async def give(_: Request) -> Response:
        return page()

    return give


def _add_explanations(app: FastAPI) -> None:
    """Every refusal is a :class:`Problem`, and the schemas say so."""

    @app.exception_handler(RefusedError)
    async def refused(_: Request, fault: RefusedError) -> Response:
        headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
        if fault.status == 408:  # what still trickles in is nobody's
            headers["Connection"] = "close"
        return as_json(Problem(detail=fault.detail), fault.status, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, fault: RequestValidationError) -> Response:
        first = fault.errors()[0]
        return as_json(Problem(detail=f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}."), 422)

    @app.exception_handler(HTTPException)
    async def other(_: Request, fault: HTTPException) -> Response:
        return as_json(Problem(detail=f"{fault.detail}."), fault.status_code, dict(fault.headers or {}))

    @app.exception_handler(Exception)
    async def failed(_: Request, fault: Exception) -> Response:
        if isinstance(fault, ClientDisconnect):  # nobody is left to be answered; the guard counts it
            raise fault
        # uvicorn closes the connection when it has written its log
        headers = {"Connection": "close"}
        return as_json(Problem(detail=f"The server failed, {type(fault).__name__}; its log says where."), 500, headers)

    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = plain()
            asked = ImagesInJson.model_json_schema(ref_template="#/components/schemas/{model}")
            schema["components"]["schemas"] |= {**asked.pop("$defs"), "ImagesInJson": asked}
        return plain()

    app.openapi = openapi  # type: ignore[method-assign]


def _service(app: FastAPI) -> Service:
    service: Service | None = getattr(app.state, "service", None)
    if service is None:
        raise RefusedError(503, "The server is beginning, or about to end.", 1)
    return service
