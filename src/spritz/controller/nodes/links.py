"""Node daemons: their connections, delivery of effects to them, and detection of lost nodes.

Owns the links (node -> channel), the heartbeat table, and the delivery of effects. An effect is sent until it is
`Accepted`, with pauses, while the connection lives. An effect for a node without a link is counted, logged and dropped,
as are the remaining ones when a connection breaks: when the node registers again, its effects are derived from the
state. A later registration of a node replaces the earlier connection. Transient effects (signals, attach, notify) are
tried once.

A message for many nodes is sent to a few daemons, which forward it to others (`fanout`). A node that it did not reach
gets it over its own link. No effect overtakes an earlier one for the same node: it waits while a forwarded message for
that node is in progress, and goes over the link while an earlier one there is not accepted.

Source: slurm.conf(5) SlurmdTimeout, TreeWidth; `core.effects` for effects that may be repeated.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct, structs

from spritz.client.errors import CallTimeout, ClientError, ConnectionLost, RemoteError
from spritz.controller.journal.kept import Journaled
from spritz.controller.needs import Clocked, Configured, Counted, Logged, Reading, Spawning
from spritz.controller.nodes import fanout
from spritz.controller.nodes.messages import NodeMessages
from spritz.controller.writer.durable import Writing
from spritz.core import effects as core_effects
from spritz.core.power import is_away
from spritz.model.cluster.settings import SYSTEM
from spritz.model.commands.cluster import SkipJobIds, UpdateNode
from spritz.model.errors import SpritzError
from spritz.model.ids import STEP_BATCH
from spritz.model.node_daemon.branches import Branches, all_nodes, levels
from spritz.model.node_daemon.launch import Accepted, Branch, Forwarded, ForwardOrder, PingNode, StopDaemon
from spritz.model.node_daemon.reports import (
    HEARTBEAT_SECONDS,
    NodeLost,
    NodeSamples,
    NodeSilent,
    Registered,
    RegisterNode,
    StepFinished,
)
from spritz.model.rejection import Rejection
from spritz.model.states import NodeFlag, NodeState
from spritz.timeouts import within
from spritz.wire.credential import SKEW_SECONDS

if TYPE_CHECKING:
    from spritz.client.channel.channel import Channel
    from spritz.client.channel.handling import Call
    from spritz.controller.nodes.machines import Machines
    from spritz.core.effects import Effect
    from spritz.model.node.record import Node, NodeSample

T = TypeVar("T", bound=Struct)

#: Seconds to wait for an `Accepted` before the message is sent again.
ACCEPT_SECONDS = 10.0

#: Seconds of absence (a restart of the daemon or of the controller) before no new jobs are started on its nodes.
SILENT_SECONDS = 5.0

#: Seconds without a sign of life after which a connected daemon is pinged, and for its answer: a connection to a
#: machine that is cut off stays open. slurmctld pings each SlurmdTimeout / 3, which is 100 s by default.
QUIET_SECONDS = 1.5 * HEARTBEAT_SECONDS
ANSWER_SECONDS = 5.0

#: Seconds between looks for quiet daemons.
LOOK_SECONDS = 1.0

#: Difference of clocks, seconds, that is reported: more than a message takes on its way.
CLOCK_SECONDS_MAX = 10.0

#: Seconds between a refusal by a busy daemon and the next attempt.
RETRY_SECONDS = 1.0

#: Most seconds between checks for silent daemons; SlurmdTimeout / 3 if that is shorter.
PATROL_SECONDS_MAX = 30.0


#: Most by which the term that a node has heard may be higher than ours: terms rise by one a start.
TERMS_LOST_MAX = 1_000_000

#: Job ids left out when nodes show that the state was restored from a copy: jobs that never started had some.
IDS_LOST = 10_000

#: Seconds for which a daemon that other daemons could not reach gets all messages over its own link.
ALONE_SECONDS = 600.0


#: Reason of a drain because of a clock (`_difference`): such a node is resumed once its clock is right.
_CLOCK_REASON = re.compile(r"the clock of \S+ is \d+ s (ahead of|behind) the controller's")


class Linking(Clocked, Configured, Counted, Journaled, Logged, Reading, Spawning, Writing, Protocol):
    """What connections of node daemons, and messages to them, need."""

    @property
    def machines(self) -> Machines | None: ...


def _difference(node: str, ahead_seconds: float) -> str:
    way = "ahead of" if ahead_seconds > 0 else "behind"
    return f"the clock of {node} is {abs(ahead_seconds):.0f} s {way} the controller's"


class NodeLinks:
    def __init__(self, context: Linking, messages: NodeMessages) -> None:
        self._context = context
        self._messages = messages
        self._links: dict[str, Channel] = {}
        self._names: dict[Channel, dict[str, None]] = {}
        #: node -> the newest connection over which it has asked to be registered
        self._newest: WeakValueDictionary[str, Channel] = WeakValueDictionary()
        #: channel or node -> time of the last message, monotonic seconds
        self._heard: dict[Channel, float] = {}
        #: seconds by which the clock behind a connection is ahead of ours, by its newest sample
        self._ahead: dict[Channel, float] = {}
        #: expected node without a link -> when it was last heard, or first missed; monotonic seconds
        self._silent_since: dict[str, float] = {}
        #: quiet daemons that were pinged and have not answered yet
        self._asked: set[Channel] = set()
        #: daemons that were asked for their time and have not answered yet
        self._clock_asked: set[Channel] = set()
        #: nodes that were reported lost to the core, until they register again
        self._declared: set[str] = set()
        #: node -> registrations that are decided and not durable yet. The node is up again and has no link yet: were it
        #: reported silent or lost now, that would stay so, since the daemon has no reason to register again.
        self._registering: Counter[str] = Counter()
        #: node whose last registration was refused -> kind of refusal, and why
        self._refusals: dict[str, tuple[str, str]] = {}
        #: node -> newest heartbeat
        self.samples: dict[str, NodeSample] = {}
        #: nodes that have not accepted the last ReloadNode
        self._reload_owed: set[str] = set()
        #: the address for forwarding to the daemon with its start, and until when (monotonic seconds) it is not used
        self._where: dict[Channel, tuple[str, int, float]] = {}
        self._alone: dict[Channel, float] = {}
        #: daemons of earlier releases, which do not forward
        self._plain: set[Channel] = set()
        #: node -> done when the newest forwarded message for it has been delivered or has failed
        self._forwarding: dict[str, asyncio.Future[None]] = {}
        #: node -> number of effects for its own link: all, and those not waiting for a forwarded message
        self._direct: Counter[str] = Counter()
        self._under_way: Counter[str] = Counter()
        #: when this controller began, monotonic seconds
        self._began_at = context.clock.monotonic()
        #: whether nodes have shown that events are lost
        self._restored = False
        #: the term that `on_term` was last called with
        self._told_term = context.journal.term
        #: called when the term has been raised
        self.on_term: list[Callable[[], None]] = []
        self._sent = 0
        self._forwarded = 0
        self._rerouted = 0
        self._again = 0
        self._unlinked = 0
        context.counters.append(
            lambda: {
                "node.links_count": float(len(self._links)),
                "effect.sent_count": float(self._sent),
                "effect.forwarded_count": float(self._forwarded),
                "effect.rerouted_count": float(self._rerouted),
                "effect.repeated_count": float(self._again),
                "effect.unlinked_count": float(self._unlinked),
            }
        )

    # Registration

    def register(self, report: RegisterNode, call: Call) -> None:
        """Register a node. Once that is durable, answer, and route effects for the node to this connection."""
        context = self._context
        channel = call.channel
        newest = self._newest.get(report.name)
        if newest is not None and newest.is_open and newest.number > channel.number:
            # The daemon has left this connection for that one: its report comes late, as after a pause of this process.
            channel.pipe.abort()
            return
        self._newest[report.name] = channel
        if report.term > context.journal.term:
            self._follow_term(report, call)
            return

        def registered(reply: Struct | None) -> None:
            self._registering[report.name] -= 1
            if isinstance(reply, Rejection):
                self._refuse(report, call, reply, reply.text)
                return
            self._refusals.pop(report.name, None)
            messages, ended = (reply.messages, reply.ended_jobs) if isinstance(reply, Registered) else ((), ())
            self._note_clock(report.sample, channel)
            if skew := self._skew(report.name, channel):
                skew += ": times of jobs will be wrong"
                messages = (*messages, skew)
                context.log.warning("node.clock_differs", node=report.name, detail=skew)
            call.reply(Registered(term=context.journal.term, messages=messages, ended_jobs=ended))
            if channel.is_open:
                self._link(report.name, channel)
                self._where.setdefault(channel, (report.address, report.port, report.daemon_started_at))
                self._catch_up(report.name)
            else:
                context.tasks.spawn_contained(self._notice_silence((report.name,)), name="node.silence")

        report = structs.replace(report, address=_origin(channel.pipe.peer_name) or report.address)
        if report.sample is not None:
            self.samples[report.name] = report.sample
            # Before the node is up, when a job may be started on it at once.
            if report.sample.sampled_at:
                self._judge_clock(report.name, report.sample.sampled_at - context.clock.now(), channel)
        context.writer.handle(report, SYSTEM, registered)
        self._registering[report.name] += 1

    def _refuse(self, report: RegisterNode, call: Call, refusal: Rejection, kind: str) -> None:
        """Refuse a registration; logged once for a `kind` of refusal, however often the daemon retries."""
        last_refusal = self._refusals.get(report.name)
        self._refusals[report.name] = kind, f"{refusal.text}: {refusal.hint}" if refusal.hint else refusal.text
        if last_refusal is None or last_refusal[0] != kind:
            peer = call.channel.pipe.peer_name
            self._context.log.error("node.refused", node=report.name, reason=refusal.text, peer=peer)
        call.reply(refusal)

    def refusal(self, name: str) -> str:
        """Why the node's last registration was refused; "" if it was not."""
        return self._refusals[name][1] if name in self._refusals else ""

    def _follow_term(self, report: RegisterNode, call: Call) -> None:
        """A node has heard a controller of a higher term, whose events are not in this journal: raise our term above
        that one and register the node, unless that controller lives.

        A journal that was restored from a copy has an old term. But if the node has heard the other controller since
        this one began, there are two, of two copies, and neither may lead the other's nodes: each one that raised its
        term would make the other do the same. With the journal in PostgreSQL the database has the last word.
        """
        context = self._context
        term, now = context.journal.term, context.clock.monotonic()
        if report.term_seconds < now - self._began_at:
            message = (
                f"{report.name} heard another slurmctld of this cluster, of term {report.term} (ours is {term}), "
                f"{report.term_seconds:.0f} s ago"
            )
            hint = "two run with copies of one state: stop the one that is not to lead, then restart the other one"
            self._refuse(report, call, Rejection(code="ESLURM_DISABLED", message=message, hint=hint), "rival")
            return
        if report.term - term > TERMS_LOST_MAX:
            message = f"{report.name} says that it has heard term {report.term}; ours is {term}"
            refusal = Rejection(code="ESLURM_DISABLED", message=message, hint="restart its slurmd")
            self._refuse(report, call, refusal, "term")
            return
        if not self._restored:
            self._restored = True
            detail = "nodes have followed a later controller: the state was restored from an older copy"
            context.log.error("state.older", node=report.name, term=term, later_term=report.term, detail=detail)
            context.writer.handle_own(SkipJobIds(below=context.machine.state.next_job_id + IDS_LOST))

        def raised() -> None:
            if context.journal.term != self._told_term:  # once, though many nodes wait for it
                self._told_term = context.journal.term
                for callback in self.on_term:
                    callback()
            self.register(report, call)

        context.writer.raise_term(report.term, raised)

    def _note_clock(self, sample: NodeSample | None, channel: Channel) -> None:
        if sample is not None and sample.sampled_at and channel.is_open:
            self._ahead[channel] = sample.sampled_at - self._context.clock.now()

    def _skew(self, name: str, channel: Channel) -> str:
        """The difference between the node's clock and the controller's, as text; "" if it is small."""
        seconds = self._ahead.get(channel, 0.0)
        return "" if abs(seconds) < CLOCK_SECONDS_MAX else _difference(name, seconds)

    def _judge_clock(self, name: str, ahead_seconds: float, channel: Channel) -> None:
        """Drain a node that will refuse credentials because of its clock, and resume it when the clock is right.

        A node on the controller's machine needs none.
        """
        node = self._context.machine.state.nodes.get(name)
        if node is None or channel.pipe.machine is None:
            return
        drained = bool(node.flags & NodeFlag.DRAIN)
        if abs(ahead_seconds) > SKEW_SECONDS and not drained:
            self._drain(name, _difference(name, ahead_seconds))
        elif abs(ahead_seconds) < CLOCK_SECONDS_MAX and drained and _CLOCK_REASON.fullmatch(node.reason):
            self._context.log.info("node.resumed", node=name, was=node.reason)
            self._context.writer.handle_own(UpdateNode(names=(name,), state="UNDRAIN"))

    async def _ask_clock(self, channel: Channel) -> None:
        """A heartbeat tells of another time: ask the daemon, since the heartbeat may have been on its way for long."""
        began = self._context.clock.monotonic()
        try:
            answer = await channel.call(PingNode(term=self._context.journal.term), NodeSamples, timeout=ANSWER_SECONDS)
        except (RemoteError, ConnectionLost, CallTimeout):
            return  # the next heartbeat asks again
        finally:
            self._clock_asked.discard(channel)
        if answer.samples and answer.samples[0].sampled_at:
            ahead = answer.samples[0].sampled_at - self._context.clock.now()
            if ahead < 0:  # by at most this long on its way
                ahead = min(0.0, ahead + self._context.clock.monotonic() - began)
            for name in tuple(self._names.get(channel, ())):
                self._judge_clock(name, ahead, channel)

    def _link(self, name: str, channel: Channel) -> None:
        old = self._links.get(name)
        if channel not in self._names:
            self._names[channel] = {}
            channel.on_close(lambda: self._lost(channel))
        self._names[channel][name] = None
        self._links[name] = channel
        if old is not None and old is not channel:
            self._names.get(old, {}).pop(name, None)
            self._context.log.info("node.replaced", node=name, peer=channel.pipe.peer_name)
            if _origin(old.pipe.peer_name) == _origin(channel.pipe.peer_name):
                # While the controller stood still, its daemon may have given a connection up and made another one. The
                # registrations of both are read then, in any order: if the one that lives came first, its daemon must
                # hear that it counts no longer, and register again. Two daemons of one name on two hosts would drive
                # each other out without end.
                old.close()
        self._silent_since.pop(name, None)
        self._declared.discard(name)
        self.heard(channel)

    def _catch_up(self, name: str) -> None:
        """Send all effects that the current state derives for the node: it may have missed some."""
        effects = self._context.machine.pending_effects(name)
        if name in self._reload_owed:
            effects.append(core_effects.ReloadNode(node=name))
        if effects:
            # the state may hold events that are not on disk yet
            self._context.writer.when_durable(lambda: self.carry_out(effects))

    def _lost(self, channel: Channel) -> None:
        """The connection ended. The nodes keep their jobs, and have SlurmdTimeout to come back."""
        names = self._names.pop(channel, {})
        self._where.pop(channel, None)
        self._alone.pop(channel, None)
        self._plain.discard(channel)
        heard = self._heard.pop(channel, self._context.clock.monotonic())
        self._ahead.pop(channel, None)
        for name in names:
            if self._links.get(name) is channel:
                del self._links[name]
                self._silent_since[name] = heard
        if names:
            self._context.log.verbose("node.disconnected", nodes=len(names), first=next(iter(names)))
            self._context.tasks.spawn_contained(self._notice_silence(tuple(names)), name="node.silence")

    def heard(self, channel: Channel) -> None:
        """Note a sign of life of the daemon behind this connection."""
        if channel in self._names:
            self._heard[channel] = self._context.clock.monotonic()

    def take_samples(self, report: NodeSamples, channel: Channel) -> None:
        """Store a heartbeat, which covers all nodes of a daemon."""
        self.heard(channel)
        if report.samples and channel in self._names:
            self._note_clock(report.samples[0], channel)
            ahead = self._ahead.get(channel, 0.0)
            if abs(ahead) <= SKEW_SECONDS:
                for sample in report.samples:
                    self._judge_clock(sample.name, ahead, channel)
            elif channel.pipe.machine is not None and channel not in self._clock_asked:
                self._clock_asked.add(channel)
                self._context.tasks.spawn_contained(self._ask_clock(channel), name="node.clock")
        samples = self.samples
        for sample in report.samples:
            if self._links.get(sample.name) is channel:
                samples[sample.name] = sample

    async def ask(self, node: str, message: Struct, reply: type[T], timeout: float) -> T:
        """Send a request to a node daemon. Raises SpritzError if it is away, does not answer, or refuses."""
        channel = self._links.get(node)
        if channel is None or not channel.is_open:
            raise SpritzError(f"{node} does not respond", code="SLURM_COMMUNICATIONS_CONNECTION_ERROR")
        return await channel.call(message, reply, timeout=timeout)

    # Effects

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Send each effect to its node, in order for each node. Effects for nodes without a link are dropped."""
        unlinked: list[Effect] = []
        for together in fanout.orders(effects):
            linked: list[Effect] = []
            for effect in together:
                if isinstance(effect, core_effects.ReloadNode):
                    self._reload_owed.add(effect.node)
                channel = self._links.get(effect.node)
                (linked if channel is not None and channel.is_open else unlinked).append(effect)
            if len(linked) > 1:
                self._fan_out(linked)
            else:
                self._deliver_soon(linked)
        if unlinked:
            self._unlinked += len(unlinked)
            kinds = Counter(type(effect).__name__ for effect in unlinked)
            self._context.log.info(
                "effects.unlinked",
                kinds=",".join(f"{kind}:{count}" for kind, count in kinds.items()),
                nodes=len({effect.node for effect in unlinked}),
                first=unlinked[0].node,
            )

    def _deliver_soon(self, effects: Iterable[Effect], *, waits: bool = True) -> None:
        """Send effects over the nodes' own links, after forwarded messages in progress for them (not `waits`: the
        latter are later ones).
        """
        for effect in effects:
            channel = self._links.get(effect.node)
            if channel is not None:
                before = self._forwarding.get(effect.node) if waits else None
                self._direct[effect.node] += 1
                if before is None:
                    self._under_way[effect.node] += 1
                work = self._deliver_after(before, effect, channel)
                self._context.tasks.spawn_contained(work, name="effect.deliver")

    async def _deliver_after(self, before: asyncio.Future[None] | None, effect: Effect, channel: Channel) -> None:
        try:
            if before is not None:
                await asyncio.shield(before)
                self._under_way[effect.node] += 1
            await self._deliver(effect, channel)
        finally:
            self._sent_directly((effect.node,))

    def _sent_directly(self, nodes: Iterable[str]) -> None:
        """A message for these nodes is no longer under way over their own link."""
        for counted in (self._direct, self._under_way):
            for name in nodes:
                counted[name] -= 1
                if counted[name] <= 0:
                    del counted[name]

    def _fan_out(self, effects: Sequence[Effect]) -> None:
        """Send effects that differ only in their node as one message through the tree."""
        settings = self._context.configuration.loaded.settings
        width = settings.integer("TreeWidth")
        names: dict[Channel, list[str]] = {}
        direct: list[Effect] = []
        for effect in effects:
            channel = self._links[effect.node]
            # A node with messages of its own under way gets this one over its link too: the tree could overtake them.
            if channel in self._plain or effect.node in self._direct:
                direct.append(effect)
            else:
                names.setdefault(channel, []).append(effect.node)
        # The controller would be the head of every branch itself, so forwarding would only add a hop.
        if len(names) <= width and all(len(nodes) == 1 for nodes in names.values()):
            direct = list(effects)
            names = {}
        self._deliver_soon(direct)
        order = _Order(effects[0], tuple(name for nodes in names.values() for name in nodes))
        daemons = [self._daemon(channel, nodes) for channel, nodes in names.items()]
        region = fanout.regions(self._context.machine.state, settings.words("TopologyParam"))
        for head, below in fanout.heads(daemons, width, region):
            nodes = all_nodes((head, *below))
            # Orders for a node arrive in the order of the effects: this message waits for every earlier one through the
            # tree that has a node in common with it.
            before = {done_before for name in nodes if (done_before := self._forwarding.get(name)) is not None}
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._forwarding.update(dict.fromkeys(nodes, done))
            work = self._forward(order, head, below, before, done)
            self._context.tasks.spawn_contained(work, name="effect.forward")

    def _daemon(self, channel: Channel, nodes: Sequence[str]) -> fanout.Daemon:
        """The daemon as others can reach it. Without keys, only daemons of the controller's machine can be reached, and
        only from there.
        """
        address, port, started_at = self._where.get(channel, ("", 0, 0.0))
        is_local = channel.pipe.machine is None and self._context.machines is not None
        until = self._alone.get(channel, 0.0)
        alone = is_local or not address or not port or until > self._context.clock.monotonic()
        return fanout.Daemon(address=address, port=port, nodes=tuple(nodes), started_at=started_at, alone=alone)

    async def _forward(
        self,
        order: _Order,
        head: Branch,
        below: Branches,
        before: set[asyncio.Future[None]],
        done: asyncio.Future[None],
    ) -> None:
        """Send a message to the head of a branch; then send it directly to the nodes that it did not reach."""
        missed: tuple[str, ...] = ()
        nodes = all_nodes((head, *below))
        try:
            # Shielded, since other messages wait for the same future: the cancellation of one must not cancel theirs.
            for earlier in before:
                await asyncio.shield(earlier)
            if any(name in self._under_way for name in nodes) or not self._messages.are_due(order.effect, nodes):
                missed = nodes  # on an error: every node is checked individually
            else:
                missed = await self._pass_on(order, head, below)
                if missed:
                    self._rerouted += len(missed)
                    self._context.log.info("branch.rerouted", head=head.nodes[0], nodes=len(missed), first=missed[0])
        finally:
            for name in nodes:
                if self._forwarding.get(name) is done:
                    del self._forwarding[name]
            # Queued before effects that wait for this message. Later messages through the tree wait for it, too: they
            # find these under way, and go over the links as well.
            self._deliver_soon((structs.replace(order.effect, node=name) for name in missed), waits=False)
            done.set_result(None)

    async def _pass_on(self, order: _Order, head: Branch, below: Branches) -> tuple[str, ...]:
        """Send the message to the head. Returns the nodes that must get it over their own links."""
        nodes = all_nodes((head, *below))
        channel = self._links.get(head.nodes[0])
        if channel is None:
            return nodes
        try:
            message = await self._written(order)
        except Exception as error:  # it cannot be encoded
            kind = type(order.effect).__name__
            self._context.log.error("effect.unwritable", exception=error, effect=kind)
            return nodes
        if message is None:
            return ()
        message = structs.replace(message, nodes=head.nodes, branches=below)
        self._sent += 1
        self._forwarded += len(nodes)
        try:
            answer = await channel.call(message, Forwarded, timeout=ACCEPT_SECONDS * (1 + levels(below)))
        except RemoteError as error:
            if error.code == "SLURM_UNEXPECTED_MSG_ERROR":
                self._plain.add(channel)
            else:
                self._context.log.error("branch.refused", node=head.nodes[0], error=error.message)
            return nodes
        except (ConnectionLost, CallTimeout) as error:
            self._context.log.error("branch.lost", node=head.nodes[0], nodes=len(nodes), error=error.message)
            if not isinstance(order.effect, core_effects.PASSING):
                return nodes
            self._repeat(order, nodes)
            return ()
        self.heard(channel)
        return self._missed(order, head, answer)

    def _repeat(self, order: _Order, names: Sequence[str]) -> None:
        """Send a transient message over the own links of nodes that may have it already.

        They take a signed message once (`node.credentials`). Without keys, in a cluster of one machine, they could not
        tell, and a signal must not reach tasks twice: there it is lost with its branch.
        """
        if order.message is None or not order.message.credential:
            return
        together: dict[Channel, list[str]] = {}
        for name in names:
            channel = self._links.get(name)
            if channel is not None and channel.is_open:
                together.setdefault(channel, []).append(name)
        for channel, nodes in together.items():
            for counted in (self._direct, self._under_way):
                counted.update(nodes)
            message = structs.replace(order.message, nodes=tuple(nodes), branches=())
            self._context.tasks.spawn_contained(self._repeat_to(channel, message), name="effect.repeat")

    async def _repeat_to(self, channel: Channel, message: ForwardOrder) -> None:
        try:
            await channel.call(message, Forwarded, timeout=ACCEPT_SECONDS)
        except ClientError as error:
            self._context.log.error("order.lost", kind=message.kind, node=message.nodes[0], error=error.message)
        finally:
            self._sent_directly(message.nodes)

    def _missed(self, order: _Order, head: Branch, answer: Forwarded) -> tuple[str, ...]:
        """The nodes that a branch did not reach."""
        missed = answer.unreached
        until = self._context.clock.monotonic() + ALONE_SECONDS
        passing = isinstance(order.effect, core_effects.PASSING)
        for name in answer.unreached if passing else (*answer.unreached, *answer.unanswered):
            channel = self._links.get(name)
            if channel is not None and name not in head.nodes:
                self._alone[channel] = until
        if passing:
            self._repeat(order, answer.unanswered)
        else:
            missed += answer.unanswered
        return missed

    async def _written(self, order: _Order) -> ForwardOrder | None:
        """The message as it travels; None if it is out of date."""
        if order.message is None:
            effect = structs.replace(order.effect, node=order.nodes[0])
            message = await self._messages.message(effect)
            if message is None:
                return None
            message = structs.replace(message, node="")
            body = msgspec.msgpack.encode(message)
            credential, signature = b"", b""
            if self._context.machines is not None:
                credential, signature = self._context.machines.order_credential(message, body, order.nodes)  # type: ignore[arg-type]  # fanout.FORWARDED makes no other
            order.message = ForwardOrder(
                kind=type(message).__name__, message=body, nodes=(), credential=credential, signature=signature
            )
        return order.message

    async def _deliver(self, effect: Effect, channel: Channel) -> None:
        while channel.is_open and self._links.get(effect.node) is channel:
            term = self._context.journal.term
            try:
                message = await self._messages.message(effect)
                if message is None:
                    return
                self._sent += 1
                if channel.pipe.machine is not None and self._context.machines is not None:
                    message = self._context.machines.signed(message)
                await channel.call(message, Accepted, timeout=ACCEPT_SECONDS)
            except ConnectionLost:
                return
            except CallTimeout:
                self._again += 1
                self._context.log.error("effect.unanswered", effect=type(effect).__name__, node=effect.node)
            except RemoteError as error:
                if error.code == "ESLURM_DISABLED":
                    if self._context.journal.term == term:
                        # It follows another controller: its registration tells which, and is refused.
                        kind = type(effect).__name__
                        self._context.log.error(
                            "effect.refused", effect=kind, node=effect.node, error=error.message, action="disconnected"
                        )
                        channel.pipe.abort()
                        return
                    continue  # the term was raised while the message was on its way
                if error.code == "ESLURM_INVALID_JOB_CREDENTIAL":
                    self._drain_for_clock(effect.node, channel)
                if self._refused(effect, error.message):
                    return
                await self._context.clock.sleep(RETRY_SECONDS)
            except Exception as error:  # its script is missing, or it cannot be encoded
                self._context.log.error("effect.unwritable", exception=error, effect=type(effect).__name__)
                self._refused(effect, error.message if isinstance(error, SpritzError) else repr(error))
                return
            else:
                self.heard(channel)
                if isinstance(effect, core_effects.ReloadNode):
                    self._reload_owed.discard(effect.node)
                return
            if isinstance(effect, core_effects.PASSING):
                return

    def _drain_for_clock(self, name: str, channel: Channel) -> None:
        """Drain a node that refuses launches because of its clock: it would get every job of the queue, one by one."""
        node = self._context.machine.state.nodes.get(name)
        skew = self._skew(name, channel)
        if skew and node is not None and not node.flags & NodeFlag.DRAIN:
            self._drain(name, skew)

    def _drain(self, name: str, reason: str) -> None:
        self._context.log.error("node.drained", node=name, reason=reason)
        self._context.writer.handle_own(UpdateNode(names=(name,), state="DRAIN", reason=reason))

    def _refused(self, effect: Effect, error: str) -> bool:
        """Handle a refusal by the node. A refused launch has failed, and the core decides what follows.

        Returns whether the effect is finished.
        """
        context = self._context
        context.log.error("effect.refused", effect=type(effect).__name__, node=effect.node, error=error)
        if isinstance(effect, core_effects.LaunchBatchOn | core_effects.LaunchStepOn):
            batch = isinstance(effect, core_effects.LaunchBatchOn)
            context.writer.handle_own(
                StepFinished(
                    node=effect.node,
                    job_id=effect.job_id,
                    restart_count=effect.restart_count,
                    step_id=STEP_BATCH if batch else effect.step_id,  # type: ignore[union-attr]
                    ended_at=context.clock.now(),
                    launch_failed=True,
                    error=error,
                    error_kind="refused",
                )
            )
            return True
        return isinstance(effect, core_effects.PASSING)

    def reload(self) -> None:
        """Make every daemon read the configuration again."""
        self.carry_out(core_effects.ReloadNode(node=next(iter(names))) for names in self._names.values() if names)

    def dismiss(self, names: Iterable[str]) -> None:
        """Disconnect nodes that are no longer configured. Their daemons reconnect, are refused, and end their jobs."""
        names = list(names)
        self._reload_owed.difference_update(names)
        channels = {self._links[name]: None for name in names if name in self._links}
        for channel in channels:
            channel.pipe.abort()

    def expel(self, names: Iterable[str], reason: str) -> None:
        """Disconnect nodes whose machine has lost its place in the cluster. They are DOWN at once, for this reason."""
        names = tuple(names)
        self._declared.update(names)
        self.dismiss(names)
        self._context.log.error("node.expelled", nodes=",".join(names), reason=reason)
        self._context.writer.handle_own(NodeLost(names=names, reason=reason))

    async def stop_daemons(self, timeout: float) -> None:
        """`scontrol shutdown`: stop every daemon. Jobs continue."""
        message = StopDaemon(term=self._context.journal.term)
        try:
            async with within(timeout):
                for channel in list(self._names):
                    try:
                        await channel.call(message, Accepted, timeout=timeout)
                    except (RemoteError, ConnectionLost, CallTimeout) as error:
                        self._context.log.error("node.stop_failed", peer=channel.pipe.peer_name, error=error.message)
        except TimeoutError:
            self._context.log.error("node.stop_failed", reason="not all node daemons answered in time")

    # Silence

    async def _notice_silence(self, names: tuple[str, ...]) -> None:
        """Unless they return soon, stop starting jobs on nodes whose daemon is gone."""
        await self._context.clock.sleep(SILENT_SECONDS)
        nodes = self._context.machine.state.nodes
        away = tuple(
            name
            for name in names
            if name not in self._links
            and not self._registering[name]
            and name in nodes
            and is_expected(nodes[name])
            and not nodes[name].flags & NodeFlag.NOT_RESPONDING  # quiet or lost: logged already
        )
        if away:
            self._context.log.info("node.silent", nodes=len(away), first=away[0])
            self._context.writer.handle_own(NodeSilent(names=away))

    async def listen(self) -> None:
        """Runs for ever: finds connected daemons that have gone quiet."""
        while True:
            await self._context.clock.sleep(LOOK_SECONDS)
            if not self._context.configuration.settings.slurmd_timeout_seconds:
                continue  # something else watches the nodes
            latest = self._context.clock.monotonic() - QUIET_SECONDS
            for channel in [channel for channel, heard in self._heard.items() if heard < latest]:
                if channel not in self._asked:
                    self._asked.add(channel)
                    self._context.tasks.spawn_contained(self._need_answer(channel), name="node.quiet")

    async def _need_answer(self, channel: Channel) -> None:
        """Ping a quiet daemon. Without an answer nothing new starts on its nodes until it registers again.

        The ping comes first because it may have been the controller that was late.
        """
        try:
            await self._ping(channel, ANSWER_SECONDS)
        finally:
            self._asked.discard(channel)
        quiet = self._context.clock.monotonic() - self._heard.get(channel, self._context.clock.monotonic())
        if quiet < ANSWER_SECONDS or not self._names.get(channel):
            return
        names = tuple(name for name in self._names[channel] if not self._registering[name])
        channel.pipe.abort()
        if names:
            self._context.log.error("node.quiet", nodes=len(names), first=names[0], silent_seconds=round(quiet))
            self._context.writer.handle_own(NodeSilent(names=names))

    async def patrol(self) -> None:
        """Runs for ever: pings daemons, and reports nodes that were silent for SlurmdTimeout."""
        known = tuple(self._context.machine.state.nodes)
        self._miss_unlinked()
        self._context.tasks.spawn_contained(self._notice_silence(known), name="node.silence")
        while True:
            limit = self._context.configuration.settings.slurmd_timeout_seconds
            await self._context.clock.sleep(min(PATROL_SECONDS_MAX, max(0.2, (limit or 90) / 3)))
            for channel in list(self._names):
                self._context.tasks.spawn_contained(self._ping(channel, PATROL_SECONDS_MAX), name="node.ping")
            self._miss_unlinked()
            if limit:
                self._declare_lost(limit)

    async def _ping(self, channel: Channel, timeout: float) -> None:
        try:
            answer = await channel.call(PingNode(term=self._context.journal.term), NodeSamples, timeout=timeout)
        except RemoteError:
            self.heard(channel)
            return
        except (ConnectionLost, CallTimeout):
            return
        self.take_samples(answer, channel)

    def _miss_unlinked(self) -> None:
        """Begin the silence of nodes that should have a link and have none.

        A node could not connect before the controller served, before it was configured, or while it was powered down.
        A lost node that an administrator resumed has SlurmdTimeout to connect.
        """
        now = self._context.clock.monotonic()
        nodes = self._context.machine.state.nodes
        for name in [name for name in self._silent_since if name not in nodes or not is_expected(nodes[name])]:
            del self._silent_since[name]
        for name in [name for name in self._declared if name in nodes and nodes[name].state is not NodeState.DOWN]:
            self._declared.discard(name)
            self._silent_since.pop(name, None)
        for name, node in nodes.items():
            if name not in self._links and is_expected(node):
                self._silent_since.setdefault(name, now)

    def _declare_lost(self, limit: float) -> None:
        """Report nodes without a sign of life for `limit` seconds, connected or not, once each."""
        now = self._context.clock.monotonic()
        lost = []
        stuck: dict[Channel, None] = {}
        for name, node in self._context.machine.state.nodes.items():
            if name in self._declared or self._registering[name] or not is_expected(node):
                continue
            channel = self._links.get(name)
            if channel is not None:
                heard = self._heard.get(channel, now)
            else:
                heard = self._silent_since.get(name, now)
            if now - heard >= limit:
                lost.append(name)
                if channel is not None:
                    stuck[channel] = None
        if lost:
            self._declared.update(lost)
            self._context.log.error("node.lost", nodes=",".join(lost[:20]), count=len(lost), silent_seconds=limit)
            try:
                self._context.writer.handle_own(NodeLost(names=tuple(lost)))
            except Exception as error:
                # A fault of the core, which has been undone. What could be set aside is: the next round goes on.
                self._context.log.error("node.lost_undecided", exception=error, nodes=",".join(lost[:20]))
                self._declared.difference_update(lost)
        for channel in stuck:
            # A daemon that was only stopped must register again before its nodes are used: cutting the connection
            # forces it to.
            channel.pipe.abort()


class _Order:
    """A message for many nodes, created when the first of them can have it."""

    def __init__(self, effect: Effect, nodes: tuple[str, ...]) -> None:
        self.effect = effect
        self.nodes = nodes
        self.message: ForwardOrder | None = None


def is_expected(node: Node) -> bool:
    """Whether the node's daemon should report: not while it is powered down or FUTURE, and never if another system
    runs the node.
    """
    return node.state is not NodeState.FUTURE and not is_away(node) and not node.flags & NodeFlag.EXTERNAL


def _origin(peer_name: str) -> str:
    """A TCP peer's address; "" for a peer of this machine identified by the kernel."""
    host, colon, _port = peer_name.rpartition(":")
    return host.strip("[]").removeprefix("::ffff:") if colon else ""
