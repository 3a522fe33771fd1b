"""Orders that are passed on by real servers on this machine: each node has them once, what is missed is told, and
no node takes orders that are neither signed by the controller nor sent by a daemon's user.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import Struct, structs
from tests.ports import free_port

from spritz.client.channel.aio import connect
from spritz.client.channel.channel import Channel
from spritz.client.channel.server import Server
from spritz.client.trust.membership import Membership
from spritz.model.node_daemon.branches import tree
from spritz.model.node_daemon.launch import Accepted, Branch, Forwarded, ForwardOrder, SignalTasks
from spritz.model.rejection import Rejection
from spritz.node.credentials import Launches
from spritz.node.forwarding import Forwarder, order_in
from spritz.runtime.authority import Signer
from spritz.runtime.log import get_logger
from spritz.wire.credential import (
    BadCredential,
    LaunchCredential,
    OrderCredential,
    derive,
    digest_of,
    launch_content,
)

KEY = b"k" * 64
NOW = 1_800_000_000.0
US = frozenset((0, os.getuid()))
ORDER = SignalTasks(term=3, node="", job_id=7, restart_count=0, step_id=1, signal=10)
BODY = msgspec.msgpack.encode(ORDER)


class Daemon:
    """A slurmd of one node, on a port of its own; `nodes` are those that it knows."""

    def __init__(self, name: str, owners: frozenset[int] = US, started_at: float = 0.0) -> None:
        self.name = name
        self.port = free_port()
        self.taken: list[str] = []
        self.connections = 0
        self.knows = {name}
        self.forwarder = Forwarder(
            self._carry_out, self._connect, lambda: True, owners, None, started_at, get_logger("test")
        )

    def _carry_out(self, order: Struct) -> Accepted | Rejection:
        assert isinstance(order, SignalTasks)
        if order.node not in self.knows:
            return Rejection(code="ESLURM_INVALID_NODE_NAME")
        self.taken.append(order.node)
        return Accepted()

    async def _connect(self, address: str, port: int) -> Channel:
        self.connections += 1
        return await connect([(address, port)], role="slurmd", log=get_logger("test"), owners=US, timeout=100)

    @property
    def branch(self) -> Branch:
        return Branch(address="127.0.0.1", port=self.port, nodes=(self.name,))


@asynccontextmanager
async def serving(daemons: list[Daemon]) -> AsyncIterator[None]:
    servers = []
    try:
        for daemon in daemons:
            server = Server({ForwardOrder: daemon.forwarder.from_node}, role="slurmd", log=get_logger("test"))
            await server.__aenter__()
            servers.append(server)
            await server.listen_tcp("127.0.0.1", daemon.port)
        yield
    finally:
        for daemon in daemons:
            daemon.forwarder.close()
        for server in reversed(servers):
            await server.__aexit__(None, None, None)


async def told(first: Daemon, request: ForwardOrder) -> Forwarded:
    channel = await connect([("127.0.0.1", first.port)], role="slurmctld", log=get_logger("test"), owners=US)
    try:
        return await channel.call(request, Forwarded)
    finally:
        channel.close()


def request(daemons: list[Daemon], width: int) -> ForwardOrder:
    below = tree([daemon.branch for daemon in daemons[1:]], width)
    return ForwardOrder(kind="SignalTasks", message=BODY, nodes=(daemons[0].name,), branches=below)


def test_an_order_reaches_every_node_once_over_few_connections() -> None:
    async def main() -> None:
        daemons = [Daemon(f"n{number}") for number in range(9)]
        async with serving(daemons):
            for _ in range(2):
                assert await told(daemons[0], request(daemons, 2)) == Forwarded()
        assert [daemon.taken for daemon in daemons] == [[daemon.name] * 2 for daemon in daemons]
        assert max(daemon.connections for daemon in daemons) <= 2
        assert sum(daemon.connections for daemon in daemons) == len(daemons) - 1, "the second order uses those"

    asyncio.run(main())


def test_what_is_below_a_dead_head_is_told_without_it() -> None:
    async def main() -> None:
        daemons = [Daemon(f"n{number}") for number in range(5)]
        async with serving([daemon for daemon in daemons if daemon.name != "n1"]):
            assert await told(daemons[0], request(daemons, 1)) == Forwarded(unreached=("n1",))
        assert [daemon.taken for daemon in daemons] == [["n0"], [], ["n2"], ["n3"], ["n4"]]

    asyncio.run(main())


def test_a_node_that_is_not_there_or_has_not_registered_is_told_to_the_sender() -> None:
    async def main() -> None:
        daemons = [Daemon(f"n{number}") for number in range(3)]
        daemons[1].knows = set()
        daemons[2].forwarder._is_ready = lambda: False
        async with serving(daemons):
            answer = await told(daemons[0], request(daemons, 2))
        assert sorted(answer.unreached) == ["n1", "n2"]

    asyncio.run(main())


def test_an_order_for_an_earlier_daemon_is_refused() -> None:
    """A head repeats an order until it is answered; the node's next daemon no longer knows a step that is over."""

    async def main() -> None:
        daemons = [Daemon("n0"), Daemon("n1", started_at=8.0), Daemon("n2", started_at=7.0), Daemon("n3")]
        whole = request(daemons, 3)
        meant = tuple(structs.replace(branch, started_at=7.0) for branch in whole.branches[:2]) + whole.branches[2:]
        async with serving(daemons):
            answer = await told(daemons[0], structs.replace(whole, branches=meant))
        assert answer == Forwarded(unreached=("n1",))
        assert [daemon.taken for daemon in daemons] == [["n0"], [], ["n2"], ["n3"]]

    asyncio.run(main())


def test_other_users_of_the_machine_cannot_order_anything() -> None:
    async def main() -> None:
        daemon = Daemon("n0", owners=frozenset((4_000_000_000,)))
        async with serving([daemon]):
            with pytest.raises(Exception, match="orders are for the cluster's daemons to send"):
                await told(daemon, request([daemon], 1))
        assert not daemon.taken

    asyncio.run(main())


class FixedClock:
    def now(self) -> float:
        return NOW


def launches() -> Launches:
    clock: Any = FixedClock()
    return Launches(Membership("/x/slurm.key", cluster_keys=(KEY,)), "spritz", clock)


def signed(nodes: tuple[str, ...] = ("n1",), key: bytes = KEY, body: bytes = BODY, **changes: Any) -> ForwardOrder:
    credential = OrderCredential(
        cluster="spritz",
        kind="SignalTasks",
        term=3,
        nodes="n[1-2]",
        job_id=7,
        restart_count=0,
        step_id=1,
        uid=0,
        gid=0,
        digest=digest_of(BODY),
        issued_at=NOW,
        expires_at=NOW + 60,
        nonce=b"n" * 16,
    )
    content = launch_content(structs.replace(credential, **changes))
    signature = Signer(derive(key, "launch")).sign(content)
    return ForwardOrder(kind="SignalTasks", message=body, nodes=nodes, credential=content, signature=signature)


def check(ours: Launches, request: ForwardOrder) -> None:
    ours.check_order(request, order_in(request))


def test_an_order_of_the_controllers_is_taken_once() -> None:
    ours = launches()
    check(ours, signed())
    with pytest.raises(BadCredential, match="replayed"):
        check(ours, signed())


def as_launch() -> ForwardOrder:
    """A launch's credential, which the controller has signed, in place of an order's."""
    launch = LaunchCredential(
        cluster="spritz", term=3, node="n1", nodes="n[1-2]", job_id=7, restart_count=0, step_id=1, uid=0, gid=0,
        digest=digest_of(BODY), issued_at=NOW, expires_at=NOW + 60, nonce=b"n" * 16,
    )  # fmt: skip
    content = launch_content(launch)
    return structs.replace(signed(), credential=content, signature=Signer(derive(KEY, "launch")).sign(content))


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (lambda: signed(key=b"x" * 64), "forged"),
        (lambda: structs.replace(signed(), signature=b""), "missing"),
        (lambda: structs.replace(signed(), credential=b""), "missing"),
        (lambda: signed(body=msgspec.msgpack.encode(structs.replace(ORDER, signal=9))), "altered"),
        (lambda: signed(nodes=("n1", "n3")), "altered"),
        (lambda: signed(kind="SuspendTasks"), "altered"),
        (lambda: signed(term=4), "altered"),
        (lambda: signed(job_id=8), "altered"),
        (lambda: signed(step_id=2), "altered"),
        (lambda: signed(cluster="other"), "foreign"),
        (lambda: signed(issued_at=NOW - 500, expires_at=NOW - 440), "expired"),
        (as_launch, "malformed"),
        (lambda: structs.replace(signed(), kind="LaunchBatch"), "malformed"),
        (lambda: signed(body=msgspec.msgpack.encode(structs.replace(ORDER, node="n1"))), "malformed"),
        (lambda: signed(body=b"\xc1"), "malformed"),
    ],
)
def test_any_other_is_refused(sent: Callable[[], ForwardOrder], kind: str) -> None:
    with pytest.raises(BadCredential) as error:
        check(launches(), sent())
    assert error.value.kind == kind
