"""Triggers in the core: who sets which, and what pulls and fires do. Source: strigger(1)."""

from __future__ import annotations

import pytest

from spritz.model.triggers import ClearTriggers, FireTriggers, Pull, PullTriggers, SetTrigger
from spritz_testing.builders import ALICE, BOB, World


def trigger(*events: str, **fields: object) -> SetTrigger:
    """A trigger of nodes, or what `fields` say."""
    return SetTrigger(events=events, program="/bin/true", **fields)  # type: ignore[arg-type]  # a test's own words


def test_a_trigger_fires_once_and_a_permanent_one_stays(world: World) -> None:
    world.ok(trigger("down"), ALICE)
    world.ok(trigger("up", permanent=True), ALICE)
    pulls = (Pull(1, 1010.0, "n1"), Pull(2, 1000.0, "n2"))
    world.ok(PullTriggers(pulls=(*pulls, Pull(9, 0.0, "n1"))))
    assert [one.pulls for one in world.state.triggers.values()] == [(pulls[0],), (pulls[1],)]
    world.ok(FireTriggers(pulls=pulls[:1]))
    world.ok(FireTriggers(pulls=pulls[1:]))
    assert [(one.id, one.pulls) for one in world.state.triggers.values()] == [(2, ())]
    assert world.refused(FireTriggers(pulls=pulls[:1])) == "ESRCH"


def test_what_was_cleared_does_not_fire(world: World) -> None:
    world.ok(trigger("down"), ALICE)
    pull = Pull(1, 1010.0, "n1")
    world.ok(PullTriggers(pulls=(pull,)))
    assert world.refused(ClearTriggers(id=1), BOB) == "ESLURM_ACCESS_DENIED"
    world.ok(ClearTriggers(uid=ALICE.uid), ALICE)
    assert world.refused(FireTriggers(pulls=(pull,))) == "ESRCH"
    assert world.refused(ClearTriggers(id=1), ALICE) == "ESRCH"


def test_triggers_of_jobs_and_what_is_refused(world: World) -> None:
    job = world.submit()
    world.ok(trigger("fini", "time", "down", job_id=job), ALICE)
    assert world.refused(trigger("fini", "time", "down", job_id=job), ALICE) == "ESLURM_TRIGGER_DUP"
    world.ok(PullTriggers(gone=(1,)))
    assert not world.state.triggers
    world.cancel(job)
    assert world.refused(trigger("fini", job_id=job), ALICE) == "ESLURM_ALREADY_DONE"
    assert world.refused(PullTriggers(gone=(1,)), ALICE) == "ESLURM_ACCESS_DENIED"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (trigger("fini"), "ESLURM_NOT_SUPPORTED"),
        (trigger("sunset"), "ESLURM_NOT_SUPPORTED"),
        (trigger(), "ESLURM_NOT_SUPPORTED"),
        (trigger("down", nodes="n[1-9]"), "ESLURM_INVALID_NODE_NAME"),
        (trigger("down", nodes="n["), "ESLURM_INVALID_NODE_NAME"),
        (trigger("down", offset_seconds=1 << 40), "ESLURM_INVALID_TIME_VALUE"),
        (trigger("down", job_id=7), "ESLURM_INVALID_JOB_ID"),
    ],
)
def test_refusals(world: World, command: SetTrigger, code: str) -> None:
    assert world.refused(command, ALICE) == code
