"""Rule 6: a request for a step is granted when it fits, first come, first served.

Looks at jobs on one node whose steps ask for CPUs alone: what is free then follows from the processes that nodes saw.

Source: srun(1) --immediate, --exact: a step waits for resources of its job.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from spritz.model.ids import STEP_MAX
from spritz_testing.daemons.checks.faults import USERS_HOST, due_on, nodes_of
from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Left, Operation, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz_testing.daemons.checks.story import Life, Run, Story


#: Requests after which steps of a job may not be granted.
_CHANGES = frozenset({"suspend", "resume", "cancel", "requeue", "update", "signal", "finish"})


def steps(story: Story) -> Iterator[Violation]:
    """Every request, against what the steps of its job held."""
    gone = {number: entry.at for entry in story.entries if isinstance(entry, Left) for number in entry.operations}
    requests: dict[int, list[Operation]] = {}
    for operation in story.operations:
        if operation.kind == "step":
            requests.setdefault(operation.job_id, []).append(operation)
    for life in story.lives.values():
        mine = requests.get(life.job_id, [])
        if len(mine) > 1 and len(story.lives_of(life.subject)) == 1 and _is_plain(life, mine):
            yield from _granted(story, life, mine, gone)


def _is_plain(life: Life, requests: list[Operation]) -> bool:
    """Whether CPUs of one node are all that its steps contend for."""
    wanted = [operation.wanted for operation in requests]
    asks = all(not (one.gpus or one.memory_mib or one.overlap) and one.nodes == 1 for one in wanted)
    return asks and len({run.began.node for run in life.runs}) == 1


def _granted(story: Story, life: Life, requests: list[Operation], gone: dict[int, float]) -> Iterator[Violation]:
    cpus = len(life.runs[0].began.job_cpus)
    hosts = nodes_of(life) if life.batch is not None else nodes_of(life) | {USERS_HOST}  # who asks is there
    runs = [run for run in life.runs if run.began.step_id <= STEP_MAX]
    reported = life.reported
    job_ended = story.earliest(reported.ended_at) if reported is not None and reported.ended_at else inf
    settled = 0.0  # when the last of the earlier requests was settled
    for operation in requests:
        until = min(_settled_at(operation, gone), job_ended, story.final.read_at)
        free_at = _free_at(runs, max(settled, operation.called_at), until, cpus - _cpus(operation))
        settled = max(settled, _settled_at(operation, gone))
        latest = due_on(story, free_at, story.final.rules.order_seconds, hosts)
        changed = any(change.kind in _CHANGES and change.called_at < latest for change in story.changes(life.subject))
        if until > latest and not changed and operation.outcome is not Outcome.REFUSED:
            asked = f"a step of {life.label} was asked for at {clock(operation.called_at)} with {_cpus(operation)} CPUs"
            text = f"{asked}, which were free at {clock(free_at)}, and it waits at {clock(latest)}"
            yield Violation(rule="6.step", at=latest, text=text, entries=(operation,))


def _cpus(operation: Operation) -> int:
    return int(operation.wanted.tasks * operation.wanted.cpus_per_task)


def _settled_at(operation: Operation, gone: dict[int, float]) -> float:
    """When it was answered, or its client was gone."""
    return min(operation.answered_at or inf, gone.get(operation.id, inf))


def _free_at(runs: list[Run], since: float, until: float, most: int) -> float:
    """From when on, at the earliest, other steps held so many CPUs at most until `until`; inf: they never did."""
    if most < 0:
        return inf
    at = since
    for moment in sorted({run.began.at for run in runs} | {run.until for run in runs}):
        if since <= moment < until and _held(runs, moment) > most:
            at = inf
        elif at == inf and moment < until:
            at = max(moment, since)
    return inf if at == since and _held(runs, since) > most else at


def _held(runs: list[Run], at: float) -> int:
    return sum(len(run.began.step_cpus) for run in runs if run.began.at <= at < run.until)
