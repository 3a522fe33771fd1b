"""Siblings of federated jobs: made, granted the lock, and taken back (docs/decisions/0197).

The origin's record says on which clusters the job should have a copy; `settle_siblings` brings that up to date after
every command, whatever the command was. So a hold, a dependency, a start, a cancellation, and a cluster that is drained
all take copies back by one rule, and a release makes new ones. What is recorded here is sent by the shell until it is
answered. No copy starts without the lock, which its origin grants to one cluster at a time.

Source: the Slurm Federated Scheduling Guide; sbatch(1) --clusters, --cluster-constraint; sacctmgr(1) FedState.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.ending import end_job
from spritz.core.decide.submission.submit import new_job
from spritz.core.decision import Refused
from spritz.core.flags import COMPLETING
from spritz.core.job.eligibility import HELD_REASONS, eligibility
from spritz.core.job.siblings import HELD, RETURNED, WANTED, entry_of, may_have_copies, peers, with_entry
from spritz.model.commands.job import Done
from spritz.model.events.job import JobHeld, JobQueued, JobsPurged, JobUpdated
from spritz.model.federation import SiblingAnswer, may_have_siblings, may_keep, member, phase_of, viable
from spritz.model.job.record import Federated, Hold, Sibling, SiblingState
from spritz.model.reasons import CORE_REASONS, Reason
from spritz.model.states import JobFlag, JobState

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.core.state import State
    from spritz.model.federation import (
        AskLock,
        LockAnswered,
        LockReturned,
        LockUnused,
        QueueSibling,
        ReportSibling,
        ReportTaken,
        ReturnLock,
        RevokeSibling,
        SiblingGone,
        SiblingPlaced,
    )
    from spritz.model.job.record import Job


#: flags of a pending life that say nothing of a copy that is over
_OF_REQUEUES: int = (JobFlag.REQUEUED | JobFlag.REQUEUE_HOLD | JobFlag.SPECIAL_EXIT).value


def settle_siblings(context: DecisionContext) -> None:
    """Bring the siblings up to date of all jobs that have changed in this turn, or of all jobs if the federation has
    changed.
    """
    state = context.state
    # Recording puts the job into `siblings_due` once more; the second time it is settled, and the loop ends.
    due = state.memory.siblings_due
    while due:
        job = state.jobs.get(due.popitem()[0])
        if job is None or job.federation is None or state.memory.ignores(job.id):
            continue
        context.subject = job.id
        settled = _settled_origin(context, job) if job.federation.is_origin else _settled_copy(context, job)
        if settled != job:
            context.record(JobUpdated(at=context.now, job=settled))


def _settled_origin(context: DecisionContext, job: Job) -> Job:
    federated, spec = job.federation, job.spec
    assert federated is not None, f"job {job.id} has no siblings"
    federation, cluster = context.state.rules.federation, context.state.settings.cluster_name
    if job.state is JobState.PENDING and federated.ended_as is not None:
        federated = replace(federated, ended_as=None, runs_on="", lock="")  # requeued
    if job.state.ended and job.flags & JobFlag.REVOKED:
        job = replace(job, flags=int(job.flags & ~JobFlag.REVOKED))  # cancelled while another cluster ran it
    clusters = _wanted(context.state, job, federated)
    # A copy that is no longer wanted is LEAVING until its cluster has confirmed that it is gone. The entry of a cluster
    # that refused the job stays while it could be asked again, so that it is not.
    entries: list[Sibling] = []
    for sibling in federated.siblings:
        if sibling.state is SiblingState.REFUSED:
            entries += [sibling] if not job.state.ended and (sibling.cluster in clusters or federated.runs_on) else []
        elif sibling.cluster in clusters or sibling.state is SiblingState.LEAVING:
            entries.append(sibling)
        else:
            entries.append(replace(sibling, state=SiblingState.LEAVING))
    copy, known = federated.copy, {sibling.cluster for sibling in entries}
    for name in clusters:
        if name not in known:
            copy += 1
            entries.append(Sibling(cluster=name, copy=copy, state=SiblingState.DUE))
    local = may_keep(member(federation, cluster), spec) if federation else True
    federated = replace(federated, siblings=tuple(entries), copy=copy, local=local)
    return _gated(context, replace(job, federation=federated), bool(federated.lock) or not local)


def _wanted(state: State, job: Job, federated: Federated) -> list[str]:
    """Other clusters on which there should be a copy."""
    if federated.runs_on:
        return [] if job.state.ended else [federated.runs_on]
    if not may_have_copies(job):
        return []
    federation, cluster = state.rules.federation, state.settings.cluster_name
    # While a copy has the lock, no further ones are made. Those that exist stay: the lock may be returned.
    new = () if federated.lock else viable(federation, job.spec)
    keeping = {
        sibling.cluster for sibling in federated.siblings if may_keep(member(federation, sibling.cluster), job.spec)
    }
    return [
        other.cluster
        for other in federation
        if other.cluster != cluster and (other.cluster in new or other.cluster in keeping)
    ]


def _settled_copy(context: DecisionContext, job: Job) -> Job:
    federated = job.federation
    assert federated is not None, f"job {job.id} has no origin"
    if job.state is JobState.PENDING and federated.lock == HELD and job.restart_count > _life(federated):
        federated = replace(federated, lock="")  # requeued: the next life needs the lock again
    if job.state.ended and federated.lock:
        federated = replace(federated, lock="")
    return _gated(context, replace(job, federation=federated), federated.lock in (WANTED, RETURNED))


def _life(federated: Federated) -> int:
    """The life that the origin knows of."""
    return int(federated.reported.partition(":")[2] or 0)


def _gated(context: DecisionContext, job: Job, gate: bool) -> Job:
    """A pending job is not considered while another cluster has its lock."""
    if job.state is not JobState.PENDING:
        return job
    if gate and job.reason not in CORE_REASONS:
        return replace(job, reason=Reason.FED_JOB_LOCK, reason_detail="", expected_start_at=0.0, expected_nodes=())
    if not gate and job.reason is Reason.FED_JOB_LOCK:
        reason, eligible_at = eligibility(job.spec, job.hold, job.dependencies, context.now)
        return replace(job, reason=reason, eligible_at=job.eligible_at or eligible_at)
    return job


# -- at the origin


def sibling_placed(context: DecisionContext, command: SiblingPlaced) -> Done:
    """Another cluster has the copy, or does not take it."""
    job, federated, entry = _entry(context.state, command.job_id, command.cluster, command.copy)
    if job is not None and federated is not None and entry is not None and entry.state is SiblingState.DUE:
        state = SiblingState.REFUSED if command.refusal else SiblingState.PLACED
        _put(context, job, with_entry(federated, replace(entry, state=state, reason=command.refusal)))
    return Done()


def sibling_gone(context: DecisionContext, command: SiblingGone) -> Done:
    """Another cluster does not have the copy any more."""
    job, federated, entry = _entry(context.state, command.job_id, command.cluster, command.copy)
    if job is not None and federated is not None and entry is not None and entry.state is SiblingState.LEAVING:
        federated = replace(
            federated, siblings=tuple(sibling for sibling in federated.siblings if sibling.cluster != command.cluster)
        )
        # Cancelled, and queued again since: not before now could it start elsewhere.
        federated = replace(federated, lock="", runs_on="") if federated.lock == command.cluster else federated
        _put(context, replace(job, flags=int(job.flags & ~JobFlag.REVOKED)) if not federated.lock else job, federated)
    return Done()


def ask_lock(context: DecisionContext, command: AskLock) -> SiblingAnswer:
    """A copy could start. Only one cluster at a time may."""
    # The lock is for one life of one copy. Messages between clusters may arrive late, twice, or after a newer one:
    # `copy` tells an earlier copy on the same cluster apart, `restart_count` an earlier life, and `asked` numbers the
    # requests of a copy, so that a request from before the lock was returned cannot take it again.
    job, federated, entry = _entry(context.state, command.job_id, command.cluster, command.copy)
    if job is None or federated is None or entry is None:
        return SiblingAnswer(unknown=True)
    if federated.lock:
        return SiblingAnswer(granted=federated.lock == command.cluster and command.restart_count == job.restart_count)
    leaving = entry.state in (SiblingState.LEAVING, SiblingState.REFUSED)
    stale = command.asked <= entry.asked or command.restart_count != job.restart_count
    if leaving or stale or not may_have_copies(job):
        return SiblingAnswer()
    _put(context, job, replace(federated, lock=command.cluster))
    return SiblingAnswer(granted=True)


def take_lock_back(context: DecisionContext, command: ReturnLock) -> SiblingAnswer:
    """A copy with the lock could not start after all."""
    job, federated, entry = _entry(context.state, command.job_id, command.cluster, command.copy)
    if job is not None and federated is not None and entry is not None and command.asked > entry.asked:
        # Noted in any case, so that a late request with a lower number is refused. The lock itself is freed only if it
        # is still this cluster's and no job runs on it.
        federated = with_entry(federated, replace(entry, asked=command.asked))
        _put(
            context,
            job,
            replace(federated, lock="") if federated.lock == command.cluster and not federated.runs_on else federated,
        )
    return SiblingAnswer()


def take_report(context: DecisionContext, command: ReportSibling) -> SiblingAnswer:
    """Record a copy's report to its origin: queued again, started or ended."""
    job, federated, entry = _entry(context.state, command.job_id, command.cluster, command.copy)
    if job is None or federated is None or entry is None or job.state is not JobState.PENDING:
        return SiblingAnswer()
    phase = command.phase.partition(":")[0]
    if phase == "pending":
        if command.restart_count > job.restart_count:
            _queued_again(context, job, replace(federated, lock="", runs_on=""), command)
        return SiblingAnswer()
    if command.restart_count < job.restart_count:
        return SiblingAnswer()  # it was sent before what is known already
    if federated.lock != command.cluster and phase == "started":
        return SiblingAnswer()
    if federated.lock != command.cluster:
        # It was ended before it ran: this cluster gets no other copy.
        refused = replace(entry, state=SiblingState.REFUSED, reason=command.reason or command.state.value)
        _put(context, job, with_entry(federated, refused))
    elif phase == "started":
        started = replace(job, flags=int(job.flags | JobFlag.REVOKED))
        _put(context, started, replace(federated, runs_on=command.cluster))
    else:
        _put(context, job, replace(federated, runs_on=command.cluster, ended_as=command.state))
        end_job(context, context.state.jobs[job.id], JobState.REVOKED, exit_status=command.exit_status)
    return SiblingAnswer()


def _queued_again(context: DecisionContext, job: Job, federated: Federated, command: ReportSibling) -> None:
    reason, eligible_at = eligibility(job.spec, job.hold, job.dependencies, context.now)
    again = replace(
        job,
        federation=federated,
        flags=int(job.flags & ~JobFlag.REVOKED),
        restart_count=command.restart_count,
        reason=reason,
        eligible_at=eligible_at,
    )
    context.record(JobUpdated(at=context.now, job=again))
    if command.held and job.hold is Hold.NONE:
        context.record(JobHeld(at=context.now, job_id=job.id, hold=Hold.USER, reason=HELD_REASONS[Hold.USER]))


def _entry(state: State, job_id: int, cluster: str, copy: int) -> tuple[Job | None, Federated | None, Sibling | None]:
    """The job, its tie and this very copy; None for what is not known."""
    job = state.jobs.get(job_id)
    federated = job.federation if job is not None else None
    if federated is None or not federated.is_origin:
        return None, None, None
    entry = entry_of(federated, cluster)
    return job, federated, entry if entry is not None and entry.copy == copy else None


def _put(context: DecisionContext, job: Job, federated: Federated) -> None:
    after = replace(job, federation=federated)
    if after != context.state.jobs[job.id]:
        context.record(JobUpdated(at=context.now, job=after))


# -- where the copies are


def queue_sibling(context: DecisionContext, command: QueueSibling) -> SiblingAnswer:
    """A copy of a job of another cluster, under the job's number."""
    old = context.state.jobs.get(command.job_id)
    federated = old.federation if old is not None else None
    if federated is not None and federated.copy >= command.copy:
        return SiblingAnswer()  # it came before
    if old is not None and (not old.state.ended or old.flags & COMPLETING or peers(old)):
        raise Refused("ESLURM_DUPLICATE_JOB_ID", hint="an earlier copy of the job is still here")
    if not may_have_siblings(command.submission.spec):
        return SiblingAnswer(refusal="arrays, external jobs and jobs of crontabs stay on their cluster")
    try:
        job = new_job(context, command.submission, number=command.job_id)
    except Refused as refused:
        return SiblingAnswer(refusal=refused.rejection.text)
    if old is not None:
        context.record(JobsPurged(at=context.now, job_ids=(old.id,)))
    federated = Federated(origin=command.origin, copy=command.copy, reported=f"pending:{command.restart_count}")
    job = replace(job, federation=federated, restart_count=command.restart_count)
    context.record(JobQueued(at=context.now, job=job))
    return SiblingAnswer()


def want_lock(context: DecisionContext, job: Job) -> None:
    """The copy could start now, with the lock."""
    federated = job.federation
    if federated is not None and not federated.is_origin and not federated.lock:
        _put(context, job, replace(federated, lock=WANTED, asked=federated.asked + 1))


def lock_answered(context: DecisionContext, command: LockAnswered) -> Done:
    """The origin has granted the lock, keeps it (it is asked again), or knows no such copy."""
    job = context.state.jobs.get(command.job_id)
    federated = job.federation if job is not None else None
    if job is None or federated is None or federated.lock != WANTED or federated.asked != command.asked:
        return Done()
    if command.unknown:
        end_job(context, job, JobState.REVOKED)
    elif command.granted:
        _put(context, job, replace(federated, lock=HELD))
    return Done()


def lock_unused(context: DecisionContext, command: LockUnused) -> Done:
    """Return the lock, since the job's resources have gone to another job meanwhile: its siblings may start first."""
    job = context.state.jobs.get(command.job_id)
    federated = job.federation if job is not None else None
    if job is not None and federated is not None and federated.lock == HELD and job.state is JobState.PENDING:
        _put(context, job, replace(federated, lock=RETURNED))
    return Done()


def lock_returned(context: DecisionContext, command: LockReturned) -> Done:
    """The origin has its lock back: this copy may ask for it again."""
    job = context.state.jobs.get(command.job_id)
    federated = job.federation if job is not None else None
    if job is not None and federated is not None and federated.lock == RETURNED and federated.asked == command.asked:
        _put(context, job, replace(federated, lock=""))
    return Done()


def report_taken(context: DecisionContext, command: ReportTaken) -> Done:
    """The origin knows this phase of the copy."""
    job = context.state.jobs.get(command.job_id)
    federated = job.federation if job is not None else None
    if job is not None and federated is not None and not federated.is_origin and federated.copy == command.copy:
        _put(context, job, replace(federated, reported=command.phase))
    return Done()


def revoke_sibling(context: DecisionContext, command: RevokeSibling) -> SiblingAnswer:
    """The origin takes the copy back: it is ended, whatever it does."""
    job = context.state.jobs.get(command.job_id)
    federated = job.federation if job is not None else None
    if job is None or federated is None or federated.is_origin or federated.copy != command.copy:
        return SiblingAnswer()
    if not job.state.ended:
        state = JobState.CANCELLED if job.state.active else JobState.REVOKED
        end_job(context, job, state, by_uid=command.by_uid if job.state.active else -1)
    ended = context.state.jobs[job.id]
    # The origin knows: nothing is left to report.
    ended = replace(ended, flags=int(ended.flags & ~_OF_REQUEUES))
    _put(context, ended, replace(federated, reported=phase_of(ended), lock=""))
    return SiblingAnswer()
