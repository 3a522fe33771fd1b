"""The cluster's state: dicts of frozen records, and the indexes that make the cost of a decision independent of the
number of jobs.

Owns the consistency of records and indexes: records change only through `put_job`, `put_step` and so on, and only
`apply` calls those. Decisions read, and change `memory` alone. Indexes are dicts used as ordered sets, so that
iteration is the same on every run.

Each change is noted in `undo`, so that a decision can be taken back (`roll_back`). What is assigned to a name of the
State as a whole needs no note: `names` has it.

Invariants (checked in `invariants`): each job is in exactly one of `pending`, `running`, `completing` (which may also
be pending again) or none (ended and gone); a job is in `uses[node].jobs` for exactly the nodes it holds; `steps` has
live steps only.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from spritz.core.changes import Replaced
from spritz.core.flags import COMPLETING
from spritz.core.job.charges import Charge, add_charge, charge_of, note_charge, same_charge
from spritz.core.job.timers import NEVER, Deadlines, job_deadline, step_deadline, step_key
from spritz.core.memory import Memory
from spritz.core.policy import put_policy, refresh_minutes, refresh_rules
from spritz.core.power import POWER_DOWN, REBOOT_REQUESTED, node_deadline
from spritz.core.undo import Jobs, Undo
from spritz.model.cluster.power import AWAY, is_powered
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.job.cron import Crontab
from spritz.model.job.record import Job
from spritz.model.job.step import Step
from spritz.model.limits.bounds import MinuteLimits
from spritz.model.limits.ledger import Ledger, LedgerKey
from spritz.model.limits.minutes import Minutes
from spritz.model.limits.records import Policy
from spritz.model.limits.rules import Rules
from spritz.model.node.networks import networks_of, units_of
from spritz.model.node.partition import Partition
from spritz.model.node.record import Node
from spritz.model.node.reservation import Reservation
from spritz.model.resources import Allocation, NodeAllocation, mask_of
from spritz.model.rules.node_use import NodeUse
from spritz.model.rules.predict import Predictor
from spritz.model.states import JobState
from spritz.model.triggers import Trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from spritz.core.node_groups import NodeGroup
    from spritz.model.limits.usage import Usage
    from spritz.model.rules.predict import Likeness

K = TypeVar("K", int, str)

#: ended steps to remember; their clients ask again within seconds, if at all
ENDED_STEPS_MAX = 1000

#: kinds of jobs whose run times are remembered
RUN_TIMES_MAX = 50_000


def _seen(node: Node) -> tuple[object, ...]:
    """The fields of a node on which caches depend, apart from its configuration."""
    return node.active, node.available, node.place


class State:
    """Everything that the controller knows. `version`: number of events applied."""

    __slots__ = (
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
        "features",
        "federated",
        "job_count",
        "jobs",
        "ledger",
        "licenses_taken",
        "live_by_name",
        "live_by_user",
        "memory",
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
        "replaced",
        "reservation_jobs",
        "reservations",
        "reserved",
        "rules",
        "run_times",
        "running",
        "segments",
        "settings",
        "singletons",
        "step_deadlines",
        "steps",
        "submissions",
        "triggers",
        "undo",
        "usage",
        "usage_reset_at",
        "uses",
        "version",
    )

    def __init__(self, settings: ClusterSettings) -> None:
        self.undo = Undo()
        #: for listeners: what the present command has replaced
        self.replaced = Replaced()
        self.memory = Memory()
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
        # -- indexes
        #: node -> names of reservations that hold it or a part of it
        self.reserved: dict[str, tuple[str, ...]] = {}
        #: reservation -> jobs that have not ended and name it or run in it
        self.reservation_jobs: dict[str, Jobs] = {}
        #: resources in use by every association and QOS, and the charge of each job
        self.ledger = Ledger()
        self.charges: dict[int, Charge] = {}
        #: keys that a job counts towards -> jobs that a limit keeps from accruing age
        self.accrual_waits: dict[tuple[LedgerKey, ...], Jobs] = {}
        self.pending: Jobs = Jobs()
        #: RUNNING and SUSPENDED
        self.running: Jobs = Jobs()
        #: flag COMPLETING: ended (or pending again) with processes left on some nodes
        self.completing: Jobs = Jobs()
        self.live_by_user: dict[int, Jobs] = {}
        #: (uid, job name) -> jobs that have not ended, for `singleton`
        self.live_by_name: dict[tuple[int, str], Jobs] = {}
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
        #: jobs with siblings on other clusters
        self.federated: Jobs = Jobs()
        #: job id -> pending jobs with an open dependency on it
        self.dependents: dict[int, Jobs] = {}
        #: (uid, job name) -> pending jobs that wait for a singleton
        self.singletons: dict[tuple[int, str], Jobs] = {}
        self.node_partitions: dict[str, tuple[str, ...]] = {}
        #: cache of `decide.submission.fit`: partition -> groups of equal nodes; and all features. Emptied when nodes or
        #: partitions change.
        self.node_groups: dict[str, list[NodeGroup]] = {}
        #: cache by network: node -> nodes of its leaf switch or block. Emptied likewise.
        self.segments: dict[str, dict[str, frozenset[str]]] = {}
        self.features: frozenset[str] | None = None
        self.deadlines: Deadlines[int] = Deadlines()
        #: by `step_key`
        self.step_deadlines: Deadlines[int] = Deadlines()
        #: deadlines of power saving
        self.node_deadlines: Deadlines[str] = Deadlines()

    # -- taking back

    def names(self) -> tuple[Any, ...]:
        """The present object of each name of the State, for `roll_back`."""
        return _NAMES(self)

    def roll_back(self, names: tuple[Any, ...]) -> None:
        """Become as it was when it had these names and nothing to undo."""
        for name, value in zip(State.__slots__, names, strict=True):
            setattr(self, name, value)
        self.undo.roll_back()
        self.replaced.clear()
        # What was noted there may have been used up by what is undone: everything is looked at again.
        memory = self.memory
        memory.lacking, memory.accrual_freed = None, True
        memory.siblings_due = dict.fromkeys(self.federated)

    # -- jobs

    def put_job(self, job: Job) -> None:
        """Add or replace a job, and update every index."""
        job_id, undo = job.id, self.undo
        old = self.jobs.get(job_id)
        undo.put(self.jobs, job_id, job)
        self.replaced.jobs.setdefault(job_id, old)
        if old is None:
            self.job_count += _weight(job)
            self._index_state(job)
            if job.submit_key:
                undo.put(self.submissions, (job.spec.uid, job.submit_key), job_id)
        # Identity is enough for the spec: records are frozen, so a changed spec is another object, and an equal copy
        # costs only an unneeded update.
        elif old.state is not job.state or old.flags != job.flags or old.spec is not job.spec:
            self._unindex_state(old)
            self._index_state(job)
        if job.array_task_id is not None and (old is None or old.array_task_id is None):
            tasks = self.arrays.get(job.array_job_id)
            if tasks is None:
                tasks = {}
                undo.put(self.arrays, job.array_job_id, tasks)
            undo.put(tasks, job.array_task_id, job_id)
        if old is not None and old.dependencies:
            self._unindex_dependencies(old)
        if job.dependencies:
            self._index_dependencies(job)
        # A charge is looked up in the tree of associations: spare that where nothing that it depends on has changed.
        if self.rules.known and (old is None or not same_charge(old, job)):
            self.charge(job_id, job)
        self.refresh_deadline(job)
        if job.federation is not None:
            undo.join(self.federated, job_id)
            # Here and not in each decision: whatever changes the job, other clusters must hear of it.
            self.memory.siblings_due[job_id] = None

    def forget_job(self, job_id: int) -> None:
        """Remove an ended job from the records and from every index."""
        undo, job = self.undo, self.jobs[job_id]
        undo.drop(self.jobs, job_id)
        self.replaced.jobs.setdefault(job_id, job)
        undo.leave(self.federated, job_id)
        self.charge(job_id, None)
        self.job_count -= _weight(job)
        self._unindex_state(job)
        self._unindex_dependencies(job)
        if job.submit_key:
            undo.drop(self.submissions, (job.spec.uid, job.submit_key))
        if job.array_task_id is not None:
            tasks = self.arrays.get(job.array_job_id)
            if tasks is not None:
                undo.drop(tasks, job.array_task_id)
                if not tasks:
                    undo.drop(self.arrays, job.array_job_id)
        self._set(self.deadlines, job_id, NEVER)

    def _index_state(self, job: Job) -> None:
        job_id, state, undo = job.id, job.state, self.undo
        live = not state.ended
        if job.flags & COMPLETING:
            undo.join(self.completing, job_id)
        if state is JobState.PENDING:
            undo.join(self.pending, job_id)
        elif live:
            undo.join(self.running, job_id)
            for name, count in job.licenses:
                undo.count(self.licenses_taken, name, count)
            if job.array_job_id:
                undo.count(self.arrays_running, job.array_job_id, 1)
        if live:
            for name in reservations_of(job):
                undo.add(self.reservation_jobs, name, job_id)
        if live or job.flags & COMPLETING:
            spec = job.spec
            undo.add(self.live_by_user, spec.uid, job_id)
            if live:
                undo.add(self.live_by_name, (spec.uid, spec.name), job_id)
            if job.array_job_id:
                undo.count(self.arrays_live, job.array_job_id, 1)

    def _unindex_state(self, job: Job) -> None:
        job_id, state, undo = job.id, job.state, self.undo
        live = not state.ended
        if job.flags & COMPLETING:
            undo.leave(self.completing, job_id)
        if state is JobState.PENDING:
            undo.leave(self.pending, job_id)
        elif live:
            undo.leave(self.running, job_id)
            for name, count in job.licenses:
                undo.count(self.licenses_taken, name, -count)
            if job.array_job_id:
                undo.count(self.arrays_running, job.array_job_id, -1)
        if live:
            for name in reservations_of(job):
                undo.discard(self.reservation_jobs, name, job_id)
        if live or job.flags & COMPLETING:
            spec = job.spec
            undo.discard(self.live_by_user, spec.uid, job_id)
            if live:
                undo.discard(self.live_by_name, (spec.uid, spec.name), job_id)
            if job.array_job_id:
                undo.count(self.arrays_live, job.array_job_id, -1)

    def _index_dependencies(self, job: Job) -> None:
        if job.state is not JobState.PENDING:
            return
        for dependency in job.dependencies:
            if dependency.kind == "singleton":
                self.undo.add(self.singletons, (job.spec.uid, job.spec.name), job.id)
            else:
                self.undo.add(self.dependents, dependency.job_id, job.id)

    def _unindex_dependencies(self, job: Job) -> None:
        for dependency in job.dependencies:
            if dependency.kind == "singleton":
                self.undo.discard(self.singletons, (job.spec.uid, job.spec.name), job.id)
            else:
                self.undo.discard(self.dependents, dependency.job_id, job.id)

    def put_policy(self, policy: Policy) -> None:
        """Replace the whole accounting policy and the rules derived from it."""
        put_policy(self, policy)

    def refresh_rules(self) -> None:
        """Settings or partitions changed: compute again what is billed, which limits apply, and how usage decays."""
        refresh_rules(self)

    def charge(self, job_id: int, job: Job | None) -> None:
        """Update the job's charge towards limits (`job` None: remove it)."""
        undo, old = self.undo, self.charges.get(job_id)
        new = charge_of(self.rules, job) if job is not None and not job.state.ended else None
        if new is not None:
            undo.put(self.charges, job_id, new)
        elif old is not None:
            undo.drop(self.charges, job_id)
        if old != new:
            for charge, sign in ((old, -1), (new, 1)):
                if charge is not None:
                    note_charge(undo, self.ledger, self.minutes, charge, sign, self.at)
                    add_charge(self.ledger, self.minutes, charge, sign, self.at)
            # Only noted: which job accrues next is a decision with events of its own (`decide.waiting.accrue`), and
            # `apply` makes none.
            if old is not None and old.accruing > (new.accruing if new is not None else 0):
                self.memory.accrual_freed = True
            if old is not None and old.accrual_waits:
                undo.discard(self.accrual_waits, old.keys, job_id)
            if new is not None and new.accrual_waits:
                undo.add(self.accrual_waits, new.keys, job_id)
            if self.minute_limits_by_key:
                refresh_minutes(self, {key: None for charge in (old, new) if charge is not None for key in charge.keys})

    def change_usage(self) -> Usage:
        """The usage of all keys, which is to be changed as a whole."""
        self.undo.note(self.usage.become, self.usage.copy())
        return self.usage

    def learn_run_time(self, job: Likeness, seconds: float) -> None:
        """A job of this kind has ended after this many seconds (`run_times`)."""
        self.undo.note(self.run_times.unlearn, job, self.run_times.learn(job, seconds))

    # -- deadlines

    def _set(self, deadlines: Deadlines[K], key: K, at: float) -> None:
        before = deadlines.set(key, at)
        if before != at:
            self.undo.note(deadlines.set, key, before)

    def refresh_deadline(self, job: Job) -> None:
        """Compute the deadline of this job again."""
        at = NEVER if self.memory.set_aside and self.memory.ignores(job.id) else job_deadline(self, job)
        self._set(self.deadlines, job.id, at)

    def refresh_deadlines(self) -> None:
        """Compute all deadlines of jobs again, after settings or partitions changed."""
        for job in self.jobs.values():
            self.refresh_deadline(job)

    def set_minute_deadline(self, key: str, at: float) -> None:
        """When this key will have used up its minutes (`policy.key_text`)."""
        self._set(self.minute_deadlines, key, at)

    def drop_deadlines(self, jobs: Iterable[int] = (), steps: Iterable[int] = ()) -> None:
        """Let these, which are ignored after faults of the core, fall due no more. `steps` by `step_key`."""
        for job_id in jobs:
            self._set(self.deadlines, job_id, NEVER)
        for key in steps:
            self._set(self.step_deadlines, key, NEVER)

    def refresh_node_deadlines(self) -> None:
        """Compute all deadlines of power saving again, after settings or partitions changed."""
        for node in self.nodes.values():
            self._set(self.node_deadlines, node.name, node_deadline(self, node))

    def refresh_node_deadline(self, name: str) -> None:
        """The node's record, or whether jobs are on it, has changed: compute its deadline again."""
        node = self.nodes.get(name)
        if node is None:
            return
        if self.settings.power.suspends or node.flags & AWAY or node.resume_at or name in self.node_deadlines:
            self._set(self.node_deadlines, name, node_deadline(self, node))

    # -- steps

    def put_step(self, step: Step) -> None:
        """Add or replace a live step."""
        steps = self.steps.get(step.job_id)
        if steps is None:
            steps = {}
            self.undo.put(self.steps, step.job_id, steps)
        self.undo.put(steps, step.step_id, step)
        if step.spec.time_limit_minutes:
            deadline = step_deadline(step, self.jobs.get(step.job_id))
            self._set(self.step_deadlines, step_key(step.job_id, step.step_id), deadline)

    def end_step_deadlines(self, job_id: int) -> None:
        """The job's life has ended, and with it the time limits of the steps that nodes have not reported yet."""
        for step_id in self.steps.get(job_id, ()):
            self._set(self.step_deadlines, step_key(job_id, step_id), NEVER)

    def drop_step(self, job_id: int, step_id: int) -> None:
        """Remove a step that has ended."""
        steps = self.steps.get(job_id)
        if steps is not None:
            step = self.undo.drop_in_order(steps, step_id)  # the first steps end first
            if step is not None and step.spec.io_key:
                self.keep_ended_step(step)
            self._set(self.step_deadlines, step_key(job_id, step_id), NEVER)
            if not steps:
                self.undo.drop(self.steps, job_id)

    def keep_ended_step(self, step: Step) -> None:
        """Remember an ended step, in case its client has not received the reply that created it."""
        spec = structs.replace(step.spec, environment=())
        self.undo.put(self.ended_steps, step.spec.io_key, structs.replace(step, spec=spec))
        if len(self.ended_steps) > ENDED_STEPS_MAX:
            self.undo.drop(self.ended_steps, next(iter(self.ended_steps)))

    # -- crontabs and triggers

    def put_crontab(self, crontab: Crontab) -> None:
        """Replace a user's crontab; one without text is removed."""
        self.undo.drop(self.crontabs, crontab.uid)
        if crontab.text:
            self.undo.put(self.crontabs, crontab.uid, crontab)

    def put_trigger(self, trigger: Trigger) -> None:
        """Add or replace a trigger."""
        self.undo.put(self.triggers, trigger.id, trigger)

    def drop_trigger(self, number: int) -> None:
        """Remove a trigger, if it exists."""
        self.undo.drop(self.triggers, number)

    # -- nodes and partitions

    def put_node(self, node: Node) -> None:
        """Add or replace a node. Caches over all nodes are dropped only if what they read has changed."""
        name = node.config.name
        old = self.nodes.get(name)
        self.undo.put(self.nodes, name, node)
        self.replaced.nodes.setdefault(name, old)
        if old is None:
            self.undo.put(self.uses, name, NodeUse())
        if old is None or old.flags != node.flags or old.state is not node.state:
            self._count_powered(old, node)
        if old is None or old.config is not node.config or _seen(old) != _seen(node):
            self._nodes_changed()
        self.refresh_node_deadline(name)

    def _count_powered(self, old: Node | None, new: Node | None) -> None:
        self.powered_count += new is not None and is_powered(new.state, new.flags)
        self.powered_count -= old is not None and is_powered(old.state, old.flags)

    def take(self, job_id: int, share: NodeAllocation) -> None:
        """The job holds this share of a node from now on."""
        if share.gres:  # masks of devices keep their names when they are empty
            self.change_use(share.node).take(job_id, share)
            return
        use = self.uses[share.node]
        self.undo.note(use.give_back, job_id)
        use.take(job_id, share)

    def change_use(self, name: str) -> NodeUse:
        """The resources in use on the node, which the caller will change."""
        use = self.uses[name]
        self.undo.note(use.become, use.copy())
        return use

    def hold_idle_nodes(self, job: Job) -> None:
        """Keep other jobs off the idle nodes of the job's leaf switches or blocks."""
        for name in (job.allocation.kept if job.allocation is not None else None) or ():
            if name in self.uses:
                self.change_use(name).kept[job.id] = None

    def release_idle_nodes(self, job_id: int, allocation: Allocation) -> None:
        """Undo `hold_idle_nodes`: the job has left all of its own nodes."""
        for name in allocation.kept or ():
            if name in self.uses:
                self.change_use(name).kept.pop(job_id, None)

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
        # New dicts, so that the former caches are those of the former nodes, if this is taken back.
        self.node_groups, self.segments, self.features = {}, {}, None

    def drop_node(self, name: str) -> None:
        """Remove a node that holds nothing."""
        old = self.undo.drop(self.nodes, name)
        self.replaced.nodes.setdefault(name, old)
        self._count_powered(old, None)
        self.undo.drop(self.uses, name)
        self._set(self.node_deadlines, name, NEVER)
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
                self.undo.put(self.node_partitions, node.name, names)
        self.partitions, self.replaced.layout = partitions, True
        for node in nodes:
            self.put_node(node)

    def put_partitions(self, partitions: dict[str, Partition]) -> None:
        """Replace all partitions; their order is that of listings. With them, other settings may hold from now on, and
        there may be other nodes.
        """
        self.partitions, self.replaced.layout = partitions, True
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
        self.undo.put(self.reservations, reservation.name, reservation)
        self.replaced.reservations.setdefault(reservation.name, old)
        if old is None or old.nodes != reservation.nodes:
            self._index_reserved(old, reservation)
        self._refresh_reserved((*(old.nodes if old is not None else ()), *reservation.nodes))

    def drop_reservation(self, name: str) -> None:
        """Remove a reservation, if it exists."""
        old = self.undo.drop(self.reservations, name)
        self.replaced.reservations.setdefault(name, old)
        self._index_reserved(old, None)
        self._refresh_reserved(old.nodes if old is not None else ())

    def _refresh_reserved(self, names: Iterable[str]) -> None:
        """Compute again the deadlines of nodes that reservations exempt from power saving."""
        if self.settings.power.kept_states:
            for name in names:
                if name in self.nodes:
                    self._set(self.node_deadlines, name, node_deadline(self, self.nodes[name]))

    def _index_reserved(self, old: Reservation | None, new: Reservation | None) -> None:
        for node in old.nodes if old is not None else ():
            others = tuple(name for name in self.reserved[node] if old is None or name != old.name)
            if others:
                self.undo.put(self.reserved, node, others)
            else:
                self.undo.drop(self.reserved, node)
        for node in new.nodes if new is not None else ():
            assert new is not None
            self.undo.put(self.reserved, node, tuple(sorted((*self.reserved.get(node, ()), new.name))))

    @staticmethod
    def held_shares(job: Job) -> list[NodeAllocation]:
        """Shares that the job still holds, by its record: all while it runs, those of `completing` nodes afterwards."""
        if job.allocation is None:
            return []
        if job.flags & COMPLETING:
            names = set(job.completing)
            return [share for share in job.allocation.nodes if share.node in names]
        return list(job.allocation.nodes) if job.state.active else []


_NAMES: Callable[[State], tuple[Any, ...]] = attrgetter(*State.__slots__)


def reservations_of(job: Job) -> tuple[str, ...]:
    """Reservations that the job names, or in which it runs."""
    inside = job.allocation.reservation if job.allocation is not None and job.state.active else ""
    if not job.spec.reservation and not inside:
        return ()
    return tuple(dict.fromkeys(name for name in (*job.spec.reservation.split(","), inside) if name))


def _weight(job: Job) -> int:
    return 1 if job.array is None else mask_of(job.array.pending).bit_count()
