"""The clients of one step: the primary client, for which it was started, and those attached later."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from spritz.stepd import processes, protocol
from spritz.stepd.clients.below import Below
from spritz.stepd.clients.connections import (
    CONNECT_SECONDS,
    QUEUE_HIGH_BYTES,
    ClientLink,
    ClientUnreachable,
    connect,
    is_led,
)
from spritz.stepd.clients.uplink import Uplink
from spritz.stepd.reactor import Reactor
from spritz.stepd.spec import SupervisorSpec
from spritz.stepd.streams.pumps import Chunk
from spritz.stepd.taskgroup import Task, TaskGroup, set_window
from spritz.stepd.tasks.start import AsUser

AnyLink = ClientLink | Uplink


class ClientGroup:
    """Sends events and output to every client, and executes clients' requests.

    `on_terminate(seconds)`: a client wants the step ended. `on_gone`: the primary client died.
    """

    def __init__(
        self,
        spec: SupervisorSpec,
        reactor: Reactor,
        group: TaskGroup,
        *,
        on_terminate: Callable[[float], None],
        on_gone: Callable[[], None],
    ) -> None:
        self._spec = spec
        self._reactor = reactor
        self._group = group
        self._on_terminate = on_terminate
        self._on_gone = on_gone
        self._links: list[AnyLink] = []
        #: nodes whose supervisors reach the client through us
        self._below: Below | None = None
        self._finishing = False
        #: messages of other nodes for the step's PMI or PMIx server, if it has one
        self.on_pmi: Callable[[bytes, bool], None] = lambda payload, last: None
        #: called when the awaited client has answered, or has gone
        self.on_client: Callable[[], None] = lambda: None
        #: called when the last client has received everything
        self.on_finished: Callable[[], None] = lambda: None

    @property
    def finished(self) -> bool:
        """Whether no client waits for anything."""
        return self._finishing and not self._links

    @property
    def awaits_client(self) -> bool:
        """The client that the step was started for has not said yet that it is there: no task is to start."""
        return any(link.primary and not isinstance(link, ClientLink) and not link.greeted for link in self._links)

    @property
    def has_client(self) -> bool:
        """Whether the client that the step was started for is connected."""
        return any(link.primary for link in self._links)

    @property
    def blocked(self) -> bool:
        """Whether tasks wait because the primary client does not read."""
        return any(link.primary and link.queued_bytes > QUEUE_HIGH_BYTES for link in self._links)

    def connect_primary(self) -> None:
        """Connect to the client that the step was started for. Raises ClientUnreachable."""
        spec = self._spec
        if spec.io_children:
            self._listen()
        # Daemons on the way may be starting again.
        if spec.io_parent or (spec.io_numbered and is_led(spec.io_address)):
            self._uplink().begin()
        else:
            self._connect(spec.io_address, spec.io_key, primary=True)
            if self._below is not None:
                self._below.way(True)

    def attach(self, address: str, key: str) -> None:
        """Connect to another client, and send it the step's state. An unreachable one is skipped."""
        if self._finishing:
            return
        try:
            link = self._connect(address, key, primary=False)
        except ClientUnreachable:
            return
        link.send(protocol.encode_started(self._group.pids))
        for task in self._group.tasks:
            if task.status is not None:
                link.send(_exit_frame(task))

    def started(self) -> None:
        """Tell the clients that all tasks run, with the tasks' process ids."""
        if self._links:
            self.emit(protocol.encode_started(self._group.pids))

    def ended(self, task: Task) -> None:
        """A task has ended, and its output was sent."""
        if self._links:
            self.emit(_exit_frame(task))

    def finish(self) -> None:
        """Close each connection once its queue is sent: no more frames follow."""
        if not self._finishing:
            self._finishing = True
            for link in list(self._links):
                link.send(protocol.frame(protocol.DONE))
                if not link.primary or self._below is None or self._below.finished:
                    link.finish()
            self._forget_closed()

    def emit(self, frame: bytes) -> None:
        for link in list(self._links):
            link.send(frame)

    def tell_primary(self, frame: bytes) -> None:
        """To the client that the step was started for."""
        for link in list(self._links):
            if link.primary:
                link.send(frame)

    def emit_output(self, frame: bytes) -> None:
        """Send a task's output to every client; all output waits while the primary one does not read."""
        self.emit(frame)
        self._pause_if_blocked()

    def taken(self, chunk: Chunk) -> None:
        """A destination has consumed standard input."""
        chunk.takers -= 1
        if chunk.takers == 0 and chunk.data:
            credit = protocol.frame(protocol.STDIN_CREDIT, protocol.ALL_TASKS, protocol.pack_number(len(chunk.data)))
            for link in list(self._links):
                if link is chunk.giver:
                    link.send(credit)

    def _pause_if_blocked(self) -> None:
        if self.blocked:
            for pump in self._group.pumps:
                pump.pause(self)
            if self._below is not None:
                self._below.pause(True)

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # they connect to the client instead
            self._below = Below(self._reactor, self._spec, self._pass_up, self._below_finished)

    def _pass_up(self, frames: bytes) -> None:
        for link in self._links:
            if link.primary:
                link.pass_on(frames)
        self._pause_if_blocked()

    def _below_finished(self) -> None:
        if self._finishing:
            for link in list(self._links):
                if link.primary:
                    link.finish()

    def _way(self, there: bool) -> None:
        if self._below is not None:
            self._below.way(there)

    def _uplink(self) -> Uplink:
        spec = self._spec
        link = Uplink(
            self._reactor,
            spec,
            lambda attempt, received: self._hello(spec.io_key, primary=True, attempt=attempt, received=received),
            on_frame=self._received,
            on_drained=self._drained,
            on_closed=self._closed,
            on_way=self._way,
            on_greeted=lambda: self.on_client(),
        )
        self._links.append(link)
        return link

    def _connect(self, address: str, key: str, *, primary: bool) -> ClientLink:
        # Waiting for a client blocks everything else: a client that attaches to running tasks must be there.
        patience = CONNECT_SECONDS if primary else 0.1
        # Connect as the user: the address comes from the user, and must not be opened with root's rights.
        with AsUser(self._spec.identity):
            connection = connect(address, self._spec.identity.uid, self._spec.relay_uid, patience)
        link = ClientLink(
            self._reactor,
            connection,
            primary=primary,
            on_frame=self._received,
            on_drained=self._drained,
            on_closed=self._closed,
        )
        self._links.append(link)
        link.send(self._hello(key, primary=primary))
        return link

    def _hello(self, key: str, *, primary: bool, attempt: int = -1, received: int = 0) -> bytes:
        hello = protocol.Hello(
            version=protocol.VERSION,
            key=key,
            node=self._spec.node,
            node_index=self._spec.node_index,
            job_id=self._spec.job_id,
            step_id=self._spec.step_id,
            task_ids=tuple(task.spec.task_id for task in self._group.tasks),
            pid=os.getpid(),
            attached=not primary,
            attempt=attempt,
            received=received,
            below=self._spec.io_children if primary and self._below is not None else 0,
        )
        return protocol.encode_hello(hello)

    def _drained(self, link: AnyLink) -> None:
        if not self.blocked:
            for pump in self._group.pumps:
                pump.resume(self)
            if self._below is not None:
                self._below.pause(False)

    def _closed(self, link: AnyLink, lost: bool) -> None:
        self._forget_closed()
        # Supervisors below this node reach srun only through the primary connection.
        if link.primary and self._below is not None:
            self._below.close()
            self._below = None
        self._drained(link)
        if lost and link.primary and not link.detached:
            self._on_gone()
            self.on_client()
        if self.finished:
            self.on_finished()

    def _forget_closed(self) -> None:
        self._links = [link for link in self._links if not link.closed]

    def _received(self, link: AnyLink, kind: int, task_id: int, payload: bytes) -> None:
        named = self._group.by_id.get(task_id)
        tasks = self._group.tasks if task_id == protocol.ALL_TASKS else [named] if named is not None else []
        if kind == protocol.STDIN:
            self._feed(link, tasks, payload)
        elif kind == protocol.STDIN_EOF:
            for task in tasks:
                if task.input is not None:
                    task.input.end()
        elif kind == protocol.SIGNAL:
            self._signal(task_id, tasks, protocol.unpack_number(payload))
        elif kind == protocol.WINDOW_SIZE:
            for task in self._group.tasks:
                if task.input is not None and not task.input.closed and self._spec.pty:
                    set_window(task.input.descriptor, *protocol.unpack_window(payload))
        elif kind == protocol.TERMINATE:
            self._on_terminate(protocol.unpack_number(payload))
        elif kind == protocol.DETACH:
            link.detached = True
        elif kind == protocol.VIA and link.primary:
            if self._below is not None:
                self._below.from_above(task_id, payload)
        elif kind in (protocol.PMI_KVS, protocol.PMIX):
            self.on_pmi(payload, task_id == protocol.ALL_TASKS)
        else:
            raise protocol.ProtocolError(f"frame {kind} is not for a supervisor")

    def _feed(self, link: AnyLink, tasks: list[Task], payload: bytes) -> None:
        takers = [task.input for task in tasks if task.input is not None and not task.input.closed]
        chunk = Chunk(payload, len(takers) or 1, link)
        for taker in takers:
            taker.feed(chunk)
        if not takers:
            self.taken(chunk)

    def _signal(self, task_id: int, tasks: list[Task], number: int) -> None:
        if not 0 < number < signal.NSIG:
            raise protocol.ProtocolError(f"no signal {number}")
        if task_id == protocol.ALL_TASKS:
            processes.send(processes.descendants(os.getpid()), number)
            return
        for task in tasks:
            if task.running:
                processes.send([task.pid, *processes.descendants(task.pid)], number)


def _exit_frame(task: Task) -> bytes:
    return protocol.frame(protocol.EXIT, task.spec.task_id, protocol.pack_exit(task.status or 0, task.flags))
