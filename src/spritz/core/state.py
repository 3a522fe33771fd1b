"""The cluster's state: dicts of frozen records, and the indexes that make the cost of a decision independent of the
number of jobs.

Owns the consistency of records and indexes: records change only through `put_job`, `put_step` and so on, and only
`apply` calls those. Decisions read. Indexes are dicts used as ordered sets, so that iteration is the same on every run.

Invariants (checked in `invariants`): each job is in exactly one of `pending`, `running`, `completing` (which may also
be pending again) or none (ended and gone); a job is in `uses[node].jobs` for exactly the nodes it holds; `steps` has
live steps only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from spritz.core.charges import Charge, add_charge, charge_of, same_charge
from spritz.core.failures import Failures
from spritz.core.flags import COMPLETING
from spritz.core.index import count_down, discard
from spritz.core.policy import put_policy, refresh_minutes, refresh_rules
from spritz.core.power import POWER_DOWN, REBOOT_REQUESTED, node_deadline
from spritz.core.timers import NEVER, Deadlines, job_deadline, step_deadline, step_key
from spritz.model.cluster import ClusterSettings
from spritz.model.cron import Crontab
from spritz.model.job import Job
from spritz.model.limits.ledger import Ledger, LedgerKey
from spritz.model.limits.minutes import MinuteLimits, Minutes
from spritz.model.limits.records import Policy
from spritz.model.limits.rules import Rules
from spritz.model.networks import networks_of, units_of
from spritz.model.node import Node
from spritz.model.partition import Partition
from spritz.model.power import AWAY, is_powered
from spritz.model.predict import Predictor
from spritz.model.reservation import Reservation
from spritz.model.resources import Allocation, NodeAllocation, mask_of
from spritz.model.rules.node_use import NodeUse
from spritz.model.states import JobState
from spritz.model.step import Step
from spritz.model.triggers import Trigger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spritz.core.decide.fit import NodeGroup
    from spritz.core.decision import Subject

#: ended steps to remember; their clients ask again within seconds, if at all
ENDED_STEPS_MAX = 1000

#: kinds of jobs whose run times are remembered
RUN_TIMES_MAX = 50_000


def _seen(node: Node) -> tuple[object, ...]:
    """What caches over nodes depend on, apart from their configuration."""
    return node.active, node.available, node.place


class State:
    """Everything that the controller knows. `version`: number of events applied."""

    __slots__ = (
        "accrual_freed",
        "accrual_waits",
        "arrays",
        "arrays_live",
        "arrays_running",
        "at",
        "charges",
        "completing",
        "crontabs",
        "deadlines",
        "dependents",
        "ended_steps",
        "enforced",
        "failures",
        "features",
        "federated",
        "job_count",
        "jobs",
        "lacking",
        "ledger",
        "licenses_taken",
        "live_by_name",
        "live_by_user",
        "minute_deadlines",
        "minute_limits_by_key",
        "minutes",
        "next_job_id",
        "next_power_at",
        "next_reservation_id",
        "next_slice_at",
        "next_trigger_id",
        "node_deadlines",
        "node_groups",
        "node_partitions",
        "nodes",
        "partitions",
        "pending",
        "powered_count",
        "reservation_jobs",
        "reservations",
        "reserved",
        "rules",
        "run_times",
        "running",
        "segments",
        "set_aside",
        "settings",
        "siblings_due",
        "singletons",
        "step_deadlines",
        "steps",
        "submissions",
        "triggers",
        "usage",
        "usage_reset_at",
        "uses",
        "version",
    )

    def __init__(self, settings: ClusterSettings) -> None:
        self.version = 0
        #: time of the last event
        self.at = 0.0
        self.settings = settings
        #: candidate for the next new job
        self.next_job_id = settings.first_job_id
        #: when jobs that share CPUs change places (time slices; 0.0: no job waits for its slice)
        self.next_slice_at = 0.0
        #: when nodes held back by ResumeRate or SuspendRate may go on (0.0: none are)
        self.next_power_at = 0.0
        self.jobs: dict[int, Job] = {}
        #: jobs, with every task of every array counted, as MaxJobCount does
        self.job_count = 0
        #: job id -> step id -> live step
        self.steps: dict[int, dict[int, Step]] = {}
        #: the last steps to end, oldest first, by the key of the client's connection; without environments
        self.ended_steps: dict[str, Step] = {}
        self.nodes: dict[str, Node] = {}
        self.uses: dict[str, NodeUse] = {}
        #: nodes that are up, powering up, or waiting to be powered up, for max_powered_nodes
        self.powered_count = 0
        self.partitions: dict[str, Partition] = {}
        #: accounting's policy, as last received from slurmdbd
        self.rules = Rules(Policy())
        #: usage of every association and QOS, with decay, and minutes that running jobs may still use
        self.minutes = Minutes()
        self.usage = self.minutes.usage
        #: AccountingStorageEnforce when limits were last looked at
        self.enforced: tuple[str, ...] = ()
        #: keys with a limit on usage, and when they will reach it
        self.minute_limits_by_key: dict[LedgerKey, MinuteLimits] = {}
        self.minute_deadlines: Deadlines[str] = Deadlines()
        #: when all usage was last set to 0 (0.0: never)
        self.usage_reset_at = 0.0
        self.reservations: dict[str, Reservation] = {}
        self.next_reservation_id = 1
        #: by uid
        self.crontabs: dict[int, Crontab] = {}
        self.triggers: dict[int, Trigger] = {}
        self.next_trigger_id = 1
        #: run times of ended jobs, by user and request (bf_predict)
        self.run_times = Predictor(RUN_TIMES_MAX)
        #: What faults of the core were about, and how many there were (`decide.set_aside`). Neither in an image nor in
        #: the journal: a restarted daemon tries again.
        self.set_aside: dict[Subject, int] = {}
        #: nodes that fail jobs at once (`decide.failing_nodes`). Neither in an image nor in the journal, either.
        self.failures = Failures()
        # -- indexes
        #: node -> names of reservations that hold it or a part of it
        self.reserved: dict[str, tuple[str, ...]] = {}
        #: cache of `decide.replenish`: reservations that lacked nodes when all nodes were last tried for them -> that
        #: time; None: unknown for all
        self.lacking: dict[str, float] | None = None
        #: reservation -> jobs that have not ended and name it or run in it
        self.reservation_jobs: dict[str, dict[int, None]] = {}
        #: resources in use by every association and QOS, and the charge of each job
        self.ledger = Ledger()
        self.charges: dict[int, Charge] = {}
        #: keys that a job counts towards -> jobs that a limit keeps from accruing age; whether room was made for one
        self.accrual_waits: dict[tuple[LedgerKey, ...], dict[int, None]] = {}
        self.accrual_freed = True
        self.pending: dict[int, None] = {}
        #: RUNNING and SUSPENDED
        self.running: dict[int, None] = {}
        #: flag COMPLETING: ended (or pending again) with processes left on some nodes
        self.completing: dict[int, None] = {}
        self.live_by_user: dict[int, dict[int, None]] = {}
        #: (uid, job name) -> jobs that have not ended, for `singleton`
        self.live_by_name: dict[tuple[int, str], dict[int, None]] = {}
        #: array job id -> task id -> id of the task's own record
        self.arrays: dict[int, dict[int, int]] = {}
        #: array job id -> number of live records (its own included)
        self.arrays_live: dict[int, int] = {}
        #: array job id -> number of tasks that hold resources, for `%limit`
        self.arrays_running: dict[int, int] = {}
        #: license -> number held by running jobs
        self.licenses_taken: dict[str, int] = {}
        #: (uid, submission key) -> the job that the submission queued
        self.submissions: dict[tuple[int, str], int] = {}
        #: jobs with siblings on other clusters, and those of them that `decide.siblings` has not looked at since
        self.federated: dict[int, None] = {}
        self.siblings_due: dict[int, None] = {}
        #: job id -> pending jobs with an open dependency on it
        self.dependents: dict[int, dict[int, None]] = {}
        #: (uid, job name) -> pending jobs that wait for a singleton
        self.singletons: dict[tuple[int, str], dict[int, None]] = {}
        self.node_partitions: dict[str, tuple[str, ...]] = {}
        #: cache of `decide.fit`: partition -> groups of equal nodes; and all features. Emptied when nodes or partitions
        #: change.
        self.node_groups: dict[str, list[NodeGroup]] = {}
        #: cache by network: node -> nodes of its leaf switch or block. Emptied likewise.
        self.segments: dict[str, dict[str, frozenset[str]]] = {}
        self.features: frozenset[str] | None = None
        self.deadlines: Deadlines[int] = Deadlines()
        #: by `step_key`
        self.step_deadlines: Deadlines[int] = Deadlines()
        #: deadlines of power saving
        self.node_deadlines: Deadlines[str] = Deadlines()

    def take_over(self, other: State) -> None:
        """Become `other`, in place: parts of the shell refer to this state and to its run times."""
        kept, run_times, failures = self.set_aside, self.run_times, self.failures
        run_times.take_over(other.run_times)
        for name in State.__slots__:
            setattr(self, name, getattr(other, name))
        self.set_aside, self.run_times, self.failures = kept, run_times, failures

    # -- jobs

    def put_job(self, job: Job) -> None:
        """Add or replace a job, and update every index."""
        job_id = job.id
        old = self.jobs.get(job_id)
        self.jobs[job_id] = job
        if old is None:
            self.job_count += _weight(job)
            self._index_state(job)
            if job.submit_key:
                self.submissions[job.spec.uid, job.submit_key] = job_id
        # Identity is enough for the spec: records are frozen, so a changed spec is another object, and an equal copy
        # costs only an unneeded update.
        elif old.state is not job.state or old.flags != job.flags or old.spec is not job.spec:
            self._unindex_state(old)
            self._index_state(job)
        if job.array_task_id is not None and (old is None or old.array_task_id is None):
            self.arrays.setdefault(job.array_job_id, {})[job.array_task_id] = job_id
        if old is not None and old.dependencies:
            self._unindex_dependencies(old)
        if job.dependencies:
            self._index_dependencies(job)
        # A charge is looked up in the tree of associations: spare that where nothing that it depends on has changed.
        if self.rules.known and (old is None or not same_charge(old, job)):
            self.charge(job_id, job)
        self.deadlines.set(job_id, job_deadline(self, job))
        if job.federation is not None:
            self.federated[job_id] = None
            # Here and not in each decision: whatever changes the job, other clusters must hear of it.
            self.siblings_due[job_id] = None

    def forget_job(self, job_id: int) -> None:
        """Remove an ended job from the records and from every index."""
        job = self.jobs.pop(job_id)
        self.federated.pop(job_id, None)
        self.charge(job_id, None)
        self.job_count -= _weight(job)
        self._unindex_state(job)
        self._unindex_dependencies(job)
        if job.submit_key:
            self.submissions.pop((job.spec.uid, job.submit_key), None)
        if job.array_task_id is not None:
            tasks = self.arrays.get(job.array_job_id)
            if tasks is not None:
                tasks.pop(job.array_task_id, None)
                if not tasks:
                    del self.arrays[job.array_job_id]
        self.deadlines.set(job_id, NEVER)

    def _index_state(self, job: Job) -> None:
        job_id, state = job.id, job.state
        live = not state.ended
        if job.flags & COMPLETING:
            self.completing[job_id] = None
        if state is JobState.PENDING:
            self.pending[job_id] = None
        elif live:
            self.running[job_id] = None
            for name, count in job.licenses:
                self.licenses_taken[name] = self.licenses_taken.get(name, 0) + count
            if job.array_job_id:
                self.arrays_running[job.array_job_id] = self.arrays_running.get(job.array_job_id, 0) + 1
        if live:
            for name in reservations_of(job):
                self.reservation_jobs.setdefault(name, {})[job_id] = None
        if live or job.flags & COMPLETING:
            spec = job.spec
            self.live_by_user.setdefault(spec.uid, {})[job_id] = None
            if live:
                self.live_by_name.setdefault((spec.uid, spec.name), {})[job_id] = None
            if job.array_job_id:
                self.arrays_live[job.array_job_id] = self.arrays_live.get(job.array_job_id, 0) + 1

    def _unindex_state(self, job: Job) -> None:
        job_id, state = job.id, job.state
        live = not state.ended
        if job.flags & COMPLETING:
            self.completing.pop(job_id, None)
        if state is JobState.PENDING:
            self.pending.pop(job_id, None)
        elif live:
            self.running.pop(job_id, None)
            for name, count in job.licenses:
                count_down(self.licenses_taken, name, count)
            if job.array_job_id:
                count_down(self.arrays_running, job.array_job_id)
        if live:
            for name in reservations_of(job):
                discard(self.reservation_jobs, name, job_id)
        if live or job.flags & COMPLETING:
            spec = job.spec
            discard(self.live_by_user, spec.uid, job_id)
            if live:
                discard(self.live_by_name, (spec.uid, spec.name), job_id)
            if job.array_job_id:
                count_down(self.arrays_live, job.array_job_id)

    def _index_dependencies(self, job: Job) -> None:
        if job.state is not JobState.PENDING:
            return
        for dependency in job.dependencies:
            if dependency.kind == "singleton":
                self.singletons.setdefault((job.spec.uid, job.spec.name), {})[job.id] = None
            else:
                self.dependents.setdefault(dependency.job_id, {})[job.id] = None

    def _unindex_dependencies(self, job: Job) -> None:
        for dependency in job.dependencies:
            if dependency.kind == "singleton":
                discard(self.singletons, (job.spec.uid, job.spec.name), job.id)
            else:
                discard(self.dependents, dependency.job_id, job.id)

    def put_policy(self, policy: Policy) -> None:
        """Replace the whole accounting policy and the rules derived from it."""
        put_policy(self, policy)

    def refresh_rules(self) -> None:
        """Settings or partitions changed: compute again what is billed, which limits apply, and how usage decays."""
        refresh_rules(self)

    def charge(self, job_id: int, job: Job | None) -> None:
        """Update the job's charge towards limits (`job` None: remove it)."""
        old = self.charges.pop(job_id, None)
        new = charge_of(self.rules, job) if job is not None and not job.state.ended else None
        if new is not None:
            self.charges[job_id] = new
        if old != new:
            add_charge(self.ledger, self.minutes, old, -1, self.at)
            add_charge(self.ledger, self.minutes, new, 1, self.at)
            # Only a flag: which job accrues next is a decision with events of its own (`decide.accrue`), and `apply`
            # makes none.
            if old is not None and old.accruing > (new.accruing if new is not None else 0):
                self.accrual_freed = True
            if old is not None and old.accrual_waits:
                discard(self.accrual_waits, old.keys, job_id)
            if new is not None and new.accrual_waits:
                self.accrual_waits.setdefault(new.keys, {})[job_id] = None
            if self.minute_limits_by_key:
                refresh_minutes(self, {key: None for charge in (old, new) if charge is not None for key in charge.keys})

    def refresh_deadlines(self) -> None:
        """Compute all deadlines again, after settings or partitions changed."""
        for job in self.jobs.values():
            self.deadlines.set(job.id, job_deadline(self, job))

    def refresh_node_deadlines(self) -> None:
        """Compute all deadlines of power saving again, after settings or partitions changed."""
        for node in self.nodes.values():
            self.node_deadlines.set(node.name, node_deadline(self, node))

    # -- steps

    def put_step(self, step: Step) -> None:
        """Add or replace a live step."""
        self.steps.setdefault(step.job_id, {})[step.step_id] = step
        if step.spec.time_limit_minutes:
            deadline = step_deadline(step, self.jobs.get(step.job_id))
            self.step_deadlines.set(step_key(step.job_id, step.step_id), deadline)

    def end_step_deadlines(self, job_id: int) -> None:
        """The job's life has ended, and with it the time limits of the steps that nodes have not reported yet."""
        for step_id in self.steps.get(job_id, ()):
            self.step_deadlines.set(step_key(job_id, step_id), NEVER)

    def drop_step(self, job_id: int, step_id: int) -> None:
        """Remove a step that has ended."""
        steps = self.steps.get(job_id)
        if steps is not None:
            step = steps.pop(step_id, None)
            if step is not None and step.spec.io_key:
                self.keep_ended_step(step)
            self.step_deadlines.set(step_key(job_id, step_id), NEVER)
            if not steps:
                del self.steps[job_id]

    def keep_ended_step(self, step: Step) -> None:
        """Remember an ended step, in case its client has not received the reply that created it."""
        spec = structs.replace(step.spec, environment=())
        self.ended_steps[step.spec.io_key] = structs.replace(step, spec=spec)
        if len(self.ended_steps) > ENDED_STEPS_MAX:
            del self.ended_steps[next(iter(self.ended_steps))]

    # -- nodes and partitions

    def put_node(self, node: Node) -> None:
        """Add or replace a node. Caches over all nodes are dropped only if what they read has changed."""
        name = node.config.name
        old = self.nodes.get(name)
        self.nodes[name] = node
        if old is None:
            self.uses[name] = NodeUse()
        if old is None or old.flags != node.flags or old.state is not node.state:
            self._count_powered(old, node)
        if old is None or old.config is not node.config or _seen(old) != _seen(node):
            self._nodes_changed()
        self.refresh_node_deadline(name)

    def _count_powered(self, old: Node | None, new: Node | None) -> None:
        self.powered_count += new is not None and is_powered(new.state, new.flags)
        self.powered_count -= old is not None and is_powered(old.state, old.flags)

    def refresh_node_deadline(self, name: str) -> None:
        """The node's record, or whether jobs are on it, has changed: compute its deadline again."""
        node = self.nodes.get(name)
        if node is None:
            return
        if self.settings.power.suspends or node.flags & AWAY or node.resume_at or name in self.node_deadlines:
            self.node_deadlines.set(name, node_deadline(self, node))

    def hold_idle_nodes(self, job: Job) -> None:
        """Keep other jobs off the idle nodes of the job's leaf switches or blocks."""
        for name in (job.allocation.kept if job.allocation is not None else None) or ():
            if name in self.uses:
                self.uses[name].kept[job.id] = None

    def release_idle_nodes(self, job_id: int, allocation: Allocation) -> None:
        """Undo `hold_idle_nodes`: the job has left all of its own nodes."""
        for name in allocation.kept or ():
            if name in self.uses:
                self.uses[name].kept.pop(job_id, None)

    def left_node(self, name: str, at: float) -> None:
        """A job has left the node."""
        use = self.uses.get(name)
        if use is None or use.jobs:
            return
        self.put_node(structs.replace(self.nodes[name], last_busy_at=at))
        if self.nodes[name].flags & (POWER_DOWN | REBOOT_REQUESTED):
            # the reboot or power-down waited for this
            self.next_power_at = at

    def units(self, partition: Partition) -> dict[str, frozenset[str]]:
        """Node -> all nodes of its leaf switch or block in the partition's network. Cached until nodes change."""
        units = self.segments.get(partition.topology)
        if units is None:
            places = {name: node.place for name, node in self.nodes.items() if node.place}
            networks = networks_of(self.settings.topologies, places)
            topology = next((network for network in networks if partition.topology in ("", network.name)), None)
            units = self.segments[partition.topology] = units_of(topology)
        return units

    def _nodes_changed(self) -> None:
        self.node_groups.clear()
        self.segments.clear()
        self.features = None

    def drop_node(self, name: str) -> None:
        """Remove a node that holds nothing."""
        self._count_powered(self.nodes.pop(name, None), None)
        self.uses.pop(name, None)
        self.node_deadlines.set(name, NEVER)
        self._nodes_changed()

    def add_nodes(self, nodes: Sequence[Node], partitions: dict[str, Partition]) -> None:
        """Add nodes. `partitions`: all partitions, with these nodes as members."""
        for node in nodes:
            names = tuple(
                name
                for name, partition in partitions.items()
                if partition is not self.partitions[name] and node.name in partition.nodes
            )
            if names:  # as `put_partitions` has it, which a restart uses
                self.node_partitions[node.name] = names
        self.partitions = partitions
        for node in nodes:
            self.put_node(node)

    def put_partitions(self, partitions: dict[str, Partition]) -> None:
        """Replace all partitions; their order is that of listings."""
        self.partitions = partitions
        self._nodes_changed()
        members: dict[str, list[str]] = {}
        for partition in partitions.values():
            for node in partition.nodes:
                members.setdefault(node, []).append(partition.name)
        self.node_partitions = {node: tuple(names) for node, names in members.items()}
        self.refresh_rules()

    # -- reservations

    def put_reservation(self, reservation: Reservation) -> None:
        """Add or replace a reservation, and the index of reserved nodes."""
        old = self.reservations.get(reservation.name)
        self.reservations[reservation.name] = reservation
        if old is None or old.nodes != reservation.nodes:
            self._index_reserved(old, reservation)
        self._refresh_reserved((*(old.nodes if old is not None else ()), *reservation.nodes))

    def drop_reservation(self, name: str) -> None:
        """Remove a reservation, if it exists."""
        old = self.reservations.pop(name, None)
        self._index_reserved(old, None)
        self._refresh_reserved(old.nodes if old is not None else ())

    def _refresh_reserved(self, names: Iterable[str]) -> None:
        """Compute again the deadlines of nodes that reservations exempt from power saving."""
        if self.settings.power.kept_states:
            for name in names:
                if name in self.nodes:
                    self.node_deadlines.set(name, node_deadline(self, self.nodes[name]))

    def _index_reserved(self, old: Reservation | None, new: Reservation | None) -> None:
        for node in old.nodes if old is not None else ():
            left = tuple(name for name in self.reserved[node] if old is None or name != old.name)
            if left:
                self.reserved[node] = left
            else:
                del self.reserved[node]
        for node in new.nodes if new is not None else ():
            assert new is not None
            self.reserved[node] = tuple(sorted((*self.reserved.get(node, ()), new.name)))

    @staticmethod
    def held_shares(job: Job) -> list[NodeAllocation]:
        """Shares that the job still holds, by its record: all while it runs, those of `completing` nodes afterwards."""
        if job.allocation is None:
            return []
        if job.flags & COMPLETING:
            names = set(job.completing)
            return [share for share in job.allocation.nodes if share.node in names]
        return list(job.allocation.nodes) if job.state.active else []


def reservations_of(job: Job) -> tuple[str, ...]:
    """Reservations that the job names, or in which it runs."""
    inside = job.allocation.reservation if job.allocation is not None and job.state.active else ""
    if not job.spec.reservation and not inside:
        return ()
    return tuple(dict.fromkeys(name for name in (*job.spec.reservation.split(","), inside) if name))


def _weight(job: Job) -> int:
    return 1 if job.array is None else mask_of(job.array.pending).bit_count()
