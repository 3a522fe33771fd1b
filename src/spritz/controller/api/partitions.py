"""Listing partitions. Source: scontrol(1) show partition, sinfo(1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spritz.controller.api.private import need_open
from spritz.controller.needs import Clocked, Identifying, Reading
from spritz.controller.writer.durable import Writing, durable
from spritz.core.rights import operates
from spritz.model.errors import SpritzError
from spritz.model.node.partition import opens_to
from spritz.model.queries.partitions import ListPartitions, Partitions
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from spritz.client.channel.handling import Call
    from spritz.model.cluster.settings import Caller
    from spritz.model.node.partition import Partition


class Asking(Clocked, Identifying, Reading, Writing, Protocol):
    """Partitions and who asks for them."""


class PartitionQueries:
    """Answers ListPartitions, without hidden partitions unless the caller may see them."""

    def __init__(self, context: Asking) -> None:
        self._context = context

    async def list_partitions(self, request: ListPartitions, call: Call) -> Partitions:
        """Partitions in the order of the configuration; unknown names are refused. With PrivateData=partitions only
        administrators see any.
        """
        context = self._context
        caller = context.identity.caller(call)
        need_open(context.machine.state, caller, "partitions")
        known = context.machine.state.partitions
        for name in request.names:
            if name not in known:
                raise SpritzError(
                    Rejection(code="ESLURM_INVALID_PARTITION_NAME").text, code="ESLURM_INVALID_PARTITION_NAME"
                )
        show_all = request.all or operates(context.machine.state, caller) or bool(request.names)
        partitions = [
            partition
            for partition in known.values()
            if (not request.names or partition.name in request.names) and (show_all or is_visible(partition, caller))
        ]
        now = context.clock.now()
        await durable(context, call)
        return Partitions(now=now, partitions=partitions)


def is_visible(partition: Partition, caller: Caller) -> bool:
    """Whether a listing without `-a` shows it: not hidden, and open to one of the caller's groups.

    Source: slurm.conf(5) Hidden, AllowGroups, DenyGroups; squeue(1) --all.
    """
    return not partition.hidden and opens_to(partition, caller.group_names)
