"""Reports of node daemons: accepted only from root, SlurmUser and the controller's own user.

Source: `model.node_daemon.reports`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from spritz.client.channel.handling import DEFERRED, Deferred
from spritz.controller.api.dynamic import DynamicNodes
from spritz.controller.needs import Configured, Identifying, Logged, Reading
from spritz.controller.writer.durable import Writing
from spritz.model.cluster.settings import SYSTEM
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.model.node_daemon.reports import (
    IntroduceNode,
    JobGone,
    NodePrologEnded,
    NodeSamples,
    NodeTrouble,
    RegisterNode,
    StepFinished,
    StepStarted,
)
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from spritz.client.channel.handling import Call
    from spritz.controller.nodes.links import NodeLinks
    from spritz.controller.nodes.machines import Machines

#: Reports that go to the core unchanged.
PLAIN_REPORTS: tuple[type[Struct], ...] = (StepStarted, StepFinished, NodePrologEnded, JobGone, NodeTrouble)


class Taking(Configured, Identifying, Logged, Reading, Writing, Protocol):
    """What reports of node daemons are told to."""

    @property
    def machines(self) -> Machines | None: ...

    @property
    def nodes(self) -> NodeLinks: ...


class Reports:
    """Takes what node daemons report. Raises SpritzError for any other caller."""

    def __init__(self, context: Taking) -> None:
        self._context = context

    def plain(self, report: Struct, call: Call) -> Deferred:
        """Decide now; acknowledged once durable, so that a report whose answer is lost is sent again."""
        self._need_daemon(call, getattr(report, "node", "") or getattr(report, "name", ""))
        self._context.nodes.heard(call.channel)
        if isinstance(report, NodeTrouble):
            self._context.log.error("node.trouble", node=report.name, reason=report.reason, drained=report.drain)
        self._context.writer.handle(report, SYSTEM, call.reply)
        return DEFERRED

    def register(self, report: RegisterNode, call: Call) -> Deferred:
        """Register a node daemon: this connection now leads to its node."""
        self._need_daemon(call, report.name)
        self._context.nodes.register(report, call)
        return DEFERRED

    def introduce(self, report: IntroduceNode, call: Call) -> Deferred:
        """Tell a daemon that slurm.conf does not name which node it is."""
        self._need_daemon(call)
        if call.machine is not None and report.hostname.partition(".")[0].lower() != call.machine.host:
            denied = Rejection(code="ESLURM_ACCESS_DENIED").text
            raise SpritzError(
                f"{denied}: this slurmd says that its machine is {report.hostname}, and its certificate is that of "
                f"{call.machine.host}",
                code="ESLURM_ACCESS_DENIED",
            )
        return DynamicNodes(self._context).introduce(report, call)

    def samples(self, report: NodeSamples, call: Call) -> Done:
        """Store a heartbeat and its samples in memory: they are neither journaled nor kept over a restart."""
        self._need_daemon(call)
        self._context.nodes.take_samples(report, call.channel)
        return Done()

    def _need_daemon(self, call: Call, node: str = "") -> None:
        """Raises SpritzError unless the caller is a node daemon; on another machine, that of `node`."""
        if call.machine is not None and self._context.machines is not None:
            self._context.machines.need_node(call, node)
            return
        # Root on another machine may speak for its users, not for nodes: those need the machine's certificate.
        if call.origin or not self._context.identity.is_admin(call):
            raise SpritzError(
                Rejection(code="ESLURM_ACCESS_DENIED").text,
                code="ESLURM_ACCESS_DENIED",
                hint="node daemons run as root, as SlurmUser, or as the controller's own user",
            )
