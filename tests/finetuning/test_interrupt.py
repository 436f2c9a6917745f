"""The first Ctrl-C waits for its moment, the second does not."""

import signal
import threading
import time

import pytest

from compact_bilinear.finetuning.interrupt import ctrl_c_noted

pytestmark = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread"
)


def press() -> None:
    signal.raise_signal(signal.SIGINT)
    time.sleep(1)  # Python answers signals between two of its own steps


def test_the_first_is_noted_and_the_second_stops() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ctrl_c_noted(True) as stopped:
        assert not stopped()
        signal.raise_signal(signal.SIGINT)
        assert stopped()
        with pytest.raises(KeyboardInterrupt):
            press()
    assert signal.getsignal(signal.SIGINT) is before


def test_not_wanted_or_not_possible_it_stops_as_usual() -> None:
    with ctrl_c_noted(False) as stopped, pytest.raises(KeyboardInterrupt):
        press()
    assert not stopped()
    said: list[bool] = []

    def elsewhere() -> None:
        with ctrl_c_noted(True) as stopped:
            said.append(stopped())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert said == [False]
