"""The limits and rules that apply to a waiting job, each with its figures and its users.

`SOURCES` lists one function for each kind of rule; it reads the view and yields what applies. A new rule that may hold
jobs back gets a function here.

Source: squeue(1) JOB REASON CODES; sbatch(1) --dependency, --begin, --hold, --licenses, --array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from spritz.model.ids import INFINITE
from spritz.model.job.record import Hold
from spritz.model.limits import flags
from spritz.model.limits.reasons import rank_of
from spritz.model.queries.explain import Limit
from spritz.model.reasons import Reason
from spritz.model.rules import partition_limits, time_limit
from spritz.model.rules.availability import starts_jobs
from spritz.model.rules.job_size import Size
from spritz.model.states import JobState
from spritz.notation.hostlist import compress
from spritz.notation.licenses import LicenseError
from spritz.notation.licenses import parse as license_choices
from spritz.scheduling.explain.account_limits import account_limits
from spritz.scheduling.explain.limit_minutes import minute_limits
from spritz.scheduling.explain.nodes import nodes_wanted
from spritz.scheduling.explain.wording import USERS_MAX, count, job_label, largest, limit_text, listed, memory
from spritz.scheduling.placement.place import place
from spritz.scheduling.view.changes.waiting_jobs import switches_until
from spritz.scheduling.view.reservations import MAINTENANCE, OTHERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spritz.model.job.record import Dependency, Job
    from spritz.scheduling.explain.context import PlanView
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request

    Source = Callable[["PlanView", "Job", "JobRecord", tuple["Request", ...]], Iterator[Limit]]


def limits(view: PlanView, job: Job, record: JobRecord, requests: tuple[Request, ...]) -> tuple[Limit, ...]:
    """All limits, those that hold the job back first."""
    applying = [limit for source in SOURCES for limit in source(view, job, record, requests)]
    # Limits of accounts and limits on minutes share one order.
    ranked = iter(
        sorted(
            (limit for limit in applying if rank_of(limit.kind) is not None),
            key=lambda limit: rank_of(limit.kind) or (0, 0),
        )
    )
    applying = [limit if rank_of(limit.kind) is None else next(ranked) for limit in applying]
    return tuple(sorted(applying, key=lambda limit: not limit.holds))


def _hold(view: PlanView, job: Job, record: JobRecord, requests: tuple[Request, ...]) -> Iterator[Limit]:
    if job.hold is Hold.NONE:
        return
    if job.reason is Reason.HELD_MAX_REQUEUE:
        text = f"held after {count(job.restart_count, 'restart')}: `scontrol release {job.id}` lets it go on"
    elif job.hold is Hold.ADMIN:
        text = "held by an administrator, who alone can release it"
    else:
        text = f"held: `scontrol release {job.id}` lets it go on"
    yield Limit(kind="Held", subject=job.hold.value, text=text, holds=True)


def _federation(view: PlanView, job: Job, record: JobRecord, requests: tuple[Request, ...]) -> Iterator[Limit]:
    """The action of another cluster of the federation that the job waits for."""
    federated = job.federation
    if federated is None or job.reason is not Reason.FED_JOB_LOCK:
        return
    if not federated.is_origin:
        text = f"cluster {federated.origin}, which took the submission, has yet to let it start here"
    elif federated.lock:
        text = f"cluster {federated.lock} of the federation {'runs it' if federated.runs_on else 'is starting it'}"
    else:
        refusals = [f"{sibling.cluster} ({sibling.reason})" for sibling in federated.siblings if sibling.reason]
        text = "this cluster may not run it (--clusters, --cluster-constraint, or the cluster's state)"
        if refusals and len(refusals) == len(federated.siblings):
            text += f", and those that may do not take it: {listed(refusals)}"
    yield Limit(kind="Federation", subject=federated.origin, text=text, holds=True)


def _begin(view: PlanView, job: Job, record: JobRecord, requests: tuple[Request, ...]) -> Iterator[Limit]:
    if job.spec.begin_at > view.now:
        yield Limit(
            kind="BeginTime",
            subject="",
            text="not to begin before the time that was asked for (--begin)",
            holds=True,
            at=job.spec.begin_at,
        )
    elif job.reason is Reason.BEGIN_TIME and job.eligible_at > view.now:
        text = "requeued, and not to start again at once (SchedulerParameters=requeue_delay)"
        yield Limit(kind="BeginTime", subject="", text=text, holds=True, at=job.eligible_at)


def _reservation(view: PlanView, job: Job, record: JobRecord, requests: tuple[Request, ...]) -> Iterator[Limit]:
    for name in filter(None, job.spec.reservation.split(",")):
        reservation = view.snapshot.reserved.by_name.get(name)
        if reservation is None:
            yield Limit(kind="Reservation", subject=name, text=f"there is no reservation {name}", holds=True)
        elif reservation.active(view.now) or reservation.flexible:
            yield Limit(kind="Reservation", subject=name, text="the job runs inside it", at=reservation.end_at)
        else:
            yield Limit(kind="Reservation", subject=name, text="it has not begun", holds=True, at=reservation.start_at)


def _reserved(view: PlanView, job: Job, record: JobRecord, requests: tuple[Request, ...]) -> Iterator[Limit]:
    """Reservations for other users that the job would run into."""
    reason, detail = view.reason(record)
    if reason is not Reason.NODES_NOT_AVAILABLE or detail not in (MAINTENANCE, OTHERS):
        return
    rows, seen = view.snapshot.table.rows, set[str]()
    serving = {index for request in requests for index in nodes_wanted(view, request)}
    for booking in (occurrence for request in requests for occurrence in view.snapshot.reserved.met(request, view.now)):
        reservation = booking.reservation
        if reservation.name not in seen and not serving.isdisjoint(index for index, _holder in booking.parts):
            seen.add(reservation.name)
            nodes = compress([rows[index].name for index, _holder in booking.parts])
            kind = "maintenance" if reservation.maintenance else "reservation"
            begun = booking.start_at <= view.now
            text = f"{kind} {reservation.name} {'has' if begun else 'begins on'} {nodes}"
            text += "" if begun else " before the job would be over"
            yield Limit(kind="Reserved", subject=reservation.name, text=text, holds=True, at=booking.end_at)


_WAITS_FOR = {
    "after": "has to start",
    "afterany": "has to end",
    "afterok": "has to end well (exit code 0)",
    "afternotok": "has to fail",
    "aftercorr": "has to end well, task by task",
    "afterburstbuffer": "has to end",
}


def _dependencies(view: PlanView, job: Job, record: JobRecord, requests: tuple[Request, ...]) -> Iterator[Limit]:
    several = len(job.dependencies) > 1 and job.spec.dependency_mode == "any"
    for item in job.dependencies:
        if item.state == "fulfilled":
            continue
        text = _dependency_text(view, job, item)
        if several:
            text += " (any one of these will do)"
        subject = str(item.job_id) if item.task_id is None else f"{item.job_id}_{item.task_id}"
        yield Limit(
            kind="Dependency",
            subject=item.kind if item.kind == "singleton" else subject,
            text=text,
            holds=True,
            at=_met_at(view, item),
        )


def _met_at(view: PlanView, item: Dependency) -> float:
    """When the condition on a single running job comes true at the latest, if it does; 0.0: not known here."""
    other = view.jobs.get(item.job_id)
    if item.due_at or other is None or item.kind in ("singleton", "after") or item.state == "failed":
        return item.due_at
    single = not other.array_job_id and not other.het_job_id
    return other.ends_at if single and other.state is JobState.RUNNING else 0.0


def _some(labels: list[str]) -> str:
    """The first few by name, and how many more there are."""
    more = len(labels) - USERS_MAX
    return listed(labels if more < 2 else [*labels[:USERS_MAX], f"{more} more"])


def _dependency_text(view: PlanView, job: Job, item: Dependency) -> str:
    if item.kind == "singleton":
        others = [
            job_label(other)
            for other in view.jobs.values()
            if other.id != job.id
            and other.spec.uid == job.spec.uid
            and other.spec.name == job.spec.name
            and not other.state.ended
        ]
        return f"its user's other jobs named {job.spec.name} have to end: {_some(others)}"
    name = str(item.job_id) if item.task_id is None else f"{item.job_id}_{item.task_id}"
    other = view.jobs.get(item.job_id)
    if item.state == "failed":
        return f"job {name} {_WAITS_FOR.get(item.kind, 'has to end')}, which cannot happen any more"
    text = f"job {name} {_WAITS_FOR.get(item.kind, 'has to end')}"
    if item.minutes:
        text += f", and {count(item.minutes, 'minute')} pass"
    return text if other is None else f"{text}; it is {other.state.value}"


def _partition(view: PlanView, job: Job, record: JobRecord, requests: tuple[Request, ...]) -> Iterator[Limit]:
    for request in requests:
        partition = view.snapshot.partitions[request.partition]
        name = partition.name
        if not starts_jobs(partition):
            text = f"partition {name} is {partition.state.value}: it starts no jobs"
            yield Limit(kind="PartitionState", subject=name, text=text, holds=True)
        if request.barred is not None:
            reason, text = request.barred
            yield Limit(kind=reason.value, subject=name, text=text, holds=True)
        lifted, size = request.qos_flags, Size(request.nodes_min, request.nodes_max, request.tasks)
        asked, most = request.time_limit_minutes, partition.max_time_minutes
        if time_limit.exceeds(job.spec, partition, lifted):
            text = f"{limit_text(asked)} asked for, partition {name} allows {limit_text(most)}"
            yield Limit(kind="MaxTime", subject=name, text=text, holds=True, asked=asked, limit=most)
        nodes = max(request.nodes_min, request.nodes_max or 0)
        if partition.max_nodes < INFINITE and not request.lifts(flags.PARTITION_MAX_NODES):
            holds = partition_limits.too_many_nodes(size, partition, lifted)
            text = f"{count(nodes, 'node')} asked for, partition {name} allows {partition.max_nodes} a job"
            yield Limit(
                kind="MaxNodes",
                subject=name,
                text=text,
                holds=holds,
                asked=nodes,
                limit=partition.max_nodes,
            )
        if partition_limits.too_few_nodes(size, partition, lifted):
            most = request.nodes_max or 0
            text = f"at most {count(most, 'node')} asked for, partition {name} takes {partition.min_nodes}"
            yield Limit(
                kind="MinNodes",
                subject=name,
                text=text + " or more",
                holds=True,
                asked=most,
                limit=partition.min_nodes,
            )
        excess = partition_limits.too_much_memory(job.spec, partition, view.snapshot.settings)
        if excess is not None:
            kind, asked, most = excess
            text = f"{memory(asked)} asked for, partition {name} allows {memory(most)} ({kind})"
            yield Limit(kind=kind, subject=name, text=text, holds=True, asked=asked, limit=most)
        if request.refusal:
            yield Limit(kind="NotSupported", subject=name, text=request.refusal, holds=True)


def _licenses(view: PlanView, job: Job, record: JobRecord, requests: tuple[Request, ...]) -> Iterator[Limit]:
    try:
        choices = license_choices(job.spec.licenses)
    except LicenseError:
        return
    pool = view.licenses
    stuck = not any(map(pool.available, choices))
    for needs in choices:
        for name, asked in needs.items():
            total, used = pool.total.get(name, 0), pool.taken.get(name, 0)
            holds = stuck and used + asked > total
            text = f"{asked} asked for, {max(0, total - used)} of {total} free"
            users = _license_users(view, name)
            if users:
                text += ": " + listed([f"{user} has {number}" for user, number in users])
            yield Limit(
                kind="Licenses",
                subject=name,
                text=text,
                holds=holds,
                asked=asked,
                used=used,
                limit=total,
                users=users,
            )


def _license_users(view: PlanView, name: str) -> tuple[tuple[str, int], ...]:
    sums: dict[str, int] = {}
    for _end, job_id in view.snapshot.ends:
        record = view.snapshot.records[job_id]
        if record.licenses.get(name):
            user = view.named(record, "")[1]
            sums[user] = sums.get(user, 0) + record.licenses[name]
    return largest(sums)


def _switches(view: PlanView, job: Job, record: JobRecord, requests: tuple[Request, ...]) -> Iterator[Limit]:
    asked = record.spec.switches
    until = switches_until(view.snapshot.settings, record)
    if not asked or record.any_switches or until <= view.now:
        return
    free = [structs.replace(request, switches=0) for request in requests]
    fits = (place(view.table, candidate, view.snapshot.eligibility) is not None for candidate in free)
    switches = count(asked, "leaf switch", "leaf switches")
    yield Limit(
        kind="Switches",
        subject=str(asked),
        text=f"it waits for nodes of at most {switches} (--switches) before it takes any",
        holds=record.id not in view.starts and any(fits),
        asked=asked,
        at=until,
    )


def _array(view: PlanView, job: Job, record: JobRecord, requests: tuple[Request, ...]) -> Iterator[Limit]:
    array_id = record.array_job_id
    most = view.snapshot.array_limits.get(array_id, 0) if array_id else 0
    if most:
        running = view.snapshot.array_running.get(array_id, 0)
        running += sum(
            len(starts)
            for job_id, starts in view.starts.items()
            if view.snapshot.records[job_id].array_job_id == array_id
        )
        text = (
            f"{count(running, 'task')} of array {array_id} {'runs' if running == 1 else 'run'}, %{most} allows {most}"
        )
        yield Limit(
            kind="ArrayTaskLimit",
            subject=str(array_id),
            text=text,
            holds=running >= most,
            asked=1,
            used=running,
            limit=most,
        )


#: every kind of rule; a source yields nothing if its rule does not concern the job
SOURCES: list[Source] = [
    _hold,
    _federation,
    _begin,
    _dependencies,
    _reservation,
    _reserved,
    _partition,
    account_limits,
    minute_limits,
    _licenses,
    _switches,
    _array,
]
