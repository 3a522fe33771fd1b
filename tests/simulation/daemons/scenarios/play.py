"""Plans of scenarios, carried out by the real daemons: what their actions are made of, and what is read of a run."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from spritz_testing.daemons import faults
from spritz_testing.daemons.history import Began, Ended, Operation, Reading
from spritz_testing.daemons.plan import Action, Plan, Scale
from spritz_testing.daemons.runs.run import Result, run
from spritz_testing.daemons.workloads.workload import NewJob, script_of
from tests.simulation.daemons.apart import apart


def submission(at: float, tag: str, user: str = "alice", **fields: Any) -> Action:
    """sbatch of a job that runs for `seconds` and exits with `exit_status`. `ignores_term`: SIGTERM does not end it."""
    seconds, status = fields.pop("seconds", 10.0), fields.pop("exit_status", 0)
    script = script_of(tag, seconds, status, ignores_term=fields.pop("ignores_term", False))
    job = NewJob(tag=tag, script=script, environment=(f"SIM_TAG={tag}",), **fields)
    return Action(at=at, kind="submit", target=user, data={"wanted": msgspec.to_builtins(job)})


def ask(at: float, kind: str, user: str = "root", **data: Any) -> Action:
    """A request of a user."""
    return Action(at=at, kind=kind, target=user, data=data)


def fault(at: float, kind: str, target: str, seconds: float = 0.0, draw: int = 0) -> Action:
    """A fault of `faults.KINDS`."""
    return Action(at=at, kind=kind, target=target, data={"seconds": seconds, "draw": draw})


def carry_out(seed: int, scale: Scale, actions: tuple[Action, ...], faulty: bool) -> Result:
    """The run, in this process, which is of no further use."""
    if faulty:
        actions += tuple(faults.draw(Random(seed), scale))
    result = run(Plan(seed=seed, scale=scale, actions=tuple(sorted(actions, key=lambda action: action.at))))
    result.story = []
    return result


def judged(result: Result) -> Result:
    """The run, in which no rule was violated."""
    assert not result.violations, "\n".join([repr(found) for found in result.violations[:5]] + result.transcript[-80:])
    return result


def play(scale: Scale, *actions: Action, seed: int = 1, faulty: bool = False) -> Result:
    """A run of these actions, and with `faulty` of faults that the seed draws. No rule is violated in it."""
    return judged(apart(carry_out, seed, scale, actions, faulty))


def entries(result: Result, entry_type: type[Any], /, **fields: Any) -> list[Any]:
    """Entries of the history with these fields."""
    found = [entry for entry in result.history if isinstance(entry, entry_type)]
    return [entry for entry in found if all(getattr(entry, name) == value for name, value in fields.items())]


def began(result: Result, **fields: Any) -> list[Began]:
    return entries(result, Began, **fields)


def ended(result: Result, **fields: Any) -> list[Ended]:
    return entries(result, Ended, **fields)


def ids(result: Result) -> dict[str, int]:
    """The number of each job by its tag."""
    submitted: list[Operation] = entries(result, Operation, kind="submit")
    return {operation.wanted.tag: operation.job_id for operation in submitted}


def readings(result: Result, kind: str) -> list[Reading]:
    """What users were shown."""
    return entries(result, Reading, kind=kind)
