"""Rule 3, last part: nodes obey the orders that they have accepted.

- Where a node has accepted the end of a life, nothing of it begins there; nor a step whose end it has accepted.
- A request for a step, however often it is repeated, makes one step.
- From a suspension that a node has accepted to the next resumption, the life's processes there are stopped.

Supervisors that start when the order comes begin a moment later, or after a slow start (`_SLOW`). One that takes a step
over after its end was accepted should not have been started. What a dead supervisor left is stopped, or ended, by its
daemon: only when that is back, if it was away.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from spritz.model.ids import STEP_MAX
from spritz_testing.daemons.checks.faults import KILLS_SUPERVISORS
from spritz_testing.daemons.checks.links import owed_on
from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Acted, Injected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz_testing.daemons.checks.story import Run, Story

#: Seconds in which a supervisor that is being forked begins, and in which it carries out an order.
_BEGIN_SECONDS = 0.1
_OBEY_SECONDS = 1.0

#: Faults of a machine where steps begin late, and seconds by which.
_SLOW = frozenset({"slow starts", "spool slow", "hang", "stop"})
_SLOW_SECONDS = 90.0

#: Orders that end a suspension, for which processes are continued.
_CONTINUES = frozenset({"ResumeTasks", "TerminateJob", "TerminateStep"})


def orders(story: Story) -> Iterator[Violation]:
    """Every run on every node, against the orders for its life there."""
    accepted: dict[tuple[str, str], list[Acted]] = {}
    for entry in story.entries:
        if isinstance(entry, Acted) and (entry.kind == "SuspendTasks" or entry.kind in _CONTINUES):
            job, _, life = entry.subject.partition(" ")
            accepted.setdefault((entry.node, f"{job.partition('.')[0]} {life}"), []).append(entry)
    yield from _steps(story)
    slow = [entry for entry in story.entries if isinstance(entry, Injected) and entry.kind in _SLOW]
    for run in (run for known in story.lives.values() for run in known.runs):
        began = run.began
        its = accepted.get((began.node, f"{began.job_id} life {began.restart_count}"), [])
        for number, order in enumerate(its):
            is_its_end = order.kind == "TerminateStep" and order.subject.startswith(f"{began.job_id}.{began.step_id} ")
            if order.kind == "TerminateJob" or is_its_end:
                yield from _begins_after(run, order, slow)
            elif order.kind == "SuspendTasks" and not _is_overtaken(order, its[:number]):
                until = next((later.at for later in its[number + 1 :] if later.kind in _CONTINUES), inf)
                yield from _goes_on(story, run, order, until, slow)


def _is_overtaken(order: Acted, earlier: list[Acted]) -> bool:
    """Whether the node has been told something later already."""
    return any((other.term, other.version) > (order.term, order.version) for other in earlier if other.version)


def _steps(story: Story) -> Iterator[Violation]:
    """Each request of srun for a step makes one, however often it is repeated."""
    asked: dict[int, int] = {}
    for operation in story.operations:
        if operation.kind == "step":
            asked[operation.job_id] = asked.get(operation.job_id, 0) + 1
    made: dict[int, list[Run]] = {}
    for life in story.lives.values():
        seen: set[int] = set()
        for run in life.runs:
            if run.began.step_id <= STEP_MAX and run.began.step_id not in seen:
                seen.add(run.began.step_id)
                made.setdefault(life.job_id, []).append(run)
    for job_id, runs in made.items():
        if len(runs) > asked.get(job_id, len(runs)):
            last = max(runs, key=lambda run: run.began.at).began
            text = f"{len(runs)} steps of job {job_id} began, and {asked[job_id]} were asked for"
            yield Violation(rule="3.once", at=last.at, text=text, entries=tuple(run.began for run in runs))


def _begins_after(run: Run, order: Acted, slow: list[Injected]) -> Iterator[Violation]:
    taken_at = run.began.taken_at
    slow = [fault for fault in slow if fault.kind != "slow starts"] if taken_at else slow
    if (taken_at or run.began.at) > order.at + _BEGIN_SECONDS and not _is_slow(run, order.at, run.began.at, slow):
        text = f"began on {order.node} at {clock(run.began.at)}, which had accepted its end at {clock(order.at)}"
        yield _violation("3.ended", run, order, run.began.at, text)


def _goes_on(story: Story, run: Run, order: Acted, until: float, slow: list[Injected]) -> Iterator[Violation]:
    since = max(order.at, run.began.at)
    due = since + _OBEY_SECONDS
    if _is_left_alone(story, run, order.at, due):
        due = owed_on(story, since, _OBEY_SECONDS, order.node)
    was_stopped = any(since <= due and stopped_until >= order.at for since, stopped_until in run.stops)
    if due < min(until, run.until) and not was_stopped and not _is_slow(run, order.at, due, slow):
        text = f"runs on {order.node} at {clock(due)}, which had accepted its suspension at {clock(order.at)}"
        yield _violation("3.suspended", run, order, due, text)


def _is_left_alone(story: Story, run: Run, since: float, until: float) -> bool:
    """Whether its supervisor may have died by `until`, and its daemon between `since` and then."""
    if run.ended is not None and not run.ended.untold:
        return False  # its supervisor outlived it
    begins = run.began.taken_at or run.began.at
    near = [fault for fault in story.faults if fault.since <= until and run.began.node in fault.named]
    return any(fault.kind in KILLS_SUPERVISORS and fault.until >= begins for fault in near) and any(
        fault.since >= since and (fault.kind == "slurmd lost at a point" or "slurmd" in fault.named) for fault in near
    )


def _is_slow(run: Run, since: float, until: float, slow: list[Injected]) -> bool:
    """Whether something on its machine may have delayed the step between these times."""
    node = run.began.node
    return any(fault.at <= until and fault.until + _SLOW_SECONDS >= since and node in fault.target for fault in slow)


def _violation(rule: str, run: Run, order: Acted, at: float, text: str) -> Violation:
    began = run.began
    label = f"step {began.step_id} of job {began.job_id} (restart {began.restart_count})"
    return Violation(rule=rule, at=at, text=f"{label} {text}", entries=(order, began))
