"""Forwards orders through a tree of nodes (TreeWidth): a node's part of it.

Each daemon executes an order on its own nodes and forwards it to the heads of its branches, over connections to their
SlurmdPort that are kept for a while. If a head cannot be reached, the answer says so, and the nodes below it get the
order without it: the controller sends to missed nodes itself, over its links.

Accepted senders: the controller over its link; processes of root, SlurmUser or this user on this machine, as the kernel
identifies them; any other only with the controller's signature for these nodes (`node.credentials`).

Source: slurm.conf(5) TreeWidth; docs/decisions/0193.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import DecodeError, Struct, ValidationError, structs
from msgspec.msgpack import Decoder

from spritz.client.errors import ClientError, RemoteError
from spritz.model.node_daemon.branches import Branches, all_nodes, levels, split
from spritz.model.node_daemon.launch import ORDERS, Accepted, Branch, Forwarded, ForwardOrder, Order
from spritz.model.rejection import Rejection
from spritz.wire.credential import BadCredential

if TYPE_CHECKING:
    from spritz.client.channel.channel import Channel
    from spritz.client.channel.handling import Call
    from spritz.node.credentials import Launches
    from spritz.runtime.log import Logger

#: Seconds for a level of the tree to answer.
LEVEL_SECONDS = 10.0

#: Seconds after which an idle connection to another node is closed.
KEPT_SECONDS = 60.0

#: Orders that must not reach a node twice; all others may be repeated, after the loss of a head.
ONCE = frozenset(("SignalTasks",))

#: To (address, port) of another node's daemon, by TLS where it is on another machine. Raises ClientError.
Connect = Callable[[str, int], Awaitable["Channel"]]

_decoders: dict[str, Decoder[Order]] = {kind.__name__: Decoder(kind) for kind in ORDERS}

#: Roles of machines (`runtime.tls`, which a cluster of one machine never imports) whose daemons pass orders on.
_ROLES = ("controller", "node")


class Forwarder:
    """`carry_out` executes an order for one node; `is_ready`: whether this daemon's nodes have registered;
    `started_at`: when it started, as its registration says.
    """

    def __init__(
        self,
        carry_out: Callable[[Struct], Accepted | Rejection],
        connect: Connect,
        is_ready: Callable[[], bool],
        owners: frozenset[int],
        launches: Launches | None,
        started_at: float,
        log: Logger,
    ) -> None:
        self._carry_out = carry_out
        self._connect = connect
        self._is_ready = is_ready
        self._owners = owners
        self._launches = launches
        self._started_at = started_at
        self._log = log
        self._channels: dict[tuple[str, int], Channel] = {}
        self._closing: dict[tuple[str, int], asyncio.TimerHandle] = {}

    async def from_controller(self, request: ForwardOrder, call: Call) -> Forwarded | Rejection:
        """An order over the controller's link; a controller on this machine is identified by the kernel."""
        return await self._take(request, call, trusted=call.channel.pipe.is_same_machine)

    async def from_node(self, request: ForwardOrder, call: Call) -> Forwarded | Rejection:
        """An order that another node forwards to this one through SlurmdPort."""
        if not self._is_ready():  # running jobs and the leading controller are not known yet
            return Rejection(code="ESLURM_INVALID_NODE_NAME", message="the node has not registered")
        # A head may pass an order on for minutes, until it hears an answer. If the daemon was replaced meanwhile, this
        # one no longer knows a step that has ended and been reported, and would run it again. Whatever is still due
        # the controller sends over its own link: it derives that from this daemon's registration.
        if request.started_at not in (0.0, self._started_at):
            return Rejection(code="ESLURM_INVALID_NODE_NAME", message="the order is for an earlier daemon of the node")
        caller = call.caller
        trusted = call.channel.pipe.is_same_machine and caller is not None and caller.uid in self._owners
        return await self._take(request, call, trusted=trusted)

    async def _take(self, request: ForwardOrder, call: Call, *, trusted: bool) -> Forwarded | Rejection:
        try:
            order = order_in(request)
            if not trusted:
                machine = call.machine
                if self._launches is None or machine is None or machine.role not in _ROLES:
                    raise BadCredential("missing", "orders are for the cluster's daemons to send")
                self._launches.check_order(request, order)
        except BadCredential as error:
            if error.kind == "replayed" and call.machine is not None and call.machine.role == "controller":
                # It repeats what may have been lost with a branch.
                self._log.debug("order.known", kind=request.kind)
                return Forwarded()
            call.channel.complain("order.refused", sort=error.kind, kind=request.kind[:60], reason=error.message)
            return Rejection(code="ESLURM_INVALID_JOB_CREDENTIAL", message=error.message)
        self._log.debug(
            "order.taken",
            kind=request.kind,
            nodes=len(request.nodes),
            below=sum(len(branch.nodes) for branch in request.branches),
            peer=call.channel.pipe.peer_name,
        )
        # lower nodes first, since others wait for them
        answers = await asyncio.gather(
            *(self._pass_on(request, *branch) for branch in split(request.branches)), self._here(order, request.nodes)
        )
        return _together(answers)

    async def _here(self, order: Order, nodes: tuple[str, ...]) -> Forwarded:
        refused = []
        for name in nodes:
            await asyncio.sleep(0)  # a daemon may stand for hundreds of nodes
            if isinstance(self._carry_out(structs.replace(order, node=name)), Rejection):
                refused.append(name)
        return Forwarded(unreached=tuple(refused))

    async def _pass_on(self, request: ForwardOrder, head: Branch, below: Branches) -> Forwarded:
        """Forward to one branch; past its head, if that cannot be reached."""
        part = structs.replace(request, nodes=head.nodes, branches=below, started_at=head.started_at)
        nodes = all_nodes((head, *below))
        try:
            channel = await self._channel(head.address, head.port)
        except ClientError as error:
            self._log.info("branch.unreached", node=nodes[0], address=head.address, detail=error.hint)
            return _together([Forwarded(unreached=head.nodes), *await self._without_head(request, below)])
        try:
            return await channel.call(part, Forwarded, timeout=LEVEL_SECONDS * (1 + levels(below)))
        except RemoteError as error:
            self._log.error("branch.refused", node=nodes[0], reason=error.message)
            return _together([Forwarded(unreached=head.nodes), *await self._without_head(request, below)])
        except ClientError as error:
            self._log.error("branch.lost", node=nodes[0], reason=error.message)
            if request.kind in ONCE:
                return Forwarded(unanswered=nodes)
            return _together([Forwarded(unanswered=head.nodes), *await self._without_head(request, below)])

    async def _without_head(self, request: ForwardOrder, below: Branches) -> list[Forwarded]:
        return await asyncio.gather(*(self._pass_on(request, *branch) for branch in split(below)))

    async def _channel(self, address: str, port: int) -> Channel:
        where = (address, port)
        channel = self._channels.get(where)
        if channel is None or not channel.is_open:
            channel = self._channels[where] = await self._connect(address, port)
        timer = self._closing.pop(where, None)
        if timer is not None:
            timer.cancel()
        self._closing[where] = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._close, where)
        return channel

    def _close(self, where: tuple[str, int]) -> None:
        self._closing.pop(where, None)
        channel = self._channels.pop(where, None)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        for timer in self._closing.values():
            timer.cancel()
        for where in list(self._channels):
            self._close(where)


def order_in(request: ForwardOrder) -> Order:
    """The order inside, without a node. Raises BadCredential."""
    decoder = _decoders.get(request.kind)
    if decoder is None:
        raise BadCredential("malformed", f"{request.kind[:60]!r} is no order that is passed on")
    try:
        order = decoder.decode(request.message)
    except (ValidationError, DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadCredential("malformed", str(error)) from error
    if order.node:
        raise BadCredential("malformed", f"an order for {order.node[:60]} alone is not passed on")
    return order


def _together(answers: Sequence[Forwarded]) -> Forwarded:
    return Forwarded(
        unreached=tuple(name for answer in answers for name in answer.unreached),
        unanswered=tuple(name for answer in answers for name in answer.unanswered),
    )
