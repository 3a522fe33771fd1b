"""Images: of durable events alone, and what they let the journal forget."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct

from spritz.controller.journal import images
from spritz.controller.journal.contract import Image
from spritz.controller.journal.images import EVENTS_BETWEEN, EVENTS_KEPT, ImageKeeper


class Child(Struct):
    """A forked child that writes when it is told to go."""

    work: Callable[[], bytes]
    done: Callable[[bytes | None], None]
    gone: bool = False

    def go(self) -> None:
        self.gone = True
        self.done(self.work())

    def kill(self) -> None:
        """Nothing runs."""


class Controller:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.children: list[Child] = []
        self.releases: list[Callable[[], None]] = []
        self.written: list[Image] = []
        self.pruned: list[int] = []
        self.needed = 10**9
        hooks: list[Callable[[], None]] = []
        self.writer = SimpleNamespace(
            last_sequence=0, hooks=hooks, when_durable=self.releases.append, maintain=lambda work: work()
        )
        context: Any = SimpleNamespace(
            machine=SimpleNamespace(state=SimpleNamespace(jobs={}), image=lambda: b"%d" % self.writer.last_sequence),
            writer=self.writer,
            journal=SimpleNamespace(write_image=self.written.append, prune=self.pruned.append),
            counters=[],
            events_needed=[lambda: self.needed],
            clock=SimpleNamespace(monotonic=lambda: 0.0),
            log=SimpleNamespace(verbose=lambda *words, **fields: None),
            collector=SimpleNamespace(hurry=lambda: None),
        )
        monkeypatch.setattr(images, "Child", self._fork)
        monkeypatch.setattr(images, "wait_for_go", lambda: True)
        self.keeper = ImageKeeper(context, 0)
        (self.look,) = hooks

    def _fork(self, name: str, work: Any, done: Any, log: Any, **options: Any) -> Child:
        self.children.append(Child(work, done))
        return self.children[-1]


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    return Controller(monkeypatch)


def test_an_image_becomes_visible_when_its_events_are_durable(controller: Controller) -> None:
    """One of events that a crash then undoes would be of a state that never was, and no start would accept it."""
    controller.writer.last_sequence = EVENTS_BETWEEN
    controller.look()
    assert ([child.gone for child in controller.children], controller.written) == ([False], [])
    (release,) = controller.releases
    release()
    assert controller.written == [Image(sequence=EVENTS_BETWEEN, payload=b"%d" % EVENTS_BETWEEN)]


def test_an_image_is_of_the_event_that_it_names(controller: Controller) -> None:
    controller.writer.last_sequence = EVENTS_BETWEEN + 7
    controller.look()
    (release,) = controller.releases
    release()
    (image,) = controller.written
    assert image.payload == b"%d" % image.sequence


def test_one_image_is_written_at_a_time_and_a_failed_one_is_not_tried_in_each_turn(controller: Controller) -> None:
    controller.writer.last_sequence = EVENTS_BETWEEN
    controller.look()
    controller.look()
    assert len(controller.children) == 1
    controller.children[0].done(None)  # the disk is full
    controller.look()
    assert (len(controller.children), controller.pruned) == (1, [])
    controller.writer.last_sequence *= 2
    controller.look()
    assert len(controller.children) == 2


@pytest.mark.parametrize("needed", [10**9, 4_000])
def test_events_that_slurmdbd_has_not_stored_are_not_forgotten(controller: Controller, needed: int) -> None:
    controller.needed = needed
    controller.writer.last_sequence = EVENTS_KEPT + 6_000
    controller.look()
    (release,) = controller.releases
    release()
    assert controller.pruned == [min(needed, 6_000)]
