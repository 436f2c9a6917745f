"""Limits that cannot be meant, and what somebody is told who comes when it is full."""

import pytest

from compact_bilinear.serve.limits import Limits, RefusedError, Room


def test_limits_that_cannot_be_meant() -> None:
    with pytest.raises(ValueError, match=r"above 0, but pixels is 0\.\nWrite a larger one"):
        Limits(pixels=0)
    with pytest.raises(ValueError, match=r"never fits a queue of 8 images and 256000000 bytes held\.\nWrite a longer queue"):
        Limits(queue=8, images=9)
    with pytest.raises(ValueError, match=r"\nWrite a longer queue, or smaller requests"):
        Limits(held_bytes=10**6)


@pytest.mark.parametrize(("rate", "seconds"), [(0, 1), (2, 4), (1000, 1), (0.01, 60)])
def test_when_to_come_again(rate: float, seconds: int) -> None:
    room = Room("images", 8)
    room.rate = rate
    room.take(7)
    with pytest.raises(RefusedError, match=rf"busy: 7 of 8 images are taken\. Try again in {seconds} s") as refused:
        room.take(2)
    assert (refused.value.status, refused.value.retry_after, room.taken) == (503, seconds, 7)
    room.take(1)
    room.give(8)
    assert room.taken == 0
