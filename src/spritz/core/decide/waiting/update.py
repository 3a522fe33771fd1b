"""scontrol update of jobs: a changed spec must satisfy everything that a new one must.

`changes` maps JobSpec fields to plain values (None: back to the default); also `array_limit`, `hold`, `end_at`. All
records that the target names are checked before the first one changes.

Source: scontrol(1) JOBS - SPECIFICATIONS FOR UPDATE COMMAND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from spritz.core.decide.access import is_operator, may_raise, need_admin, need_control, need_operator
from spritz.core.decide.accounts import association_number, check_move, with_account
from spritz.core.decide.arrays import missing_tasks, select
from spritz.core.decide.dependency import Waiter, cancel_if_hopeless, fresh_dependencies, single_out, still_open
from spritz.core.decide.submission.memory import with_counted_memory
from spritz.core.decide.submission.spec import (
    check_extra,
    check_lengths,
    check_submission,
    with_alternates,
    with_unique_nodes,
)
from spritz.core.decide.submission.submit import check_clusters
from spritz.core.decide.waiting.hold import release_job
from spritz.core.decision import DecisionContext, Refused
from spritz.core.job.eligibility import HELD_REASONS, accrues_age, eligibility
from spritz.core.priority import initial_priority
from spritz.core.rights import coordinates
from spritz.model.commands.job import Done
from spritz.model.errors import ESLURM
from spritz.model.events.job import JobHeld, JobUpdated
from spritz.model.ids import INFINITE
from spritz.model.job.duties import reserved_for, updatable
from spritz.model.job.record import Hold, JobSpec, SiblingState
from spritz.model.reasons import Reason
from spritz.model.rules.job_tres import requested_pairs
from spritz.model.rules.time_limit import limit_minutes
from spritz.model.states import JobState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from spritz.core.state import State
    from spritz.model.commands.job import UpdateJob
    from spritz.model.job.record import Dependency, Job
    from spritz.model.limits.ledger import Ledger

#: may change at any time, even after the job has ended
NOTES = updatable("always")
#: may change while the job runs
RUNNING = updatable("running") | {"array_limit", "end_at"}
#: may change while the job runs, and take effect if it is queued again
ACTIVE = updatable("active") | RUNNING
#: may change while the job is pending
PENDING = updatable("pending") | RUNNING | {"reset_accrue"}
#: only administrators and operators may change these
ADMIN_ONLY = reserved_for("admin")
OPERATOR_ONLY = reserved_for("operator")
#: fields by which an operator lifts limits of a job -> which limits (`JobSpec.exempt`)
FREED = {
    "time_limit_minutes": "time",
    "qos": "qos",
    **dict.fromkeys(("cpus_per_task", "tasks"), "cpu"),
    **dict.fromkeys(("memory_mib_per_cpu", "memory_mib_per_gpu", "memory_mib_per_node"), "mem"),
    **dict.fromkeys(("gpus", "gpus_per_node", "gpus_per_socket", "gpus_per_task", "gres_per_node"), "gres"),
}
#: not fields of JobSpec, or not simply so
_SPECIAL = frozenset({"array_limit", "end_at", "hold", "reset_accrue"})


def update_job(context: DecisionContext, command: UpdateJob) -> Done:
    """Change one job, an array, or some of its tasks."""
    chosen = select(context.state, command.target)
    if command.target.component == 0:
        # only this component; for cancel and hold the first component means the whole job
        chosen = chosen[:1]
    changes = command.changes
    _check_names(context, changes)
    for selected in chosen:
        need_control(context, selected.job, "ESLURM_USER_ID_MISSING")
    if any(selected.job.spec.cron is not None for selected in chosen):
        raise Refused("ESLURM_CANNOT_MODIFY_CRON_JOB", hint="use `scrontab -e` to change jobs of a crontab")
    if "array_limit" in changes:
        _check_array_limit(chosen[0].job, command)
    live = [selected for selected in chosen if not selected.job.state.ended] or chosen
    # Refuse before anything changes. Records that move together are counted together: a limit that permits each of them
    # may not permit all.
    moves = context.state.ledger.fork()
    for selected in live:
        draft(context, selected.job, changes, command.priority_now, Move(moves, selected.tasks.bit_count()))
    for selected in live:
        numbers = single_out(context, selected.job.id, selected.tasks) if selected.tasks else [selected.job.id]
        for number in numbers:
            job = context.state.jobs[number]
            # otherwise it has ended with another one: kill_invalid_depend
            if selected.job.state.ended or not job.state.ended:
                _change(context, job, changes, command.priority_now)
    if "priority" in changes and not is_operator(context) and changes["priority"]:
        # Slurm tells users this although it is done, and computes the priority again later.
        return Done(messages=(ESLURM["ESLURM_PRIO_RESET_FAIL"][1],))
    return Done(missing=missing_tasks(context.state, command.target))


def _check_names(context: DecisionContext, changes: dict[str, object]) -> None:
    unknown = [name for name in changes if name not in PENDING]
    if unknown:
        raise Refused("ESLURM_NOT_SUPPORTED", hint=f"the job field {unknown[0]} cannot be updated")
    if ADMIN_ONLY & changes.keys():
        need_admin(context, "ESLURM_ACCESS_DENIED")
    if OPERATOR_ONLY & changes.keys():
        need_operator(context, "ESLURM_ACCESS_DENIED")


def _check_array_limit(job: Job, command: UpdateJob) -> None:
    if not job.array_job_id or command.target.tasks or not isinstance(command.changes["array_limit"], int):
        raise Refused("ESLURM_NOT_SUPPORTED", hint="ArrayTaskThrottle applies to a whole job array")


class Move:
    """How a change counts towards limits on submission: `tasks` of an array (0: all) in addition to the jobs that have
    moved in `ledger`.
    """

    __slots__ = ("ledger", "tasks")

    def __init__(self, ledger: Ledger, tasks: int) -> None:
        self.ledger = ledger
        self.tasks = tasks


def draft(
    context: DecisionContext,
    job: Job,
    changes: dict[str, object],
    priority_now: int | None = None,
    move: Move | None = None,
) -> Job:
    """The record as it would be afterwards, apart from holds. Refuses what is not allowed; changes nothing.

    `move`: check limits on submission; None: they have been checked.
    """
    names = changes.keys()
    if job.state.ended and names - NOTES:
        raise Refused("ESLURM_JOB_FINISHED")
    if job.state.active and names - ACTIVE:
        raise Refused("ESLURM_JOB_NOT_PENDING")
    if job.state is JobState.PENDING and "end_at" in names:
        raise Refused("ESLURM_JOB_NOT_RUNNING")
    spec = _freed(context, _changed_spec(job.spec, changes), names)
    if "nodes_min" in names and "tasks" not in names and not spec.tasks_given:
        spec = replace(spec, tasks=spec.nodes_min * (spec.tasks_per_node or 1))  # as at its submission
    if changes.get("priority") and "nice" not in names:
        # a priority that is set has no nice value
        spec = replace(spec, nice=0)
    if job.priorities_reached and spec != job.spec:
        job = replace(job, priorities_reached=())
    if "extra" in names and job.state is JobState.PENDING:
        check_extra(context.state.settings, spec.extra)
    check_lengths(spec)
    _check_hold(job, changes)
    _check_rights(context, job, spec, job.priority if priority_now is None else priority_now)
    if job.state is not JobState.PENDING:
        job = _limits_of_running(replace(job, spec=spec), changes, job.spec.nice)
    elif names - RUNNING or "time_limit_minutes" in names:
        job = _pending_again(context, job, spec, changes, move)
    else:
        job = replace(job, spec=spec)
    return _with_array_limit(job, changes)


def _changed_spec(spec: JobSpec, changes: dict[str, object]) -> JobSpec:
    plain = msgspec.to_builtins(spec)
    for name, value in changes.items():
        if name in _SPECIAL:
            continue
        if value is None:
            plain.pop(name, None)
        else:
            plain[name] = value
    try:
        return msgspec.convert(plain, JobSpec)
    except msgspec.ValidationError as error:
        raise Refused("ESLURM_NOT_SUPPORTED", hint=str(error)) from error


def _freed(context: DecisionContext, spec: JobSpec, names: Collection[str]) -> JobSpec:
    """Limits do not apply to what an operator sets, until the owner sets it again. Source: scontrol(1) QOS."""
    if spec.time_granted and "time_limit_minutes" in names:
        spec = replace(spec, time_granted=False)
    kinds = {FREED[name] for name in names if name in FREED}
    exempt = {*spec.exempt} | kinds if is_operator(context) else {*spec.exempt} - kinds
    return spec if exempt == {*spec.exempt} else replace(spec, exempt=tuple(sorted(exempt)))


def _check_hold(job: Job, changes: dict[str, object]) -> None:
    """A held job has no priority to change: `release` gives it one. Source: 22.05's `scontrol update`."""
    held = job.state is JobState.PENDING and job.hold is not Hold.NONE
    if held and changes.get("priority") and changes.get("hold") is not False:
        raise Refused("ESLURM_JOB_HELD")


def _check_rights(context: DecisionContext, job: Job, spec: JobSpec, priority: int) -> None:
    """Refuse what owners may not do: raise time limits and priorities."""
    if is_operator(context):
        return
    if spec.account != job.spec.account and context.caller.uid != job.spec.uid:
        _need_both_accounts(context, spec)
    # 0 means no limit at submission, and "now" for a running job.
    requested = INFINITE if spec.time_limit_minutes is None else spec.time_limit_minutes
    longer = requested > (job.time_limit_minutes or INFINITE)
    if (
        longer
        and spec.time_limit_minutes != job.spec.time_limit_minutes
        and job.state is not JobState.PENDING
        and not may_raise(context, job)
    ):
        raise Refused("ESLURM_ACCESS_DENIED")
    if spec.priority is not None and spec.priority > priority and spec.priority != job.spec.priority:
        raise Refused("ESLURM_ACCESS_DENIED" if job.hold is Hold.NONE else "ESLURM_JOB_HELD")
    if spec.nice < min(job.spec.nice, 0) or (spec.nice < 0 and spec.nice != job.spec.nice):
        raise Refused("ESLURM_ACCESS_DENIED")


def _need_both_accounts(context: DecisionContext, spec: JobSpec) -> None:
    """A coordinator may move jobs only between accounts that they coordinate."""
    if not coordinates(context.state, context.caller, spec.account):
        raise Refused("ESLURM_USER_ID_MISSING")


def _limits_of_running(job: Job, changes: dict[str, object], nice_before: int) -> Job:
    minutes = job.spec.time_limit_minutes
    ends_at_before = job.ends_at
    priority = changes.get("priority")
    if isinstance(priority, int) and priority and job.state.active:
        job = replace(job, priority=priority)
    elif nice_before != job.spec.nice:
        job = replace(job, priority=max(1, job.priority + nice_before - job.spec.nice))
    if "time_limit_minutes" in changes and job.state.active:
        granted = INFINITE if minutes is None else minutes
        ends_at = 0.0 if granted >= INFINITE else job.started_at + granted * 60.0 + job.suspended_seconds
        job = replace(job, time_limit_minutes=granted, ends_at=ends_at)
    end_at = changes.get("end_at")
    if end_at is not None and job.state.active:
        if not isinstance(end_at, (int, float)) or end_at <= job.started_at:
            raise Refused("ESLURM_INVALID_TIME_VALUE")
        granted = -int(-(end_at - job.started_at - job.suspended_seconds) // 60)
        job = replace(job, ends_at=float(end_at), time_limit_minutes=max(granted, 1))
    # While a job is being preempted, `ends_at` is the end of its grace time: a new limit must not delay that.
    return replace(job, ends_at=ends_at_before) if job.preempt_action else job


def _pending_again(
    context: DecisionContext, job: Job, spec: JobSpec, changes: dict[str, object], move: Move | None
) -> Job:
    """Everything that follows from a pending job's new spec, as if it were submitted now."""
    if "partitions" in changes:
        spec = with_alternates(context.state, spec)
    if changes.keys() & {"clusters", "cluster_features"}:
        check_clusters(context.state, spec)
    spec = with_counted_memory(context.state, with_unique_nodes(spec))
    if changes.keys() & {"account", "qos", "wckey", "partitions"}:
        spec = with_account(context.state, spec)
    partitions, waits = check_submission(context, spec, queued="partitions" not in changes)
    spec = replace(spec, partitions=tuple(partition.name for partition in partitions))
    if move is not None and changes.keys() & {"account", "qos", "partitions"} and not is_operator(context):
        check_move(context.state, job, spec, move.ledger, move.tasks)
    dependencies = job.dependencies
    if "dependencies" in changes or "dependency_mode" in changes:
        dependencies = _new_dependencies(context, job, spec)
    priority = job.priority
    if job.hold is Hold.NONE and changes.keys() & {"nice", "priority", "partitions"} and spec.priority != 0:
        priority = initial_priority(context.state, spec, job.id)
    job = replace(
        job,
        spec=spec,
        partition=partitions[0].name,
        association=association_number(context.state, spec, partitions[0].name),
        time_limit_minutes=limit_minutes(spec, partitions[0]),
        billing=context.state.rules.billing(partitions[0].name, requested_pairs(spec)),
        dependencies=dependencies,
        priority=priority,
    )
    if "reset_accrue" in changes and accrues_age(job):
        job = replace(job, accrued_at=context.now)
    if job.hold is not Hold.NONE:
        return job
    if changes.keys() & {"account", "qos", "partitions"} and job.accrued_at == 0.0:
        job = replace(job, accrued_at=None)  # other limits may apply now
    reason, eligible_at = eligibility(spec, Hold.NONE, dependencies, context.now)
    if reason is Reason.NONE and job.eligible_at and job.eligible_at <= context.now:
        eligible_at = job.eligible_at  # it keeps its age
    elif not context.state.settings.priority_policy.accrue_always:
        job = replace(job, accrued_at=None)
    return replace(job, reason=waits if reason is Reason.NONE else reason, reason_detail="", eligible_at=eligible_at)


def _new_dependencies(context: DecisionContext, job: Job, spec: JobSpec) -> tuple[Dependency, ...]:
    fresh = fresh_dependencies(spec.dependencies)
    if _lead_to(context.state, fresh, job, context.state.settings.max_dependency_depth):
        raise Refused("ESLURM_CIRCULAR_DEPENDENCY")
    return still_open(context.state, Waiter.of(job), fresh, spec.dependency_mode, context.now)


def _lead_to(state: State, dependencies: Iterable[Dependency], goal: Job, depth: int) -> bool:
    """Whether any of these waits for `goal`, directly or through others, within `depth` steps. Visits each job once."""
    seen: set[int] = set()
    level = {item.job_id for item in dependencies if item.kind != "singleton"}
    for _step in range(depth + 1):
        if not level.isdisjoint((goal.id, goal.array_job_id)):
            return True
        seen |= level
        jobs = [state.jobs[number] for number in level if number in state.jobs]
        level = {item.job_id for job in jobs for item in job.dependencies if item.kind != "singleton"} - seen
    return False


def _with_array_limit(job: Job, changes: dict[str, object]) -> Job:
    limit = changes.get("array_limit")
    if not isinstance(limit, int):
        return job
    if job.array is not None:
        return replace(job, array=replace(job.array, limit=max(limit, 0)))
    if job.array_of is not None:
        return replace(job, array_of=replace(job.array_of, limit=max(limit, 0)))
    return job


def _change(context: DecisionContext, job: Job, changes: dict[str, object], priority_now: int | None) -> None:
    after = draft(context, job, changes, priority_now)
    after = _with_request(job, after)
    if after != job:
        context.record(JobUpdated(at=context.now, job=after))
    if after.state.active and changes.get("priority") == 0:
        _change_hold(context, after, changes)
    if after.state is not JobState.PENDING:
        return
    _change_hold(context, after, changes)
    if "dependencies" in changes:
        cancel_if_hopeless(context, context.state.jobs[job.id])


def _with_request(before: Job, after: Job) -> Job:
    """What a pending job's origin asks of other clusters is the same: copies of the old request are taken back, and
    others made."""
    federated = after.federation
    if (
        federated is None
        or federated.request is None
        or after.spec == before.spec
        or after.state is not JobState.PENDING
    ):
        return after
    changed = {
        name: getattr(after.spec, name)
        for name in JobSpec.__struct_fields__
        if getattr(after.spec, name) != getattr(before.spec, name)
    }
    request = replace(federated.request, **changed)
    siblings = tuple(
        sibling
        if sibling.state is SiblingState.LEAVING or sibling.cluster in (federated.runs_on, federated.lock)
        else replace(sibling, state=SiblingState.LEAVING)
        for sibling in federated.siblings
    )
    return replace(after, federation=replace(federated, request=request, siblings=siblings))


def _change_hold(context: DecisionContext, job: Job, changes: dict[str, object]) -> None:
    """Priority 0 holds, as `hold` does; `hold` false releases, with the given priority."""
    priority = changes.get("priority")
    held = changes.get("hold")
    if priority == 0 or held is True:
        kind = Hold.ADMIN if is_operator(context) else Hold.USER
        context.record(JobHeld(at=context.now, job_id=job.id, hold=kind, reason=HELD_REASONS[kind]))
    elif job.hold is not Hold.NONE and held is False:
        if job.hold is Hold.ADMIN and not is_operator(context):
            return
        release_job(context, job, priority if isinstance(priority, int) else None)
