"""Connected controllers, and the wait of a query for their newest events.

A query reads the database only after it holds every event that was durable when the query came: each connected
controller is asked for its last event number, and the query waits for it. A job is therefore visible as soon as its
submission was acknowledged. The wait is at most `PATIENCE_SECONDS`, and a controller whose events the database refuses
is not waited for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from spritz.model.accounting.records import EventsFlushed, FlushEvents
from spritz.model.errors import SpritzError
from spritz.timeouts import within

if TYPE_CHECKING:
    from spritz.client.channel.channel import Channel
    from spritz.runtime.log import Logger

#: Longest wait of a query for the newest events.
PATIENCE_SECONDS = 5.0


class Link:
    """One controller's connection.

    `stored`: the number of its last event in the database. `set_aside`: how many of its events could not be stored.
    `policy_version`: the policy that was sent to it. `book_version`: the version of the book that this policy still
    matches (an edit may concern other clusters only); 0: send the whole policy. `telling`: a lock, one send at a time.
    """

    def __init__(self, cluster: str, channel: Channel, stored: int) -> None:
        self.cluster = cluster
        self.channel = channel
        self.stored = stored
        self.set_aside = 0
        self.policy_version = self.book_version = 0
        self.telling = asyncio.Lock()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def advance(self, sequence: int) -> None:
        """Events up to `sequence` are stored; wakes queries that wait for them."""
        self.stored = sequence
        waiting = []
        for wanted, future in self._waiting:
            if wanted <= sequence:
                if not future.done():
                    future.set_result(None)
            else:
                waiting.append((wanted, future))
        self._waiting = waiting

    async def reach(self, sequence: int) -> None:
        """Wait until events up to `sequence` are stored."""
        if sequence > self.stored:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((sequence, future))
            await future


class Links:
    """Connections of controllers that have registered, one for each cluster."""

    def __init__(self, log: Logger) -> None:
        self.by_cluster: dict[str, Link] = {}
        #: clusters whose last batch the database refused: queries do not wait for them
        self.refused: set[str] = set()
        #: why a cluster could not register: logged once, although it retries
        self._kept_out: dict[str, str] = {}
        self._log = log

    def connect(self, cluster: str, channel: Channel, stored: int) -> Link:
        """Register a controller's connection; it replaces an earlier one of the same cluster."""
        self._kept_out.pop(cluster, None)
        link = self.by_cluster[cluster] = Link(cluster, channel, stored)
        channel.on_close(lambda: self._gone(link))
        return link

    def keep_out(self, cluster: str, why: str) -> None:
        """Log, once, that a controller could not register. It tries again."""
        if self._kept_out.get(cluster) != why:
            self._kept_out[cluster] = why
            self._log.error("cluster.not_registered", cluster=cluster, error=why)

    def of(self, cluster: str, channel: Channel) -> Link:
        """The link of this connection. Raises SpritzError if a later connection has replaced it."""
        link = self.by_cluster.get(cluster)
        if link is None or link.channel is not channel:
            raise SpritzError(f"cluster {cluster} is not registered on this connection", code="ESLURM_CLUSTER_DELETED")
        return link

    async def catch_up(self, clusters: tuple[str, ...]) -> list[str]:
        """Wait for the newest events. Returns the clusters for which the wait ended without them."""
        links = [link for name, link in self.by_cluster.items() if not clusters or name in clusters]
        behind = [name for name in clusters if name not in self.by_cluster]
        behind += [link.cluster for link in links if link.cluster in self.refused]
        for link in (link for link in links if link.cluster not in self.refused):
            try:
                async with within(PATIENCE_SECONDS):
                    flushed = await link.channel.call(FlushEvents(), EventsFlushed, timeout=PATIENCE_SECONDS)
                    await link.reach(flushed.sequence)
            except (TimeoutError, SpritzError) as error:
                behind.append(link.cluster)
                self._log.verbose("cluster.behind", cluster=link.cluster, error=str(error))
        return behind

    def _gone(self, link: Link) -> None:
        if self.by_cluster.get(link.cluster) is link:
            del self.by_cluster[link.cluster]
            self._log.info("cluster.gone", cluster=link.cluster, sequence=link.stored)
