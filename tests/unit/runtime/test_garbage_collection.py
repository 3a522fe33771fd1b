"""Old objects are not walked through while a daemon works."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from spritz.runtime import garbage_collection


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


class Knot:
    """It refers to itself."""

    def __init__(self) -> None:
        self.self = self


def collections_of_old() -> int:
    return sum(int(stat["collections"]) for stat in gc.get_stats()[1:])


def test_nothing_old_is_walked_through_while_much_is_made_and_kept() -> None:
    garbage_collection.tame()
    before, kept = collections_of_old(), []
    for _ in range(300_000):
        kept.append([None])
    assert collections_of_old() == before


def test_what_refers_to_itself_is_freed_by_the_clock_and_what_was_old_by_then_once_a_day() -> None:
    old = Knot()
    garbage_collection.tame()
    gone = weakref.ref(old)
    del old
    young = weakref.ref(Knot())
    sweeps: list[float] = []

    class HourGlass:
        """Sleeps at once, and notes what is left each time."""

        async def sleep(self, seconds: float) -> None:
            if sweeps:
                assert young() is None
            if len(sweeps) in (1, garbage_collection.ALL_AFTER - 1):
                assert gone() is not None
            if len(sweeps) == garbage_collection.ALL_AFTER:
                raise asyncio.CancelledError
            sweeps.append(seconds)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(garbage_collection.keep_sweeping(HourGlass()))  # type: ignore[arg-type]  # no more of a clock is asked for
    assert gone() is None
    assert sweeps == [garbage_collection.SWEEP_SECONDS] * garbage_collection.ALL_AFTER
