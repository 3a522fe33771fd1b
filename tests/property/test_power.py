"""Random days of a cluster whose nodes come and go: no node is powered down with a job, each way up or down is one
call of a program, and replay and image are as the machine itself (invariants see to the rest).
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from spritz.core.invariants import breaches
from spritz.core.machine import Machine
from spritz.model.cluster.power import PowerPolicy
from spritz.model.cluster.settings import ClusterSettings, NodeSet
from spritz.model.commands.cluster import Configure, DeleteNodes, RebootNodes, UpdateNode
from spritz.model.events.cluster import NodeRegistered, NodesDeleted, NodesPowered, NodeStateChanged, NodeUpdated
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.node_daemon.reports import AdmitNode, NodeLost
from spritz.model.plan import PlannedStart
from spritz.model.resources import Allocation
from spritz.model.states import JobState, NodeFlag
from spritz_testing.builders import ROOT, World, capacity, node_share, replayed

NODES = ("n1", "n2", "n3", "n4")
SETS = (NodeSet(name="x", feature="x"),)
names = st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True)
policies = st.builds(
    PowerPolicy,
    resumes=st.just(True),
    suspends=st.just(True),
    resume_rate=st.sampled_from([0, 1, 2, 300]),
    suspend_rate=st.sampled_from([0, 1, 60]),
    resume_timeout_seconds=st.sampled_from([0, 20, 60]),
    suspend_timeout_seconds=st.sampled_from([0, 10]),
    suspend_seconds=st.sampled_from([None, 0, 50]),
    kept=st.sampled_from([(), ((NODES[:2], 1),), (((NODES[3],), 0),)]),
    idle_on_suspend=st.booleans(),
    reboots=st.booleans(),
)
WORDS = (
    "CANCEL_REBOOT",
    "FUTURE",
    "POWER_UP",
    "POWER_DOWN",
    "POWER_DOWN_ASAP",
    "POWER_DOWN_FORCE",
    "DOWN",
    "DRAIN",
    "RESUME",
)


class Cloud(RuleBasedStateMachine):
    """Jobs on nodes that are up, down or between."""

    @initialize(policy=policies, service=st.sampled_from([0, 1, 2]), prolog=st.sampled_from([(), ("Alloc",)]))
    def begin(self, policy: PowerPolicy, service: int, prolog: tuple[str, ...]) -> None:
        """Some nodes sleep from the start."""
        everything = Partition(name="debug", nodes=NODES, nodes_text="ALL", default=True)
        self.world = World(
            settings=ClusterSettings(
                power=policy, return_to_service=service, prolog_flags=prolog, max_node_count=6, node_sets=SETS
            ),
            partitions=(everything, Partition(name="x", nodes_text="x")),
        )
        self.world.do(UpdateNode(names=NODES[1:], state="POWER_DOWN"))

    @rule(nodes=names, batch=st.booleans(), no_kill=st.booleans(), minutes=st.sampled_from([None, 1]))
    def start(self, nodes: list[str], batch: bool, no_kill: bool, minutes: int | None) -> None:
        """A plan, which may be stale."""
        world = self.world
        job_id = world.submit(batch=batch, no_kill=no_kill, nodes_min=len(nodes), time_limit_minutes=minutes)
        shares = tuple(node_share(name) for name in nodes)
        world.plan(PlannedStart(job_id=job_id, allocation=Allocation(partition="debug", nodes=shares)))

    @rule(name=st.sampled_from(NODES), boot=st.booleans())
    def register(self, name: str, boot: bool) -> None:
        """A daemon comes up, asked for or not."""
        self.world.register(name, booted_at=self.world.now if boot else 500.0, spool_id=str(boot))

    @rule(nodes=names, word=st.sampled_from(WORDS))
    def update(self, nodes: list[str], word: str) -> None:
        """An administrator steps in; what is refused is refused."""
        self.world.do(UpdateNode(names=tuple(nodes), state=word, reason="test"))

    @rule(nodes=names, asap=st.booleans(), then=st.sampled_from(["", "RESUME", "DOWN"]))
    def reboot(self, nodes: list[str], asap: bool, then: str) -> None:
        """Some nodes are to be rebooted, when they can be."""
        self.world.do(RebootNodes(names=tuple(nodes), asap=asap, next_state=then))

    @rule(nodes=names)
    def start_rebooted(self, nodes: list[str]) -> None:
        """A job that has its nodes rebooted."""
        world = self.world
        if world.settings.power.reboots:
            job_id = world.submit(caller=ROOT, reboot=True, nodes_min=len(nodes), time_limit_minutes=1)
            shares = tuple(node_share(name) for name in nodes)
            world.plan(PlannedStart(job_id=job_id, allocation=Allocation(partition="debug", nodes=shares)))

    @rule(number=st.integers(1, 3), feature=st.sampled_from(["", "x"]))
    def bring(self, number: int, feature: str) -> None:
        """A daemon brings a node, or comes back with it."""
        config = NodeConfig(name=f"d{number}", capacity=capacity(), features=(feature,) if feature else ())
        self.world.do(AdmitNode(hostname="host", capacity=capacity(), config=config))

    @rule(number=st.integers(1, 3))
    def delete(self, number: int) -> None:
        """By hand."""
        self.world.do(DeleteNodes(names=(f"d{number}",)))

    @rule(hostname=st.sampled_from(["a", "b"]))
    def claim(self, hostname: str) -> None:
        """A daemon takes the place of a FUTURE node."""
        self.world.do(AdmitNode(hostname=hostname, capacity=capacity()))

    @rule(number=st.integers(1, 3))
    def start_there(self, number: int) -> None:
        """A job on a dynamic node."""
        self.start([f"d{number}"], True, False, 1) if f"d{number}" in self.world.state.nodes else None

    @rule(number=st.integers(1, 3), boot=st.booleans())
    def register_there(self, number: int, boot: bool) -> None:
        """Its daemon comes up."""
        if f"d{number}" in self.world.state.nodes:
            self.register(f"d{number}", boot)

    @rule()
    def configure(self) -> None:
        """The files are read again, and are as they were."""
        world = self.world
        world.ok(Configure(settings=world.settings, nodes=world.nodes, partitions=world.partitions))

    @rule(seconds=st.sampled_from([0, 1, 10, 60, 200]))
    def wait(self, seconds: int) -> None:
        """`advance` fails if a deadline has passed and nothing happened."""
        self.world.advance(seconds)

    @rule(name=st.sampled_from(NODES))
    def lose(self, name: str) -> None:
        """SlurmdTimeout."""
        self.world.do(NodeLost(names=(name,), reason="Not responding"))

    @rule()
    def end(self) -> None:
        """Every running job is cancelled, and all that must be cleared is."""
        world = self.world
        for job_id in list(world.state.running):
            world.cancel(job_id)
        for job_id in list(world.state.completing):
            job = world.job(job_id)
            for name in job.completing:
                world.gone(job_id, name, life=job.completing_life)

    @invariant()
    def holds(self) -> None:
        """After every command."""
        if hasattr(self, "world"):
            assert not breaches(self.world.state)

    def teardown(self) -> None:
        """One call for each way, and nothing is lost by a restart."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.check()
        calls: Counter[str] = Counter()
        ways: Counter[str] = Counter()
        before: Counter[str] = Counter()
        for event in world.events:
            if isinstance(event, NodesPowered):
                for name in event.names:
                    calls[name] += 1
            elif isinstance(event, NodeStateChanged):
                for flag in (NodeFlag.POWERING_UP, NodeFlag.POWERING_DOWN):
                    ways[event.name] += bool(event.flags & flag and not before[event.name] & flag)
            elif isinstance(event, NodeUpdated):
                before[event.node.name] = event.node.flags
            elif isinstance(event, NodesDeleted):
                for name in event.names:
                    before[name] = 0
            if isinstance(event, NodeStateChanged | NodeRegistered):
                before[event.name] = event.flags
        assert calls == ways
        again = Machine.from_image(replayed(world.events, world.settings).image())
        assert again.next_deadline() == world.machine.next_deadline()
        for job in world.state.jobs.values():
            assert job.state is not JobState.RUNNING or job.allocation is not None


TestCloud = Cloud.TestCase
TestCloud.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
