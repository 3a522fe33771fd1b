"""Simulated users: production commands against the real controller, told in the history."""

from __future__ import annotations

from typing import Any

import msgspec

from spritz.sim.daemons.history import Operation, Outcome
from spritz.sim.daemons.plan import Action, Plan, Scale
from spritz.sim.daemons.workload import NewJob, script_of
from tests.simulation.daemons.apart import apart


def submission(at: float, tag: str, user: str = "alice", **wanted: Any) -> Action:
    fields = {"script": script_of(tag, 10), "environment": (f"TAG={tag}",), **wanted}
    return Action(at=at, kind="submit", target=user, data={"wanted": msgspec.to_builtins(NewJob(tag=tag, **fields))})


def ask(at: float, kind: str, user: str = "alice", **data: Any) -> Action:
    return Action(at=at, kind=kind, target=user, data=data)


def told(*actions: Action, seconds: float = 60.0, seed: int = 1, **scale: Any) -> Any:
    """The run's result, with its history."""
    from spritz.sim.daemons.run import run

    plan = Plan(seed=seed, scale=Scale(busy_seconds=seconds, quiet_seconds=0.0, **scale), actions=actions)
    return apart(lambda: run(plan))


def operations(result: Any, kind: str = "") -> list[Operation]:
    return [entry for entry in result.history if isinstance(entry, Operation) and kind in ("", entry.kind)]


def outcomes(result: Any) -> list[tuple[str, int, Outcome]]:
    return [(entry.kind, entry.job_id, entry.outcome) for entry in operations(result)]


def test_users_submit_and_change_jobs() -> None:
    """The answer to each request is in the history; a job of another user is out of reach."""
    result = told(
        submission(1, "a"),
        ask(2, "hold", tag="a"),
        ask(3, "cancel", "bob", tag="a"),
        ask(4, "release", tag="a"),
        ask(5, "update", tag="a", changes={"time_limit_minutes": 5}),
        ask(6, "cancel", tag="a"),
    )
    done, refused = Outcome.DONE, Outcome.REFUSED
    assert outcomes(result) == [
        ("submit", 1, done),
        ("hold", 1, done),
        ("cancel", 1, refused),
        ("release", 1, done),
        ("update", 1, done),
        ("cancel", 1, done),
    ]
    assert operations(result, "submit")[0].wanted.tag == "a"


def test_a_target_that_no_user_knows_is_skipped() -> None:
    assert outcomes(told(ask(1, "cancel", tag="never"))) == []


def test_the_same_plan_gives_the_same_story() -> None:
    actions = (submission(1, "a"), submission(1, "b", "bob", array="0-3", throttle=2), ask(1.002, "cancel", tag="a"))
    assert told(*actions).story == told(*actions).story
