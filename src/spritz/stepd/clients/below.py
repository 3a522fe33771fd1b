"""The nodes below this one in a step's tree: their supervisors connect here, and we pass their frames on (TreeWidth).

Their frames go up unchanged inside VIA frames, and frames for them come down likewise; this module reads only the
sender, and whether a frame is the last. It keeps no frames: if the connection upwards breaks, it closes all connections
below, and those nodes and the client repeat what was lost. While the client does not read, it reads neither from the
nodes below nor from its own tasks.

Source: slurm.conf(5) TreeWidth; docs/decisions/0210.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from spritz.stepd import protocol
from spritz.stepd.clients.connections import ClientLink
from spritz.stepd.reactor import READABLE, Reactor
from spritz.stepd.spec import SupervisorSpec
from spritz.stepd.tasks.start import AsUser


class Below:
    """`pass_up(frames)` sends to the client. `on_finished()`: the last of the expected nodes has ended."""

    def __init__(
        self,
        reactor: Reactor,
        spec: SupervisorSpec,
        pass_up: Callable[[bytes], None],
        on_finished: Callable[[], None],
    ) -> None:
        """Raises OSError where the name is taken: the nodes below then connect to the client."""
        self._reactor = reactor
        self._spec = spec
        self._pass_up = pass_up
        self._on_finished = on_finished
        self._open = self._paused = False
        self._unsent: list[bytes] = []
        self._links: dict[int, ClientLink] = {}
        self._places: dict[ClientLink, int] = {}
        #: nodes below those that are connected here, and by which of these they came
        self._routes: dict[int, int] = {}
        #: by connected node, the number of further nodes that connect to it
        self._further: dict[int, int] = {}
        self._done: set[int] = set()
        self._ended: set[int] = set()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            with AsUser(spec.identity):
                self._socket.bind(protocol.parse_address(spec.io_listen))
                self._socket.listen(max(128, spec.io_children))
        except OSError:
            self._socket.close()
            raise

    @property
    def finished(self) -> bool:
        """Whether all nodes expected here have ended."""
        return len(self._ended) >= self._spec.io_children

    def way(self, there: bool) -> None:
        """The connection upwards was made, or lost."""
        if there == self._open:
            return
        self._open = there
        if there:
            self._reactor.watch(self._socket.fileno(), READABLE, self._accept)
            return
        self._reactor.forget(self._socket.fileno())
        self._unsent.clear()
        links = list(self._places)
        self._links.clear()
        self._routes.clear()
        for link in links:
            link.close()

    def pause(self, paused: bool) -> None:
        """Read no more from those below, or go on."""
        if paused != self._paused:
            self._paused = paused
            for link in list(self._places):
                link.pause(paused)

    def from_above(self, task: int, frames: bytes) -> None:
        """Pass frames on to the node `task` directly below, or to all nodes for ALL_NODES."""
        if task == protocol.ALL_NODES:
            for place, link in list(self._links.items()):
                link.send(frames)
                if self._further[place]:
                    link.send(protocol.via(protocol.ALL_NODES, frames))
        elif task in self._links:
            self._links[task].send(frames)
        elif (by := self._routes.get(task)) in self._links:
            self._links[by].send(protocol.via(task, frames))

    def close(self) -> None:
        """Close all connections and stop listening."""
        self.way(False)
        self._socket.close()

    def _accept(self, ready: int) -> None:
        while True:
            try:
                connection = self._socket.accept()[0]
            except OSError:
                return
            peer = int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:8], "little")
            if peer not in (0, self._spec.identity.uid, os.getuid()):
                connection.close()
                continue
            connection.setblocking(False)
            link = ClientLink(
                self._reactor,
                connection,
                primary=True,
                on_frame=self._frame,
                on_drained=lambda link: None,
                on_closed=self._closed,
            )
            self._places[link] = -1
            link.pause(self._paused)

    def _frame(self, link: ClientLink, kind: int, task: int, payload: bytes) -> None:
        place = self._places[link]
        if place < 0:
            self._greeted(link, kind, payload)
        elif kind == protocol.VIA:
            self._routes[task] = place
            self._send_up(protocol.frame(kind, task, payload))
        elif kind == protocol.LOST:
            self._routes.pop(task, None)
            self._send_up(protocol.frame(kind, task, payload))
        else:
            if kind == protocol.DONE:
                self._done.add(place)
            self._send_up(protocol.via(place, protocol.frame(kind, task, payload)))

    def _send_up(self, frames: bytes) -> None:
        self._unsent.append(frames)
        if len(self._unsent) == 1:
            self._reactor.after(0.0, self._flush)

    def _flush(self) -> None:
        frames = b"".join(self._unsent)
        self._unsent.clear()
        if frames:
            self._pass_up(frames)

    def _greeted(self, link: ClientLink, kind: int, payload: bytes) -> None:
        spec = self._spec
        hello = protocol.decode_hello(payload) if kind == protocol.HELLO else None
        if hello is None or (hello.key, hello.job_id, hello.step_id) != (spec.io_key, spec.job_id, spec.step_id):
            raise protocol.ProtocolError("not of this step")
        place = hello.node_index
        before = self._links.pop(place, None)
        if before is not None:
            del self._places[before]
            before.close()
        self._places[link], self._links[place] = place, link
        self._further[place] = hello.below
        self._done.discard(place)
        self._ended.discard(place)
        self._send_up(protocol.via(place, protocol.frame(kind, protocol.ALL_TASKS, payload)))

    def _closed(self, link: ClientLink, lost: bool) -> None:
        place = self._places.pop(link, -1)
        if place < 0 or self._links.get(place) is not link:
            return  # all were let go of, or another connection has taken its place
        del self._links[place]
        behind = [node for node, by in self._routes.items() if by == place]
        for node in behind:
            del self._routes[node]
        if place in self._done:
            self._ended.add(place)
        else:
            behind.append(place)
        for node in behind:
            self._send_up(protocol.frame(protocol.LOST, node))
        if self.finished:
            self._flush()
            self._on_finished()
