"""What stands between a request and the model: reading, room, decoding, batches, and one result for each image."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from fastapi import Request, Response

from ..images import BrokenImage
from .answers import Answer, ImageResult, Problem
from .batcher import Batcher
from .limits import Limits, RefusedError, Room
from .metrics import Metrics
from .predictor import Predictor, Seen, Wanted
from .uploads import Upload, received

NO_INDEX = "This server has no index to search. Start it with --index INDEX, which `cbp index` makes."


class Service:
    """What the endpoints share, from the moment the server begins until it ends."""

    def __init__(
        self, predictor: Predictor, limits: Limits, metrics: Metrics, *, threads: int, batch: int, wait: float, decoders: int
    ) -> None:
        self.predictor, self.limits, self.metrics = predictor, limits, metrics
        self.images, self.held = Room("images", limits.queue), Room("bytes", limits.held_bytes)
        self.pictures = Room("pictures", limits.queue)
        self.pool = ThreadPoolExecutor(decoders, "decode")
        on_cpu = predictor.device.type == "cpu"
        self.batcher: Batcher[Seen, ImageResult] = Batcher(
            predictor, threads=threads, batch=batch, wait=wait, begin=partial(torch.set_num_threads, 1) if on_cpu else None
        )
        self.images.rate = 1.0

    async def answer(self, request: Request, wanted: Wanted) -> Response:
        """All images of a request, each with its result or its error."""
        self.images.require(1)
        async with received(request, self.limits, self.held, self.pool) as uploads:
            self.images.take(len(uploads))
            begun = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(self.limits.answer_seconds):
                    results = await asyncio.gather(*(self._one(place, each, wanted) for place, each in enumerate(uploads)))
            except TimeoutError:
                raise RefusedError(504, f"The answer was not there after {self.limits.answer_seconds:g} s.") from None
            finally:
                self.images.give(len(uploads))
        failed = sum(result.error is not None for result in results)
        self.metrics.images.labels("answered").inc(len(results) - failed)
        self.metrics.images.labels("refused").inc(failed)
        if failed < len(results):
            self._note_rate(len(uploads), asyncio.get_running_loop().time() - begun)
            return as_json(Answer(results=results))
        first = next(f"{each.name or 'the image'}: {each.error}" for each in results)
        return as_json(Problem(detail=f"There is no image that could be read. {first}.", results=results), 422)

    async def _one(self, place: int, upload: Upload, wanted: Wanted) -> ImageResult:
        try:
            seen = await asyncio.get_running_loop().run_in_executor(self.pool, self._see, upload, wanted)
            result = await self.batcher(seen)
        except (BrokenImage, LookupError) as fault:
            return ImageResult(image=place, name=upload.name, error=str(fault).rstrip("."))
        others = [each for each in result.neighbours if each.item != upload.item][: wanted.neighbours]
        return result.model_copy(update={"image": place, "name": upload.name, "neighbours": others})

    def _see(self, upload: Upload, wanted: Wanted) -> Seen:
        if upload.item is None:
            return self.predictor.see(upload.content(self.limits.image_bytes), wanted, self.limits.pixels)
        if self.predictor.neighbours is None:
            raise LookupError("This server has no index, and so no items")
        if wanted.neighbours:  # the nearest is the item itself, which nobody asks for
            wanted = wanted._replace(neighbours=wanted.neighbours + 1)
        return self.predictor.see(self.predictor.neighbours.content(upload.item), wanted, self.limits.pixels)

    def _note_rate(self, images: int, seconds: float) -> None:
        """How many images a second leave, by Little's law, for who is told when to come again."""
        now = (self.images.taken + images) / max(seconds, 1e-3)
        self.images.rate += 0.1 * (now - self.images.rate)

    async def picture(self, number: int, side: int) -> Response:
        """The picture of an item of the index."""
        if self.predictor.neighbours is None:
            raise RefusedError(404, NO_INDEX)
        self.pictures.take(1)
        try:
            show = partial(self.predictor.neighbours.picture, number, side, self.limits.pixels)
            jpeg = await asyncio.get_running_loop().run_in_executor(self.pool, show)
        except LookupError as fault:
            raise RefusedError(404, str(fault)) from None
        finally:
            self.pictures.give(1)
        # nobody keeps it: the number is of another image once the index was compacted and the server began anew
        return Response(jpeg, media_type="image/jpeg")

    async def close(self) -> None:
        """Finish what was begun."""
        await self.batcher.close()
        self.pool.shutdown()


def as_json(content: Answer | Problem, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer as it is sent."""
    return Response(content.model_dump_json(), status, headers, media_type="application/json")
