"""The account that a job is charged to, its QOS, and whether limits permit its submission and its start.

Source: slurm.conf(5) AccountingStorageEnforce; sacctmgr(1); https://slurm.schedmd.com/resource_limits.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.access import need_operator
from spritz.core.decision import DecisionContext, Refused
from spritz.model.commands.job import Done
from spritz.model.events.cluster import PolicyAmended, PolicyChanged, UsageAdopted, UsageReset
from spritz.model.events.job import JobUpdated
from spritz.model.limits import check
from spritz.model.limits.minutes import out_of_minutes, spent
from spritz.model.limits.reasons import Excess, first_of
from spritz.model.limits.times import longest_minutes
from spritz.model.rules.job_tres import allocated_pairs, requested_pairs
from spritz.model.rules.time_limit import limit_minutes

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.job.record import Job, JobSpec
    from spritz.model.limits.ledger import Ledger
    from spritz.model.limits.records import AdoptUsage, ChangePolicy, ResetUsage, SetPolicy
    from spritz.model.plan import PlannedStart

#: the QOS of users and accounts without another
NORMAL = "normal"


def set_policy(context: DecisionContext, command: SetPolicy) -> Done:
    """Take over the policy of slurmdbd. Records nothing if nothing differs."""
    if command.policy != context.state.rules.policy:
        context.record(PolicyChanged(at=context.now, policy=command.policy))
        _follow_limits(context)
    return Done()


def change_policy(context: DecisionContext, command: ChangePolicy) -> Done:
    """Take over an edit of the policy. Refused if it applies to another policy than the present one."""
    version = context.state.rules.version
    if version != command.change.base:
        raise Refused(
            "SLURM_ERROR",
            hint=f"the edit is of version {command.change.base} of the policy, the controller has version {version}",
        )
    context.record(PolicyAmended(at=context.now, change=command.change))
    _follow_limits(context)
    return Done()


def _follow_limits(context: DecisionContext) -> None:
    """Give waiting jobs whose time limit came from limits the time that the limits permit now."""
    state = context.state
    if "limits" not in state.settings.enforce:
        return
    for job_id in list(state.pending):
        job = state.jobs[job_id]
        home = state.partitions.get(job.partition) if job.spec.time_granted else None
        if home is None:
            continue
        try:
            spec = _with_longest_time(state, job.spec, home.name)
        except Refused:
            continue  # no time is left for it, and it waits for that
        if spec.time_limit_minutes != job.spec.time_limit_minutes:
            job = replace(job, spec=spec, time_limit_minutes=limit_minutes(spec, home))
            context.record(JobUpdated(at=context.now, job=job))


def reset_usage(context: DecisionContext, command: ResetUsage) -> Done:
    """PriorityUsageResetPeriod has passed, or `sacctmgr modify … set RawUsage=0`."""
    need_operator(context, "ESLURM_ACCESS_DENIED")
    kinds = {"a": int, "q": str}
    for key in command.keys or ():
        if len(key) != 2 or not isinstance(key[1], kinds.get(str(key[0]), ())):
            raise Refused("ESLURM_NOT_SUPPORTED", hint="usage is kept by association id and by QOS name")
    context.record(UsageReset(at=context.now, keys=command.keys))
    return Done()


def adopt_usage(context: DecisionContext, command: AdoptUsage) -> Done:
    """Take over the usage that accounting computed from its records."""
    context.record(UsageAdopted(at=context.now, since=command.since, rows=command.rows))
    return Done()


def with_account(state: State, spec: JobSpec) -> JobSpec:
    """The spec with the user's default account and QOS if it names none. Refuses violations of what is enforced."""
    rules, enforce = state.rules, state.settings.enforce
    if state.settings.track_wckey and not spec.wckey and not spec.no_wckey:
        spec = replace(spec, wckey=f"*{rules.default_wckeys.get(spec.user, '')}")
    # Names of accounts and QOS are lower case, however they are written; names of QOS only if accounting has any.
    if spec.account != spec.account.lower():
        spec = replace(spec, account=spec.account.lower())
    if not rules.known and not enforce:
        return spec
    spec = replace(spec, qos=spec.qos.lower())
    spec = _with_known_account(state, spec)
    names = _partition_names(state, spec)
    associations = [rules.association(spec.account, spec.user, name) for name in names]
    association = next((item for item in associations if item is not None), None)
    if "associations" in enforce and (association is None or None in associations):
        raise Refused("ESLURM_INVALID_ACCOUNT")
    if not spec.qos:
        alone = next(iter(association.qos)) if association is not None and len(association.qos) == 1 else NORMAL
        only = (association.default_qos if association is not None else "") or alone
        if only in rules.qos:
            spec = replace(spec, qos=only)
    allowed = association is not None and (spec.qos in association.qos or "qos" in spec.exempt)
    if "qos" in enforce and (spec.qos not in rules.qos or not allowed):
        raise Refused("ESLURM_INVALID_QOS")
    # The user's default, marked by its asterisk, is accepted as it is, even if it is empty.
    named = not spec.wckey.startswith("*")
    if "wckeys" in enforce and named and (spec.user, spec.wckey) not in rules.wckeys:
        raise Refused("ESLURM_INVALID_WCKEY")
    if (spec.time_limit_minutes is None or spec.time_granted) and "limits" in enforce and names:
        spec = _with_longest_time(state, spec, names[0])
    return spec


def _with_known_account(state: State, spec: JobSpec) -> JobSpec:
    """The user's default account if the spec names none; or, if associations are not enforced, instead of an account
    that the user does not have.

    Slurm does the latter too, so that its records contain only known names.
    """
    default = state.rules.default_account(spec.user)
    if not default or spec.account == default:
        return spec
    if spec.account:
        usable = (state.rules.association(spec.account, spec.user, name) for name in _partition_names(state, spec))
        if "associations" in state.settings.enforce or any(association is not None for association in usable):
            return spec
    return replace(spec, account=default)


def _partition_names(state: State, spec: JobSpec) -> tuple[str, ...]:
    return spec.partitions or tuple(partition.name for partition in state.partitions.values() if partition.default)


def association_number(state: State, spec: JobSpec, partition: str) -> int:
    """Id of the job's association (0: none)."""
    association = state.rules.association(spec.account, spec.user, partition)
    return association.record.id if association is not None else 0


def _with_longest_time(state: State, spec: JobSpec, partition: str) -> JobSpec:
    """A job without a time limit gets the longest that limits permit, unless its partition has a DefaultTime."""
    home = state.partitions.get(partition)
    if home is None or home.default_time_minutes is not None:
        return spec
    job_limits = state.rules.job_limits(spec.account, spec.user, partition, spec.qos)
    longest = longest_minutes(job_limits, dict(state.rules.priced(partition, requested_pairs(spec))))
    if isinstance(longest, Excess):
        raise Refused("ESLURM_ACCOUNTING_POLICY").with_details(longest.reason.value)
    if longest is None:
        return replace(spec, time_limit_minutes=None) if spec.time_granted else spec
    return replace(spec, time_limit_minutes=min(longest, home.max_time_minutes), time_granted=True)


def check_account_limits(state: State, spec: JobSpec, partition: str, count: int, minutes: int, now: float) -> None:
    """Limits on submission to one of its partitions, and those that a QOS with DenyOnLimit makes final."""
    if "limits" not in state.settings.enforce:
        return
    job_limits = state.rules.job_limits(spec.account, spec.user, partition, spec.qos)
    pairs = state.rules.priced(partition, requested_pairs(spec))
    excess = first_of(
        (
            check.over_submit(job_limits, state.ledger, count),
            check.never(job_limits, pairs, minutes, nodes=spec.nodes_min),
            spent(job_limits, state.usage, dict(pairs), minutes, now),
        ),
        submitted=True,
    )
    if excess is not None:
        raise Refused("ESLURM_ACCOUNTING_POLICY").with_details(excess.reason.value)


def check_move(state: State, job: Job, spec: JobSpec, ledger: Ledger, tasks: int) -> None:
    """A pending job moves to another association: check limits on submission there, and those of a QOS with
    DenyOnLimit.

    `ledger`: a fork of the state's, in which the jobs that move with this one have moved; this one is moved in it too.
    `tasks`: how many of an array's tasks move; 0: all. As in Slurm, time limits are not checked: the job will wait for
    those.
    """
    charge = state.charges.get(job.id)
    keys = state.rules.keys(spec.account, spec.user, spec.partitions, spec.qos)
    if "limits" not in state.settings.enforce or charge is None or keys == charge.keys:
        return
    count = tasks or charge.submitted
    ledger.add(charge.keys, submitted=count, sign=-1)
    for partition in spec.partitions:
        job_limits = state.rules.job_limits(spec.account, spec.user, partition, spec.qos)
        pairs = state.rules.priced(partition, requested_pairs(spec))
        if check.over_submit(job_limits, ledger, count) or check.never(job_limits, pairs, 0, nodes=spec.nodes_min):
            raise Refused("ESLURM_ACCOUNTING_POLICY")
    ledger.add(keys, submitted=count)


def limit_refusal(state: State, job: Job, start: PlannedStart, minutes: int, ledger: Ledger, now: float) -> str:
    """The limit that this start would exceed in addition to what `ledger` counts; "" for none. `minutes`: its time
    limit.
    """
    if "limits" not in state.settings.enforce:
        return ""
    spec, allocation = job.spec, start.allocation
    job_limits = state.rules.job_limits(spec.account, spec.user, allocation.partition, spec.qos, spec.exempt)
    if not job_limits.bounded:
        return ""
    pairs = state.rules.priced(allocation.partition, allocated_pairs(allocation))
    safe = "safe" in state.settings.enforce
    excess = first_of(
        (
            check.exceeded(job_limits, ledger, pairs, minutes, nodes=len(allocation.nodes), on=allocation.names),
            out_of_minutes(job_limits, state.minutes, dict(pairs), minutes, now, safe=safe),
        )
    )
    return "" if excess is None else f"limit {excess.reason.value}"
