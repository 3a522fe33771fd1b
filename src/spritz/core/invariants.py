"""Invariants of every state. Checked after every test of the core, and after every command in property tests.

`breaches` looks at one state; `transition_breach` at one event. Both describe what is wrong, with the records
concerned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.dependency import Waiter, judge
from spritz.core.decide.waiting.accrue import limits_accrual
from spritz.core.flags import COMPLETING, CONFIGURING, POWER_UP_NODE
from spritz.core.image import decoded, encoded
from spritz.core.job import het
from spritz.core.job.timers import NEVER, job_deadline
from spritz.core.power import needs_power_up, node_deadline
from spritz.core.state import State
from spritz.model.cluster.power import AWAY
from spritz.model.ids import STEP_MAX
from spritz.model.job.record import Hold
from spritz.model.limits.check import accrual_room
from spritz.model.resources import mask_of
from spritz.model.rules.node_shape import is_shared, usable_memory_mib
from spritz.model.rules.sharing import jobs_per_cpu
from spritz.model.states import JOB_TRANSITIONS, JobState, NodeFlag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.job.record import Job
    from spritz.model.job.step import Step


POWERED_DOWN: int = NodeFlag.POWERED_DOWN.value
POWER_UP: int = NodeFlag.POWER_UP.value


def breaches(state: State) -> list[str]:
    """Everything that is wrong; empty if all is well. The cost is linear in the state, so it is for tests."""
    problems: list[str] = []
    for job in state.jobs.values():
        problems += _job_breaches(state, job)
    for name in state.uses:
        problems += _node_breaches(state, name)
    problems += _array_breaches(state)
    problems += _het_breaches(state)
    for steps in state.steps.values():
        problems += _step_breaches(state, list(steps.values()))
    problems += _index_breaches(state)
    problems += _accrual_breaches(state)
    stock = dict(state.settings.licenses)
    for name, count in state.licenses_taken.items():
        # Accounting may take licenses away that jobs hold.
        if "@" not in name and count > stock.get(name, 0):
            problems.append(f"{count} licenses {name} are taken of {stock.get(name, 0)}")
    return problems


def transition_breach(before: Job | None, after: Job | None) -> str:
    """Empty if this change of one job's base state is allowed; else what is wrong."""
    if before is None or after is None or before.state is after.state:
        return ""
    if after.state in JOB_TRANSITIONS[before.state]:
        return ""
    return f"job {after.id} went from {before.state.value} to {after.state.value}"


def _job_breaches(state: State, job: Job) -> Iterator[str]:
    subject = f"job {job.id} ({job.state.value}, flags {job.flags})"
    completing = bool(job.flags & COMPLETING)
    if completing != bool(job.completing):
        yield f"{subject}: COMPLETING and its nodes disagree: {job.completing}"
    if job.state.active:
        if job.allocation is None or not job.allocation.nodes or not job.started_at:
            yield f"{subject}: runs without nodes or start time"
        if completing:
            yield f"{subject}: runs and completes"
        if job.dependencies:
            yield f"{subject}: runs with open dependencies"
    if job.flags & POWER_UP_NODE and (
        not job.flags & CONFIGURING or job.allocation is None or not needs_power_up(state, job.allocation)
    ):
        yield f"{subject}: waits for nodes that are all up"
    if job.flags & CONFIGURING and job.state is not JobState.RUNNING:
        yield f"{subject}: CONFIGURING without running"
    if job.prolog_nodes is not None:
        if not job.state.active or job.allocation is None or not set(job.prolog_nodes) <= set(job.allocation.names):
            yield f"{subject}: prologs run on {job.prolog_nodes}"
        if job.flags & CONFIGURING and not job.prolog_nodes:
            yield f"{subject}: CONFIGURING, and no prolog runs"
    if job.state.ended and not job.ended_at:
        yield f"{subject}: ended without a time"
    if job.state is JobState.PENDING:
        if (job.hold is not Hold.NONE) != (job.priority == 0):
            yield f"{subject}: hold {job.hold.value!r} with priority {job.priority}"
        if job.allocation is not None and not completing:
            yield f"{subject}: pending with an allocation"
        if job.started_at or job.ended_at:
            yield f"{subject}: pending with start or end"
        # Conditions on a name are judged in turn, for the oldest job alone; those on time when that comes.
        for item in job.dependencies:
            if item.kind != "singleton" and judge(state, Waiter.of(job), item, now=0.0).state != item.state:
                yield f"{subject}: has not heard how {item.kind}:{item.job_id} stands"
    if job.array is not None and job.array_task_id is not None:
        yield f"{subject}: array and array task at once"
    # The record and `uses` say the same in two ways: which nodes a job holds, and which jobs a node has.
    held = {share.node for share in state.held_shares(job)}
    indexed = {name for name, use in state.uses.items() if job.id in use.jobs}
    if held & state.uses.keys() != indexed:
        yield f"{subject}: holds {sorted(held)} by its record, {sorted(indexed)} by the nodes"


def _node_breaches(state: State, name: str) -> Iterator[str]:
    use = state.uses[name]
    yield from _power_breaches(state, name)
    capacity = state.nodes[name].config.capacity
    seen = 0
    devices: dict[str, int] = {}
    memory = 0
    for job_id, share in use.jobs.items():
        job = state.jobs.get(job_id)
        if job is None:
            yield f"node {name} is held by job {job_id}, which is not there"
            continue
        memory += share.memory_mib
        for gres in share.gres:
            mask = mask_of(gres.indexes)
            if not is_shared(gres.name):
                if devices.get(gres.name, 0) & mask:
                    yield f"node {name}: {gres.name} {gres.indexes} is given twice"
                devices[gres.name] = devices.get(gres.name, 0) | mask
        partition = state.partitions.get(job.partition)
        # Two kinds of jobs may have a CPU in common with another: suspended ones, and those that OverSubscribe lets
        # share.
        if job_id in use.suspended or (partition and jobs_per_cpu(partition, job.spec) > 1):
            continue
        if seen & mask_of(share.cpus):
            yield f"node {name}: CPUs {share.cpus} of job {job_id} are given twice"
        seen |= mask_of(share.cpus)
    if memory != use.memory_mib:
        yield f"node {name}: memory in use is {memory}, not {use.memory_mib}"
    if memory > usable_memory_mib(capacity) and any(share.memory_mib for share in use.jobs.values()):
        yield f"node {name}: {memory} MiB given of {usable_memory_mib(capacity)}"


def _power_breaches(state: State, name: str) -> Iterator[str]:
    node, use = state.nodes[name], state.uses[name]
    subject = f"node {name} (flags {node.flags})"
    for job_id in use.jobs:
        job = state.jobs.get(job_id)
        if job is not None and node.flags & AWAY and not job.flags & POWER_UP_NODE:
            yield f"{subject} is not up, and job {job_id} does not wait for it"
        if job is not None and job.state.active and node.flags & POWERED_DOWN and not node.flags & POWER_UP:
            yield f"{subject} is powered down with job {job_id}, and not called up"
    if node.flags & NodeFlag.POWERING_DOWN and use.jobs:
        yield f"{subject} is being powered down with jobs {list(use.jobs)}"
    due = dict(state.node_deadlines.items()).get(name, NEVER)
    if due != node_deadline(state, node):
        yield f"{subject} is due at {due}, its record says {node_deadline(state, node)}"


def _array_breaches(state: State) -> Iterator[str]:
    for job in state.jobs.values():
        if job.array is None:
            continue
        pending = mask_of(job.array.pending)
        if pending & mask_of(job.array.cancelled):
            yield f"array {job.id}: tasks are pending and cancelled at once"
        if not pending:
            yield f"array {job.id} has a record and no task"
        records = state.arrays.get(job.id, {})
        twice = [task for task in records if pending >> task & 1]
        if twice:
            yield f"array {job.id}: tasks {twice} are pending and have records"
        if pending.bit_count() + len(records) > job.array.task_count:
            yield f"array {job.id}: more tasks than were submitted"


def _het_breaches(state: State) -> Iterator[str]:
    for job in state.jobs.values():
        if not job.het_job_id:
            continue
        subject = f"component {job.id} of {job.het_job_id}"
        if job.id != job.het_job_id + job.het_offset or not 0 <= job.het_offset < job.het_size:
            yield f"{subject} is number {job.het_offset} of {job.het_size}"
        whole = het.members(state, job)
        if len(whole) != job.het_size or any(member.het_job_id != job.het_job_id for member in whole):
            yield f"{subject}: of {job.het_size} there are {[member.id for member in whole]}"
        elif not job.het_offset:
            waiting = [member.id for member in whole if member.state is JobState.PENDING]
            if waiting and len(waiting) < len(whole):
                yield f"{subject}: only {waiting} wait"
            if job.state.ended and any(member.state.active for member in whole):
                yield f"{subject} has ended before the others"


def _step_breaches(state: State, steps: list[Step]) -> Iterator[str]:
    taken: dict[str, int] = {}
    for step in steps:
        subject = f"step {step.job_id}.{step.step_id}"
        job = state.jobs.get(step.job_id)
        if job is None or not (job.state.active or job.flags & COMPLETING):
            yield f"{subject} lives without its job"
            continue
        if not step.running_nodes or not set(step.unstarted_nodes) <= set(step.running_nodes):
            yield f"{subject}: runs on {step.running_nodes}, not started on {step.unstarted_nodes}"
        shares = {share.node: share for share in job.allocation.nodes} if job.allocation else {}
        for node in step.nodes:
            mask = mask_of(node.allocation.cpus)
            share = shares.get(node.allocation.node)
            if share is None:
                if node.allocation.node in step.running_nodes:
                    yield f"{subject}: node {node.allocation.node} is not the job's"
            elif mask & ~mask_of(share.cpus) or node.allocation.memory_mib > share.memory_mib:
                yield f"{subject}: more than the job has on {share.node}"
            if step.step_id > STEP_MAX or step.spec.overlap or node.allocation.node not in step.running_nodes:
                continue
            if job.state.active and taken.get(node.allocation.node, 0) & mask:
                yield f"{subject}: CPUs of another step on {node.allocation.node}"
            taken[node.allocation.node] = taken.get(node.allocation.node, 0) | mask


#: indexes that follow from the records alone
_DERIVED = (
    "job_count",
    "pending",
    "running",
    "completing",
    "powered_count",
    "live_by_user",
    "live_by_name",
    "arrays",
    "arrays_live",
    "arrays_running",
    "licenses_taken",
    "dependents",
    "singletons",
    "submissions",
    "node_partitions",
    "reservations",
    "reserved",
    "reservation_jobs",
)
#: deadlines, which follow from the records too
_TIMERS = ("deadlines", "step_deadlines", "node_deadlines")
_USE_PARTS = ("cpus", "cpu_claims", "memory_mib", "uncounted", "shards", "jobs", "completing", "suspended")


def _accrual_breaches(state: State) -> Iterator[str]:
    """No job waits to accrue age priority while its limits allow it."""
    for waiting in state.accrual_waits.values():
        job = state.jobs[next(iter(waiting))]
        job_limits = state.rules.job_limits(job.spec.account, job.spec.user, job.partition, job.spec.qos)
        if not limits_accrual(state) or accrual_room(job_limits, state.ledger) > 0:
            yield f"jobs {list(waiting)} do not grow older, and no limit keeps them from it"


def _index_breaches(state: State) -> Iterator[str]:
    """Every index equals what follows from the records."""
    # An image holds records only, so decoding it builds every index again, by the code that a restart uses.
    fresh = decoded(encoded(state))
    for name in _DERIVED:
        recorded, derived = getattr(state, name), getattr(fresh, name)
        if recorded != derived:
            yield f"index {name} is {recorded}, the records say {derived}"
    for name in _TIMERS:
        recorded, derived = getattr(state, name).all(), getattr(fresh, name).all()
        if recorded != derived:
            yield f"timers {name} are {recorded}, the records say {derived}"
    for node, use in state.uses.items():
        other = fresh.uses[node]
        for part in _USE_PARTS:
            if getattr(use, part) != getattr(other, part):
                yield f"node {node}: {part} is {getattr(use, part)}, the records say {getattr(other, part)}"
        if {name: mask for name, mask in use.devices.items() if mask} != {
            name: mask for name, mask in other.devices.items() if mask
        }:
            yield f"node {node}: devices are {use.devices}, the records say {other.devices}"
    for key, entry in state.usage.entries.items():
        twin = fresh.usage.entries.get(key)
        recorded = (entry.amounts, entry.rates)
        if (twin is None and any(recorded)) or (twin is not None and (twin.amounts, twin.rates) != recorded):
            yield f"usage of {key} is {recorded}, the records say {twin and (twin.amounts, twin.rates)}"
    due = dict(state.deadlines.items())
    expected = {job.id: job_deadline(state, job) for job in state.jobs.values()}
    expected = {job_id: at for job_id, at in expected.items() if at != float("inf")}
    if due != expected:
        yield f"deadlines are {due}, the records say {expected}"
    if dict(state.step_deadlines.items()) != dict(fresh.step_deadlines.items()):
        yield f"step deadlines are {dict(state.step_deadlines.items())}"
