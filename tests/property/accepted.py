"""A cluster that is sent anything, and whatever it accepted driven to its end.

Messages are made from the types of all commands (`tests.fuzz.odd`), so that a new field is drawn without a change here.
They are decoded as the daemon decodes them, and go to the core. Between them cycles plan and nodes report. At the end
all jobs are started or cancelled, ended, requeued and purged; time goes on for years; the events are replayed and the
image is read, as at a restart.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from msgspec import Raw, Struct, msgpack, to_builtins
from msgspec.json import Encoder as JsonEncoder
from msgspec.msgpack import Decoder
from msgspec.structs import asdict, replace
from tests.fuzz.guard import guard
from tests.fuzz.odd import Odd
from tests.unit.scheduling.site import Site, gpus, node

from spritz.controller.api.queue.rows import row_of
from spritz.controller.metrics.jobs import JobTotals, Tally
from spritz.controller.nodes.messages import NodeMessages
from spritz.core.decide import DECISIONS, INTERNAL
from spritz.core.decide.waiting.update import PENDING as UPDATABLE
from spritz.core.image import Image
from spritz.core.invariants import breaches
from spritz.core.job import het
from spritz.core.machine import Machine, Outcome
from spritz.model import federation, stored
from spritz.model.accounting.accounting_of import record_of, step_record_of
from spritz.model.cluster.power import PowerPolicy
from spritz.model.cluster.preemption import PreemptionPolicy
from spritz.model.cluster.settings import SYSTEM, Caller, ClusterSettings, FeaturePolicy, McsPolicy
from spritz.model.commands.cluster import (
    AddNodes,
    ApplyPlan,
    Configure,
    CreatePartition,
    DeleteNodes,
    RebootNodes,
    Tick,
    UpdateNode,
    UpdatePartition,
)
from spritz.model.commands.crontab import UpdateCrontab
from spritz.model.commands.job import CancelJobs, ResumeJob, SubmitHetJob, SubmitJob, SuspendJob, UpdateJob
from spritz.model.commands.reservation import (
    CreateReservation,
    DeleteReservation,
    ReservationRequest,
    UpdateReservation,
)
from spritz.model.commands.step import AttachStep, CreateHetStep, CreateStep, SignalStep
from spritz.model.events import ALL_EVENTS
from spritz.model.federation import AskLock, QueueSibling, ReportSibling
from spritz.model.ids import STEP_BATCH
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import CronEntry, Job, JobSpec
from spritz.model.job.step import StepSpec
from spritz.model.limits.records import Association, FederationMember, Policy, Qos, SetPolicy
from spritz.model.node.partition import Partition
from spritz.model.node.reservation import FLAGS
from spritz.model.node_daemon.reports import (
    JobGone,
    NodeLost,
    NodePrologEnded,
    PrologEnded,
    RegisterNode,
    RunningStep,
    StepFinished,
    StepStarted,
    TaskEnd,
)
from spritz.model.resources import GresCapacity
from spritz.model.states import JobFlag, JobState, NodeState
from spritz.model.triggers import ClearTriggers, SetTrigger
from spritz.presentation.job.job_fields import FIELDS
from spritz.presentation.job.job_record import record_text
from spritz.presentation.json.jobs import job_json
from spritz.wire.envelope import Request
from spritz.wire.requests import BadRequest, RequestDecoder
from spritz_testing.builders import ALICE, BOB

JSON_TEXT = JsonEncoder()

YEAR_SECONDS = 365 * 86_400.0

#: what users and administrators send
COMMANDS: list[type[Struct]] = sorted(
    (kind for kind in DECISIONS if kind not in (*INTERNAL, SubmitJob, SubmitHetJob)), key=lambda kind: kind.__name__
)
#: what node daemons send
REPORTS = (StepStarted, StepFinished, JobGone, NodePrologEnded, RegisterNode)

#: what controllers of a federation tell each other
SIBLINGS: list[type[Struct]] = [kind for kind in DECISIONS if kind.__module__ == federation.__name__]
FEDERATION = tuple(
    FederationMember(cluster=name, federation="both", number=number, state="ACTIVE")
    for number, name in enumerate(("cluster", "there"), 1)
)

_DECODER = RequestDecoder([*COMMANDS, SubmitJob, SubmitHetJob, *REPORTS, *SIBLINGS])

NODES = {
    "plain": [node(f"n{number}", 4, features=("ab"[number % 2],)) for number in (1, 2, 3)],
    "gpus": [
        node("n1", 8, sockets=2, gres=[gpus(4)]),
        node("n2", 8, threads=2, gres=[gpus(2), GresCapacity(name="shard", count=8, per_device=4)], tmp=100),
        node("n3", 2),
    ],
}

_COMMON = ClusterSettings(
    gres_types=("gpu", "shard"),
    licenses=(("a", 2), ("b", 1)),
    max_job_count=200,
    min_job_age_seconds=120,
    kill_wait_seconds=5,
    crontabs=True,
    max_node_count=6,
    default_memory_mib_per_cpu=1,
    scheduler_parameters=(("enable_user_top", ""),),
)
_USERS = tuple(
    Association(id=number, cluster="cluster", account=account, parent=parent, user=user, is_default=bool(user), **more)
    for number, account, parent, user, more in (
        (1, "root", "", "", {"qos": "normal,home"}),
        (2, "chem", "root", "", {"max_jobs_accrue": 2}),
        (3, "chem", "", "alice", {"grp_jobs": 4, "max_submit": 20, "grp_tres_mins": "cpu=3"}),
        (4, "chem", "", "bob", {"max_wall": 100}),
        (5, "chem", "", "root", {}),
    )
)
POLICY = Policy(
    version=1,
    associations=_USERS,
    qos=(
        Qos(name="normal", id=1, max_tres_mins_pj="cpu=100", preempt_exempt_seconds=5),
        Qos(name="home", id=2, max_submit_pu=2, grace_seconds=10, priority=100, preempt="normal"),
    ),
)

#: configurations that take different ways through the core
SETTINGS: dict[str, ClusterSettings] = {
    "plain": _COMMON,
    "strict": replace(
        _COMMON,
        kill_invalid_dependency=True,
        enforce=("associations", "limits", "qos"),
        over_time_minutes=1,
        requeue_exit=(1,),
        requeue_exit_hold=(2,),
    ),
    "gang": replace(_COMMON, preemption=PreemptionPolicy(mode=("SUSPEND", "GANG"), type="partition_prio")),
    "requeue": replace(
        _COMMON, preemption=PreemptionPolicy(mode=("REQUEUE",), type="partition_prio"), prolog_slurmctld=True
    ),
    "prolog": replace(_COMMON, prolog_flags=("Alloc", "Contain")),
    "federated": _COMMON,
    "minutes": replace(
        _COMMON,
        enforce=("associations", "limits", "qos", "safe"),
        mcs=McsPolicy(plugin="user", select="select"),
        requeue_delay_seconds=0.0,
        expedited_requeue=True,
    ),
    "qos": replace(
        _COMMON,
        enforce=("limits", "qos"),
        preemption=PreemptionPolicy(mode=("CANCEL",), type="qos", exempt_seconds=30),
        prolog_flags=("Alloc", "NoHold"),
        priority_multifactor=True,
        min_job_age_seconds=0,
    ),
    "linear": replace(_COMMON, select_linear=True, enforce_part_limits="ALL", max_node_count=0, consumable="cpu"),
    "power": replace(
        _COMMON,
        power=PowerPolicy(resumes=True, suspends=True, suspend_seconds=60, resume_rate=1, suspend_rate=1, reboots=True),
        features=FeaturePolicy(names=("a", "b")),
    ),
}


def random_names(random: Random, record: dict[str, object]) -> list[str]:
    """Some of its fields."""
    return random.sample(sorted(record), min(len(record), random.choice((0, 1, 2))))


def records(machine: Machine) -> dict[str, object]:
    """All that an image has, in no order."""
    image = asdict(stored.decode(machine.image(), Decoder(Image)))
    return {name: Counter(map(repr, value)) if isinstance(value, list) else value for name, value in image.items()}


class Torn(AssertionError):
    """Something that was accepted cannot be carried to its end."""


class Life:
    """One cluster and what happens to it, decided by `random`."""

    def __init__(self, random: Random, hardware: str, settings: str) -> None:
        self.random = random
        self.settings = SETTINGS[settings]
        nodes = NODES[hardware]
        names = tuple(config.name for config in nodes)
        sharing = random.choice(("NO", "NO", "FORCE:2", "YES:2"))
        partitions = [
            Partition(name="main", nodes=names, default=True, oversubscribe=sharing),
            Partition(name="other", nodes=names, priority_tier=5, max_time_minutes=60, default_time_minutes=5),
        ]
        if random.random() < 0.3:
            more = {"grace_seconds": 20, "preempt_mode": random.choice(("OFF", "REQUEUE", "CANCEL")), "max_nodes": 2}
            partitions[0] = replace(partitions[0], over_time_minutes=1, alternate="other", **more)
        self.site = Site(nodes, partitions, self.settings)
        self.events: list[Struct] = []
        self.first = self.site.machine.image()
        self.odd = Odd(random, wildness=random.choice((0.0, 0.0, 0.02)), density=random.choice((0.05, 0.3)))
        self.messages = NodeMessages(lambda: self.site.machine.state, _Blobs(), lambda: 1)  # type: ignore[arg-type]
        self.counts: Counter[str] = Counter()
        self.tally = Tally()
        #: fields that make a command of a kind one that may be accepted
        self.valid: dict[type[Struct], Callable[[], dict[str, object]]] = {
            UpdateJob: self._changes,
            UpdateNode: self._node_update,
            RebootNodes: self._nodes,
            CreateReservation: self.reservation,
            UpdateReservation: self._reservation_update,
            DeleteReservation: self._reservation_named,
            UpdatePartition: self._partition_update,
            CreatePartition: self._new_partition,
            SetTrigger: self._trigger,
            CreateStep: lambda: {"spec": {"tasks": 1, "argv": ["true"], **self._some(StepSpec, (0, 1, 3))}},
            CreateHetStep: self._het_step,
            UpdateCrontab: self._crontab,
            SuspendJob: self._running,
            ResumeJob: self._suspended,
            SignalStep: self._live_step,
            AttachStep: self._live_step,
            ClearTriggers: lambda: {"id": random.choice([*self.machine.state.triggers] or [1])},
            DeleteNodes: lambda: {"names": [random.choice([*self.machine.state.nodes])]},
        }
        self.commands = COMMANDS
        if self.settings.enforce:
            self.send(SetPolicy(policy=POLICY))
        if settings == "federated":
            self.send(SetPolicy(policy=Policy(version=1, federation=FEDERATION)))
            self.commands = [*COMMANDS, *SIBLINGS]

    # -- the core

    @property
    def machine(self) -> Machine:
        return self.site.machine

    def send(self, command: Struct | None, caller: Caller = SYSTEM) -> Outcome | None:
        """Hand in a command; its effects become messages, as if their nodes were connected."""
        if command is None:
            return None
        outcome = self.handled(command, caller)
        self.events += outcome.events
        refusal = outcome.rejection
        self.counts[f"{type(command).__name__} {refusal.code if refusal is not None else ''}".rstrip()] += 1
        for effect in outcome.effects:
            _run(self.messages.message(effect))
        return outcome

    def handled(self, command: Struct, caller: Caller) -> Outcome:
        """The core's decision, which the scheduler's projection follows. Now and then a dry run comes first."""
        if self.random.random() > 0.1:
            return self.site.send(command, caller)
        before = records(self.machine)
        checked = self.machine.check(command, self.site.now, caller)
        assert records(self.machine) == before, f"a dry run of {command} has left a trace"
        outcome = self.site.send(command, caller)
        assert checked.reply == outcome.reply, f"a dry run of {command} was answered otherwise"
        return outcome

    def decoded(self, kind: type[Struct], body: object) -> Struct | None:
        """The request as a daemon reads it; None if it refuses it."""
        try:
            return _DECODER.decode(Request(id=1, kind=kind.__name__, body=Raw(msgpack.encode(body))))
        except (BadRequest, OverflowError):
            self.counts[f"{kind.__name__} (not decoded)"] += 1
            return None

    # -- users

    def anything(self) -> None:
        """A command with any fields, mostly about what exists."""
        random, kind = self.random, self.random.choice(self.commands)
        if random.random() < 0.05:
            self._add_nodes()
        if self._suspended() and random.random() < 0.3:
            kind = ResumeJob
        elif self.machine.state.reservations and random.random() < 0.1:
            kind = random.choice((UpdateReservation, DeleteReservation))
        elif self.machine.state.triggers and random.random() < 0.1:
            kind = ClearTriggers
        body = self.odd.body(kind)
        jobs = list(self.site.jobs) or [1]
        if "target" in body:
            body["target"] = {"job_id": random.choice(jobs), **self._odd_target()}
        if "targets" in body:
            body["targets"] = [{"job_id": random.choice(jobs)} for _ in range(random.choice((1, 2)))]
        if "job_id" in body:
            body["job_id"] = random.choice(jobs)
        if "step_id" in body and random.random() < 0.7:
            body["step_id"] = random.choice((0, 1, STEP_BATCH))
        valid = self.valid.get(kind)
        if valid is not None:
            body |= valid()
        if kind.__module__ == federation.__name__:
            command = self._of_federation(kind, body)
            self.send(command)
            return
        self.send(self.decoded(kind, body), random.choice((ALICE, BOB, SYSTEM, SYSTEM, SYSTEM)))

    def _of_federation(self, kind: type[Struct], body: dict[str, object]) -> Struct | None:
        """What other clusters say, mostly of copies as they are."""
        random = self.random
        job = self.site.jobs.get(body.get("job_id", 0))  # type: ignore[call-overload]  # a number
        tie = job.federation if job is not None else None
        if job is not None and tie is not None and random.random() < 0.9:
            entry = random.choice(tie.siblings) if tie.siblings else None
            copy = entry.copy if entry is not None else tie.copy
            known = {"cluster": "there", "copy": copy, "restart_count": job.restart_count}
            body |= {name: value for name, value in known.items() if name in body}
        if "asked" in kind.__struct_fields__:
            body["asked"] = tie.asked if tie is not None and not tie.is_origin else random.choice((1, 2, 9))
        if "phase" in body:
            body["phase"] = random.choice(("pending:0", "pending:1", "started:0", "ended", "x"))
        if kind is QueueSibling:
            body |= {"submission": self._job(), "origin": "there", "copy": random.choice((1, 2))}
            spec = body["submission"]["spec"]  # type: ignore[index]  # a dict
            spec |= {"uid": 1001, "gid": 1001, "user": "alice"}
            body["job_id"] = random.choice((2 << 26 | 5, 2 << 26 | 6))
        if kind in (AskLock, ReportSibling):
            body.setdefault("restart_count", 0)
        return self.decoded(kind, body)

    def _changes(self) -> dict[str, object]:
        """An update of a job: fields that may change, often one."""
        names = self.random.sample(sorted(UPDATABLE), self.random.choice((1, 1, 1, 2, 3)))
        changes = self.odd.fields(JobSpec, names)
        special: dict[str, object] = {"hold": True, "end_at": self.site.now + 60.0, "array_limit": 1, "reset_accrue": 1}
        return {"changes": changes | {name: special[name] for name in names if name in special}}

    def _nodes(self) -> dict[str, object]:
        names = self.random.choices(list(self.machine.state.nodes), k=self.random.choice((1, 2, 3)))
        return {"names": names}

    def _node_update(self) -> dict[str, object]:
        random = self.random
        states = ("DRAIN", "RESUME", "DOWN", "FAIL", "UNDRAIN", "IDLE", "CANCEL_REBOOT", "POWER_UP", "POWER_DOWN", "")
        fields = ("features", "active_features", "weight", "comment", "extra", "gres_text", "address", "hostname")
        changes = {"features": ["a"], "active_features": ["a"], "weight": 3, "extra": "a=1", "topology": ""}
        chosen = random.sample(fields, random.choice((0, 0, 0, 1, 2)))
        return self._nodes() | {
            "state": random.choice(states),
            "changes": {name: changes.get(name, "text") for name in chosen},
            "resume_after_seconds": random.choice((None, None, None, 0, 30)),
        }

    def _partition_update(self) -> dict[str, object]:
        names = self.random.sample(Partition.__struct_fields__, self.random.choice((1, 1, 2)))
        return {"name": self.random.choice(("main", "other")), "changes": self.odd.fields(Partition, names)}

    def _new_partition(self) -> dict[str, object]:
        names = self.random.sample(Partition.__struct_fields__, 2)
        some = self.odd.fields(Partition, names)
        return {"partition": {**some, "name": self.random.choice("xy"), "nodes": self._nodes()["names"]}}

    def _trigger(self) -> dict[str, object]:
        events = self.random.sample(("up", "down", "drained", "time", "finish", "reconfigured"), 1)
        return {"events": events, "program": "/bin/true", "job_id": self.random.choice((0, *self.site.jobs))}

    def _reservation_named(self) -> dict[str, object]:
        return {"name": self.random.choice([*self.machine.state.reservations] or ["x"])}

    def _suspended(self) -> dict[str, object]:
        jobs = [job.id for job in self.site.jobs.values() if job.state is JobState.SUSPENDED]
        return {"target": {"job_id": self.random.choice(jobs)}} if jobs else {}

    def _het_step(self) -> dict[str, object]:
        leaders = [number for number in self.machine.state.running if het.is_leader(self.site.jobs[number])]
        parts = [[0, {"tasks": 1}], [1, {"tasks": 1}]][: self.random.choice((1, 2))]
        return {"parts": parts, "job_id": self.random.choice(leaders or [1])}

    def _live_step(self) -> dict[str, object]:
        steps = [step for steps in self.machine.state.steps.values() for step in steps.values()]
        if not steps:
            return {}
        step = self.random.choice(steps)
        return {"job_id": step.job_id, "step_id": step.step_id}

    def _running(self) -> dict[str, object]:
        jobs = list(self.machine.state.running)
        return {"target": {"job_id": self.random.choice(jobs)}} if jobs else {}

    def _add_nodes(self) -> None:
        """`scontrol create NodeName=`, as the shell reads its line."""
        name = f"x{self.random.randrange(3)}"
        state = self.random.choice(("CLOUD", "EXTERNAL", "FUTURE"))
        config = replace(node(name, 4), initial_state=state, features=("main",) if state == "CLOUD" else ())
        self.send(AddNodes(nodes=(config,)))

    def _odd_target(self) -> dict[str, object]:
        return self.odd.fields(JobTarget, ["tasks"]) if self.random.random() < 0.1 else {}

    def _some(self, kind: type[Struct], counts: tuple[int, ...]) -> dict[str, object]:
        names = kind.__struct_fields__
        return self.odd.fields(kind, self.random.sample(names, self.random.choice(counts)))

    def reservation(self) -> dict[str, object]:
        random = self.random
        request = self.odd.fields(ReservationRequest, random.sample(ReservationRequest.__struct_fields__, 3))
        start_at = self.site.now + random.choice((0.0, 0.0, 60.0, 3600.0))
        valid = {"start_at": start_at, "duration_seconds": random.choice((60.0, 3000.0)), "users": ["alice"]}
        valid |= random.choice(({"nodes": ["n1"]}, {"node_count": 1}, {"core_counts": [2]}, {"nodes": ["ALL"]}))
        valid["flags"] = random.sample(FLAGS, random.choice((0, 1, 2)))
        return {"request": {**request, **valid} if random.random() < 0.8 else request}

    def _reservation_update(self) -> dict[str, object]:
        request = self.reservation()["request"]
        assert isinstance(request, dict)
        names = random_names(self.random, request)
        return {"request": {**{name: request[name] for name in names}, **self._reservation_named()}}

    def _crontab(self) -> dict[str, object]:
        jobs = []
        for _ in range(self.random.choice((0, 1, 2))):
            schedule = self.random.choice(("* * * * *", "0 0 29 2 *", "*/7 1-3 * * 1-5", "@daily", "x", "0 0 31 2 *"))
            cron = {**self._some(CronEntry, (0, 0, 1, 2)), "schedule": schedule}
            jobs.append({**self._job(), "spec": {"batch": True, "name": "c", "cron": cron}})
            if self.random.random() < 0.3:
                spec = jobs[-1]["spec"]
                assert isinstance(spec, dict)
                spec |= {**self._some(JobSpec, (1, 2)), "cron": cron}
        return {"text": "text", "jobs": jobs}

    def _job(self) -> dict[str, object]:
        valid: dict[str, object] = {"batch": True, "work_dir": "/tmp", "name": self.random.choice("ab")}
        if self.random.random() < 0.3:
            valid |= {"batch": False, "interactive": True}
        if self.random.random() < 0.5:
            valid["time_limit_minutes"] = 1
        return {"spec": {**valid, **self._some(JobSpec, (0, 1, 1, 2, 3, 6))}, "script": b"#!/bin/sh\n"}

    def submit(self) -> None:
        """A job, or a heterogeneous one, of any fields."""
        more = {}
        if self.random.random() < 0.2:
            more["immediate_seconds"] = self.random.choice((0, 1, 60))
        if self.random.random() < 0.3:
            parts = [{**self._job(), **more} for _ in range(self.random.choice((1, 2, 2, 3)))]
            command = self.decoded(SubmitHetJob, {"components": parts})
        else:
            command = self.decoded(SubmitJob, {**self._job(), **more})
        self.send(command, self.random.choice((ALICE, BOB, SYSTEM)))

    # -- scheduler and nodes

    def cycle(self) -> None:
        """Plan, and apply the plan, which may be stale."""
        plan = self.site.plan()
        self.send(ApplyPlan(plan=plan))
        self.site.projection.adopt(plan)

    def step(self) -> None:
        """srun in a running job."""
        running = list(self.machine.state.running)
        if running:
            spec = {"tasks": 1, "argv": ["true"], "time_limit_minutes": self.random.choice((None, 1))}
            body = {"job_id": self.random.choice(running), "spec": {**spec, **self._some(StepSpec, (0, 0, 1, 2))}}
            self.send(self.decoded(CreateStep, body))

    def report(self) -> None:
        """Something that a node says of a job."""
        state, random = self.machine.state, self.random
        kind = random.choice(("start", "end", "end", "gone", "gone", "prolog"))
        steps = [step for steps in state.steps.values() for step in steps.values()]
        if kind == "prolog":
            self._end_prologs()
        elif kind == "gone" and state.completing:
            job = state.jobs[random.choice(list(state.completing))]
            self.send(JobGone(node=job.completing[0], job_id=job.id, restart_count=job.completing_life))
        elif steps:
            step = random.choice(steps)
            fields = {"job_id": step.job_id, "restart_count": step.restart_count, "step_id": step.step_id}
            node_name = random.choice(step.running_nodes)
            if kind == "start":
                self.send(StepStarted(node=node_name, started_at=self.site.now, **fields))
            else:
                self._finish(node_name, fields, random.choice((0, 0, 1 << 8, 2 << 8, 9)))

    def _finish(self, node_name: str, fields: dict[str, int], status: int) -> None:
        random = self.random
        odd = self._some(StepFinished, (0, 0, 0, 2))
        plain = {"tasks": [TaskEnd(0, status)], **odd, **fields, "node": node_name, "ended_at": self.site.now}
        self.send(self.decoded(StepFinished, {**plain, "job_gone": random.random() < 0.5}))

    def _end_prologs(self) -> None:
        for job in list(self.site.jobs.values()):
            error = self.random.choice(("", "", "no"))
            if job.flags & JobFlag.CONFIGURING and not job.flags & JobFlag.POWER_UP_NODE and job.prolog_nodes is None:
                self.send(PrologEnded(job_id=job.id, restart_count=job.restart_count, error=error))
            for name in job.prolog_nodes or ():
                report = NodePrologEnded(node=name, job_id=job.id, restart_count=job.restart_count, error=error)
                self.send(report)

    def nodes(self) -> None:
        """A node is lost, or registers."""
        name = self.random.choice(list(self.machine.state.nodes))
        if self.random.random() < 0.3:
            self.send(NodeLost(names=(name,)))
        else:
            self.register(name)

    def register(self, name: str) -> None:
        """The node's daemon registers, with the steps that it runs, or without."""
        state, knows = self.machine.state, self.random.random() < 0.7
        running = tuple(
            RunningStep(step.job_id, step.restart_count, step.step_id)
            for steps in state.steps.values()
            for step in steps.values()
            if knows and name in step.running_nodes
        )
        self.send(
            RegisterNode(
                name=name,
                capacity=state.nodes[name].config.capacity,
                booted_at=self.random.choice((500.0, self.site.now)),
                daemon_started_at=self.site.now,
                version="1",
                running=running,
            )
        )
        for effect in self.machine.pending_effects(name):
            _run(self.messages.message(effect))

    # -- time

    def tick(self, seconds: float) -> None:
        """The clock jumps by `seconds`. Whatever has fallen due must be done after a bounded number of Ticks."""
        self.site.now += seconds
        self.settle()

    def settle(self) -> None:
        for _ in range(500):
            deadline = self.machine.next_deadline()
            if deadline is None or deadline > self.site.now:
                return
            version = self.machine.state.version
            self.send(Tick())
            if self.machine.state.version == version and self.machine.next_deadline() == deadline:
                raise Torn(f"a Tick at {self.site.now} left the deadline {deadline} as it was")
        raise Torn(f"500 Ticks at {self.site.now} did not do what is due")

    # -- the controller

    def restart(self) -> None:
        """Go on from the image, with what the start of a daemon derives from it."""
        machine = self.machine
        image = machine.image()
        again = Machine.from_image(image)
        assert again.image() == image, "an image is not what it was made of"
        self.site.machine = again
        self.rebuild_projection()
        for effect in again.pending_effects():
            _run(self.messages.message(effect))
        state = again.state
        configs = tuple(node.config for node in state.nodes.values())
        self.send(Configure(settings=state.settings, nodes=configs, partitions=tuple(state.partitions.values())))

    def rebuild_projection(self) -> None:
        """The scheduler's projection follows from the records alone."""
        state, projection = self.machine.state, self.site.projection
        self.site.minutes = state.minutes
        projection.reset(
            state.jobs.values(),
            state.nodes.values(),
            state.partitions.values(),
            state.settings,
            state.reservations.values(),
            state.rules.policy,
        )

    def reconfigure(self) -> None:
        """slurm.conf has changed: nodes have left or come, and other settings hold."""
        random, site = self.random, self.site
        nodes = tuple(config for config in site.configs if random.random() < 0.8) or site.configs
        kept = {config.name for config in nodes}
        partitions = tuple(
            replace(partition, nodes=tuple(name for name in partition.nodes if name in kept))
            for partition in site.partitions
            if partition.default or random.random() < 0.7
        )
        settings = random.choice(list(SETTINGS.values())) if random.random() < 0.3 else self.settings
        self.send(Configure(settings=settings, nodes=nodes, partitions=partitions))

    def new_policy(self) -> None:
        """slurmdbd has another policy: associations and QOS came or went, for jobs that are there already."""
        random, version = self.random, self.machine.state.rules.policy.version + 1
        kept = tuple(association for association in _USERS if not association.user or random.random() < 0.8)
        members = self.machine.state.rules.federation
        qos = POLICY.qos if random.random() < 0.8 else POLICY.qos[:1]
        self.send(SetPolicy(policy=Policy(version=version, associations=kept, qos=qos, federation=members)))

    def check(self) -> None:
        problems = breaches(self.machine.state)
        assert not problems, "\n".join(problems)

    def show(self) -> None:
        """Everything that shows jobs, or keeps them for accounting, can: one odd job must not take all others away."""
        now = self.site.now
        for job in self.site.jobs.values():
            record_text(job, now, details=1, exempt_seconds=60)
            JSON_TEXT.encode(job_json(job, now, "cluster"))
            record_of(1, job, frozenset())
            for field in FIELDS:
                if field.needs and not field.refused:
                    field.render(now, *to_builtins(row_of(Job, field.needs)(job)))
        for _ in self.tally.follow(self.site.jobs):
            pass
        for _ in self.tally.add_up(JobTotals()):
            pass
        for steps in self.machine.state.steps.values():
            for step in steps.values():
                step_record_of(1, step)

    def finish(self) -> None:
        """Bring every job to its end, and let years go by."""
        for round_number in range(4):
            self.cycle()
            self._end_prologs()
            for steps in list(self.machine.state.steps.values()):
                for step in list(steps.values()):
                    fields = {"job_id": step.job_id, "restart_count": step.restart_count, "step_id": step.step_id}
                    for name in step.running_nodes:
                        self._finish(name, fields, self.random.choice((0, 0, 1 << 8, 9)))
            self._clear()
            self.show()
            self.tick((1.0, 90.0, 4000.0, 1e6)[round_number])
            self.check()
        self.restart()
        live = [job.id for job in self.site.jobs.values() if not job.state.ended]
        targets = tuple(JobTarget(number) for number in live)
        if targets:
            self.send(CancelJobs(filter=JobFilter(targets=targets), cron=True))
        self._clear()
        self.check()
        for seconds in (1000.0, YEAR_SECONDS, 20 * YEAR_SECONDS):
            self.tick(seconds)
        self.check()
        self._replay()

    def _clear(self) -> None:
        """All nodes say that the jobs which they should end are gone."""
        for job_id in list(self.machine.state.completing):
            job = self.site.jobs[job_id]
            for name in job.completing:
                self.send(JobGone(node=name, job_id=job_id, restart_count=job.completing_life))

    def _replay(self) -> None:
        machine = Machine.from_image(self.first)
        for event in self.events:
            machine.apply(msgpack.decode(msgpack.encode(event), type=ALL_EVENTS[type(event).__name__]))
        assert records(machine) == records(self.machine), "replay differs from live"


class _Blobs:
    """Scripts and environments of which nobody reads the content."""

    async def get(self, key: str) -> bytes:
        return b""


def _run(work: Any) -> None:
    """Run a coroutine that does not wait for anything."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")


def live(random: Random, hardware: str, settings: str, turns: int = 30, kind: type[Life] | None = None) -> Counter[str]:
    """A life of `turns` turns, and its end. Returns how many commands of each kind were accepted."""
    life = (kind or Life)(random, hardware, settings)
    for name in list(life.machine.state.nodes):
        if life.machine.state.nodes[name].state is not NodeState.IDLE or random.random() < 0.7:
            life.register(name)
    if random.random() < 0.2:
        life.send(life.decoded(CreateReservation, life.reservation()))
    for _ in range(turns):
        part = random.choices(
            (
                life.submit,
                life.anything,
                life.cycle,
                life.step,
                life.report,
                life.nodes,
                life.restart,
                life.reconfigure,
                life.new_policy,
            ),
            (5, 6, 4, 2, 5, 1, 0.3, 0.3, 0.2),
        )[0]
        part()
        if random.random() < 0.25:
            life.tick(random.choice((0.5, 3.0, 40.0, 70.0, 4000.0)))
    life.check()
    life.finish()
    return life.counts


def drawn(seed: int) -> Counter[str]:
    """`live` with everything drawn from the seed."""
    random = Random(seed)
    return live(random, random.choice(sorted(NODES)), random.choice(sorted(SETTINGS)))


def main(first: int, count: int) -> int:
    """Lives of `count` seeds. Prints each new kind of failure with its seed; returns how many there are."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            with guard(60.0):
                drawn(seed)
        except Exception as error:
            inside = [frame for frame in traceback.extract_tb(error.__traceback__) if "/src/spritz/" in frame.filename]
            place = f"{inside[-1].filename}:{inside[-1].lineno}" if inside else str(error)[:80]
            kind = f"{type(error).__name__} {place}"
            if not seen[kind]:
                print(f"seed {seed}: {kind}", flush=True)
                traceback.print_exc()
            seen[kind] += 1
    print(f"{count} lives from seed {first}: {dict(seen)}")
    return len(seen)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
