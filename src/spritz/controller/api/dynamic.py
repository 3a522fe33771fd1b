"""Dynamic nodes, which slurm.conf does not have: created by command or by their daemons, and deleted.

The node's line is parsed here, under the configuration in force; the core decides whether the node may exist. Source:
scontrol(1) create, delete; slurmd(8) -F, -Z.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spritz.client.channel.handling import DEFERRED, Deferred
from spritz.config.dynamic import node_configs
from spritz.controller.needs import Configured, Identifying, Reading
from spritz.controller.writer.durable import Writing
from spritz.core.rights import administers
from spritz.model.cluster.settings import SYSTEM
from spritz.model.commands.cluster import AddNodes, CreateNodes, DeleteNodes
from spritz.model.errors import SpritzError
from spritz.model.node_daemon.reports import AdmitNode, IntroduceNode
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.client.channel.handling import Call
    from spritz.controller.nodes.links import NodeLinks


class Joining(Configured, Identifying, Reading, Writing, Protocol):
    """Nodes that come and go while the controller runs."""

    @property
    def nodes(self) -> NodeLinks: ...


class DynamicNodes:
    """Answers CreateNodes and DeleteNodes of administrators, and IntroduceNode of node daemons."""

    def __init__(self, context: Joining) -> None:
        self._context = context

    def create(self, command: CreateNodes, call: Call) -> Deferred:
        """`scontrol create NodeName=…`. Raises ConfigError with all faults of the line."""
        context = self._context
        caller = context.identity.caller(call)
        if not administers(context.machine.state, caller):
            raise SpritzError(Rejection(code="ESLURM_USER_ID_MISSING").text, code="ESLURM_USER_ID_MISSING")
        nodes = node_configs(command.line, context.configuration.loaded)
        context.writer.handle(AddNodes(nodes=nodes), caller, call.reply)
        return DEFERRED

    def delete(self, command: DeleteNodes, call: Call) -> Deferred:
        """`scontrol delete NodeName=…`; disconnects the nodes' daemons."""
        context = self._context

        def deleted(reply: Struct | None) -> None:
            if not isinstance(reply, Rejection):
                context.nodes.dismiss(command.names)
            call.reply(reply)

        context.writer.handle(command, context.identity.caller(call), deleted)
        return DEFERRED

    def introduce(self, report: IntroduceNode, call: Call) -> Deferred:
        """Tell a node daemon which node it is. Raises ConfigError for a faulty line."""
        context = self._context
        config = None
        if report.line:
            configs = node_configs(report.line, context.configuration.loaded)
            if len(configs) != 1:
                raise SpritzError("a node daemon registers exactly one node", code="ESLURM_INVALID_NODE_NAME")
            config = configs[0]
        admit = AdmitNode(
            hostname=report.hostname,
            capacity=report.capacity,
            config=config,
            feature=report.feature,
            address=report.address,
        )
        context.writer.handle(admit, SYSTEM, call.reply)
        return DEFERRED
