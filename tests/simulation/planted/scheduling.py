"""Faults of the scheduler's projection and of planned starts."""

from __future__ import annotations

from tests.simulation.planted.entry import Planted

_PLANNED_STARTS = "scheduling/view/changes/planned_starts.py"

FAULTS = (
    Planted(
        name="long_jobs_cross_planned_starts",
        rule=7,
        file="scheduling/plan/start_now.py",
        old="start = self._until(record, now + request.seconds, allocation, request, within)",
        new="start = self._until(record, now + min(request.seconds, 300.0), allocation, request, within)",
        why="Backfill looks at planned starts of the next five minutes only: a longer job takes the resources of a"
        " later one.",
    ),
    Planted(
        name="newcomers_break_planned_starts",
        rule=7,
        file="scheduling/plan/planned_starts.py",
        old="return other > key and (any_age or record.queued > future_start.queued)",
        new="return any_age or record.queued > future_start.queued",
        why="A job of lower rank that was submitted after a start was promised takes its resources.",
    ),
    Planted(
        name="one_start_uses_up_all_plans",
        rule=7,
        file=_PLANNED_STARTS,
        old="        if spent is not None:\n            projection.ledger.drop(projection.profile, spent)\n",
        new="        for spent in projection.ledger.of(other_request):\n"
        "            projection.ledger.drop(projection.profile, spent)\n",
        why="When the first of several equal jobs starts, the planned starts of the others are dropped, and"
        " lower-ranked jobs start in their place before the next full pass.",
    ),
    Planted(
        name="one_plan_for_equal_jobs",
        rule=7,
        file=_PLANNED_STARTS,
        old="        void = list(future_starts[count:])\n",
        new="        count = min(count, 1)\n        void = list(future_starts[count:])\n",
        why="When an equal job leaves the queue, only the first of the other planned starts stays; the others were"
        " promised too.",
    ),
    Planted(
        name="single_overdue_start_overtaken",
        rule=7,
        file="scheduling/plan/overdue.py",
        old="            if count:\n",
        new="            if count > 1:\n",
        why="A planned start that is late by a moment, since its node was cleared late, loses its resources to"
        " lower-ranked jobs.",
    ),
    Planted(
        name="ends_rounded_down_to_minutes",
        rule=7,
        file="scheduling/view/changes/jobs.py",
        old="ends_at = job.ends_at or job.started_at + YEAR_SECONDS",
        new="ends_at = job.ends_at // 60.0 * 60.0 or job.started_at + YEAR_SECONDS",
        why="A start is promised for a minute in which the running job, which lasts to its limit, still has its nodes.",
    ),
    Planted(
        name="freed_node_not_noted",
        rule=6,
        file="scheduling/view/changes/jobs.py",
        old="""\
        if projection.table.release(index, record.id):
            projection.free(index)
""",
        new="""\
        projection.table.release(index, record.id)
""",
        why="The end of a job does not tell the queue that a node has room: jobs that failed to fit are not tried"
        " again.",
    ),
)
