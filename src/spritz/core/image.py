"""The durable form of a State: its records as bytes, and the same state built from them.

Indexes are not written: they are built again. The bytes are a stored `Image` (`model.stored`).
"""

from __future__ import annotations

from msgspec import Struct, structs
from msgspec.msgpack import Decoder

from spritz.core.flags import COMPLETING
from spritz.core.policy import refresh_minutes
from spritz.core.state import State
from spritz.model import stored
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.job.cron import Crontab
from spritz.model.job.record import Job, JobSpec
from spritz.model.job.step import Step
from spritz.model.limits.records import Policy, UsageRow
from spritz.model.node.partition import Partition
from spritz.model.node.record import Node
from spritz.model.node.reservation import Reservation
from spritz.model.rules.predict import HistoryRow
from spritz.model.triggers import Trigger


class Image(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The records of a State, without its indexes, which `decoded` derives again."""

    version: int = 0
    next_job_id: int = 0
    next_slice_at: float = 0.0
    next_power_at: float = 0.0
    settings: ClusterSettings = ClusterSettings()
    jobs: list[Job] = []
    steps: list[Step] = []
    ended_steps: list[Step] = []
    nodes: list[Node] = []
    partitions: list[Partition] = []
    reservations: list[Reservation] = []
    next_reservation_id: int = 1
    policy: Policy = Policy()
    #: when the last event happened
    at: float = 0.0
    usage: list[UsageRow] = []
    usage_reset_at: float = 0.0
    run_times: list[HistoryRow] = []
    crontabs: list[Crontab] = []
    triggers: list[Trigger] = []
    next_trigger_id: int = 1


_decoder = Decoder(Image)


def encoded(state: State) -> bytes:
    """All records of the state as bytes, the payload of an image."""
    return stored.encode(
        Image(
            version=state.version,
            next_job_id=state.next_job_id,
            next_slice_at=state.next_slice_at,
            next_power_at=state.next_power_at,
            settings=state.settings,
            jobs=list(state.jobs.values()),
            steps=[step for steps in state.steps.values() for step in steps.values()],
            ended_steps=list(state.ended_steps.values()),
            nodes=list(state.nodes.values()),
            partitions=list(state.partitions.values()),
            reservations=list(state.reservations.values()),
            next_reservation_id=state.next_reservation_id,
            policy=state.rules.policy,
            at=state.at,
            usage=state.usage.rows(),
            usage_reset_at=state.usage_reset_at,
            run_times=state.run_times.rows(),
            crontabs=list(state.crontabs.values()),
            triggers=list(state.triggers.values()),
            next_trigger_id=state.next_trigger_id,
        )
    )


def decoded(data: bytes) -> State:
    """The state built from an image. Raises UnsupportedFormat, or msgspec.DecodeError for damaged data."""
    image = stored.decode(data, _decoder)
    state = State(image.settings)
    state.version = image.version
    state.next_job_id = image.next_job_id
    state.next_slice_at = image.next_slice_at
    state.next_power_at = image.next_power_at
    # The order is that of dependence: indexes, charges and deadlines of jobs follow from nodes, partitions and policy,
    # so jobs come last.
    for node in image.nodes:
        state.put_node(node)
    state.put_partitions({partition.name: partition for partition in image.partitions})
    state.put_policy(image.policy)
    state.usage.load(image.usage)
    state.usage_reset_at = image.usage_reset_at
    state.run_times.load(image.run_times)
    for reservation in image.reservations:
        state.put_reservation(reservation)
    state.next_reservation_id = image.next_reservation_id
    state.triggers = {trigger.id: trigger for trigger in image.triggers}
    state.next_trigger_id = image.next_trigger_id
    state.crontabs = {crontab.uid: crontab for crontab in image.crontabs}
    state.ended_steps = {step.spec.io_key: step for step in image.ended_steps}
    specs: dict[int, JobSpec] = {}
    for job in image.jobs:
        # Old images lack usage: count it from the running jobs' starts then. Otherwise only count the jobs.
        state.at = 0.0 if image.usage else job.started_at
        _restore_job(state, job, specs)
        state.undo.forget()
    for step in image.steps:  # after the jobs: the time limit of a suspended job's step stands still
        state.put_step(step)
    for job in image.jobs:
        if job.array_job_id or job.het_job_id:
            # When a task or component may be purged depends on its whole array or job, which is complete only now.
            state.refresh_deadline(state.jobs[job.id])
    state.refresh_node_deadlines()
    state.at = image.at
    refresh_minutes(state)
    state.undo.forget()
    state.replaced.clear()
    return state


def _restore_job(state: State, job: Job, specs: dict[int, JobSpec]) -> None:
    if job.array_job_id:
        # Tasks of an array share their spec again, as before: ten thousand copies would cost much memory.
        spec = specs.setdefault(job.array_job_id, job.spec)
        if spec is not job.spec and spec == job.spec:
            job = structs.replace(job, spec=spec)
    state.put_job(job)
    if state.held_shares(job):
        state.hold_idle_nodes(job)
    for share in state.held_shares(job):
        use = state.uses.get(share.node)
        if use is None:
            continue
        use.take(job.id, share)
        if job.flags & COMPLETING:
            use.completing[job.id] = None
        if job.suspended_at:
            use.suspend(job.id)
