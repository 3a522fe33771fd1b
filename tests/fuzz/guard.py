"""A limit on what a test may use up of its processor: for what might never come back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Hung(Exception):
    """It has not come back."""


@contextmanager
def guard(seconds: float = 20.0) -> Iterator[None]:
    """Raises Hung in what runs longer. Seconds are of the process's own time: a busy machine does not matter."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hung

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
