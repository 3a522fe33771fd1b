"""Listeners that have missed events take up what these were about from the state."""

from __future__ import annotations

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from spritz.controller.api.deferred import DeferredRequests
from spritz.controller.api.events import EventStream
from spritz.controller.programs.reservations import ReservationPrograms
from spritz.controller.programs.site import SitePrograms
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.reservation import CreateReservation, DeleteReservation, ReservationRequest
from spritz.model.events.job import JobsPurged
from spritz.model.queries.jobs import AwaitEnd
from spritz_testing.builders import World
from tests.unit.controller.heard import Heard


class Site:
    """A world, and the context of listeners in it. `begun` are asyncio tasks that were begun, by name."""

    def __init__(self, **settings: Any) -> None:
        self.world = World(settings=ClusterSettings(**settings))
        self.begun: list[str] = []
        self.heard = Heard()
        self.context: Any = SimpleNamespace(
            machine=self.world.machine,
            identity=SimpleNamespace(caller=lambda call: None),
            configuration=SimpleNamespace(
                loaded=SimpleNamespace(settings=SimpleNamespace(text=lambda key: f"/{key}")),
                settings=SimpleNamespace(inactive_limit_seconds=0),
            ),
            counters=[],
            tasks=SimpleNamespace(spawn_contained=self._begin),
            writer=SimpleNamespace(
                listeners=self.heard, hooks=[], when_durable=lambda callback: callback(), last_sequence=7
            ),
        )

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.begun.append(name)
        work.close()


def test_a_prolog_whose_start_was_missed_runs_and_runs_once() -> None:
    site = Site(prolog_slurmctld=True)
    SitePrograms(site.context)
    site.world.start(site.world.submit())
    site.heard.lose()
    assert site.begun == ["prolog_slurmctld"]
    site.heard.lose()
    assert site.begun == ["prolog_slurmctld"]


def test_programs_of_reservations_that_began_and_ended_unheard_run() -> None:
    site = Site()
    ReservationPrograms(site.context)
    request = ReservationRequest(
        name="r", start_at=site.world.now, duration_seconds=3600, users=("root",), nodes=("n1",)
    )
    site.world.ok(CreateReservation(request=request))
    site.world.tick()
    site.heard.lose()
    assert site.begun == ["resvprolog"]
    site.world.ok(DeleteReservation(name="r"))
    site.heard.lose()
    assert site.begun == ["resvprolog", "resvepilog"]


def test_the_stream_of_events_goes_on_with_the_right_numbers() -> None:
    site = Site()
    stream = EventStream(site.context)
    stream._watchers.take(0, 1)
    site.context.writer.last_sequence = 10  # three were missed
    site.heard.lose()
    site.heard.inform([JobsPurged(at=1.0, job_ids=(1,))])
    assert [number for number, _event in stream._recent] == [11]


def test_requests_that_wait_for_a_job_are_looked_at_again() -> None:
    site = Site()
    waiting = DeferredRequests(site.context)
    replies: list[Any] = []
    job_id = site.world.submit()
    call: Any = Mock(reply=replies.append)
    waiting.await_end(AwaitEnd(job_id=job_id), call)
    site.world.cancel(job_id)
    site.heard.lose()
    (look,) = site.context.writer.hooks
    look()
    (reply,) = replies
    assert reply.job_id == job_id
