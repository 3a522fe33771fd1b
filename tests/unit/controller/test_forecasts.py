"""Priorities as those who ask are told them. Source: slurm.conf(5) PriorityFlags."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from msgspec import structs
from msgspec.structs import replace

from spritz.controller.api.will_run import estimate
from spritz.controller.context import Context
from spritz.controller.scheduler.forecasts import Forecasts
from spritz.model.cluster.priority import PriorityInputs, PriorityPolicy
from spritz.model.cluster.settings import SYSTEM
from spritz.model.commands.job import SubmitJob
from tests.unit.scheduling.play import Play, depends
from tests.unit.scheduling.site import SETTINGS, Site, node, spec


@pytest.mark.parametrize(("again", "priority"), [(True, 100), (False, 900)])
def test_priorities_of_jobs_that_run_are_calculated_on_demand(again: bool, priority: int) -> None:
    policy = PriorityPolicy(weight_fairshare=1000, calculate_running=again)
    site = Site([node("n1")], settings=replace(SETTINGS, priority_multifactor=True, priority_policy=policy))
    forecasts = Forecasts(site.projection)
    site.projection.set_priority_inputs(PriorityInputs(fairshare={("a", "u"): 0.9}))
    job = site.submit(spec(1, account="a", user="u"))
    assert job in site.cycle()
    site.projection.set_priority_inputs(PriorityInputs(fairshare={("a", "u"): 0.1}))
    assert forecasts.of(site.jobs[job], site.now).priority == priority


def test_jobs_that_wait_for_others_have_expected_starts_and_nodes() -> None:
    site = Play([node("n1")])
    forecasts = Forecasts(site.projection)
    first = site.sbatch(spec(1, time_limit_minutes=10))
    waiting = site.sbatch(spec(1), **depends(f"afterany:{first}"))
    held = site.sbatch(spec(1), hold="user")
    site.look()
    forecast = site.plan().forecast
    assert forecast is not None
    forecasts.adopt_held(forecast, ["n1"])
    told = forecasts.of(site.jobs[waiting], site.now)
    assert (told.expected_start_at, told.expected_nodes) == (site.now + 600.0, ("n1",))
    assert forecasts.of(site.jobs[held], site.now).expected_start_at == 0.0


def test_a_job_that_would_wait_for_others_is_estimated_behind_them() -> None:
    """As slurmctld where their ends are not foreseen: without the dependency."""
    site = Play([node("n1")])
    first = site.sbatch(spec(1, time_limit_minutes=10))
    second = site.sbatch(spec(1, time_limit_minutes=5), **depends(f"afterok:{first}"))
    held = site.sbatch(spec(1), hold="user")
    site.look()
    context = cast(Context, SimpleNamespace(machine=site.machine, forecasts=Forecasts(site.projection)))

    def start_at(needs: str) -> float:
        asked = structs.replace(spec(1), partitions=("debug",), uid=1000, **depends(needs))
        found = estimate(context, SubmitJob(spec=asked, script=b"#!", test_only=True), SYSTEM, site.now).start
        assert found is not None
        return found.start_at - site.now

    assert [start_at(f"afterany:{number}") for number in (second, held)] == [900.0, 0.0]
