"""Simulated users: production commands against the real cluster, and what their users are told."""

from __future__ import annotations

import signal
from random import Random
from typing import Any

import msgspec
import pytest

from spritz_testing.daemons.history import Began, Ended, Injected, Operation, Outcome, Reading
from spritz_testing.daemons.plan import Action, Plan, Scale
from spritz_testing.daemons.runs.run import Result, run
from spritz_testing.daemons.system.world import EPOCH
from spritz_testing.daemons.wanted import Change, Wanted
from spritz_testing.daemons.workloads.workload import NewJob, NewStep, draw, script_of
from tests.simulation.daemons.apart import apart

DONE, REFUSED, UNKNOWN = Outcome.DONE, Outcome.REFUSED, Outcome.UNKNOWN


def submission(at: float, tag: str, user: str = "alice", **fields: Any) -> Action:
    """sbatch of a job that runs for ten seconds."""
    seconds = fields.pop("seconds", 10.0)
    kill_after = fields.pop("kill_after", None)
    job = NewJob(tag=tag, script=script_of(tag, seconds), environment=(f"SIM_TAG={tag}",), **fields)
    data: dict[str, Any] = {"wanted": msgspec.to_builtins(job)}
    if kill_after is not None:
        data["kill_after"] = kill_after
    return Action(at=at, kind="submit", target=user, data=data)


def allocation(at: float, kind: str, tag: str, *steps: NewStep, user: str = "bob", **more: Any) -> Action:
    """srun or salloc. `more`: of the job, or when the command is killed or gets a signal."""
    ends: dict[str, Any] = {name: more.pop(name) for name in ("kill_after", "signal_after") if name in more}
    job = NewJob(tag=tag, kind=kind, steps=steps, **more)
    data: dict[str, Any] = {"wanted": msgspec.to_builtins(job), **ends}
    return Action(at=at, kind=kind, target=user, data=data)


def ask(at: float, kind: str, user: str = "alice", **data: Any) -> Action:
    return Action(at=at, kind=kind, target=user, data=data)


def _run(actions: tuple[Action, ...], seconds: float, seed: int) -> Result:
    result = run(Plan(seed=seed, scale=Scale(nodes=3, busy_seconds=seconds, quiet_seconds=0.0), actions=actions))
    result.transcript = []
    return result


def told(*actions: Action, seconds: float = 60.0, seed: int = 1) -> Result:
    """How a run of these actions ends: without a violation of any rule that looks at unfinished runs, too."""
    result = apart(_run, actions, seconds, seed)
    wrong = [found for found in result.violations if not found[0].startswith("6.")]
    assert not wrong, wrong
    return result


def operations(result: Result, kind: str = "") -> list[Operation]:
    return [entry for entry in result.history if isinstance(entry, Operation) and kind in ("", entry.kind)]


def outcomes(result: Result, *kinds: str) -> list[tuple[str, int, Outcome]]:
    return [(entry.kind, entry.job_id, entry.outcome) for entry in operations(result) if entry.kind in kinds]


def entries(result: Result, kind: type[Any], /, **fields: Any) -> list[Any]:
    found = [entry for entry in result.history if isinstance(entry, kind)]
    return [entry for entry in found if all(getattr(entry, name) == value for name, value in fields.items())]


def test_users_submit_and_change_jobs() -> None:
    """The answer to each request is in the history; a job of another user is out of reach."""
    result = told(
        submission(5, "a", begin_at=EPOCH + 500.0),
        ask(6, "hold", tag="a"),
        ask(7, "cancel", "bob", tag="a"),
        ask(8, "release", tag="a"),
        ask(9, "update", tag="a", changes={"time_limit_minutes": 5}),
        ask(10, "cancel", tag="a"),
    )
    assert [(entry.kind, entry.outcome) for entry in operations(result)] == [
        ("submit", DONE),
        ("hold", DONE),
        ("cancel", REFUSED),
        ("release", DONE),
        ("update", DONE),
        ("cancel", DONE),
    ]
    assert {entry.job_id for entry in operations(result)} == {1}
    assert operations(result, "cancel")[0].answer == "ESLURM_ACCESS_DENIED"


def test_the_history_says_what_was_asked_as_the_checks_read_it() -> None:
    result = told(
        submission(5, "a"),
        submission(6, "b", array="1-7:3", throttle=2, dependencies=({"kind": "afterok", "tag": "a"},)),
        ask(7, "cancel", tag="b", tasks="12"),
    )
    wanted = operations(result, "submit")[1].wanted
    assert isinstance(wanted, Wanted)
    assert (wanted.tag, wanted.array_tasks, wanted.array_limit) == ("b", (1, 4, 7), 2)
    assert [(one.kind, one.job_id) for one in wanted.dependencies] == [("afterok", 1)]
    assert operations(result, "cancel")[0].wanted == Change(tasks=(1, 4))


def test_a_target_that_its_user_does_not_know_is_skipped() -> None:
    assert operations(told(ask(1, "cancel", tag="never"))) == []


def test_a_submission_whose_command_is_killed_has_an_unknown_outcome() -> None:
    """Whatever became of the job, its user was not told."""
    result = told(*(submission(5 + number, f"j{number}", kill_after=0.0008 * number) for number in range(1, 9)))
    ended = [entry.outcome for entry in operations(result, "submit")]
    assert ended.count(UNKNOWN) >= 3
    assert ended.count(DONE) >= 1


def test_scripts_call_srun_on_their_nodes() -> None:
    steps = (NewStep(seconds=1.0), NewStep(seconds=60.0, after_seconds=2.0))
    result = told(submission(5, "a", steps=steps))
    assert [entry.answer[0] for entry in operations(result, "step")] == [0, 1]
    assert len(entries(result, Began, job_id=1)) == 3
    (killed,) = entries(result, Ended, job_id=1, step_id=1)
    assert killed.signal, "the second step ends with its script"


def test_srun_holds_its_allocation_for_one_step() -> None:
    result = told(allocation(5, "srun", "a", NewStep(seconds=3.0, exit_status=2)))
    assert outcomes(result, "allocate", "await", "step", "finish") == [
        ("allocate", 1, DONE),
        ("await", 1, DONE),
        ("step", 1, DONE),
        ("finish", 1, DONE),
    ]
    (ended,) = entries(result, Ended, job_id=1)
    assert ended.exit_code == 2
    assert operations(result, "finish")[0].answered_at - ended.at < 0.1, "its supervisors told srun"


def test_srun_ends_a_step_of_which_a_part_could_not_begin() -> None:
    """It asks the controller when a supervisor does not connect, and hears that its node has failed."""
    step = NewStep(seconds=50.0, nodes=2, tasks=2)
    result = told(
        ask(4, "supervisor lost at a point", "cluster", seconds=60.0, draw=0, point="begun"),
        allocation(5, "srun", "a", step, nodes_min=2, tasks=2),
    )
    (began,), (ended,) = entries(result, Began, step_id=0), entries(result, Ended, step_id=0)
    assert ended.signal == signal.SIGTERM
    assert ended.at - began.at < 5.0
    assert outcomes(result, "end_step", "finish") == [("end_step", 1, DONE), ("finish", 1, DONE)]


def test_a_step_begins_when_its_srun_can_be_reached_again() -> None:
    """Its node is cut off for three seconds as it begins, and slurmd is killed."""
    result = told(
        ask(4, "slurmd lost at a point", "cluster", seconds=60.0, draw=0, point="begun", cut=True),
        allocation(5, "srun", "a", NewStep(seconds=3.0, exit_status=2)),
    )
    (began,) = entries(result, Began, step_id=0)
    (fault,) = entries(result, Injected)
    assert fault.until <= began.at < fault.until + 1.0
    assert operations(result, "finish")[0].wanted == 2 << 8


def test_a_signal_ends_the_wait_for_an_allocation() -> None:
    """Ctrl-C cancels the job that waits; a killed salloc leaves it to the controller."""
    result = told(
        submission(5, "full", nodes_min=3, exclusive=True, seconds=500.0),
        allocation(6, "srun", "a", NewStep(), signal_after=5.0),
        allocation(6.5, "salloc", "b", kill_after=5.0),
        ask(40, "show_job", tag="a"),
        ask(40, "show_job", tag="b"),
    )
    assert outcomes(result, "allocate", "cancel") == [("allocate", 2, DONE), ("allocate", 3, DONE), ("cancel", 2, DONE)]
    assert [reading.rows[0][1] for reading in entries(result, Reading, kind="job")] == ["CANCELLED", "CANCELLED"]


def test_salloc_hears_that_its_allocation_was_revoked() -> None:
    result = told(
        allocation(5, "salloc", "a", NewStep(seconds=100.0), seconds=500.0), ask(20, "cancel", "bob", tag="a")
    )
    (end,) = operations(result, "await_end")
    assert end.answer[0] == "CANCELLED"
    assert not operations(result, "finish")


def test_administrators_change_the_cluster() -> None:
    nodes = ["n1"]
    reserved = {"name": "r", "start_at": EPOCH + 40.0, "duration_seconds": 60.0, "nodes": nodes, "users": ["alice"]}
    result = told(
        ask(5, "set_node", "root", nodes=nodes, state="DRAIN"),
        ask(6, "set_node", "root", nodes=nodes, state="RESUME"),
        ask(7, "set_node", "bob", nodes=nodes, state="DRAIN"),
        ask(8, "reread", "root", settings={"KillWait": "5"}),
        ask(9, "reread", "root", mistake="NodeName=n1 CPUs=many"),
        ask(20, "reserve", "root", **reserved),
        ask(21, "unreserve", "root", name="r"),
        ask(24, "shutdown", "root"),
    )
    assert [(entry.kind, entry.outcome) for entry in operations(result)] == [
        ("drain", DONE),
        ("undrain", DONE),
        ("drain", REFUSED),
        ("reconfigure", DONE),
        ("reconfigure", REFUSED),
        ("reserve", DONE),
        ("unreserve", DONE),
        ("shutdown", DONE),
    ]


def test_a_dynamic_node_comes_runs_jobs_and_goes() -> None:
    result = told(
        ask(5, "node_add", "root", node="d1"),
        submission(10, "a", nodes_min=4),
        ask(12, "node_delete", "root", node="d1"),
        ask(30, "node_delete", "root", node="d1"),
        ask(40, "sinfo", "bob"),
    )
    assert [entry.outcome for entry in operations(result, "node_delete")] == [REFUSED, DONE]
    assert len(entries(result, Ended, job_id=1)) == 1
    (shown,) = entries(result, Reading, kind="sinfo")
    assert [row[0] for row in shown.rows] == ["n1", "n2", "n3"]


def test_a_suspended_job_is_resumed_when_its_cpus_are_free() -> None:
    result = told(
        submission(5, "a", nodes_min=3, exclusive=True, seconds=30.0),
        ask(10, "suspend", "root", tag="a"),
        submission(11, "b", nodes_min=3, seconds=40.0),
        ask(15, "resume", "root", tag="a"),
        seconds=200.0,
    )
    resumed = [entry.outcome for entry in operations(result, "resume")]
    assert resumed[-1] is DONE
    assert len(entries(result, Ended, job_id=1)) == 1


def _day(seed: int) -> Result:
    scale = Scale(busy_seconds=900.0, quiet_seconds=3600.0, jobs=20)
    result = run(Plan(seed=seed, scale=scale, actions=tuple(draw(Random(seed), scale))))
    result.history, result.transcript = [], []
    return result


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_day_violates_no_rule(seed: int) -> None:
    result = apart(_day, seed)
    assert not result.violations
    assert result.counts["done submit"] > 5


def test_the_same_plan_gives_the_same_story() -> None:
    first, second = apart(_day, 3), apart(_day, 3)
    assert first.story == second.story
    assert first.digest == second.digest
