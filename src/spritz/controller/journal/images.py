"""Images: periodic copies of the whole state, so that a restart replays only later events.

Decides when an image is due, and prunes events that it makes superfluous, except the last `EVENTS_KEPT`. A forked child
encodes and writes the image, so the loop pays only for the fork. The image becomes visible only when every event in it
is durable: the child waits for the parent's signal.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from spritz.controller.forked import Child, ForkRefused, wait_for_go
from spritz.controller.journal.contract import Image
from spritz.controller.needs import Clocked, Counted, Logged, Reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.controller.journal.blobs import BlobCollector
    from spritz.controller.journal.contract import Journal

#: Events after the last image before the next is due; half the number of its jobs if that is more, so that large states
#: are not written over and over, and a replay stays shorter than reading the image.
EVENTS_BETWEEN = 5_000

#: Events that stay readable for watchers after an image made them superfluous for restarts.
EVENTS_KEPT = 100_000

#: Seconds for an image: it waits for a slow disk, and for the journal.
IMAGE_SECONDS = 1800.0


class Writer(Protocol):
    """The single writer, as it keeps events apart that are not durable yet."""

    @property
    def hooks(self) -> list[Callable[[], None]]: ...

    @property
    def last_sequence(self) -> int: ...

    def when_durable(self, callback: Callable[[], None]) -> None: ...

    def maintain(self, work: Callable[[], None]) -> None: ...


class Keeping(Clocked, Counted, Logged, Reading, Protocol):
    """What an image is made of, and what it makes superfluous."""

    @property
    def collector(self) -> BlobCollector: ...

    @property
    def events_needed(self) -> list[Callable[[], int]]: ...

    @property
    def journal(self) -> Journal: ...

    @property
    def writer(self) -> Writer: ...


class ImageKeeper:
    """Watches the journal grow. `last`: number of the last event in the newest image."""

    def __init__(self, context: Keeping, last: int) -> None:
        self._context = context
        self._last = last
        self._jobs_in_last = len(context.machine.state.jobs)
        self._child: Child | None = None
        self._written = 0
        context.writer.hooks.append(self.look)
        context.counters.append(lambda: {"image.written_count": float(self._written)})

    def look(self) -> None:
        """Start an image if one is due and none is in progress."""
        context = self._context
        grown = context.writer.last_sequence - self._last
        if self._child is None and grown >= max(EVENTS_BETWEEN, self._jobs_in_last // 2):
            try:
                self._begin()
            except ForkRefused:
                pass  # logged and counted; a later turn tries again

    def write_now(self) -> None:
        """Write an image of the state and wait for it: for a clean stop, when everything is durable."""
        context = self._context
        if self._child is not None:
            self._child.kill()
        sequence = context.writer.last_sequence
        if sequence > self._last:
            context.journal.write_image(Image(sequence=sequence, payload=context.machine.image()))
            context.journal.prune(self._needed_after(sequence))
            self._last = sequence

    def _needed_after(self, sequence: int) -> int:
        """The last event that no part of the controller needs any more."""
        return min([sequence - EVENTS_KEPT, *(needed() for needed in self._context.events_needed)])

    def _begin(self) -> None:
        context = self._context
        # The fork copies the state at this number. Its last events may not be on disk yet, and an image of events that
        # a crash then undoes would be a state that never was: so the child writes only after `go`, when they are
        # durable.
        sequence, machine, journal = context.writer.last_sequence, context.machine, context.journal

        def work() -> bytes:
            image = Image(sequence=sequence, payload=machine.image())
            if not wait_for_go():
                return b"0"
            journal.write_image(image)
            return b"%d" % len(image.payload)

        before = context.clock.monotonic()
        done = partial(self._written_by_child, sequence)
        child = Child("image", work, done, context.log, nice=5, seconds=IMAGE_SECONDS)
        self._child, self._jobs_in_last = child, len(machine.state.jobs)
        context.log.verbose("image.begun", sequence=sequence, fork_seconds=context.clock.monotonic() - before)
        context.writer.when_durable(child.go)

    def _written_by_child(self, sequence: int, result: bytes | None) -> None:
        self._child = None
        # After a failure the next attempt waits for as many events: a full disk must not make the loop fork for ever.
        self._last = sequence
        if not result or result == b"0":
            return
        self._written += 1
        context = self._context
        context.log.verbose("image.written", sequence=sequence, size_bytes=int(result))
        limit = self._needed_after(sequence)
        context.writer.maintain(lambda: context.journal.prune(limit))
        context.collector.hurry()
