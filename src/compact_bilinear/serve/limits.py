"""How much is taken in, and how a request is told that it is too much."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one request may be, and what all of them together."""

    request_bytes: int = 64_000_000
    """Of the body of one request."""
    image_bytes: int = 20_000_000
    """Of one image in it, as it was encoded."""
    pixels: int = 50_000_000
    """Width × height of one image; a larger one is refused by its header, before it is unpacked."""
    images: int = 32
    """In one request."""
    queue: int = 256
    """Images that are accepted and not answered yet, of all requests."""
    held_bytes: int = 256_000_000
    """Of the bodies of all requests that are being received or answered."""
    upload_seconds: float = 30
    """Until a body has to be there."""
    answer_seconds: float = 60
    """From there to the answer."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"A server's limits are above 0, but {name} is {value}.\nWrite a larger one, or leave it out.")
        if self.queue < self.images or self.held_bytes < self.request_bytes:
            raise ValueError(
                f"A request of {self.images} images and {self.request_bytes} bytes never fits a queue of {self.queue} images "
                f"and {self.held_bytes} bytes held.\nWrite a longer queue, or smaller requests."
            )


class RefusedError(Exception):
    """A request that is not answered as it is; what to say, and with which status.

    Args:
        status: of HTTP.
        detail: a sentence or two for whoever asked.
        retry_after: seconds after which the same request may be taken.
    """

    def __init__(self, status: int, detail: str, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.retry_after = status, detail, retry_after


class Room:
    """So much at a time, and no more: who comes when it is full is sent away with a time to come back.

    Belongs to the event loop's thread; nothing here waits.

    >>> room = Room("images", 3)
    >>> room.take(2)
    >>> room.take(2)
    Traceback (most recent call last):
    compact_bilinear.serve.limits.RefusedError: The server is busy: 2 of 3 images are taken. Try again in 1 s.
    >>> room.give(2)
    >>> room.take(3)
    """

    def __init__(self, what: str, size: int) -> None:
        self.what, self.size, self.taken = what, size, 0
        self.rate = 0.0  # given back a second, where somebody measures it

    def require(self, count: int) -> None:
        """Raise :class:`RefusedError` if so much cannot be taken."""
        if self.taken + count > self.size:
            seconds = min(max(math.ceil(self.taken / self.rate), 1), 60) if self.rate else 1
            busy = f"The server is busy: {self.taken} of {self.size} {self.what} are taken."
            raise RefusedError(503, f"{busy} Try again in {seconds} s.", seconds)

    def take(self, count: int) -> None:
        """Take so much of it, or raise :class:`RefusedError`."""
        self.require(count)
        self.taken += count

    def give(self, count: int) -> None:
        """Give it back."""
        self.taken -= count
