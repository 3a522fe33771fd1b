"""Random days of a cluster whose nodes come and go: no node is powered down with a job, each way up or down is one
call of a program, and replay and image are as the machine itself (invariants see to the rest).
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from spritz.core.invariants import breaches
from spritz.core.machine import Machine
from spritz.model.cluster import ClusterSettings
from spritz.model.commands.cluster import UpdateNode
from spritz.model.events.cluster import NodeRegistered, NodesPowered, NodeStateChanged
from spritz.model.plan import PlannedStart
from spritz.model.power import PowerPolicy
from spritz.model.reports import NodeLost
from spritz.model.resources import Allocation
from spritz.model.states import JobState, NodeFlag
from spritz.testing.builders import World, node_share, replayed

NODES = ("n1", "n2", "n3", "n4")
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
)
WORDS = ("POWER_UP", "POWER_DOWN", "POWER_DOWN_ASAP", "POWER_DOWN_FORCE", "DOWN", "DRAIN", "RESUME")


class Cloud(RuleBasedStateMachine):
    """Jobs on nodes that are up, down or between."""

    @initialize(policy=policies, service=st.sampled_from([0, 1, 2]), prolog=st.sampled_from([(), ("Alloc",)]))
    def begin(self, policy: PowerPolicy, service: int, prolog: tuple[str, ...]) -> None:
        """Some nodes sleep from the start."""
        self.world = World(settings=ClusterSettings(power=policy, return_to_service=service, prolog_flags=prolog))
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
        calls = dict.fromkeys(NODES, 0)
        ways = dict.fromkeys(NODES, 0)
        before = dict.fromkeys(NODES, 0)
        for event in world.events:
            if isinstance(event, NodesPowered):
                for name in event.names:
                    calls[name] += 1
            elif isinstance(event, NodeStateChanged):
                for flag in (NodeFlag.POWERING_UP, NodeFlag.POWERING_DOWN):
                    ways[event.name] += bool(event.flags & flag and not before[event.name] & flag)
            if isinstance(event, NodeStateChanged | NodeRegistered):
                before[event.name] = event.flags
        assert calls == ways
        again = Machine.from_image(replayed(world.events, world.settings).image())
        assert again.next_deadline() == world.machine.next_deadline()
        for job in world.state.jobs.values():
            assert job.state is not JobState.RUNNING or job.allocation is not None


TestCloud = Cloud.TestCase
TestCloud.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
