"""Random conversations with the core: whatever is said, invariants hold, replay equals live, an image is what it was
made of.

Reports come twice, late, from the wrong node and from earlier lives; plans are stale; nodes go and come back.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from msgspec.structs import replace

from spritz.core.invariants import breaches
from spritz.core.machine import Machine
from spritz.model.cluster.settings import Caller, ClusterSettings
from spritz.model.commands.cluster import ApplyPlan, Configure, UpdateNode
from spritz.model.commands.job import (
    CancelJobs,
    HoldJob,
    JobSubmitted,
    ReleaseJob,
    RequeueJob,
    ResumeJob,
    SuspendJob,
    UpdateJob,
)
from spritz.model.commands.step import CreateStep, SignalStep
from spritz.model.ids import STEP_BATCH
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Dependency, EndSignal, Job
from spritz.model.job.step import StepSpec
from spritz.model.limits.records import Association, Policy, SetPolicy
from spritz.model.node_daemon.reports import JobGone, NodePrologEnded, PrologEnded, StepFinished, StepStarted, TaskEnd
from spritz.model.plan import PendingNote, Plan, PlannedStart
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation, GresRequest, NodeAllocation, mask_text
from spritz.model.states import JobFlag, JobState
from spritz_testing.builders import ALICE, BOB, ROOT, World, capacity, node_share

NODES = ("n1", "n2", "n3")
SETTINGS = ClusterSettings(
    gres_types=("gpu",),
    min_job_age_seconds=120,
    kill_wait_seconds=5,
    max_batch_requeue=2,
    requeue_exit=(77,),
    requeue_exit_hold=(78,),
    return_to_service=1,
    max_job_count=60,
)
callers = st.sampled_from([ALICE, BOB, ROOT])
prolog_flags = st.sampled_from(
    [(), (), ("Alloc",), ("Alloc", "Contain"), ("Alloc", "DeferBatch"), ("Alloc", "NoHold"), ("Alloc", "Contain")]
)
node_names = st.sampled_from(NODES)
kinds = st.sampled_from(["after", "afterany", "afterok", "afternotok", "aftercorr"])
statuses = st.sampled_from([0, 0, 0, 1 << 8, 77 << 8, 78 << 8, 9, 15])


class Conversation(RuleBasedStateMachine):
    """One world; `jobs` are numbers that were once given out."""

    jobs: Bundle[int] = Bundle("jobs")
    world_kind: type[World] = World

    @initialize(
        target=jobs,
        running=st.booleans(),
        prolog=st.sampled_from([False, False, True]),
        flags=prolog_flags,
        accruing=st.sampled_from([None, None, 0, 1, 3]),
    )
    def begin(self, running: bool, prolog: bool, flags: tuple[str, ...], accruing: int | None) -> MultipleResults[int]:
        """Some jobs are there from the start: most rules need one."""
        self.settings = replace(SETTINGS, enforce=() if accruing is None else ("limits",))
        self.world = world = self.world_kind(
            nodes=3,
            hardware=capacity(cpus=4, memory_mib=1000, gpus=2),
            settings=replace(self.settings, prolog_slurmctld=prolog, prolog_flags=flags),
        )
        if accruing is not None:
            self.limit_accrual(accruing, accruing + 1)
        two_nodes = world.submit(nodes_min=2, nodes_given=True, time_limit_minutes=1)
        array = world.submit(BOB, array="0-3%2", name="a")
        waiting = world.submit(dependencies=(Dependency(kind="afterok", job_id=array),), name="b")
        if running:
            self.fill_nodes()
        return multiple(two_nodes, array, waiting)

    # -- users

    @rule(caller=callers, key=st.sampled_from(["k1", "k2"]), array=st.sampled_from(["", "0-3"]))
    def submit_again(self, caller: Caller, key: str, array: str) -> None:
        """One key queues one job of its user for as long as that is known, however often its command asks."""
        state = self.world.state
        known = [job.id for job in state.jobs.values() if job.submit_key == key and job.spec.uid == caller.uid]
        outcome = self.world.submit_outcome(caller, submit_key=key, array=array)
        if known:
            assert (outcome.reply, outcome.events) == (JobSubmitted(job_id=known[0]), ())
        elif isinstance(outcome.reply, JobSubmitted):
            again = self.world.submit_outcome(caller, submit_key=key, array=array)
            assert (again.reply, again.events) == (outcome.reply, ())

    @rule(
        target=jobs,
        caller=callers,
        name=st.sampled_from(["a", "b"]),
        array=st.sampled_from(["", "", "", "0-3", "1-5:2%1", "0-2%2"]),
        depends=st.lists(st.tuples(kinds, jobs), max_size=2),
        singleton=st.booleans(),
        mode=st.sampled_from(["all", "any"]),
        begin=st.sampled_from([0.0, 0.0, 30.0]),
        limit=st.sampled_from([None, 1, 10]),
        hold=st.booleans(),
        signal=st.booleans(),
        batch=st.sampled_from([True, True, True, False]),
        nodes=st.sampled_from([1, 1, 2]),
        kill_invalid=st.booleans(),
        no_kill=st.booleans(),
        deadline=st.sampled_from([0.0, 0.0, 0.0, 900.0]),
        at_once=st.sampled_from([True, True, False]),
    )
    def submit(
        self,
        caller: Caller,
        name: str,
        array: str,
        depends: list[tuple[str, int]],
        singleton: bool,
        mode: str,
        begin: float,
        limit: int | None,
        hold: bool,
        signal: bool,
        batch: bool,
        nodes: int,
        kill_invalid: bool,
        no_kill: bool,
        deadline: float,
        at_once: bool,
    ) -> int:
        world = self.world
        dependencies = tuple(
            Dependency(kind=kind, job_id=job_id, minutes=1 if kind == "after" and singleton else 0)
            for kind, job_id in depends
        )
        if singleton:
            dependencies += (Dependency(kind="singleton"),)
        outcome = world.submit_outcome(
            caller,
            name=name,
            array=array if batch else "",
            dependencies=dependencies,
            dependency_mode=mode,
            begin_at=world.now + begin if begin else 0.0,
            time_limit_minutes=limit,
            hold=hold and singleton,
            end_signal=EndSignal(signal=10, seconds=20) if signal else None,
            batch=batch,
            nodes_min=nodes,
            nodes_given=nodes > 1,
            kill_on_invalid_dependency=kill_invalid,
            no_kill=no_kill,
            deadline_at=world.now + deadline if deadline else 0.0,
        )
        if at_once:
            self.fill_nodes()
        return getattr(outcome.reply, "job_id", 1)

    @rule(
        target=jobs,
        caller=callers,
        size=st.integers(1, 3),
        name=st.sampled_from(["a", "b"]),
        depends=st.lists(st.tuples(kinds, jobs), max_size=1),
        singleton=st.booleans(),
        kill_invalid=st.booleans(),
        limits=st.tuples(*[st.sampled_from([None, 1, 10])] * 3),
        batch=st.booleans(),
        requeue=st.booleans(),
        at_once=st.booleans(),
    )
    def submit_het(
        self,
        caller: Caller,
        size: int,
        name: str,
        depends: list[tuple[str, int]],
        singleton: bool,
        kill_invalid: bool,
        limits: tuple[int | None, ...],
        batch: bool,
        requeue: bool,
        at_once: bool,
    ) -> MultipleResults[int]:
        """Submit a heterogeneous job; the ids of all components are known."""
        dependencies = tuple(Dependency(kind=kind, job_id=job_id) for kind, job_id in depends)
        if singleton:
            dependencies += (Dependency(kind="singleton"),)
        components = [
            {
                "name": name,
                "dependencies": dependencies,
                "kill_on_invalid_dependency": kill_invalid,
                "time_limit_minutes": limits[number],
                "batch": batch,
                "requeue": requeue,
            }
            for number in range(size)
        ]
        outcome = self.world.submit_het(*components, caller=caller)
        first = getattr(outcome.reply, "job_id", 1)
        if at_once:
            self.fill_nodes()
        return multiple(*range(first, first + size))

    def fill_nodes(self) -> None:
        """A scheduler of few words: every pending job gets one CPU on as many nodes as it asks."""
        world = self.world
        for job_id in list(world.state.pending):
            job = world.job(job_id)
            if job.het_job_id:
                if not job.het_offset:
                    self.fill_with_components(job)
                continue
            free = [name for name in world.state.nodes if 0b1111 & ~world.state.uses[name].cpus]
            shares = [world.free_share(name, 1) for name in free[: job.spec.nodes_min]]
            task = _lowest(job.array.pending) if job.array is not None else None
            if len(shares) == job.spec.nodes_min:
                world.plan(PlannedStart(job_id=job_id, task_id=task, allocation=_allocation(shares)))

    def fill_with_components(self, leader: Job) -> None:
        """One CPU for each; with few free ones not all of them get one, and none may start."""
        world = self.world
        free = {name: 0b1111 & ~world.state.uses[name].cpus for name in world.state.nodes}
        starts = []
        for offset in range(leader.het_size):
            name = max(free, key=lambda name: free[name].bit_count())
            mask = free[name] & -free[name]
            if mask:
                free[name] &= ~mask
                share = NodeAllocation(node=name, cpus=mask_text(mask))
                starts.append(PlannedStart(job_id=leader.id + offset, allocation=_allocation([share])))
        world.plan(*starts)

    @rule(job_id=jobs, caller=callers, tasks=st.sampled_from(["", "", "1", "6"]), signal=st.sampled_from([0, 0, 9, 10]))
    def cancel(self, job_id: int, caller: Caller, tasks: str, signal: int) -> None:
        target = JobTarget(job_id, tasks)
        self.world.do(CancelJobs(filter=JobFilter(targets=(target,)), signal=signal), caller)

    @rule(
        job_id=jobs,
        caller=callers,
        kind=st.sampled_from(["hold", "uhold", "release", "requeue", "requeuehold", "suspend", "resume"]),
        tasks=st.sampled_from(["", "", "1", "5"]),
    )
    def steer(self, job_id: int, caller: Caller, kind: str, tasks: str) -> None:
        target = JobTarget(job_id, tasks)
        commands = {
            "hold": HoldJob(target=target),
            "uhold": HoldJob(target=target, by_user=True),
            "release": ReleaseJob(target=target),
            "requeue": RequeueJob(target=target),
            "requeuehold": RequeueJob(target=target, hold=True, special_exit=bool(tasks)),
            "suspend": SuspendJob(target=target),
            "resume": ResumeJob(target=target),
        }
        self.world.do(commands[kind], caller)

    @rule(
        job_id=jobs,
        other=jobs,
        caller=callers,
        what=st.sampled_from(["time", "name", "nice", "priority", "dependencies", "throttle", "begin", "none"]),
        tasks=st.sampled_from(["", "", "2"]),
        number=st.integers(0, 30),
    )
    def update(self, job_id: int, other: int, caller: Caller, what: str, tasks: str, number: int) -> None:
        changes: dict[str, dict[str, object]] = {
            "time": {"time_limit_minutes": number + 1},
            "name": {"name": "ab"[number % 2]},
            "nice": {"nice": number},
            "priority": {"priority": number},
            "dependencies": {"dependencies": [{"kind": "afterok", "job_id": other}]},
            "throttle": {"array_limit": number % 4},
            "begin": {"begin_at": self.world.now + number - 10},
            "none": {"dependencies": []},
        }
        self.world.do(UpdateJob(target=JobTarget(job_id, tasks), changes=changes[what]), caller)

    @rule(
        data=st.data(),
        tasks=st.integers(1, 4),
        exact=st.booleans(),
        overlap=st.booleans(),
        limit=st.sampled_from([None, 1]),
        gpus=st.sampled_from([None, 0, 1, 2]),
        memory=st.sampled_from([None, 50]),
    )
    def srun(
        self,
        data: st.DataObject,
        tasks: int,
        exact: bool,
        overlap: bool,
        limit: int | None,
        gpus: int | None,
        memory: int | None,
    ) -> None:
        running = list(self.world.state.running) or [1]
        spec = StepSpec(
            tasks=tasks,
            exact=exact,
            overlap=overlap,
            time_limit_minutes=limit,
            gres_none=gpus == 0,
            gpus_per_node=(GresRequest("gpu", "", gpus),) if gpus else (),
            memory_mib_per_node=memory,
        )
        self.world.do(CreateStep(job_id=data.draw(st.sampled_from(running)), spec=spec), ROOT)

    @rule(data=st.data(), stop=st.booleans())
    def stop_and_go(self, data: st.DataObject, stop: bool) -> None:
        """Suspend or resume something that runs."""
        running = list(self.world.state.running)
        if running:
            target = JobTarget(data.draw(st.sampled_from(running)))
            self.world.do(SuspendJob(target=target) if stop else ResumeJob(target=target))

    @rule(data=st.data(), end=st.booleans())
    def signal_a_step(self, data: st.DataObject, end: bool) -> None:
        steps = [step for steps in self.world.state.steps.values() for step in steps.values()]
        if steps:
            step = data.draw(st.sampled_from(steps))
            command = SignalStep(job_id=step.job_id, step_id=step.step_id, signal=12, terminate=end)
            self.world.do(command)

    # -- scheduler

    @rule()
    def schedule_all(self) -> None:
        self.fill_nodes()

    @rule(data=st.data(), greedy=st.booleans())
    def schedule(self, data: st.DataObject, greedy: bool) -> None:
        """A plan that takes what is free, or (not greedy) whatever it likes, stale and impossible starts included."""
        world, starts = self.world, []
        free = {name: 0b1111 & ~world.state.uses[name].cpus for name in world.state.nodes}
        candidates = list(world.state.pending) if greedy else [*world.state.jobs, 99999]
        for job_id in data.draw(st.lists(st.sampled_from(candidates), max_size=4)) if candidates else []:
            job = world.state.jobs.get(job_id)
            shares = []
            names = sorted(free)
            for name in names[: job.spec.nodes_min if job else 1] if greedy else [data.draw(node_names)]:
                mask = free.get(name, 0) if greedy else data.draw(st.integers(0, 15))
                low = mask & -mask if greedy else mask
                free[name] = free.get(name, 0) & ~low
                gpu = data.draw(st.sampled_from(["", "1", "2", "3"]))
                memory = data.draw(st.sampled_from([0, 100, 600]))
                shares.append(node_share(name, mask_text(low), memory, gpu))
            task = _lowest(job.array.pending) if job is not None and job.array is not None else None
            starts.append(PlannedStart(job_id=job_id, task_id=task, allocation=_allocation(shares)))
        notes = tuple(
            PendingNote(job_id=job_id, reason=Reason.RESOURCES, expected_start_at=world.now + 60)
            for job_id in candidates[:3]
        )
        world.machine.next_deadline()
        world.ok(ApplyPlan(plan=Plan(starts=tuple(starts), notes=notes)))

    # -- nodes

    @rule(data=st.data(), status=statuses, gone=st.booleans(), launch=st.booleans(), late=st.booleans())
    def report(self, data: st.DataObject, status: int, gone: bool, launch: bool, late: bool) -> None:
        """Some step starts or ends somewhere; `late`: said by an earlier life."""
        steps = [step for steps in self.world.state.steps.values() for step in steps.values()]
        if not steps:
            return
        step = data.draw(st.sampled_from(steps))
        node = data.draw(st.sampled_from([*step.node_names, "n1"]))
        life = step.restart_count - 1 if late else step.restart_count
        if launch:
            self.world.ok(
                StepStarted(
                    node=node, job_id=step.job_id, restart_count=life, step_id=step.step_id, started_at=self.world.now
                )
            )
            return
        self.world.ok(
            StepFinished(
                node=node,
                job_id=step.job_id,
                restart_count=life,
                step_id=step.step_id,
                ended_at=self.world.now,
                tasks=(TaskEnd(0, status),),
                job_gone=gone and step.step_id == STEP_BATCH,
                oom=status == 9,
                launch_failed=status == 15,
            )
        )

    @rule(data=st.data())
    def node_lets_go(self, data: st.DataObject) -> None:
        completing = list(self.world.state.completing)
        if completing:
            job = self.world.job(data.draw(st.sampled_from(completing)))
            node = data.draw(st.sampled_from(job.completing))
            self.world.ok(JobGone(node=node, job_id=job.id, restart_count=job.completing_life))

    @rule(job_id=jobs, node=node_names, life=st.integers(0, 3))
    def stray_report(self, job_id: int, node: str, life: int) -> None:
        self.world.ok(JobGone(node=node, job_id=job_id, restart_count=life))

    @rule(node=node_names)
    def node_is_lost(self, node: str) -> None:
        if node in self.world.state.nodes and self.world.state.running:
            self.world.lose(node)

    @rule(node=node_names, knows=st.booleans(), rebooted=st.booleans(), small=st.booleans())
    def node_registers(self, node: str, knows: bool, rebooted: bool, small: bool) -> None:
        running = [
            (step.job_id, step.restart_count, step.step_id)
            for steps in self.world.state.steps.values()
            for step in steps.values()
            if node in step.node_names and knows
        ]
        self.world.register(
            node,
            [*running, (4711, 0, 0)],
            booted_at=self.world.now if rebooted else 500.0,
            capacity=capacity(cpus=4, memory_mib=10) if small else self.world.hardware,
        )

    @rule(node=node_names, state=st.sampled_from(["DRAIN", "RESUME", "DOWN", "UNDRAIN", "IDLE", "FAIL"]))
    def node_is_set(self, node: str, state: str) -> None:
        self.world.do(UpdateNode(names=(node,), state=state, reason="test"))

    @rule(data=st.data(), error=st.sampled_from(["", "", "exit status 1"]), late=st.booleans())
    def prolog_ends(self, data: st.DataObject, error: str, late: bool) -> None:
        """PrologSlurmctld has run, for this life of the job or for an earlier one."""
        configuring = [job for job in self.world.state.jobs.values() if job.flags & JobFlag.CONFIGURING]
        if configuring:
            job = data.draw(st.sampled_from(configuring))
            self.world.do(PrologEnded(job_id=job.id, restart_count=job.restart_count - late, error=error))

    @rule(data=st.data(), error=st.sampled_from(["", "", "", "exit status 1"]), late=st.booleans())
    def node_prolog_ends(self, data: st.DataObject, error: str, late: bool) -> None:
        """A Prolog has run on a node, for this life of the job or for an earlier one."""
        waited_for = [(job, name) for job in self.world.state.jobs.values() for name in job.prolog_nodes or ()]
        if waited_for:
            job, name = data.draw(st.sampled_from(waited_for))
            life = job.restart_count - late
            self.world.do(NodePrologEnded(node=name, job_id=job.id, restart_count=life, error=error))

    @rule(count=st.integers(2, 3), age=st.sampled_from([60, 120]), prolog=st.booleans(), flags=prolog_flags)
    def reconfigure(self, count: int, age: int, prolog: bool, flags: tuple[str, ...]) -> None:
        world = self.world
        nodes = world.nodes[:count]
        partition = replace(world.partitions[0], nodes=world.names[:count])
        changed = replace(self.settings, min_job_age_seconds=age, prolog_slurmctld=prolog, prolog_flags=flags)
        world.ok(Configure(settings=changed, nodes=nodes, partitions=(partition,)))

    @precondition(lambda self: self.settings.enforce)
    @rule(alice=st.sampled_from([None, 0, 1, 4]), all_of_them=st.sampled_from([None, 0, 2, 5]))
    def limit_accrual(self, alice: int | None, all_of_them: int | None) -> None:
        """Limit how many jobs of the user, and how many of the account, may age."""
        root = Association(id=1, cluster="cluster", account="root", grp_jobs_accrue=all_of_them)
        users = [
            Association(id=number, cluster="cluster", account="root", user=user, is_default=True, max_jobs_accrue=limit)
            for number, user, limit in ((2, "alice", alice), (3, "bob", None))
        ]
        version = self.world.state.rules.policy.version + 1
        self.world.ok(SetPolicy(policy=Policy(version=version, associations=(root, *users))))

    @rule(seconds=st.sampled_from([0.5, 5.0, 40.0, 130.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(seconds=st.sampled_from([3.0, 100.0, 4000.0]))
    def clock_jumps(self, seconds: float) -> None:
        """Everything falls due together. Each Tick moves the state or a deadline: none is due for ever."""
        world = self.world
        world.now += seconds
        while (deadline := world.machine.next_deadline()) is not None and deadline <= world.now:
            version = world.state.version
            world.tick()
            assert world.state.version > version or world.machine.next_deadline() != deadline

    @rule()
    def controller_restarts(self) -> None:
        world = self.world
        before = world.machine.image()
        world.machine = Machine.from_image(before)
        assert world.machine.image() == before
        world.machine.pending_effects()

    # -- what must hold

    @invariant()
    def nothing_is_wrong(self) -> None:
        if hasattr(self, "world"):
            problems = breaches(self.world.state)
            assert not problems, "\n".join(problems)

    @invariant()
    def running_jobs_are_in_partitions_that_asked(self) -> None:
        if hasattr(self, "world"):
            for job_id in self.world.state.running:
                assert self.world.job(job_id).state in (JobState.RUNNING, JobState.SUSPENDED)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.check()


def _lowest(mask_text: str) -> int:
    mask = int(mask_text, 16)
    return (mask & -mask).bit_length() - 1


def _allocation(shares: list[NodeAllocation]) -> Allocation:
    return Allocation(partition="debug", nodes=tuple(shares))


Conversation.TestCase.settings = settings(
    max_examples=45, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestConversation = Conversation.TestCase
