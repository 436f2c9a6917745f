"""The images of a request, from multipart or JSON, within the limits; nothing in it is ever opened as a path."""

import asyncio
import base64
import binascii
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import NamedTuple

from fastapi import Request
from pydantic import ValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from ..images import BrokenImage
from .answers import LONGEST, ImageInJson, ImagesInJson
from .limits import Limits, RefusedError, Room

NAME = 200  # letters of a file's name that come back


class Upload(NamedTuple):
    """One image of a request."""

    name: str
    data: bytes | str = b""  # the file, or the file in base64
    item: int | None = None  # in place of both: one of the index

    def content(self, limit: int) -> bytes:
        """The file; or :class:`BrokenImage`."""
        size = len(self.data) if isinstance(self.data, bytes) else len(self.data) * 3 // 4
        if size > limit + 3:
            raise BrokenImage(f"it has {size:,} bytes, more than the limit of {limit:,}")
        if isinstance(self.data, bytes):
            return self.data
        try:
            return base64.b64decode(self.data, validate=True)
        except (binascii.Error, ValueError):
            raise BrokenImage("its data is not base64") from None


@asynccontextmanager
async def received(request: Request, limits: Limits, held: Room, pool: Executor) -> AsyncIterator[list[Upload]]:
    """The images of a request, whose bytes count as held until the end of the context.

    Args:
        request: whose body is still to come.
        limits: of what is taken.
        held: room for the bytes of all requests.
        pool: where JSON is read.
    """
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > limits.request_bytes:
        raise _too_large(limits)
    taken = 0

    async def chunks() -> AsyncGenerator[bytes, None]:
        nonlocal taken
        async for chunk in request.stream():
            held.take(len(chunk))
            taken += len(chunk)
            if taken > limits.request_bytes:
                raise _too_large(limits)
            yield chunk

    try:
        try:
            async with asyncio.timeout(limits.upload_seconds):
                uploads = await _read(request, chunks(), limits, pool)
        except TimeoutError:
            raise RefusedError(408, f"The body was not there after {limits.upload_seconds:g} s.") from None
        if not uploads:
            raise RefusedError(422, "The request has no image. Send files as multipart/form-data, or JSON with images.")
        if len(uploads) > limits.images:
            raise _too_many(limits)
        yield uploads
    finally:
        held.give(taken)


async def _read(request: Request, chunks: AsyncGenerator[bytes, None], limits: Limits, pool: Executor) -> list[Upload]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _read_multipart(request, chunks, limits)
    if kind == "application/json":
        body = b"".join([chunk async for chunk in chunks])
        return await asyncio.get_running_loop().run_in_executor(pool, _read_json, body, limits.images)
    raise RefusedError(415, "Send images as multipart/form-data, or as application/json with base64.")


async def _read_multipart(request: Request, chunks: AsyncGenerator[bytes, None], limits: Limits) -> list[Upload]:
    parser = MultiPartParser(request.headers, chunks, max_files=limits.images, max_fields=0)
    # a part grows as its bytes arrive, which are counted; as files they would be written to the disk and read back
    parser.spool_max_size = limits.request_bytes
    try:
        form = await parser.parse()
    except MultiPartException as fault:
        if "Too many files" in fault.message:
            raise _too_many(limits) from None
        if "Too many fields" in fault.message:
            raise RefusedError(
                422, "A field that is no file came along. Options are written into the URL, as ?top=3."
            ) from None
        raise RefusedError(400, f"The multipart body cannot be read: {fault.message}") from None
    uploads = []
    for _, part in form.multi_items():
        assert isinstance(part, UploadFile)
        uploads.append(Upload((part.filename or "")[:NAME], await part.read()))
        await part.close()
    return uploads


def _read_json(body: bytes, images: int) -> list[Upload]:
    # each of them becomes an object, hundreds of times as large; base64 has none of them, and a name is at most so long
    if sum(map(body.count, (b",", b"[", b"{"))) > 2 + images * (4 + LONGEST):
        raise RefusedError(413, f"The JSON has more parts than that of a request of {images} images.")
    try:
        asked = ImagesInJson.model_validate_json(body)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RefusedError(422, f"The JSON is not as /openapi.json describes it: {where or 'body'}: {first['msg']}.") from None
    return [_from_json(each) for each in asked.images]


def _from_json(image: ImageInJson) -> Upload:
    return Upload(image.name[:NAME], image.data or "", image.item)


def _too_large(limits: Limits) -> RefusedError:
    return RefusedError(
        413, f"A request may have {limits.request_bytes:,} bytes. Send fewer images at a time, or smaller ones."
    )


def _too_many(limits: Limits) -> RefusedError:
    return RefusedError(413, f"A request may have {limits.images} images. Send the others in another one.")
