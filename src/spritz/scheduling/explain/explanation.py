"""Puts the explanation of one job together: the verdict from the plan, the figures from the snapshot.

Source: squeue(1) JOB REASON CODES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.reasons import LIMIT_REASONS
from spritz.model.queries.explain import Ahead, Expected, Explanation, PartitionView
from spritz.model.reasons import Reason
from spritz.model.states import JobState
from spritz.notation.hostlist import compress
from spritz.scheduling.explain.account_limits import over_own
from spritz.scheduling.explain.blockers import NodeBlockers, blockers, victims
from spritz.scheduling.explain.expected_start import NEVER_REASONS, expected
from spritz.scheduling.explain.jobs_ahead import ahead
from spritz.scheduling.explain.limits import limits
from spritz.scheduling.explain.nodes import partition_view
from spritz.scheduling.explain.wording import asks, count, job_label, listed, record_label, resource
from spritz.scheduling.placement.place import place
from spritz.scheduling.view.changes.waiting_jobs import request_of
from spritz.scheduling.view.charges import guaranteed_pairs
from spritz.scheduling.view.reservations import MAINTENANCE, OTHERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.job.record import Job
    from spritz.model.queries.explain import Limit
    from spritz.scheduling.explain.context import Planned, PlanView
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request


def explain(view: PlanView, job: Job) -> Explanation:
    """The explanation of this plan for the job, which must wait (PENDING) and be known to the snapshot."""
    record = view.snapshot.records[job.id]
    requests = requests_of(view, record)
    reason, detail = view.reason(record)
    planned = view.planned_start_of(record)
    views = tuple(partition_view(view, request, planned) for request in requests)
    when = expected(view, record)
    rules = limits(view, job, record, requests)
    jobs_ahead = ahead(view, record) if record.entries and when.sure != "now" else Ahead()
    reserved = any(test.test == "reserved" for part in views for test in part.tests)
    room = _room(view, record, requests, planned if jobs_ahead.count or reserved or record.het_job_id else None)
    verdict = _verdict(reason, when, over=reason in LIMIT_REASONS and over_own(view, record))
    blocking = blockers(view, record, room) if verdict == "waits" else victims(view, record)
    limited = any(rule.holds and rule.kind != "Reserved" for rule in rules)
    fits = room is not None and room.start_at <= view.now
    kept = fits and not (blocking or limited) and verdict == "waits"
    summary = _with_components(view, record, _summary(reason, detail, when, rules, views, jobs_ahead, kept), kept)
    if verdict == "waits" and blocking and not limited:
        summary += _beyond_guarantee(view, record, requests)
    return Explanation(
        job=job_label(job),
        job_id=job.id,
        name=job.spec.name,
        user=job.spec.user,
        state=job.state.value,
        verdict=verdict,
        summary=summary,
        reason="" if when.sure == "now" else reason.value,
        reason_detail="" if when.sure == "now" else detail,
        partition=",".join(request.partition for request in requests),
        asks=asks(requests[0]) if requests else (),
        partitions=views,
        limits=rules,
        blockers=blocking,
        room_is_kept=kept,
        ahead=jobs_ahead,
        expected=when,
    )


def past(job: Job) -> Explanation:
    """Explanation of a job that does not wait: it runs, or it has ended."""
    active = job.state.active
    # A job that is cancelled while it waits has a start time, but never had a node.
    ran = active or job.allocation is not None
    return Explanation(
        job=job_label(job),
        job_id=job.id,
        name=job.spec.name,
        user=job.spec.user,
        state=job.state.value,
        verdict="runs" if active else "ended",
        summary=_past_text(job) if ran else "",
        reason=job.reason.value if job.reason is not Reason.NONE else "",
        reason_detail=job.reason_detail,
        partition=job.partition,
        started_at=job.started_at if ran else 0.0,
        ends_at=job.ends_at if active else job.ended_at,
        nodes=compress(job.allocation.names) if job.allocation is not None else "",
    )


def _past_text(job: Job) -> str:
    if job.state is JobState.SUSPENDED:
        by = {"preempt": "by a job that goes before it", "gang": "until its next time slice"}
        return f"Suspended {by.get(job.suspended_by, 'by an administrator')}."
    if job.state.active:
        return "It is being requeued or cancelled to make room." if job.preempt_action else ""
    code, signal = job.exit_status >> 8, job.exit_status & 127
    return f"It ended by signal {signal}." if signal else f"Its exit code was {code}."


def requests_of(view: PlanView, record: JobRecord) -> tuple[Request, ...]:
    """The job's request in each of its partitions, in the order in which they are tried."""
    if record.entries:
        return tuple(shape.request for _key, shape in sorted(record.entries, key=lambda entry: entry[0]))
    snapshot = view.snapshot
    return tuple(request_of(snapshot, record, name) for name in record.spec.partitions if name in snapshot.partitions)


def _room(
    view: PlanView, record: JobRecord, requests: Sequence[Request], planned: Planned | None
) -> NodeBlockers | None:
    """The blockers in the partition where it could start first; None if it does not wait for resources. `planned`: its
    planned start.
    """
    if not record.entries or record.id in view.starts or record.id in view.preemptions:
        return None
    if planned is not None:
        return NodeBlockers(view, planned.request, planned)
    rooms = [NodeBlockers(view, request) for request in requests if not request.refusal]
    return min(rooms, key=lambda room: (room.start_at, len(room.numbers)), default=None)


def _verdict(reason: Reason, when: Expected, *, over: bool) -> str:
    if when.sure == "now":
        return "starts"
    return "never" if over or reason in NEVER_REASONS else "waits"


def _with_components(view: PlanView, record: JobRecord, summary: str, kept: bool) -> str:
    """The summary for a component: it starts when there is room for all of them together."""
    if not record.het_job_id or record.id in view.starts:
        return summary
    snapshot = view.snapshot
    gang = snapshot.queue.gangs.get(record.het_job_id, {})
    others = [other for number, other in sorted(gang.items()) if number != record.id]
    if len(others) < record.het_size - 1:
        return f"It starts together with the other components of {record.het_job_id}, and not all of these may start."
    lacking = [record_label(other) for other in others if _lacks_room(view, other)]
    if kept and lacking:
        return f"There is room for it, but not for {listed(lacking)}, with which it starts."
    names = listed([record_label(other) for other in others])
    return f"{summary} It starts together with {names}." if others else summary


def _beyond_guarantee(view: PlanView, record: JobRecord, requests: Sequence[Request]) -> str:
    """Why a job of an account with a guarantee must wait like any other; "" if that is not so."""
    if record.id in view.preemptions:
        return ""
    for request in requests:
        spec, rules = record.spec, view.snapshot.rules
        guarantees = (
            rules.job_limits(spec.account, spec.user, request.partition, spec.qos).guarantees
            if request.guaranteed
            else ()
        )
        requested = dict(guaranteed_pairs(view.snapshot.eligibility, spec, request)) if guarantees else {}
        asked = [guarantee for guarantee in guarantees if any(requested.get(name) for name, _count in guarantee.tres)]
        if asked and not any(
            guarantee.has_room(view.in_use.use(("a", guarantee.id)).tres, requested) for guarantee in asked
        ):
            return f" It exceeds the guarantee of account {asked[0].account}, so nothing is preempted for it."
    return ""


def _lacks_room(view: PlanView, record: JobRecord) -> bool:
    """Whether resources are lacking: on the nodes of its planned start, or anywhere."""
    planned = view.planned_start_of(record)
    if planned is not None:
        return NodeBlockers(view, planned.request, planned).start_at > view.now
    return all(place(view.table, request, view.snapshot.eligibility) is None for request in requests_of(view, record))


def _summary(
    reason: Reason,
    detail: str,
    when: Expected,
    rules: Sequence[Limit],
    views: Sequence[PartitionView],
    jobs_ahead: Ahead,
    kept: bool,
) -> str:
    if when.sure == "now":
        return f"It starts {when.text}."
    holding = [
        f"reservation {rule.subject}: {rule.text}" if rule.kind == "Reservation" else rule.text
        for rule in rules
        if rule.holds
    ]
    if holding:
        return _sentence(holding[0]) + _and_more(len(holding) - 1)
    if reason in (Reason.BAD_CONSTRAINTS, Reason.PARTITION_CONFIG):
        return "No set of nodes of its partition could ever hold it, even if all were free and up."
    if reason is Reason.MAX_POWERED_UP_NODES:
        return "Nodes would have to be powered up, and no more may be (max_powered_nodes)."
    if reason is Reason.CONSTRAINTS:
        return "No set of nodes says now what it asks for with --extra."
    reserved = [test.text for view in views for test in view.tests if test.test == "reserved"]
    if reason is Reason.NODES_NOT_AVAILABLE and detail in (MAINTENANCE, OTHERS):
        return "Nodes that it cannot do without are reserved."
    if reason is Reason.NODES_NOT_AVAILABLE or detail:
        return "Nodes that it cannot do without are down or drained."
    if kept:
        if reserved and not jobs_ahead.count:
            return "There is room, but it is reserved."
        if jobs_ahead.count:
            return f"There is room, but it is kept for {count(jobs_ahead.count, 'job')} ahead of it."
        return "There is room, but starting now would delay a job that has a planned start."
    first = not jobs_ahead.count
    short = _scarce(views)
    line = "It is next in line" if first else f"{count(jobs_ahead.count, 'job')} want the same nodes and go first"
    if jobs_ahead.count == 1:
        line = "1 job wants the same nodes and goes first"
    return f"{line}; {listed(short)} {'are' if short != ['memory'] else 'is'} short." if short else f"{line}."


def _scarce(views: Sequence[PartitionView]) -> list[str]:
    """Resources that are short on most nodes, if the free resources do not suffice."""
    counts: dict[str, int] = {}
    for view in views:
        for test in view.tests:
            if test.test == "busy":
                for what in test.what or ("free nodes",):
                    counts[what] = counts.get(what, 0) + test.count
    if not counts:
        return []
    most = max(counts.values())
    return [resource(what) for what in sorted(counts) if counts[what] == most]


def _and_more(number: int) -> str:
    if not number:
        return ""
    return " One more rule keeps it back." if number == 1 else f" {number} more rules keep it back."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
