"""The supervisors of this daemon: gives a step to an idle one or to a new one, and limits how many start at once.

A step in a supervisor that has done others costs half of a step in a new one, which must first copy much of its
parent's memory (docs/performance.md, wide steps). So steps that come at once, as those of the virtual nodes of one
daemon do, start a few at a time: short steps then follow each other in the same supervisors.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from spritz.node.supervisors.connection import OnEnd, OnReport, SupervisorLink

if TYPE_CHECKING:
    import socket

    from spritz.model.node_daemon.reports import RunningStep
    from spritz.node.supervisors.zygote import Zygote

#: Number of idle supervisors kept for further steps, and for how long.
IDLE_MAX = 32
IDLE_SECONDS = 2.0
#: Starts at once for each processor, and at least: more would not start sooner.
STARTS_PER_CPU = 2
STARTS_MIN = 4
#: A start counts for so long at most: its files may be on a slow server, or it waits for the node above in its tree.
START_SECONDS = 0.25


class Pool:
    """All supervisors with a connection to this daemon: those that run a step, those that end one, idle ones.

    `on_report` gets their reports, `on_end` those that end, `on_dismissed` idle ones that are sent away. `on_room` is
    called when `has_room` may have become true.
    """

    def __init__(
        self,
        zygote: Zygote,
        *,
        on_report: OnReport,
        on_end: OnEnd,
        on_dismissed: OnEnd,
        on_room: Callable[[], None],
        starts_max: int = 0,
    ) -> None:
        """`starts_max` 0: by the number of processors."""
        self._zygote = zygote
        self._on_report = on_report
        self._on_end = on_end
        self._on_dismissed = on_dismissed
        self._on_room = on_room
        self._starts_max = starts_max or max(STARTS_MIN, STARTS_PER_CPU * len(os.sched_getaffinity(0)))
        self._open: dict[SupervisorLink, None] = {}
        #: those of `_open` that get no further step
        self._outdated: set[SupervisorLink] = set()
        #: with the timers that dismiss them
        self._idle: dict[SupervisorLink, asyncio.TimerHandle] = {}
        #: with the timers that end their start
        self._starting: dict[SupervisorLink, asyncio.TimerHandle] = {}

    @property
    def has_room(self) -> bool:
        """Whether a step should start now."""
        return bool(self._idle) or len(self._starting) < self._starts_max

    def begin(self, node: str, key: RunningStep, directory: str, task_ids: tuple[int, ...]) -> SupervisorLink:
        """Give the step in `directory` to an idle supervisor, or to a new one. Raises OSError."""
        link = self._begin_in_idle(node, key, directory, task_ids)
        if link is None:
            link = self.connect(node, key, directory, task_ids, self._zygote.launch(directory))
        self._starting[link] = asyncio.get_running_loop().call_later(START_SECONDS, self.started, link)
        return link

    def _begin_in_idle(
        self, node: str, key: RunningStep, directory: str, task_ids: tuple[int, ...]
    ) -> SupervisorLink | None:
        while self._idle:
            link, timer = self._idle.popitem()
            timer.cancel()
            link.begin(node, key, directory, task_ids)
            if not link.closed:
                return link
        return None

    def connect(
        self, node: str, key: RunningStep, directory: str, task_ids: tuple[int, ...], connection: socket.socket
    ) -> SupervisorLink:
        """Take a connection to the supervisor of a step."""
        link = SupervisorLink(
            node, key, directory, task_ids, connection, on_report=self._on_report, on_end=self._on_end
        )
        self._open[link] = None
        return link

    def started(self, link: SupervisorLink) -> None:
        """Let the next supervisor start: this one's step has started or ended, or takes long to start."""
        timer = self._starting.pop(link, None)
        if timer is not None:
            timer.cancel()
        self._on_room()

    def keep(self, link: SupervisorLink) -> None:
        """Keep the idle supervisor for another step for a while."""
        if len(self._idle) < IDLE_MAX and link not in self._outdated:
            self._idle[link] = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._dismiss, link)
        else:
            self._dismiss(link)
        self.started(link)

    def _dismiss(self, link: SupervisorLink) -> None:
        self.forget(link)
        link.close()
        self._on_dismissed(link)

    def forget(self, link: SupervisorLink) -> None:
        """Forget a supervisor that has ended."""
        self._open.pop(link, None)
        self._outdated.discard(link)
        timer = self._idle.pop(link, None)
        if timer is not None:
            timer.cancel()
        self.started(link)

    def renew(self) -> None:
        """Give no further step to existing supervisors: new ones must start in the daemon's current state."""
        self._outdated.update(self._open)
        for link in list(self._idle):
            self._dismiss(link)

    def release(self) -> None:
        """Close all connections; supervisors with a step continue."""
        for timer in (*self._idle.values(), *self._starting.values()):
            timer.cancel()
        for link in self._open:
            link.close()
        for collection in (self._open, self._outdated, self._idle, self._starting):
            collection.clear()
