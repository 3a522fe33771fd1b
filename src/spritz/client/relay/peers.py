"""Links between the daemons of two nodes, for streams of a step's supervisors to each other (the tree of its output).

Straight from machine to machine, so that they do not burden the controller. Nodes that cannot be reached so are not
tried again for a while; their supervisors connect to the client, by way of the controller.

Who may open streams: machines whose certificate says that they are nodes of this cluster. They say for which user; it
leads to sockets of that user alone, of those that commands and supervisors make for a step, whose key proves the rest.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.msgpack import encode

from spritz.client.channel.aio import Secure, open_address
from spritz.client.errors import ClientError
from spritz.client.relay.hub import CLIENT, Open, encode_open, open_for_client
from spritz.client.relay.mux import Mux, MuxStream
from spritz.runtime.tls import NODE

if TYPE_CHECKING:
    from spritz.runtime.log import Logger
    from spritz.runtime.pipe import Pipe
    from spritz.runtime.tasks import Supervisor

#: Seconds that a link may take to be made.
_LINK_SECONDS = 2.0

#: Seconds after which a machine that is silent is taken to have gone.
_SILENT_SECONDS = 10

#: Seconds for which a node that could not be reached is not tried again.
_AGAIN_SECONDS = 30.0

#: A link that has no streams for so long is closed.
_KEPT_SECONDS = 60.0


class Peers:
    """Both ends: `open` streams to other nodes' machines, `accept` what they open here."""

    def __init__(self, cluster: str, secure: Secure, tasks: Supervisor, log: Logger) -> None:
        self._cluster = cluster
        self._secure = secure
        self._tasks = tasks
        self._log = log
        self._links: dict[tuple[str, int], asyncio.Future[Mux]] = {}
        self._taken: dict[Mux, None] = {}
        self._unreached: dict[tuple[str, int], float] = {}

    async def open(self, address: str, port: int, uid: int, gid: int, socket: str, end: asyncio.Protocol) -> MuxStream:
        """A stream to a user's socket on the machine of the daemon there. Raises ClientError."""
        mux = await self._link((address, port))
        request = Open(target=CLIENT, credential=encode((uid, gid)), address=socket)
        return mux.open(encode_open(request), end)

    def accept(self, pipe: Pipe) -> None:
        """Another machine's daemon has connected to open streams."""
        machine = pipe.machine
        if machine is None or machine.role != NODE or machine.cluster != self._cluster:
            self._log.error("streams.refused", peer=pipe.peer_name, detail="not a node of this cluster")
            pipe.abort()
            return
        pipe.watch_peer(_SILENT_SECONDS)
        mux = Mux(pipe, accepted=True, on_open=self._opened, on_gone=lambda: self._taken.pop(mux, None))
        self._taken[mux] = None

    def close(self) -> None:
        for link in self._links.values():
            if link.done() and not link.cancelled() and link.exception() is None:
                link.result().close()
        for mux in list(self._taken):
            mux.close()

    def _opened(self, stream: MuxStream, payload: bytes) -> None:
        open_for_client(stream, payload, self._tasks)

    async def _link(self, where: tuple[str, int]) -> Mux:
        loop = asyncio.get_running_loop()
        link = self._links.get(where)
        if link is not None and link.done() and not (link.exception() is None and link.result().is_open):
            link = None
        if link is None:
            if self._unreached.get(where, 0.0) > loop.time():
                raise ClientError(f"{where[0]} could not be reached a moment ago")
            link = self._links[where] = loop.create_future()
            self._tasks.spawn_contained(self._make(where, link), name="peers.link")
        return await asyncio.shield(link)

    async def _make(self, where: tuple[str, int], link: asyncio.Future[Mux]) -> None:
        loop = asyncio.get_running_loop()
        try:
            pipe = await open_address([where], timeout=_LINK_SECONDS, secure=self._secure)
        except (ClientError, OSError) as error:
            self._log.info("peer.unreached", address=where[0], detail=str(error))
            self._unreached[where] = loop.time() + _AGAIN_SECONDS
            link.set_exception(ClientError(str(error)))
            link.exception()  # the caller may have gone
            return
        except BaseException as error:  # callers that wait must not wait for ever
            link.set_exception(ClientError(f"{where[0]}: {error!r}"))
            link.exception()
            raise
        pipe.watch_peer(_SILENT_SECONDS)
        mux = Mux(pipe, accepted=False, on_open=lambda stream, payload: stream.refuse("not here"), on_gone=lambda: None)
        link.set_result(mux)
        loop.call_later(_KEPT_SECONDS, self._look, where, mux)

    def _look(self, where: tuple[str, int], mux: Mux) -> None:
        if len(mux) and mux.is_open:
            asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._look, where, mux)
        else:
            self._links.pop(where, None)
            mux.close()
