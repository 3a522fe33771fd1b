"""When and where a job starts by one plan, and how sure that is. Serves `scontrol explain` and `sbatch --test-only`.

Source: squeue(1) --start; slurm.conf(5) SchedulerParameters bf_window, bf_max_job_test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.limits.reasons import LIMIT_REASONS
from spritz.model.queries.explain import Expected
from spritz.model.reasons import Reason
from spritz.notation.duration import format_span
from spritz.notation.hostlist import compress
from spritz.scheduling.explain.account_limits import over_own
from spritz.scheduling.explain.limit_minutes import fades, used_up_for_good
from spritz.scheduling.explain.wording import count
from spritz.scheduling.view.parameters import parameters_of
from spritz.scheduling.view.priority.multifactor import NEVER

if TYPE_CHECKING:
    from spritz.scheduling.explain.context import PlanView
    from spritz.scheduling.view.records import JobRecord

#: reasons that no end of a running job removes
NEVER_REASONS = frozenset(
    {
        Reason.ACCOUNT_NOT_ALLOWED,
        Reason.QOS_NOT_ALLOWED,
        Reason.INVALID_ACCOUNT,
        Reason.INVALID_QOS,
        Reason.BAD_CONSTRAINTS,
        Reason.PARTITION_CONFIG,
        Reason.DEPENDENCY_NEVER_SATISFIED,
        Reason.PARTITION_TIME_LIMIT,
        Reason.PARTITION_NODE_LIMIT,
        Reason.MAX_MEMORY_PER_LIMIT,
    }
)

_UNKNOWN = {
    Reason.DEPENDENCY: "unknown: no start or end is foreseen of what it depends on, as of jobs that are held or have no"
    " time limit, and of what these keep back",
    Reason.QOS_USAGE_THRESHOLD: "unknown: when the fair-share factor is high enough again, by what others use",
    Reason.BEGIN_TIME: "not before its begin time; from then on it is in the queue",
    Reason.RESERVATION: "not before its reservation begins; from then on it is in the queue",
    Reason.LICENSES: "unknown: no end of a running job that is planned ahead brings the licenses back",
    Reason.ARRAY_TASK_LIMIT: "when a task of its array ends",
    Reason.PARTITION_DOWN: "unknown: when an administrator sets the partition up",
    Reason.PARTITION_INACTIVE: "unknown: when an administrator sets the partition up",
    Reason.NODES_NOT_AVAILABLE: "unknown: when the nodes that it needs come back",
    Reason.MAX_POWERED_UP_NODES: "unknown: when fewer nodes are powered up (max_powered_nodes)",
    Reason.CONSTRAINTS: "unknown: when a node says so (scontrol update NodeName=… Extra=…)",
}


#: by reason other than resources, how rough the estimate is
_ESTIMATES = {
    Reason.DEPENDENCY: "an estimate: what it depends on is taken to come true, with all jobs running to their limits;"
    " nothing is kept for it yet",
    Reason.BEGIN_TIME: "an estimate: from its begin time on it is in the queue; nothing is kept for it yet",
    Reason.ARRAY_TASK_LIMIT: "an estimate: when enough tasks of its array have ended, by their time limits",
}


class Start(Struct, frozen=True):
    """`at`: seconds since the epoch; `now`: the plan starts it. `partition` is "" if an estimate does not name one."""

    at: float
    names: tuple[str, ...]
    now: bool = False
    cpus: int = 0
    partition: str = ""


def start_of(view: PlanView, record: JobRecord) -> Start | None:
    """The plan's start of the job (of the first task of an array); None if it has none."""
    starts = view.starts.get(record.id)
    if starts:
        allocation = starts[0].allocation
        return Start(view.now, allocation.names, True, allocation.cpu_count, allocation.partition)
    room = view.preemptions.get(record.id)
    if room is not None:
        return Start(view.now, room.allocation.names, True, room.allocation.cpu_count, room.allocation.partition)
    at, names = view.forecast(record.id)
    if not at:
        return None
    future_start = view.planned_start_of(record)
    if future_start is None:
        return Start(at, names)
    cpus = sum(holder.cpus.bit_count() for _index, holder in future_start.parts)
    return Start(at, future_start.names, False, cpus, future_start.request.partition)


def expected(view: PlanView, record: JobRecord) -> Expected:
    """The expected start in words: how sure it is, when and where."""
    start = start_of(view, record)
    if start is None:
        return Expected(sure="unknown", text=_why_unknown(view, record) + _spared(view, record, NEVER))
    nodes = compress(start.names)
    if start.now:
        text = "at once" if record.id in view.starts else "as soon as the jobs that make room for it have left"
        return Expected(sure="now", text=text, start_at=view.now, nodes=nodes)
    if start.partition:
        # A planned start: an upper bound, since running jobs are taken to last to their limits.
        text = "at the latest, unless a job of higher priority comes; earlier if running jobs end before their limits"
        text += _spared(view, record, start.at)
        return Expected(sure="promise", text=text, start_at=start.at, nodes=nodes)
    if view.reason(record)[0] in LIMIT_REASONS | {Reason.LICENSES}:
        text = (
            "a rough estimate: when enough jobs under the same limit have ended, which may be before their time limits"
        )
        if fades(view, record):
            text = "an estimate: when what was used of the limit has faded enough, if no more is used"
        return Expected(sure="forecast", text=text, start_at=start.at, nodes=nodes)
    estimate = _ESTIMATES.get(view.reason(record)[0])
    if estimate is not None:
        return Expected(sure="forecast", text=estimate, start_at=start.at, nodes=nodes)
    text = _why_coarse(view, start.at) + _spared(view, record, start.at)
    return Expected(sure="forecast", text=text, start_at=start.at, nodes=nodes)


def _spared(view: PlanView, record: JobRecord, before: float) -> str:
    """When, before `before`, the first exempt time ends that keeps the job from preempting others or reclaiming its
    guarantee. Whether that suffices is known only then.
    """
    requests = {shape.request for _key, shape in record.entries}
    untils = [
        no_room.spared_until
        for (request, _guarantees), no_room in {**view.snapshot.memory.no_room, **view.findings.no_room}.items()
        if request in requests and view.now < no_room.spared_until < before
    ]
    if not untils:
        return ""
    span = format_span(min(untils) - view.now)
    exempt = "the exempt time of jobs that it may preempt is over (ReclaimAfter, PreemptExemptTime)"
    return f"; perhaps in {span}, when {exempt}"


def _why_coarse(view: PlanView, at: float) -> str:
    parameters = parameters_of(view.snapshot.settings)
    text = "a rough estimate, either way: "
    if parameters.easy:
        option = "bf_predict" if parameters.predict else "bf_policy=easy"
        return text + f"only the first job of each partition has a planned start ({option})"
    if at > view.now + parameters.window_seconds:
        return text + f"starts are planned only {format_span(parameters.window_seconds)} ahead (bf_window)"
    if len(view.future_starts) >= parameters.planned_starts_max:
        return text + f"only {count(parameters.planned_starts_max, 'job')} have a planned start (bf_max_job_test)"
    return text + "the scheduler's limits on planned starts (bf_max_job_*) leave this job out"


def _why_unknown(view: PlanView, record: JobRecord) -> str:
    reason, detail = view.reason(record)
    if record.held:
        return "unknown: it is held, and starts no sooner than it is released"
    if record.claiming:
        return "as soon as the jobs that make room for it have left"
    if reason in NEVER_REASONS:
        return "never, as things are"
    if reason in LIMIT_REASONS:
        if over_own(view, record):
            return "never, as things are"
        if used_up_for_good(view, record):
            return "never, unless the limit is raised or what was used is reset (RawUsage=0): it does not fade"
        return _UNKNOWN.get(reason, "unknown: when enough has ended, or usage has faded, under the same limit")
    if reason is Reason.RESOURCES and detail:
        return "unknown: when nodes that are down or drained come back"
    if reason is Reason.RESOURCES and record.spec.switches and not record.any_switches:
        return "when it has waited long enough for so few switches (--switches, max_switch_wait), if not before"
    return _UNKNOWN.get(reason, "unknown: no end of a running job that is planned ahead lets it start")
