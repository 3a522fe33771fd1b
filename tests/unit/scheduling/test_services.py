"""Services: pods without a time limit. They are not backfilled, and borrow nothing."""

from __future__ import annotations

from typing import Any

from spritz.model.ids import INFINITE
from tests.unit.scheduling.site import Site
from tests.unit.scheduling.test_guarantees import site, submit
from tests.unit.scheduling.test_preemption import run, states

ENDLESS: dict[str, Any] = {"external": True, "time_limit_minutes": INFINITE}


def serve(here: Site, account: str, gpus: int = 1, **fields: Any) -> int:
    return submit(here, account, gpus, batch=False, **ENDLESS, **fields)


def test_a_service_is_no_backfill_candidate() -> None:
    """The job ahead is planned on the node that is free first, so a start on the other would not delay it."""
    here = site({}, nodes=2)
    long = submit(here, "bio", 3, time_limit_minutes=600)
    run(here)
    soon = submit(here, "bio", 3, time_limit_minutes=60)
    run(here)
    ahead = submit(here, "bio", 4, priority=9)
    service, job = serve(here, "bio"), submit(here, "bio", time_limit_minutes=600)
    run(here)
    assert states(here, long, soon, ahead, service, job) == ["RUNNING", "RUNNING", "PENDING", "PENDING", "RUNNING"]
    assert here.jobs[service].reason.value == "Priority"


def test_a_service_at_the_head_of_the_queue_starts() -> None:
    here = site({})
    service = serve(here, "bio", 4)
    waits = serve(here, "bio", 4, priority=9)
    run(here)
    assert states(here, service, waits) == ["PENDING", "RUNNING"]


def test_a_service_runs_within_the_guarantee_of_its_account_alone() -> None:
    here = site({"ai": "gres/gpu=2"})
    services = [serve(here, "vision") for _ in range(3)]
    run(here)
    assert sorted(states(here, *services)) == ["PENDING", "RUNNING", "RUNNING"]
    waits = next(here.jobs[service] for service in services if here.jobs[service].state.value == "PENDING")
    assert (waits.reason.value, "within the guarantee" in waits.reason_detail) == ("AssocGrpGRES", True)
    job, other = submit(here, "vision"), serve(here, "bio")
    run(here)
    assert states(here, job, other) == ["RUNNING", "RUNNING"], "jobs borrow, and so do accounts without a guarantee"
