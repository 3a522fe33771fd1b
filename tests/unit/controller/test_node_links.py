"""Effects on their way to node daemons: what is sent when a node links, and what becomes of what could not be sent.

The writer, the core, the committer's thread and the links are the real ones; the journal and the daemon are not.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct, structs

from spritz.client.errors import CallTimeout, RemoteError
from spritz.controller.journal.blobs import BlobStore
from spritz.controller.journal.contract import Group
from spritz.controller.nodes.links import NodeLinks
from spritz.controller.nodes.messages import NodeMessages
from spritz.controller.writer.commit import CommitThread
from spritz.controller.writer.loop import SingleWriter
from spritz.core.effects import Effect, ReloadNode
from spritz.model.cluster.settings import SYSTEM
from spritz.model.commands.cluster import ApplyPlan, Tick, UpdateNode
from spritz.model.commands.job import JobSubmitted, ResumeJob, SubmitJob, SuspendJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.node.record import NodeSample
from spritz.model.node_daemon.launch import Accepted, LaunchBatch, PingNode, SuspendTasks
from spritz.model.node_daemon.launch import ReloadNode as Reload
from spritz.model.node_daemon.reports import NodeSamples, Registered, RegisterNode
from spritz.model.plan import Plan, PlannedStart
from spritz.model.rejection import Rejection
from spritz.model.resources import Allocation
from spritz.model.states import JobState, NodeFlag, NodeState
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger
from spritz.runtime.tasks import Supervisor
from spritz.runtime.tls import Machine
from spritz.wire.envelope import Failure
from spritz_testing.builders import ALICE, World, job_spec, node_share
from spritz_testing.memory_journal import MemoryJournal, MemoryStore

SECONDS = 100.0


class HeldJournal(MemoryJournal):
    """A journal whose appends wait for `held` while it is not set; `waiting` says that one does."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.held = threading.Event()
        self.held.set()
        self.waiting = threading.Event()

    def append(self, group: Group, blobs: Mapping[str, bytes]) -> None:
        if not self.held.is_set():
            self.waiting.set()
        self.held.wait(SECONDS)
        super().append(group, blobs)


class QuickClock(SystemClock):
    """A clock on which sleeping takes no time."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead

    async def sleep(self, seconds: float) -> None:
        self._ahead += seconds
        await asyncio.sleep(0)


class SetClock(SystemClock):
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at


_numbers = itertools.count()


class DaemonChannel:
    """The controller's end of a connection to a slurmd that accepts everything."""

    def __init__(self) -> None:
        self.is_open = True
        self.number = next(_numbers)
        self.pipe = SimpleNamespace(peer_name="uid=0 pid=1", machine=None, abort=self.close)
        self.received: list[Struct] = []
        self._on_close: list[Callable[[], None]] = []

    async def call(self, message: Struct, reply: type, *, timeout: float) -> Struct:
        self.received.append(message)
        return Accepted()

    def on_close(self, callback: Callable[[], None]) -> None:
        self._on_close.append(callback)

    def close(self) -> None:
        self.is_open = False
        for callback in self._on_close:
            callback()


class Controller:
    """One node `n1`, which is up and has a link, as `channel`; batch jobs of Alice's."""

    def __init__(self, tasks: Supervisor) -> None:
        self.world = World(nodes=1)
        self.machine = self.world.machine
        self.journal = HeldJournal(MemoryStore())
        self.dropping = False
        self.committer = CommitThread(lambda error: pytest.fail(error.message))
        context: Any = SimpleNamespace(
            machine=self.machine,
            journal=self.journal,
            clock=QuickClock(),
            configuration=SimpleNamespace(settings=SimpleNamespace(slurmd_timeout_seconds=300)),
            log=get_logger("test"),
            tasks=tasks,
            counters=[],
        )
        self.context, self.counters = context, context.counters
        self.tasks = tasks
        blobs = BlobStore(self.journal)
        self.script = blobs.put(b"#!/bin/sh\n")
        self.writer = context.writer = SingleWriter(
            self.machine,
            self.journal,
            blobs,
            self.committer,
            context.clock,
            context.log,
            on_effects=self._carry_out,
            on_broken=lambda error: pytest.fail(repr(error)),
        )
        self.links = NodeLinks(context, NodeMessages(lambda: self.machine.state, blobs, lambda: self.journal.term))

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        if not self.dropping:
            self.links.carry_out(effects)

    def register(self, channel: DaemonChannel, *, ahead_seconds: float = 0.0, **fields: Any) -> list[Struct]:
        """Have the daemon introduce itself; returns where its answer will be."""
        replies: list[Struct] = []
        call: Any = SimpleNamespace(channel=channel, reply=replies.append)
        report = RegisterNode(
            name="n1",
            capacity=self.world.hardware,
            booted_at=500.0,
            daemon_started_at=1000.0,
            version="25.05.0",
            sample=NodeSample(name="n1", cpu_load=0, free_memory_mib=1, sampled_at=SystemClock().now() + ahead_seconds),
            **fields,
        )
        self.links.register(report, call)
        return replies

    def submit(self) -> int:
        spec = job_spec(script_key=self.script)
        reply = self.writer.handle(SubmitJob(spec=spec), ALICE)
        assert isinstance(reply, JobSubmitted), reply
        return reply.job_id

    def start(self, job_id: int) -> None:
        allocation = Allocation(partition="debug", nodes=(node_share("n1"),))
        start = PlannedStart(job_id=job_id, allocation=allocation)
        self.writer.handle_own(ApplyPlan(plan=Plan(starts=(start,))))
        assert self.machine.state.jobs[job_id].state is JobState.RUNNING


@asynccontextmanager
async def a_controller() -> AsyncIterator[Controller]:
    async with asyncio.timeout(SECONDS), Supervisor() as tasks:
        controller = Controller(tasks)
        try:
            yield controller
        finally:
            controller.writer.stop()
            controller.journal.held.set()
            controller.committer.close()
            tasks.cancel_all()


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  # what is waited for is not this test's to signal
        await asyncio.sleep(0.001)


def launched(channel: DaemonChannel) -> list[int]:
    return [message.job.id for message in channel.received if isinstance(message, LaunchBatch)]


def test_a_start_that_is_decided_while_its_node_registers_is_sent_once_the_node_is_linked() -> None:
    """The registration is on its way to the disk when the job starts: two groups, released in that order."""

    async def main() -> None:
        async with a_controller() as controller:
            job_id, channel = controller.submit(), DaemonChannel()
            await controller.writer.drain()
            controller.journal.held.clear()
            replies = controller.register(channel)
            await asyncio.sleep(0)
            controller.start(job_id)
            controller.journal.held.set()
            await until(lambda: replies and launched(channel))
            assert set(launched(channel)) == {job_id}

    asyncio.run(main())


def test_a_launch_that_was_lost_before_its_node_was_linked_is_sent_when_it_is() -> None:
    """What is to be done there is derived from the state at that moment, not when the registration was decided."""

    async def main() -> None:
        async with a_controller() as controller:
            job_id, channel = controller.submit(), DaemonChannel()
            await controller.writer.drain()
            controller.journal.held.clear()
            controller.register(channel)
            await asyncio.sleep(0)
            controller.dropping = True
            controller.start(job_id)
            controller.journal.held.set()
            await until(lambda: launched(channel))
            assert launched(channel) == [job_id]

    asyncio.run(main())


@pytest.mark.parametrize(("ahead", "told"), [(3.0, ""), (3600.0, "3600 s ahead of"), (-3600.0, "3600 s behind")])
def test_a_clock_that_differs_is_told_to_both_daemons(
    ahead: float, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with a_controller() as controller:
            replies = controller.register(DaemonChannel(), ahead_seconds=ahead)
            await until(lambda: replies)
            assert isinstance(replies[0], Registered)
            assert [told in message for message in replies[0].messages] == [True] * bool(told)

    asyncio.run(main())
    assert ("node.clock_differs" in capfd.readouterr().err) == bool(told)


class Refusing(DaemonChannel):
    """A slurmd that refuses launches: their credentials are not good now, by its clock or otherwise."""

    async def call(self, message: Struct, reply: type, *, timeout: float) -> Struct:
        self.received.append(message)
        if isinstance(message, LaunchBatch):
            words = "Protocol authentication error: expired credential: 540 s ago"
            raise RemoteError(Failure(code="ESLURM_INVALID_JOB_CREDENTIAL", errno=2026, message=words))
        return Accepted()


@pytest.mark.parametrize(("ahead", "drained"), [(3.0, False), (600.0, True), (-600.0, True)])
def test_a_node_that_refuses_jobs_because_of_its_clock_gets_no_more(ahead: float, drained: bool) -> None:
    """It would take each job of the queue until that is held."""

    async def main() -> None:
        async with a_controller() as controller:
            job_id, channel = controller.submit(), Refusing()
            await until(partial(list, controller.register(channel, ahead_seconds=ahead)))
            controller.start(job_id)
            await until(lambda: controller.machine.state.jobs[job_id].state is JobState.PENDING)
            node = controller.machine.state.nodes["n1"]
            assert bool(node.flags & NodeFlag.DRAIN) is drained
            way = "ahead of" if ahead > 0 else "behind"
            assert re.fullmatch(rf"the clock of n1 is \d+ s {way} the controller's" if drained else "", node.reason)

    asyncio.run(main())


@pytest.mark.parametrize("ahead", [0.0, 600.0])
def test_the_newest_sample_tells_the_clock(ahead: float) -> None:
    async def main() -> None:
        async with a_controller() as controller:
            job_id, channel = controller.submit(), Refusing()
            await until(partial(list, controller.register(channel, ahead_seconds=600.0 - ahead)))
            sample = NodeSample(name="n1", cpu_load=0, free_memory_mib=1, sampled_at=SystemClock().now() + ahead)
            controller.links.take_samples(NodeSamples(samples=(sample,)), channel)  # type: ignore[arg-type]
            controller.start(job_id)
            await until(lambda: controller.machine.state.jobs[job_id].state is JobState.PENDING)
            assert bool(controller.machine.state.nodes["n1"].flags & NodeFlag.DRAIN) is bool(ahead)

    asyncio.run(main())


class OtherMachine(DaemonChannel):
    """A slurmd on another machine, whose launches need credentials; its clock is `ahead` seconds ahead."""

    def __init__(self, ahead: float) -> None:
        super().__init__()
        self.pipe.machine = Machine(cluster="c", role="node", host="n1")
        self.ahead = ahead

    def sample(self, late: float = 0.0) -> NodeSamples:
        """A heartbeat that has been on its way for that long."""
        at = SystemClock().now() + self.ahead - late
        return NodeSamples(samples=(NodeSample(name="n1", cpu_load=0, free_memory_mib=1, sampled_at=at),))

    async def call(self, message: Struct, reply: type, *, timeout: float) -> Struct:
        self.received.append(message)
        return self.sample() if isinstance(message, PingNode) else Accepted()


@pytest.mark.parametrize("ahead", [150.0, -150.0])
def test_a_node_whose_clock_differs_gets_no_job_until_it_is_right(ahead: float) -> None:
    async def main() -> None:
        async with a_controller() as controller:
            channel: Any = OtherMachine(ahead)
            nodes = controller.machine.state.nodes
            await until(partial(list, controller.register(channel, ahead_seconds=ahead)))
            assert nodes["n1"].flags & NodeFlag.DRAIN, "before any launch"
            assert "150 s" in nodes["n1"].reason
            channel.ahead = ahead / 5
            controller.links.take_samples(channel.sample(), channel)
            assert nodes["n1"].flags & NodeFlag.DRAIN, "not right yet"
            channel.ahead = 0.5
            controller.links.take_samples(channel.sample(), channel)
            assert not nodes["n1"].flags & NodeFlag.DRAIN
            assert nodes["n1"].reason == ""
            channel.ahead = ahead
            controller.links.take_samples(channel.sample(), channel)
            await until(lambda: nodes["n1"].flags & NodeFlag.DRAIN)
            assert [type(message) for message in channel.received] == [PingNode]

    asyncio.run(main())


def test_a_drain_by_an_administrator_is_not_ended_by_a_clock() -> None:
    async def main() -> None:
        async with a_controller() as controller:
            channel: Any = OtherMachine(0.0)
            await until(partial(list, controller.register(channel)))
            controller.writer.handle_own(UpdateNode(names=("n1",), state="DRAIN", reason="the clock of n1 is broken"))
            controller.links.take_samples(channel.sample(), channel)
            assert controller.machine.state.nodes["n1"].reason == "the clock of n1 is broken"

    asyncio.run(main())


def test_a_heartbeat_that_was_long_on_its_way_is_no_wrong_clock() -> None:
    async def main() -> None:
        async with a_controller() as controller:
            channel: Any = OtherMachine(0.0)
            await until(partial(list, controller.register(channel)))
            controller.links.take_samples(channel.sample(late=300.0), channel)
            await until(lambda: channel.received)
            controller.links.take_samples(channel.sample(late=300.0), channel)
            await until(lambda: len(channel.received) == 2)
            await asyncio.sleep(0)
            assert not controller.machine.state.nodes["n1"].flags & NodeFlag.DRAIN

    asyncio.run(main())


def test_a_node_on_the_controllers_machine_needs_no_credentials() -> None:
    async def main() -> None:
        async with a_controller() as controller:
            await until(partial(list, controller.register(DaemonChannel(), ahead_seconds=600.0)))
            assert not controller.machine.state.nodes["n1"].flags & NodeFlag.DRAIN

    asyncio.run(main())


def test_effects_for_a_node_without_a_link_are_counted_and_logged(capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with a_controller() as controller:
            job_id = controller.submit()
            controller.start(job_id)
            await controller.writer.drain()
            assert controller.counters[0]()["effect.unlinked_count"] == 1

    asyncio.run(main())
    assert "effects.unlinked kinds=LaunchBatchOn:1 nodes=1 first=n1" in capfd.readouterr().err


def test_nothing_is_sent_to_a_node_that_links_before_the_events_behind_it_are_durable() -> None:
    """A job has started in memory: if it were launched now and the controller killed, its record would be lost."""

    async def main() -> None:
        async with a_controller() as controller:
            job_id, channel = controller.submit(), DaemonChannel()
            await controller.writer.drain()

            def hold_the_start(reply: Struct | None) -> None:
                controller.journal.held.clear()
                controller.start(job_id)

            # In the group of the registration, and released before it: the job starts, and then the node is linked.
            controller.writer.handle(Tick(), SYSTEM, hold_the_start)
            controller.register(channel)
            await until(controller.journal.waiting.is_set)
            for _ in range(10):
                await asyncio.sleep(0)
            assert launched(channel) == []
            controller.journal.held.set()
            await until(lambda: launched(channel))

    asyncio.run(main())


def test_a_node_that_was_away_when_a_job_went_on_is_told_so_when_it_links() -> None:
    async def main() -> None:
        async with a_controller() as controller:
            job_id = controller.submit()
            controller.start(job_id)
            target = JobTarget(job_id)
            controller.writer.handle_own(SuspendJob(target=target))
            controller.writer.handle_own(ResumeJob(target=target))
            await controller.writer.drain()
            channel = DaemonChannel()
            controller.register(channel)
            await until(lambda: any(isinstance(one, SuspendTasks) for one in channel.received))
            assert [one.resume for one in channel.received if isinstance(one, SuspendTasks)] == [True]

    asyncio.run(main())


def test_a_daemon_that_was_away_when_the_configuration_changed_reads_it_when_it_links_and_once() -> None:
    async def main() -> None:
        async with a_controller() as controller:
            controller.links.carry_out([ReloadNode(node="n1")])
            controller.start(controller.submit())
            await controller.writer.drain()
            for expected in (1, 0):
                channel = DaemonChannel()
                controller.register(channel)
                await until(lambda channel=channel: launched(channel))  # type: ignore[misc]
                await controller.writer.drain()
                assert sum(isinstance(one, Reload) for one in channel.received) == expected
                channel.close()

    asyncio.run(main())


def test_a_launch_that_cannot_be_worded_has_failed() -> None:
    async def main() -> None:
        async with a_controller() as controller:
            job_id, channel = controller.submit(), DaemonChannel()
            controller.register(channel)
            await controller.writer.drain()

            async def fail(message: Struct, reply: type, *, timeout: float) -> Struct:
                raise OverflowError("can't serialize ints >= 2**64")

            channel.call = fail  # type: ignore[method-assign]  # what encoding does with such a number
            controller.start(job_id)
            state = controller.machine.state
            await until(lambda: state.jobs[job_id].state is not JobState.RUNNING)
            assert (state.jobs[job_id].state, state.jobs[job_id].restart_count) == (JobState.PENDING, 1), "queued again"

    asyncio.run(main())


def test_a_connected_daemon_that_does_not_answer_is_disconnected_and_its_node_marked() -> None:
    async def main() -> None:
        async with a_controller() as controller:
            channel = DaemonChannel()
            pings: list[Struct] = []
            answers = asyncio.Event()
            answers.set()

            async def answer(message: Struct, reply: type, *, timeout: float) -> Struct:
                pings.append(message)
                if not answers.is_set():
                    await controller.links._context.clock.sleep(timeout)
                    raise CallTimeout("no answer")
                return NodeSamples(samples=())

            channel.call = answer  # type: ignore[method-assign]  # what is asked of the daemon here
            controller.register(channel)
            await controller.writer.drain()
            controller.tasks.spawn(controller.links.listen(), name="listen")
            nodes = controller.machine.state.nodes
            closed: list[bool] = []
            channel.on_close(lambda: closed.append(True))

            def is_marked() -> bool:
                return bool(nodes["n1"].flags & NodeFlag.NOT_RESPONDING)

            await until(lambda: len(pings) >= 3)
            assert not closed, "it has answered"
            assert not is_marked()
            answers.clear()
            await until(is_marked)
            assert closed, "so that it registers again when it can"
            assert nodes["n1"].state is NodeState.IDLE, "SlurmdTimeout has not passed"
            controller.register(DaemonChannel())
            await controller.writer.drain()
            assert not is_marked()

    asyncio.run(main())


def test_a_node_has_its_time_from_when_it_could_connect() -> None:
    """Not from the start of the process, which may recover or wait for a lease for longer; nor from before the node was
    powered up.
    """

    async def main() -> None:
        async with a_controller() as controller:
            limit, links, nodes = 4.0, controller.links, controller.machine.state.nodes

            def state() -> NodeState:
                return nodes["n1"].state

            clock = controller.context.clock = SetClock()
            clock.at += 100.0  # the controller recovers
            links._miss_unlinked()
            clock.at += limit - 0.007
            links._declare_lost(limit)
            assert state() is NodeState.IDLE
            up = nodes["n1"]
            nodes["n1"] = structs.replace(up, flags=NodeFlag.POWERED_DOWN.value)
            links._miss_unlinked()
            clock.at += 100.0
            nodes["n1"] = up
            links._miss_unlinked()
            links._declare_lost(limit)
            assert state() is NodeState.IDLE
            clock.at += limit
            links._declare_lost(limit)
            assert state() is NodeState.DOWN
            nodes["n1"] = structs.replace(up, flags=NodeFlag.NOT_RESPONDING.value)  # scontrol update State=RESUME
            links._miss_unlinked()
            links._declare_lost(limit)
            assert state() is NodeState.IDLE
            clock.at += limit
            links._declare_lost(limit)
            assert state() is NodeState.DOWN, "it is lost again"

    asyncio.run(main())


def test_a_fault_about_a_lost_node_ends_no_daemon_and_is_tried_again(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job that cannot be ended must not end slurmctld, which would meet it again after every start."""

    async def main() -> None:
        async with a_controller() as controller:
            links, nodes = controller.links, controller.machine.state.nodes

            def state() -> NodeState:
                return nodes["n1"].state

            clock = controller.context.clock = SetClock()
            links._miss_unlinked()
            clock.at += 100.0
            with monkeypatch.context() as broken:
                broken.setattr(links._context.writer, "handle_own", _fails)
                links._declare_lost(4.0)
            assert state() is NodeState.IDLE
            links._declare_lost(4.0)
            assert state() is NodeState.DOWN

    asyncio.run(main())
    assert "node.lost_undecided" in capfd.readouterr().err


def _fails(command: object) -> None:
    raise ZeroDivisionError("a fault")


def test_nodes_of_an_expelled_machine_are_down_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with a_controller() as controller:
            channel = DaemonChannel()
            controller.register(channel)
            await controller.writer.drain()
            controller.links.expel(["n1"], "Certificate of n1 revoked")
            node = controller.machine.state.nodes["n1"]
            assert (node.state, node.reason) == (NodeState.DOWN, "Certificate of n1 revoked")
            assert node.flags & NodeFlag.NOT_RESPONDING
            assert not channel.is_open
            await controller.links._notice_silence(("n1",))

    asyncio.run(main())
    assert "node.silent" not in capfd.readouterr().err, "it was told that the node is lost"


async def _looks_for_silence(links: NodeLinks, former: DaemonChannel) -> None:
    await links._notice_silence(("n1",))


async def _pings_the_former_daemon(links: NodeLinks, former: DaemonChannel) -> None:
    async def silence(message: Struct, reply: type, *, timeout: float) -> Struct:
        raise CallTimeout("no answer")

    former.call = silence  # type: ignore[method-assign]
    links._heard[former] -= 1000.0  # type: ignore[index]  # it stands for a channel
    await links._need_answer(former)  # type: ignore[arg-type]


async def _looks_for_lost_nodes(links: NodeLinks, former: DaemonChannel) -> None:
    links._silent_since["n1"] = links._heard[former] = -1000.0  # type: ignore[index]
    links._declare_lost(4.0)


@pytest.mark.parametrize(
    ("look", "was_linked"),
    [
        (_looks_for_silence, False),
        (_pings_the_former_daemon, True),
        (_looks_for_lost_nodes, False),
        (_looks_for_lost_nodes, True),
    ],
)
def test_a_node_is_not_given_up_while_its_registration_is_on_its_way_to_the_disk(
    look: Callable[[NodeLinks, DaemonChannel], Awaitable[None]], was_linked: bool
) -> None:
    """The daemon would not register again, and the node would have a link and be used no more."""

    async def main() -> None:
        async with a_controller() as controller:
            former, channel = DaemonChannel(), DaemonChannel()
            controller.register(former)
            await controller.writer.drain()
            if not was_linked:
                former.close()
            controller.journal.held.clear()
            replies = controller.register(channel)
            await look(controller.links, former)
            controller.journal.held.set()
            await until(lambda: replies)
            await controller.writer.drain()
            node = controller.machine.state.nodes["n1"]
            assert (node.state, node.flags & NodeFlag.NOT_RESPONDING) == (NodeState.IDLE, 0)
            assert controller.links._links["n1"] is channel  # type: ignore[comparison-overlap]

    asyncio.run(main())


def test_a_daemon_that_is_gone_before_its_registration_is_durable_is_missed() -> None:
    async def main() -> None:
        async with a_controller() as controller:
            channel = DaemonChannel()
            controller.journal.held.clear()
            replies = controller.register(channel)
            channel.close()
            controller.journal.held.set()
            await until(lambda: replies)
            await until(lambda: controller.machine.state.nodes["n1"].flags & NodeFlag.NOT_RESPONDING)

    asyncio.run(main())


def test_a_node_whose_daemon_has_gone_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with a_controller() as controller:
            channel = DaemonChannel()
            controller.register(channel)
            await controller.writer.drain()
            channel.close()
            await controller.links._notice_silence(("n1",))
            assert controller.machine.state.nodes["n1"].flags & NodeFlag.NOT_RESPONDING

    asyncio.run(main())
    assert capfd.readouterr().err.count("node.silent nodes=1 first=n1") == 1, "told once, though two looked"


@pytest.mark.parametrize("other_host", [False, True])
def test_a_connection_that_another_of_its_daemon_replaces_is_closed(other_host: bool) -> None:
    """It may be the one that lives, and the other one given up: the daemon hears of it, and registers again."""

    async def main() -> None:
        async with a_controller() as controller:
            living, given_up = DaemonChannel(), DaemonChannel()
            if other_host:
                living.pipe.peer_name, given_up.pipe.peer_name = "10.0.0.1:5000", "10.0.0.2:5000"
            for channel in (living, given_up):
                controller.register(channel)
                await controller.writer.drain()
            assert given_up.is_open
            assert living.is_open is other_host

    asyncio.run(main())


def test_a_registration_over_an_older_connection_that_comes_late_does_not_take_the_link() -> None:
    """A controller that was stopped finds two: of the daemon before its machine lost power, and of the one after."""

    async def main() -> None:
        async with a_controller() as controller:
            before, after = DaemonChannel(), DaemonChannel()
            replies = controller.register(after)
            late = controller.register(before)
            await until(lambda: replies)
            await controller.writer.drain()
            assert (late, before.is_open, after.is_open) == ([], False, True)
            controller.start(controller.submit())
            await until(lambda: launched(after))

    asyncio.run(main())


#: Seconds that lie before any controller of these tests.
LONG_AGO = 1e6


def test_a_node_that_has_heard_a_later_controller_raises_the_term_of_a_restored_one(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def main() -> None:
        async with a_controller() as controller:
            before = controller.submit()
            channel = DaemonChannel()
            replies = controller.register(channel, term=6, term_seconds=LONG_AGO, last_job_id=before + 70)
            await until(lambda: replies)
            assert replies == [Registered(term=7, messages=replies[0].messages)]  # type: ignore[attr-defined]
            assert controller.journal.term == 7
            # No number is given that the lost events may have given.
            later = controller.submit()
            assert later > before + 70
            controller.start(later)
            await until(lambda: launched(channel))
            assert {message.term for message in channel.received if isinstance(message, LaunchBatch)} == {7}
            # A node that was away has heard an earlier one of the controllers that are lost.
            replies = controller.register(DaemonChannel(), term=5, term_seconds=LONG_AGO)
            await until(lambda: replies)
            assert controller.journal.term == 7
            assert controller.submit() == later + 1

    asyncio.run(main())
    assert capfd.readouterr().err.count("state.older") == 1


class Slurmd:
    """The terms that a node has heard, and when."""

    def __init__(self) -> None:
        self.term, self.heard_at = 0, 0.0

    async def registers(self, controller: Controller) -> bool:
        """Whether this controller takes the node."""
        seconds = time.monotonic() - self.heard_at
        replies = controller.register(DaemonChannel(), term=self.term, term_seconds=seconds)
        await until(lambda: replies)
        if isinstance(replies[0], Registered):
            self.term, self.heard_at = replies[0].term, time.monotonic()
            return True
        assert isinstance(replies[0], Rejection)
        assert "stop the one that is not to lead" in replies[0].hint
        return False


def test_two_controllers_of_copies_of_one_state_do_not_outbid_each_other(capfd: pytest.CaptureFixture[str]) -> None:
    """A node that goes from one to the other and back is refused by the one whose term it has outgrown."""

    async def main() -> None:
        slurmd = Slurmd()
        async with a_controller() as old:
            old.journal.raise_term(5)
            assert await slurmd.registers(old)
            async with a_controller() as copy:
                # The copy began after the node had heard the old one: as far as it knows, that one is gone.
                assert await slurmd.registers(copy)
                for _ in range(10):
                    assert not await slurmd.registers(old)
                    assert await slurmd.registers(copy)
                assert (old.journal.term, copy.journal.term) == (6, 7)
                assert old.links.refusal("n1").startswith("n1 heard another slurmctld of this cluster, of term 7")
                assert copy.links.refusal("n1") == ""

    asyncio.run(main())
    assert capfd.readouterr().err.count("node.refused") == 1


def test_a_term_that_no_number_of_starts_could_reach_is_refused() -> None:
    async def main() -> None:
        async with a_controller() as controller:
            replies = controller.register(DaemonChannel(), term=2**40, term_seconds=LONG_AGO)
            await until(lambda: replies)
            assert isinstance(replies[0], Rejection)
            assert controller.journal.term == 1

    asyncio.run(main())


class Following(DaemonChannel):
    """A slurmd that has heard term 7 of this controller from another daemon before its own launch arrives."""

    def __init__(self, raise_term: Callable[[int], None]) -> None:
        super().__init__()
        self._raise_term = raise_term

    async def call(self, message: Struct, reply: type, *, timeout: float) -> Struct:
        self.received.append(message)
        if isinstance(message, LaunchBatch) and message.term < 7:
            self._raise_term(6)
            words = f"controller of term {message.term} was replaced by one of term 7"
            raise RemoteError(Failure(code="ESLURM_DISABLED", errno=2037, message=words))
        return Accepted()


def test_a_launch_under_way_while_the_term_rises_is_sent_again_and_has_not_failed() -> None:
    async def main() -> None:
        async with a_controller() as controller:
            job_id, channel = controller.submit(), Following(controller.journal.raise_term)
            await until(partial(list, controller.register(channel)))
            controller.start(job_id)
            await until(lambda: len(launched(channel)) == 2)
            assert [message.term for message in channel.received if isinstance(message, LaunchBatch)] == [1, 7]
            await controller.writer.drain()
            assert controller.machine.state.jobs[job_id].state is JobState.RUNNING

    asyncio.run(main())


def test_a_node_that_follows_another_controller_is_left_and_its_jobs_do_not_fail() -> None:
    async def main() -> None:
        async with a_controller() as controller:
            job_id, channel = controller.submit(), Following(lambda above: None)
            await until(partial(list, controller.register(channel)))
            controller.start(job_id)
            await until(lambda: not channel.is_open)
            await controller.writer.drain()
            assert len(launched(channel)) == 1
            assert controller.machine.state.jobs[job_id].state is JobState.RUNNING

    asyncio.run(main())
