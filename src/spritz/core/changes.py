"""Which records the present command has replaced, with what they were before it.

`State` notes a record where it replaces it, so whatever event does that is heard of. Each record is told once, however
often it was replaced: a listener sees states between two commands only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from spritz.model.events import Changes, Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.model.cluster.settings import ClusterSettings
    from spritz.model.events import Changed
    from spritz.model.job.record import Job
    from spritz.model.limits.records import Policy, PolicyChange
    from spritz.model.node.partition import Partition
    from spritz.model.node.record import Node
    from spritz.model.node.reservation import Reservation

K = TypeVar("K")
R = TypeVar("R")


class Records(Protocol):
    """The records as they are now: `core.State`."""

    jobs: dict[int, Job]
    nodes: dict[str, Node]
    partitions: dict[str, Partition]
    reservations: dict[str, Reservation]
    settings: ClusterSettings


class Replaced:
    """Records by their keys, as they were before the command (None: there was none)."""

    __slots__ = ("jobs", "layout", "nodes", "policy", "reservations", "usage")

    def __init__(self) -> None:
        self.jobs: dict[int, Job | None] = {}
        self.nodes: dict[str, Node | None] = {}
        self.reservations: dict[str, Reservation | None] = {}
        self.layout = False
        self.policy: list[Policy | PolicyChange] = []
        self.usage = False

    def clear(self) -> None:
        """Nothing was replaced, or it was taken back."""
        self.__init__()  # type: ignore[misc]  # it has no subclass

    def take(self, state: Records) -> Changes:
        """What has changed since the last command."""
        jobs, nodes = self.jobs, self.nodes
        # Most commands change jobs and nodes alone.
        if self.layout or self.reservations or self.policy or self.usage:
            changes = Changes(
                jobs=_changed(jobs, state.jobs),
                nodes=_changed(nodes, state.nodes),
                reservations=_changed(self.reservations, state.reservations),
                layout=self._layout_of(state) if self.layout else None,
                policy=tuple(self.policy),
                usage=self.usage,
            )
            self.clear()
            return changes
        # `_make`, as the constructor costs a percent of a command
        changes = Changes._make((_changed(jobs, state.jobs), _changed(nodes, state.nodes), (), None, (), False))
        jobs.clear()
        nodes.clear()
        return changes

    @staticmethod
    def _layout_of(state: Records) -> Layout:
        return Layout(settings=state.settings, partitions=state.partitions, nodes=tuple(state.nodes))


def _changed(before: Mapping[K, R | None], now: Mapping[K, R]) -> tuple[Changed[R], ...]:
    if not before:
        return ()
    if len(before) == 1:  # likewise
        ((key, old),) = before.items()
        new = now.get(key)
        return ((old, new),) if new is not old else ()
    get = now.get
    return tuple([(old, after) for key, old in before.items() if (after := get(key)) is not old])
