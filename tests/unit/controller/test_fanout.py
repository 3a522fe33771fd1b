"""Orders for many nodes: few daemons are told, who is missed is told over its own link, and nothing overtakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from spritz.client.errors import CallTimeout, ConnectionLost, RemoteError
from spritz.controller.nodes import fanout
from spritz.controller.nodes.links import NodeLinks
from spritz.controller.nodes.messages import NodeMessages
from spritz.core.effects import AttachOn, Effect, LaunchBatchOn, NotifyOn, SignalOn, TerminateStepOn
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.cluster.topology import Switch, Topology
from spritz.model.node_daemon.branches import all_nodes
from spritz.model.node_daemon.launch import Accepted, Forwarded, ForwardOrder, SignalTasks, TerminateStep
from spritz.model.node_daemon.reports import Registered, RegisterNode
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger
from spritz.runtime.tasks import Supervisor
from spritz.wire.envelope import failure
from spritz_testing.builders import World

SECONDS = 100.0


def ends(nodes: list[str], step_id: int = 0) -> list[Effect]:
    return [TerminateStepOn(node=node, job_id=1, restart_count=0, step_id=step_id) for node in nodes]


class Link:
    """The controller's end of a connection to a slurmd; `answer` is given to orders for many."""

    def __init__(self) -> None:
        self.is_open = True
        self.pipe = SimpleNamespace(peer_name="10.0.0.1:50000", machine=None)
        self.received: list[Struct] = []
        self.answer: Callable[[ForwardOrder], Forwarded] = lambda order: Forwarded()
        self.held = asyncio.Event()
        self.held.set()

    async def call(self, message: Struct, reply: type, *, timeout: float) -> Struct:
        self.received.append(message)
        await self.held.wait()
        return self.answer(message) if isinstance(message, ForwardOrder) else Accepted()

    def on_close(self, callback: Callable[[], None]) -> None:
        pass

    @property
    def orders(self) -> list[ForwardOrder]:
        return [message for message in self.received if isinstance(message, ForwardOrder)]

    @property
    def direct(self) -> list[Struct]:
        return [message for message in self.received if not isinstance(message, ForwardOrder)]


class Site:
    """Nodes n1 … with a daemon each, and a controller's links to them."""

    def __init__(self, tasks: Supervisor, nodes: int, width: int, each: int = 1) -> None:
        self.tasks = tasks
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        world = World(nodes=nodes)
        writer = SimpleNamespace(
            handle=lambda report, caller, then: then(Registered(term=1)), when_durable=lambda work: work()
        )
        settings = SimpleNamespace(integer=lambda key: {"TreeWidth": width}[key], words=lambda key: ())
        context: Any = SimpleNamespace(
            machine=SimpleNamespace(state=world.machine.state, pending_effects=lambda name: []),
            journal=SimpleNamespace(term=1),
            clock=SystemClock(),
            log=get_logger("test"),
            tasks=tasks,
            counters=[],
            writer=writer,
            machines=None,
            configuration=SimpleNamespace(loaded=SimpleNamespace(settings=settings)),
        )
        blobs: Any = None
        self.counters = context.counters
        self.links = NodeLinks(context, NodeMessages(lambda: world.machine.state, blobs, lambda: 1))
        self.of: dict[str, Link] = {}
        for first in range(0, nodes, each):
            link = Link()
            for name in self.names[first : first + each]:
                self.of[name] = link
                call: Any = SimpleNamespace(channel=link, reply=lambda body: None)
                report = RegisterNode(
                    name=name,
                    capacity=world.hardware,
                    booted_at=1.0,
                    daemon_started_at=1.0,
                    version="25.05",
                    address="10.0.0.1",
                    port=6818,
                )
                self.links.register(report, call)

    async def carry_out(self, effects: list[Effect]) -> None:
        self.links.carry_out(effects)
        while len(self.tasks):  # noqa: ASYNC110  # what is waited for is not this test's to signal
            await asyncio.sleep(0)

    def told(self) -> dict[str, list[ForwardOrder]]:
        return {name: link.orders for name, link in self.of.items() if link.orders}

    def direct(self) -> list[str]:
        return sorted(message.node for link in self.of.values() for message in link.direct)  # type: ignore[attr-defined]

    def count(self, name: str) -> float:
        found: float = self.counters[0]()[name]
        return found


@asynccontextmanager
async def a_site(nodes: int, width: int, each: int = 1) -> AsyncIterator[Site]:
    async with asyncio.timeout(SECONDS), Supervisor() as tasks:
        yield Site(tasks, nodes, width, each)
        tasks.cancel_all()


def lost(error: Exception) -> Callable[[ForwardOrder], Forwarded]:
    def answer(order: ForwardOrder) -> Forwarded:
        raise error

    return answer


def test_a_thousand_daemons_are_told_by_fifty_messages() -> None:
    async def main() -> None:
        async with a_site(1000, 50) as site:
            await site.carry_out(ends(site.names))
            told = site.told()
            assert len(told) == 50
            assert not site.direct()
            orders = [order for link in told.values() for order in link]
            reached = [name for order in orders for name in (*order.nodes, *all_nodes(order.branches))]
            assert sorted(reached) == sorted(site.names)
            assert len({order.message for order in orders}) == 1, "written once"
            assert msgspec.msgpack.decode(orders[0].message, type=TerminateStep).node == ""
            assert {branch.started_at for order in orders for branch in order.branches} == {1.0}
            assert site.count("effect.sent_count") == 50
            assert site.count("effect.forwarded_count") == 1000

    asyncio.run(main())


def test_remaining_nodes_are_told_of_a_lost_rack_by_one_message_a_branch() -> None:
    async def main() -> None:
        async with a_site(300, 10) as site:
            message = "error: Node failure on r[1-64]"
            await site.carry_out(
                [NotifyOn(node=name, job_id=1, restart_count=0, message=message, step_id=0) for name in site.names]
            )
            assert site.count("effect.sent_count") == 10
            assert site.count("effect.forwarded_count") == 300
            assert not site.direct()

    asyncio.run(main())


def test_few_nodes_are_told_directly() -> None:
    async def main() -> None:
        async with a_site(5, 5) as site:
            await site.carry_out(ends(site.names))
            assert not site.told()
            assert site.direct() == sorted(site.names)

    asyncio.run(main())


def test_a_daemon_of_many_nodes_is_told_once() -> None:
    async def main() -> None:
        async with a_site(8, 5, each=4) as site:
            await site.carry_out(ends(site.names))
            assert [len(link.orders) for link in {id(link): link for link in site.of.values()}.values()] == [1, 1]

    asyncio.run(main())


def test_what_a_branch_has_not_reached_is_told_directly_and_stays_alone() -> None:
    async def main() -> None:
        async with a_site(6, 1) as site:
            site.of["n1"].answer = lambda order: Forwarded(unreached=("n4",), unanswered=("n5",))
            await site.carry_out(ends(site.names))
            assert site.direct() == ["n4", "n5"]
            assert site.count("effect.rerouted_count") == 2
            site.of["n1"].answer = lambda order: Forwarded()
            await site.carry_out(ends(site.names, step_id=1))
            orders = {name: [*order[-1].nodes, *all_nodes(order[-1].branches)] for name, order in site.told().items()}
            assert orders == {"n1": ["n1", "n2", "n3", "n6"], "n4": ["n4"], "n5": ["n5"]}

    asyncio.run(main())


@pytest.mark.parametrize(
    "error", [ConnectionLost("gone"), CallTimeout("late"), RemoteError(failure("ESLURM_ACCESS_DENIED", "no"))]
)
def test_a_branch_whose_head_dies_is_told_directly(error: Exception) -> None:
    async def main() -> None:
        async with a_site(6, 2) as site:
            site.of["n4"].answer = lost(error)
            await site.carry_out(ends(site.names))
            assert site.direct() == ["n4", "n5", "n6"]

    asyncio.run(main())


def test_a_signal_that_may_have_come_is_not_sent_again() -> None:
    async def main() -> None:
        async with a_site(6, 1) as site:
            site.of["n1"].answer = lambda order: Forwarded(unreached=("n4",), unanswered=("n5",))
            await site.carry_out([SignalOn(node=name, job_id=1, restart_count=0, signal=10) for name in site.names])
            assert site.direct() == ["n4"]
            assert all(isinstance(message, SignalTasks) for message in site.of["n4"].direct)

    asyncio.run(main())


def test_a_daemon_of_an_earlier_release_is_told_as_before() -> None:
    refuse = lost(RemoteError(failure("SLURM_UNEXPECTED_MSG_ERROR", "Unexpected message received")))

    async def main() -> None:
        async with a_site(4, 1) as site:
            site.of["n1"].answer = refuse
            await site.carry_out(ends(site.names))
            assert site.direct() == sorted(site.names)
            await site.carry_out(ends(site.names, step_id=1))
            assert len(site.of["n1"].orders) == 1, "not asked again"
            assert len(site.of["n2"].orders) == 1, "another heads the branch"

    asyncio.run(main())


def test_nothing_overtakes_an_order_on_its_way_through_others() -> None:
    async def main() -> None:
        async with a_site(4, 1) as site:
            site.of["n1"].held.clear()
            site.links.carry_out(ends(site.names))
            site.links.carry_out(ends(["n3"], step_id=1))
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(site.of["n1"].orders) == 1
            assert not site.direct()
            site.of["n1"].held.set()
            await site.carry_out([])
            assert site.direct() == ["n3"]

    asyncio.run(main())


def test_an_order_whose_branch_is_lost_comes_before_a_later_one_through_the_same_branch() -> None:
    """Its nodes get both over their links: the later one does not go to the head that has not answered."""

    async def main() -> None:
        async with a_site(3, 1) as site:
            head = site.of["n1"]
            head.answer = lost(CallTimeout("late"))
            head.held.clear()
            for step_id in range(3):
                site.links.carry_out(ends(site.names, step_id=step_id))
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(head.orders) == 1
            head.held.set()
            await asyncio.sleep(0)
            head.held.clear()  # it does not answer over its link either
            for _ in range(40):
                await asyncio.sleep(0)
            for name in ("n2", "n3"):
                steps = [message.step_id for message in site.of[name].direct if isinstance(message, TerminateStep)]
                assert steps == [0, 1, 2], name
            assert len(head.orders) == 1
            head.held.set()
            await site.carry_out([])

    asyncio.run(main())


def test_an_order_for_many_does_not_overtake_one_on_a_link() -> None:
    async def main() -> None:
        async with a_site(4, 1) as site:
            site.of["n3"].held.clear()
            site.links.carry_out(ends(["n3"]))
            await asyncio.sleep(0)
            site.links.carry_out(ends(site.names, step_id=1))
            for _ in range(20):
                await asyncio.sleep(0)
            steps = [message.step_id for message in site.of["n3"].direct if isinstance(message, TerminateStep)]
            assert steps == [0, 1], "both on its own link, in order"
            site.of["n3"].held.set()
            await site.carry_out([])

    asyncio.run(main())


def test_what_cannot_be_together_stays_in_each_nodes_order() -> None:
    first, second = ends(["a", "b", "c"]), ends(["a", "b", "c"], step_id=1)
    assert fanout.orders([*first, *second]) == [first, second]
    crossed = [first[0], second[0], second[1], first[1]]
    groups = fanout.orders(crossed)
    for node in ("a", "b"):
        mine = [effect for effect in crossed if effect.node == node]
        assert [effect for group in groups for effect in group if effect.node == node] == mine
    alone = [
        LaunchBatchOn(node="a", job_id=1, restart_count=0),
        *(AttachOn(node=name, job_id=1, restart_count=0, step_id=0, io_address="", io_key="") for name in "ab"),
    ]
    assert fanout.orders(alone) == [[effect] for effect in alone]


def _daemons(*names: str) -> list[fanout.Daemon]:
    return [fanout.Daemon(address=name, port=1, nodes=(name,)) for name in names]


def test_each_region_has_a_branch_of_its_own() -> None:
    region = {"a1": "a", "a2": "a", "a3": "a", "b1": "b", "b2": "b"}.get
    found = fanout.heads(_daemons("a1", "b1", "x", "a2", "b2", "a3"), 3, region)
    assert [all_nodes((head, *below)) for head, below in found] == [("a1", "a2", "a3"), ("b1", "b2"), ("x",)]


def test_neighbouring_regions_share_a_branch_if_there_are_more_than_the_tree_is_wide() -> None:
    found = fanout.heads(_daemons("a1", "b1", "c1", "d1", "a2", "b2", "c2", "d2"), 2, lambda name: name[0])
    assert [all_nodes((head, *below)) for head, below in found] == [("a1", "a2", "b1", "b2"), ("c1", "c2", "d1", "d2")]


def test_regions_are_leaf_switches_or_partitions_as_configured() -> None:
    switches = (
        Switch(name="s1", nodes="n[1,3]"),
        Switch(name="s2", nodes="n[2,4]"),
        Switch(name="top", level=1, nodes="n[1-4]", switches="s1,s2"),
    )
    world = World(nodes=4, settings=ClusterSettings(topologies=(Topology(kind="tree", switches=switches),)))
    state = world.machine.state
    region = fanout.regions(state, ("RouteTree",))
    assert region is not None
    assert region("n1") == region("n3") != region("n2") == region("n4")
    region = fanout.regions(state, ("RoutePart",))
    assert region is not None
    assert {region(name) for name in ("n1", "n2", "n3", "n4")} == {"debug"}
    assert region("n9") is None
    assert fanout.regions(state, ("TopoOptional",)) is None
