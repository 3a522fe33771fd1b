"""Stories with a fault of their own: what they ask for is known, and each fault finds the job that it is for."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from spritz_testing.daemons.clients.users import KINDS as REQUESTS
from spritz_testing.daemons.faults import KINDS, injectable
from spritz_testing.daemons.history import Acted, Began, Linked
from spritz_testing.daemons.plan import Action, Plan, Scale
from spritz_testing.daemons.runs.run import Result, run
from spritz_testing.daemons.system.world import EPOCH
from spritz_testing.daemons.workloads import close_calls, mishaps
from spritz_testing.daemons.workloads.workload import NewJob
from tests.simulation.daemons.apart import apart
from tests.simulation.daemons.test_users import ask, entries, submission

if TYPE_CHECKING:
    from types import ModuleType


def _fault(at: float, kind: str, target: str = "cluster", seconds: float = 20.0, **data: Any) -> Action:
    return Action(at=at, kind=kind, target=target, data={"seconds": seconds, "draw": 1, **data})


def _run(actions: tuple[Action, ...]) -> Result:
    return run(Plan(seed=1, scale=Scale(nodes=2, busy_seconds=200.0, quiet_seconds=0.0), actions=actions))


@pytest.mark.parametrize(("module", "prefix"), [(mishaps, "m"), (close_calls, "n")])
def test_stories_ask_for_what_there_is_and_are_over_in_time(module: ModuleType, prefix: str) -> None:
    scale = Scale(nodes=4, jobs=40, every_kind=True)
    names = {kind.name for kind in injectable(frozenset())}
    for seed in range(20):
        actions = module.draw(Random(seed), scale)
        assert actions == module.draw(Random(seed), scale)
        assert {action.kind for action in actions} <= names | REQUESTS.keys()
        for action in actions:
            assert action.at + action.data.get("seconds", 0.0) <= scale.busy_seconds + 0.001
            if "wanted" in action.data:
                assert msgspec.convert(action.data["wanted"], NewJob).tag.startswith(prefix)


@pytest.mark.parametrize("module", [mishaps, close_calls])
def test_runs_of_chosen_kinds_of_faults_have_no_others(module: ModuleType) -> None:
    assert module.draw(Random(1), Scale(kinds=frozenset({"kill"}))) == []


def test_a_further_story_changes_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    before = close_calls.draw(Random(1), Scale(every_kind=True))
    monkeypatch.setattr(close_calls, "STORIES", (*close_calls.STORIES, (close_calls.outlasting, 1.0)))
    after = close_calls.draw(Random(1), Scale(every_kind=True))
    assert len(after) > len(before)
    assert [action for action in after if action in before] == before


def test_a_fault_finds_the_node_of_a_job() -> None:
    """Its slurmd is ended; the other node hears nothing of it. A job without processes has no node."""
    actions = (
        submission(5, "a", seconds=100.0),
        _fault(20, "restart", "slurmd of job:a", seconds=2.0),
        _fault(21, "reset", "host of job:never"),
    )
    result = apart(_run, actions)
    (began,) = entries(result, Began, job_id=1)
    again = [link.node for link in entries(result, Linked) if link.at > EPOCH + 20]
    assert again == [began.node]
    assert result.counts["missed reset"] == 1


def test_orders_that_are_lost_are_derived_again() -> None:
    actions = (
        _fault(4, "request lost", message="LaunchBatch"),
        submission(5, "a", seconds=100.0),
        _fault(19.8, "request lost", message="SuspendTasks", job="never"),
        _fault(19.9, "request lost", message="SuspendTasks", job="a"),
        ask(20, "suspend", "root", tag="a"),
    )
    result = apart(_run, actions)
    assert result.counts["fault request lost"] == 2
    assert len(entries(result, Acted, kind="LaunchBatch")) == 1, "the first one did not arrive"
    assert [order.at > EPOCH + 20.5 for order in entries(result, Acted, kind="SuspendTasks")] == [True]
    assert len(entries(result, Began, job_id=1)) == 1


def test_the_table_has_the_kinds_that_stories_name() -> None:
    assert {"request lost", "answer lost", "order held up", "cut between nodes"} <= KINDS.keys()
