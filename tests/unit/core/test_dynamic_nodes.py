"""Nodes that come and go, and reboots, as the core decides them. Source: scontrol(1) create, delete, reboot."""

from __future__ import annotations

from msgspec.structs import replace

from spritz.core.effects import RebootOn
from spritz.core.machine import Machine
from spritz.model.cluster.power import PowerPolicy
from spritz.model.cluster.settings import ClusterSettings, NodeSet
from spritz.model.commands.cluster import AddNodes, Configure, DeleteNodes, RebootNodes, UpdateNode
from spritz.model.ids import STEP_BATCH
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.node_daemon.reports import AdmitNode, Introduced
from spritz.model.plan import PlannedStart
from spritz.model.resources import Allocation, NodeCapacity
from spritz.model.states import JobFlag, JobState, NodeFlag, NodeState
from spritz_testing.builders import ALICE, ROOT, World, capacity, expect, node_share, only, replayed

SETTINGS = ClusterSettings(
    max_node_count=6, node_sets=(NodeSet(name="fast", feature="ib"),), power=PowerPolicy(reboots=True)
)
PARTITIONS = (
    Partition(name="debug", nodes=("n1", "n2"), nodes_text="ALL", default=True),
    Partition(name="ib", nodes_text="fast"),
    Partition(name="fixed", nodes=("n1",), nodes_text="n1"),
)
FILE = tuple(NodeConfig(name=name, capacity=capacity()) for name in ("n1", "n2"))


def world(**settings: object) -> World:
    """Two nodes of the file, three partitions."""
    made = World(settings=replace(SETTINGS, **settings))
    made.ok(Configure(settings=made.settings, nodes=FILE, partitions=PARTITIONS))
    for config in FILE:
        made.register(config.name)
    return made


def node(name: str, *features: str, state: str = "UNKNOWN") -> NodeConfig:
    """As a line describes it."""
    return NodeConfig(name=name, capacity=capacity(), features=features, initial_state=state)


def admit(here: World, config: NodeConfig) -> NodeConfig:
    """Its daemon brings it."""
    outcome = here.ok(AdmitNode(hostname="host", capacity=capacity(), config=config))
    return expect(outcome.reply, Introduced).config


def test_a_node_joins_the_partitions_that_take_it_in() -> None:
    here = world()
    admit(here, node("d1", "ib"))
    admit(here, node("d2"))
    members = {name: partition.nodes for name, partition in here.state.partitions.items()}
    assert members == {"debug": ("n1", "n2", "d1", "d2"), "ib": ("d1",), "fixed": ("n1",)}
    assert here.state.node_partitions["d1"] == ("debug", "ib")
    assert here.state.nodes["d1"].flags & NodeFlag.DYNAMIC_NORM
    here.check()


def test_reading_the_files_again_keeps_dynamic_nodes_until_the_files_have_them() -> None:
    here = world()
    admit(here, node("d1", "ib"))
    here.ok(Configure(settings=here.settings, nodes=FILE, partitions=PARTITIONS))
    assert list(here.state.partitions["ib"].nodes) == ["d1"]
    own = replace(node("d1"), weight=7)
    here.ok(Configure(settings=here.settings, nodes=(*FILE, own), partitions=PARTITIONS))
    assert here.state.nodes["d1"].config == own
    assert not here.state.nodes["d1"].flags & NodeFlag.DYNAMIC_NORM
    assert not here.state.partitions["ib"].nodes
    here.check()


def test_only_idle_dynamic_nodes_in_no_reservation_are_deleted_and_all_or_none() -> None:
    here = world()
    for name in ("d1", "d2"):
        admit(here, node(name))
        here.register(name)
    job_id = here.submit(node_list=("d1",))
    here.start(job_id, "d1")
    assert here.refused(DeleteNodes(names=("d2", "d1"))) == "ESLURM_NODES_BUSY"
    assert here.refused(DeleteNodes(names=("d2", "n1"))) == "ESLURM_INVALID_NODE_NAME"
    assert here.refused(DeleteNodes(names=("d2",)), ALICE) == "ESLURM_USER_ID_MISSING"
    assert "d2" in here.state.nodes
    here.ok(DeleteNodes(names=("d2",)))
    assert "d2" not in here.state.nodes
    assert here.state.partitions["debug"].nodes == ("n1", "n2", "d1")
    here.check()
    again = Machine.from_image(replayed(here.events, here.settings).image())
    assert list(again.state.nodes) == ["n1", "n2", "d1"]


def test_there_are_no_more_nodes_than_maxnodecount_permits() -> None:
    here = world()
    many = tuple(node(f"c{number}", state="CLOUD") for number in range(5))
    assert here.refused(AddNodes(nodes=many)) == "ESLURM_INVALID_NODE_COUNT"
    here.ok(AddNodes(nodes=many[:4]))
    assert here.refused(AdmitNode(hostname="h", capacity=capacity(), config=node("d1"))) == "ESLURM_INVALID_NODE_COUNT"
    assert world(max_node_count=0).refused(AddNodes(nodes=many[:1])) == "ESLURM_INVALID_NODE_COUNT"


def test_nodes_are_made_by_hand_with_two_states_only() -> None:
    here = world()
    assert here.refused(AddNodes(nodes=(node("c1", state="DOWN"),))) == "ESLURM_INVALID_NODE_STATE"
    assert here.refused(AddNodes(nodes=(node("n1", state="CLOUD"),))) == "ESLURM_INVALID_NODE_NAME"
    here.ok(AddNodes(nodes=(node("c1", state="CLOUD"), node("c2", state="FUTURE"))))
    assert here.state.nodes["c1"].flags & NodeFlag.CLOUD
    assert here.state.nodes["c2"].state is NodeState.FUTURE


def test_a_daemon_that_comes_back_with_other_hardware_is_believed_when_nothing_runs_there() -> None:
    here = world()
    admit(here, node("d1"))
    here.register("d1")
    job_id = here.submit(node_list=("d1",))
    here.start(job_id, "d1")
    larger = replace(node("d1"), capacity=capacity(cpus=32))
    assert admit(here, larger).capacity.cpus == 8
    here.cancel(job_id)
    here.gone(job_id)
    assert admit(here, larger).capacity.cpus == 32


def test_a_node_that_is_brought_to_no_place_is_refused() -> None:
    here = world()
    lost = replace(node("d1"), topology="net:leaf")
    assert here.refused(AdmitNode(hostname="h", capacity=capacity(), config=lost)) == (
        "ESLURM_REQUESTED_TOPO_CONFIG_UNAVAILABLE"
    )
    assert here.refused(UpdateNode(names=("n1",), changes={"topology": "net:leaf"})) == (
        "ESLURM_REQUESTED_TOPO_CONFIG_UNAVAILABLE"
    )


def future_world() -> World:
    """Two places, one with a feature."""
    made = World(settings=SETTINGS)
    places = tuple(node(name, *features, state="FUTURE") for name, features in (("f1", ()), ("f2", ("gpu",))))
    everything = Partition(name="debug", nodes=("f1", "f2"), nodes_text="ALL", default=True)
    made.ok(Configure(settings=SETTINGS, nodes=places, partitions=(everything,)))
    return made


def claim(here: World, hostname: str, feature: str = "", **shape: int) -> str:
    """The node that a daemon with -F becomes."""
    outcome = here.ok(AdmitNode(hostname=hostname, capacity=capacity(**shape), feature=feature))
    return expect(outcome.reply, Introduced).config.name


def test_a_daemon_takes_the_first_future_node_that_fits_and_keeps_it() -> None:
    here = future_world()
    assert claim(here, "a", "gpu") == "f2"
    assert claim(here, "b") == "f1"
    assert claim(here, "a") == "f2"
    full = AdmitNode(hostname="c", capacity=capacity())
    assert here.refused(full) == "ESLURM_INVALID_NODE_NAME"
    here.register("f2", hostname="a", address="10.0.0.7")
    taken = here.state.nodes["f2"]
    assert (taken.state, taken.hostname, taken.address) == (NodeState.IDLE, "a", "10.0.0.7")
    assert taken.flags == NodeFlag.DYNAMIC_FUTURE
    here.ok(UpdateNode(names=("f2",), state="FUTURE"))
    assert claim(here, "c") == "f2"
    here.check()


def test_a_daemon_with_other_processors_finds_no_place_unless_they_do_not_matter() -> None:
    here = future_world()
    assert here.refused(AdmitNode(hostname="a", capacity=capacity(cpus=2))) == "ESLURM_INVALID_NODE_NAME"
    assert expect(here.ok(AdmitNode(hostname="a", capacity=NodeCapacity(cpus=0))).reply, Introduced).config.name == "f1"


def busy(here: World) -> int:
    """A job on n1."""
    job_id = here.submit(node_list=("n1",))
    here.start(job_id, "n1")
    here.started(job_id)
    return job_id


def test_a_reboot_waits_for_the_job_and_ends_when_the_node_has_booted() -> None:
    here = world()
    job_id = busy(here)
    here.ok(RebootNodes(names=("n1",), asap=True, reason="kernel"))
    waiting = here.state.nodes["n1"]
    assert waiting.flags == NodeFlag.REBOOT_REQUESTED | NodeFlag.DRAIN
    here.cancel(job_id)
    here.gone(job_id)
    effects = here.advance(1)
    ordered = only(effects, RebootOn)
    assert [effect.node for effect in ordered] == ["n1"]
    issued = here.state.nodes["n1"]
    assert issued.flags & NodeFlag.REBOOT_ISSUED
    assert issued.reason == "kernel : reboot issued"
    here.register("n1", booted_at=here.now - 1000)
    assert here.state.nodes["n1"].flags & NodeFlag.REBOOT_ISSUED
    here.register("n1", booted_at=here.now)
    after = here.state.nodes["n1"]
    assert (after.state, after.flags, after.reason, after.reboot_at) == (NodeState.IDLE, 0, "", 0.0)
    here.check()


def test_a_container_that_starts_again_under_the_same_kernel_has_booted() -> None:
    here = world()
    here.register("n1", boot_id="a")
    here.register("n1", boot_id="a+1")  # the same life, as a later release reports it
    assert here.state.nodes["n1"].boot_id == "a+1"
    job_id = busy(here)
    script = (job_id, 0, STEP_BATCH)
    here.register("n1", boot_id="a+1", running=(script,), jobs=((job_id, 0),))
    assert here.state.jobs[job_id].state is JobState.RUNNING
    here.register("n1", boot_id="a+2")
    job = here.state.jobs[job_id]
    assert (job.state, job.restart_count) == (JobState.PENDING, 1)
    here.check()


def test_without_asap_jobs_may_still_start_and_nextstate_down_keeps_the_node_down() -> None:
    here = world()
    busy(here)
    here.ok(RebootNodes(names=("n1", "n2"), next_state="DOWN"))
    assert not here.state.nodes["n1"].flags & NodeFlag.DRAIN
    assert here.state.nodes["n2"].flags & NodeFlag.REBOOT_ISSUED
    here.start(here.submit(node_list=("n1",)), "n1")
    here.register("n2", booted_at=here.now + 1)
    down = here.state.nodes["n2"]
    assert (down.state, down.reason) == (NodeState.DOWN, "reboot requested : reboot issued : reboot complete")


def test_a_node_that_does_not_come_back_is_down() -> None:
    here = world()
    here.ok(RebootNodes(names=("n1",)))
    here.advance(61)
    down = here.state.nodes["n1"]
    assert (down.state, down.flags) == (NodeState.DOWN, 0)
    assert down.reason == "reboot requested : reboot issued : reboot timed out"
    here.check()


def test_all_that_can_be_is_rebooted_and_what_cannot_be_is_refused_by_name() -> None:
    here = world()
    here.ok(UpdateNode(names=("n2",), state="FUTURE"))
    assert here.refused(RebootNodes(names=("n1", "n2"))) == "ESLURM_INVALID_NODE_STATE"
    here.ok(RebootNodes(names=()))
    assert here.state.nodes["n1"].flags & NodeFlag.REBOOT_ISSUED
    assert here.refused(RebootNodes(names=("n1",))) == "ESLURM_INVALID_NODE_STATE"
    none = world(power=PowerPolicy())
    assert none.refused(RebootNodes(names=("n1",))) == "ESLURM_DISABLED"
    assert here.refused(RebootNodes(names=("n1",)), ALICE) == "ESLURM_USER_ID_MISSING"


def test_a_job_with_reboot_waits_until_its_nodes_have_booted() -> None:
    here = world()
    assert here.submit_refused(reboot=True) == "ESLURM_ACCESS_DENIED"
    job_id = here.submit(caller=ROOT, reboot=True, node_list=("n1",))
    allocation = Allocation(partition="debug", nodes=(node_share("n1"),), whole_nodes=True)
    start = PlannedStart(job_id=job_id, allocation=allocation)
    assert [effect.node for effect in only(here.plan(start).effects, RebootOn)] == ["n1"]
    assert here.job(job_id).flags & JobFlag.CONFIGURING
    here.check()
    here.register("n1", booted_at=here.now + 1)
    job = here.job(job_id)
    assert job.state is JobState.RUNNING
    assert not job.flags & JobFlag.CONFIGURING
    assert not here.state.nodes["n1"].flags
    here.check()


def test_a_node_of_no_partition_is_the_same_after_a_restart() -> None:
    here = world()
    here.ok(AddNodes(nodes=(node("x1", "nowhere", state="CLOUD"),)))
    here.check()
