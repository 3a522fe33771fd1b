"""Expected starts of jobs that are held back are worked out when they are asked for, once for all who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from spritz.controller.context import Context
from spritz.controller.forked import Child, ForkRefused
from spritz.controller.scheduler import estimates
from spritz.controller.scheduler.estimates import KEPT_SECONDS, Estimates
from spritz.controller.scheduler.forecasts import Forecasts
from spritz.runtime.log import get_logger
from spritz.scheduling.forecast import full_cycle
from tests.unit.scheduling.play import Play, depends
from tests.unit.scheduling.site import node, spec


class AccessAttributes:
    """A site with a running job, one that waits for resources, and one that waits for the first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site = Play([node("n1")])
        first = self.site.sbatch(spec(8, time_limit_minutes=10))
        self.site.look()
        self.waits = self.site.sbatch(spec(8))
        self.depends = self.site.sbatch(spec(1), **depends(f"afterany:{first}"))
        self.site.look()
        self.forecasts = Forecasts(self.site.projection)
        self.monotonic = 0.0
        clock = SimpleNamespace(monotonic=lambda: self.monotonic, now=lambda: self.site.now)
        context = SimpleNamespace(
            machine=self.site.machine, forecasts=self.forecasts, clock=clock, log=get_logger("test")
        )
        self.estimates = Estimates(cast(Context, context))
        self.children = 0

        def child(*words: object, **fields: object) -> Child:
            self.children += 1
            return Child(*words, **fields)  # type: ignore[arg-type]  # as it was called

        monkeypatch.setattr(estimates, "Child", child)
        forecast = full_cycle.run(self.site.projection.snapshot(self.site.now)).plan.forecast
        assert forecast is not None
        self.forecasts.adopt(forecast)

    def ask(self, numbers: Sequence[int], times: int = 1) -> None:
        async def main() -> None:
            jobs = [self.site.jobs[number] for number in numbers]
            await asyncio.gather(*(self.estimates.prepare(jobs) for _ in range(times)))

        asyncio.run(main())

    def start_at(self, number: int) -> float:
        return self.forecasts.of(self.site.jobs[number], self.site.now).expected_start_at


def test_a_full_pass_knows_those_that_wait_for_resources_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = AccessAttributes(monkeypatch)
    assert asked.start_at(asked.waits) == asked.site.now + 600.0
    assert asked.start_at(asked.depends) == 0.0
    asked.ask([asked.waits])
    assert asked.children == 0


def test_expected_starts_of_other_jobs_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = AccessAttributes(monkeypatch)
    version = asked.forecasts.version
    asked.ask([asked.waits, asked.depends], times=3)
    assert asked.children == 1
    assert asked.start_at(asked.depends) > asked.site.now + 600.0
    assert asked.forecasts.version > version, "a listing that was kept by its version is made again"
    asked.ask([asked.depends])
    assert asked.children == 1
    asked.monotonic += KEPT_SECONDS
    asked.ask([asked.depends])
    assert asked.children == 2


def test_a_job_that_came_since_is_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = AccessAttributes(monkeypatch)
    asked.ask([asked.depends])
    late = asked.site.sbatch(spec(1), **depends(f"afterany:{asked.depends}"))
    asked.site.look()
    asked.ask([late])
    assert asked.children == 2
    assert asked.start_at(late) > asked.start_at(asked.depends)


def test_what_cannot_be_had_soon_is_told_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = AccessAttributes(monkeypatch)

    def refuse(*_words: object, **_fields: object) -> None:
        raise ForkRefused("Resource temporarily unavailable", code="ESLURM_INTERNAL")

    monkeypatch.setattr(estimates, "Child", refuse)
    asked.ask([asked.depends])
    assert asked.start_at(asked.depends) == 0.0
