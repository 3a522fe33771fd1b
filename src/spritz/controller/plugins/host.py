"""The controller's side of the process that runs site scripts: ordered requests, time limits, restarts.

Requests are answered in order. A script that takes longer than `seconds`, or whose process ends, fails only that
request; a new process handles the next ones. The loop never waits for it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from spritz.controller.needs import Configured, Logged, Reading, Spawning
from spritz.controller.plugins.messages import Ask, Done, Need, Ready, Setup, encode, from_child
from spritz.plugins.answer import PluginAnswer, PluginError
from spritz.process_identity import Process, identify, send_group
from spritz.timeouts import within
from spritz.wire.frames import PREFIX_BYTES, FrameDecoder, frame

#: Queued requests; further callers are told to retry.
WAITING_MAX = 10_000

#: Requests sent to the process before it answers the first: so it never waits for the loop.
AHEAD = 8

#: Least seconds for a new process to load its scripts.
START_SECONDS_MIN = 60.0

#: called with the answer
Then = Callable[[Done], None]
#: whether the caller has gone away
Gone = Callable[[], bool]


class Hosting(Configured, Logged, Reading, Spawning, Protocol):
    """What scripts of the site read, and where their host runs."""


class ScriptHost(asyncio.Protocol):
    """`scripts`: (plugin, path) of the scripts to run. Call `start` first."""

    def __init__(self, context: Hosting, scripts: Sequence[tuple[str, str]], seconds: float) -> None:
        self.scripts = tuple(scripts)
        self._context = context
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[Ask, Then, Gone]] = deque()
        self._sent: deque[tuple[Ask, Then, Gone]] = deque()
        self._closing = False
        self._starting = False
        self._process: Process | None = None
        self._transport: asyncio.Transport | None = None
        self._frames = FrameDecoder()
        self._ready: asyncio.Future[Ready] | None = None
        #: start of the current request, by the loop's clock, and the timer that bounds it
        self._began_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        #: the partitions that the process has
        self._partitions: tuple[object, ...] = ()

    async def start(self) -> None:
        """Raises PluginError if a script cannot be used."""
        ours, process = await self._start_process()
        self._process = identify(process.pid)
        ours.setblocking(False)
        self._partitions, self._frames = (), FrameDecoder()
        self._ready = self._loop.create_future()
        await self._loop.create_connection(lambda: self, sock=ours)
        setup = Setup(scripts=self.scripts, cluster=self._context.configuration.settings.cluster_name)
        self._write(encode(setup))
        try:
            async with within(max(START_SECONDS_MIN, self._seconds)):
                problem = (await self._ready).problem
        except (TimeoutError, EOFError):
            problem = f"{', '.join(f'job_submit/{name}' for name, _path in self.scripts)}: its process did not start"
        except asyncio.CancelledError:
            self._kill()
            raise
        if problem:
            self._kill()
            await process.wait()
            raise PluginError(problem)

    async def _start_process(self) -> tuple[socket.socket, asyncio.subprocess.Process]:
        """Our end of the connection, and the process at the other. Raises PluginError if the machine is short of
        processes or files: a later request tries again.
        """
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    process = await asyncio.create_subprocess_exec(
                        sys.executable,
                        "-I",
                        "-m",
                        "spritz.controller.plugins.child",
                        str(theirs.fileno()),
                        str(os.getpid()),
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=asyncio.subprocess.DEVNULL,
                        stderr=asyncio.subprocess.DEVNULL,
                        pass_fds=(theirs.fileno(),),
                        cwd="/",
                        start_new_session=True,
                    )
                except BaseException:
                    ours.close()
                    raise
        except OSError as error:
            names = ", ".join(f"job_submit/{name}" for name, _path in self.scripts)
            raise PluginError(f"{names}: its process cannot be started: {error.strerror or error}") from error
        return ours, process

    def ask(self, request: Ask, then: Then, gone: Gone) -> None:
        """Queue a request. `then(done)` is called from the loop, in the order of requests; requests whose callers have
        `gone` are skipped.
        """
        if len(self._waiting) >= WAITING_MAX or self._closing:
            then(Done(answer=PluginAnswer(number=11)))  # EAGAIN: "Resource temporarily unavailable"
            return
        self._waiting.append((request, then, gone))
        self._go_on()

    def close(self) -> None:
        """End once all queued requests are answered."""
        self._closing = True
        self._go_on()

    # Process

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no asyncio.Transport by class

    def data_received(self, data: bytes) -> None:
        for payload in self._frames.feed(data):
            message = from_child.decode(payload)
            if isinstance(message, Done):
                self._answered(message)
            elif isinstance(message, Need):
                state = self._context.machine.state
                records = state.jobs if message.what == "jobs" else state.reservations
                # A frame of its own format: a list of jobs may exceed the protocol's limit.
                payload = encode(list(records.values()))
                self._send(len(payload).to_bytes(PREFIX_BYTES, "big") + payload)
            elif self._ready is not None and not self._ready.done():
                self._ready.set_result(message)

    def connection_lost(self, exc: Exception | None) -> None:
        """The process has ended, or was killed by this class (then the transport is gone already)."""
        if self._transport is None:
            return
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(EOFError())
        else:
            self._fail("its process ended")

    def _write(self, payload: bytes) -> None:
        self._send(frame(payload))

    def _send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _answered(self, done: Done) -> None:
        _request, then, _gone = self._sent.popleft()
        self._began_at = self._loop.time()
        self._tell(then, done)
        self._go_on()

    def _go_on(self) -> None:
        """Send queued requests, start a process if there is none, end if requested and idle."""
        if self._transport is None or self._starting:
            if (self._waiting or self._sent) and not self._starting:
                self._starting = True
                self._context.tasks.spawn(self._restart(), name="plugins.restart")
            return
        while self._waiting and len(self._sent) < AHEAD:
            if not self._sent:
                self._began_at = self._loop.time()
            request, then, gone = self._waiting.popleft()
            if gone():
                self._tell(then, _failed(f"job_submit/{request.plugin}: the request is gone"))
                continue
            self._sent.append((request, then, gone))
            self._write(encode(self._with_partitions(request)))
        if self._sent and self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)
        if self._closing and not self._sent:
            self._kill()

    def _look(self) -> None:
        """Check whether the current request has taken too long."""
        self._timer = None
        if not self._sent:
            return
        remaining = self._began_at + self._seconds - self._loop.time()
        if remaining <= 0:
            self._fail(f"not done in {self._seconds:g} seconds")
        else:
            self._timer = self._loop.call_later(remaining, self._look)

    def _fail(self, why: str) -> None:
        """Refuse the current request; a new process gets those behind it."""
        self._kill()
        if self._sent:
            request, then, _gone = self._sent.popleft()
            self._waiting.extendleft(reversed(self._sent))
            self._sent.clear()
            path = dict(self.scripts)[request.plugin]
            self._tell(then, _failed(f"job_submit/{request.plugin}: {path}: {why}"))
        self._go_on()

    async def _restart(self) -> None:
        try:
            await self.start()
        except PluginError as error:
            # the next request starts another attempt
            refused, self._waiting = self._waiting, deque()
            for _request, then, _gone in refused:
                self._tell(then, _failed(str(error)))
        finally:
            self._starting = False
        self._go_on()

    def _tell(self, then: Then, done: Done) -> None:
        try:
            then(done)
        except Exception as error:
            self._context.log.error("plugin.answer_failed", exception=error, error=repr(error))

    def _kill(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        process, self._process = self._process, None
        if process is not None:
            send_group(process, signal.SIGKILL)

    def _with_partitions(self, request: Ask) -> Ask:
        """The request with partitions, if they have changed."""
        state = self._context.machine.state
        partitions = tuple(state.partitions.values())
        if len(partitions) == len(self._partitions) and all(map(_same, partitions, self._partitions)):
            return request
        self._partitions = partitions
        nodes = state.nodes
        cpus = (
            sum(nodes[name].config.capacity.cpus for name in partition.nodes if name in nodes)
            for partition in partitions
        )
        return replace(request, partitions=partitions, cpus=tuple(cpus))


def _same(first: object, other: object) -> bool:
    return first is other


def _failed(problem: str) -> Done:
    return Done(answer=PluginAnswer(number=-1, lines=(problem,), log=(("error", problem),)))
