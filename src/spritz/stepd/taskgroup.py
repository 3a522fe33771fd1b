"""The tasks of one step on one node: their streams, their processes and how they ended."""

from __future__ import annotations

import contextlib
import fcntl
import operator
import os
import struct
import termios
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from spritz.model.scarcity import SCARCE, pauses
from spritz.notation.octets import octets
from spritz.stepd import protocol
from spritz.stepd.notes import note
from spritz.stepd.reactor import Reactor
from spritz.stepd.spec import CLIENT, NOTHING, SupervisorSpec, TaskSpec
from spritz.stepd.streams.files import StreamFiles
from spritz.stepd.streams.labels import Labels
from spritz.stepd.streams.outlet import Outlet
from spritz.stepd.streams.pumps import Chunk, InputPump, OutputPump
from spritz.stepd.tasks import start
from spritz.stepd.tasks.spawn import start_task
from spritz.stepd.tasks.start import Streams

if TYPE_CHECKING:
    from spritz.stepd.pmi import PmiServer
    from spritz.stepd.pmix.server_process import PmixServer


#: Seconds that starting all tasks of a step may wait on a machine that cannot create processes.
START_PATIENCE_SECONDS = 10.0

_name_and_value = operator.methodcaller("split", b"=", 1)


class Task:
    """One task: `pid` 0 before it is started, `status` None while it runs."""

    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec
        self.pid = 0
        self.status: int | None = None
        self.flags = 0
        self.pumps: list[OutputPump] = []
        self.input: InputPump | None = None

    @property
    def running(self) -> bool:
        return self.pid != 0 and self.status is None


class TaskStreams:
    """Makes the standard streams of tasks: files, pipes to the client, pseudo terminals.

    `prepare` opens files and must run as the user; `open` makes a task's three descriptors.
    """

    def __init__(
        self,
        spec: SupervisorSpec,
        reactor: Reactor,
        emit: Callable[[bytes], None],
        on_taken: Callable[[Chunk], None],
        on_end: Callable[[], None],
    ) -> None:
        self._spec = spec
        self._reactor = reactor
        self._emit = emit
        self._on_taken = on_taken
        self._on_end = on_end
        self._files = StreamFiles(append=spec.append)
        self._labels = Labels(spec.labelled_tasks) if spec.labelled_tasks else None
        self._opened: dict[int, tuple[int, int, int]] = {}
        #: by descriptors of `_files`
        self._outlets: dict[int, Outlet] = {}
        #: those that are written to by pumps of tasks
        self._filled: dict[Outlet, list[OutputPump]] = {}
        self._to_close: list[int] = []

    def prepare(self, tasks: list[Task]) -> None:
        """Open every file that a task names. Raises StreamError."""
        for task in tasks:
            spec = task.spec
            # All files before the first task: one that cannot be opened must not find half of the tasks running.
            stdin = -1 if spec.stdin in (CLIENT, NOTHING) else self._files.input(spec.stdin)
            if stdin >= 0:
                self._to_close.append(stdin)
            stdout = -1 if spec.stdout in (CLIENT, NOTHING) else self._files.output(spec.stdout, "stdout")
            stderr = -1 if spec.stderr in (CLIENT, NOTHING) else self._files.output(spec.stderr, "stderr")
            self._opened[spec.task_id] = (stdin, stdout, stderr)

    def open(self, task: Task) -> Streams:
        """Descriptors for the task; our ends of pipes are read and written from now on."""
        if self._spec.pty and task.spec.stdout == CLIENT:
            return self._terminal(task)
        stdin, stdout, stderr = self._opened[task.spec.task_id]
        if stdin < 0:
            stdin = self._stdin(task)
        stdout = self._output(task, task.spec.stdout, stdout, protocol.STDOUT)
        stderr = self._output(task, task.spec.stderr, stderr, protocol.STDERR)
        return stdin, stdout, stderr

    def outlet_of_stderr(self, task: Task) -> Outlet | None:
        """For lines of ours in the file that is the task's standard error; None if there is none."""
        descriptor = self._opened[task.spec.task_id][2]
        return self._outlet(descriptor) if descriptor >= 0 else None

    @property
    def outlets(self) -> list[Outlet]:
        """All that were made."""
        return list(self._outlets.values())

    def is_filled(self, outlet: Outlet) -> bool:
        """Whether a task's stream still goes there."""
        return not all(pump.ended for pump in self._filled.get(outlet, ()))

    def _outlet(self, descriptor: int) -> Outlet:
        outlet = self._outlets.get(descriptor)
        if outlet is None:
            outlet = Outlet(self._reactor, descriptor, self._spec.label, on_room=self._go_on)
            self._outlets[descriptor] = outlet
        return outlet

    def _go_on(self, outlet: Outlet) -> None:
        for pump in self._filled.get(outlet, ()):
            pump.resume(outlet)

    def say(self, task: Task, text: str, stderr: int) -> None:
        """A line on the task's standard error, which it has as `stderr`."""
        outlet = self.outlet_of_stderr(task)
        if outlet is None:
            start.say(text, stderr)  # a pipe to us, empty yet, or nothing
        else:
            outlet.say(octets(text) + b"\n")

    def close_childrens(self) -> None:
        """After a task was forked: close its ends, so that ours see the end of the stream."""
        for descriptor in self._to_close:
            os.close(descriptor)
        self._to_close.clear()

    def close_files(self) -> None:
        """After the last task was forked."""
        self._files.close()

    def _nothing(self) -> int:
        descriptor = os.open(NOTHING, os.O_RDWR | os.O_CLOEXEC)
        self._to_close.append(descriptor)
        return descriptor

    def _stdin(self, task: Task) -> int:
        if task.spec.stdin == NOTHING:
            return self._nothing()
        reader, writer = os.pipe2(os.O_CLOEXEC)
        self._to_close.append(reader)
        task.input = InputPump(self._reactor, writer, on_taken=self._on_taken)
        return reader

    def _output(self, task: Task, where: str, file: int, kind: int) -> int:
        """The task's end of a stream. `file`: what it is to be written to; -1 for none."""
        if file >= 0 and self._labels is None:
            return file
        if where == NOTHING:
            return self._nothing()
        if file < 0 and self._spec.unbuffered and kind == protocol.STDOUT:
            return self._raw_terminal(task)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        self._to_close.append(writer)
        if file >= 0 and self._labels is not None:
            outlet = self._outlet(file)
            pump = self._pump(task, reader, self._to_file(task, kind, outlet, self._labels))
            self._filled.setdefault(outlet, []).append(pump)
        else:
            self._pump(task, reader, self._to_client(task, kind))
        return writer

    def _to_file(self, task: Task, kind: int, outlet: Outlet, labels: Labels) -> Callable[[bytes], None]:
        task_id = task.spec.task_id

        def write(data: bytes) -> None:
            outlet.write(labels.apply(task_id, kind, data))
            # All that write there pause, not this one alone: a file that takes nothing would otherwise fill this
            # process's memory by the others.
            if outlet.is_full:
                for pump in self._filled[outlet]:
                    pump.pause(outlet)

        return write

    def _to_client(self, task: Task, kind: int) -> Callable[[bytes], None]:
        task_id = task.spec.task_id

        def send(data: bytes) -> None:
            self._emit(protocol.frames(kind, task_id, data) if data else protocol.frame(kind, task_id))

        return send

    def _raw_terminal(self, task: Task) -> int:
        # A terminal makes programs flush their output by lines; its other properties are not needed.
        master, slave = os.openpty()
        settings = termios.tcgetattr(slave)
        settings[1] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        self._to_close.append(slave)
        self._pump(task, master, self._to_client(task, protocol.STDOUT))
        return slave

    def _terminal(self, task: Task) -> Streams:
        master, slave = os.openpty()
        set_window(master, self._spec.pty_rows, self._spec.pty_columns)
        if os.geteuid() == 0:
            os.fchown(slave, self._spec.identity.uid, -1)
            os.fchmod(slave, 0o620)
        self._to_close.append(slave)
        self._pump(task, master, self._to_client(task, protocol.STDOUT))
        task.input = InputPump(self._reactor, master, on_taken=self._on_taken, terminal=True)
        return slave, slave, slave

    def _pump(self, task: Task, descriptor: int, sink: Callable[[bytes], None]) -> OutputPump:
        by_lines = not (self._spec.unbuffered or self._spec.pty)
        pump = OutputPump(self._reactor, descriptor, by_lines=by_lines, sink=sink, on_end=self._on_end)
        task.pumps.append(pump)
        return pump


def set_window(descriptor: int, rows: int, columns: int) -> None:
    """Size of a terminal, in characters; 0 for both leaves it unknown."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class TaskGroup:
    """All tasks. `start` forks them, `reaped` notes an end."""

    def __init__(self, spec: SupervisorSpec) -> None:
        self._spec = spec
        self.tasks = [Task(task) for task in spec.tasks]
        self.by_id = {task.spec.task_id: task for task in self.tasks}
        self.by_pid: dict[int, Task] = {}
        self._pauses = pauses(START_PATIENCE_SECONDS)
        self._said = False

    def start(self, streams: TaskStreams, pmi: PmiServer | PmixServer | None = None) -> None:
        """Fork every task, in order. Raises OSError when no more can be made; those that were then run."""
        # Descriptors for the child are closed here after each fork, also when one fails: a pipe whose writing end
        # stayed open would never end, and with it the step.
        common = dict(map(_name_and_value, self._spec.environment))
        try:
            for task in self.tasks:
                descriptors = streams.open(task)
                task_variables = dict(common)
                for text in task.spec.environment:
                    name, _, value = octets(text).partition(b"=")
                    task_variables[name] = value
                kept = -1
                if pmi is not None:
                    kept, variables = pmi.open(task.spec.task_id)
                    task_variables |= variables
                try:
                    task.pid = self._start_task(task, task_variables, descriptors, kept, streams)
                finally:
                    if kept >= 0:
                        os.close(kept)
                # Nothing is reaped before `start` returns (one thread), so no end can come before its task is known.
                self.by_pid[task.pid] = task
                streams.close_childrens()
        finally:
            streams.close_childrens()
            streams.close_files()

    def _start_task(
        self, task: Task, environment: dict[bytes, bytes], descriptors: Streams, kept: int, streams: TaskStreams
    ) -> int:
        """Returns the process id. Retries for a while on a shortage of processes; orders wait meanwhile."""

        def say(text: str) -> None:
            streams.say(task, text, descriptors[2])

        while True:
            try:
                return start_task(self._spec, task.spec, environment, descriptors, say, kept)
            except OSError as error:
                pause = next(self._pauses, None) if error.errno in SCARCE else None
                if pause is None:
                    raise
                if not self._said:
                    self._said = True
                    note(
                        f'slurmstepd: error: task.put_off label={self._spec.label} error="{error.strerror}" '
                        f'detail="tried again for {START_PATIENCE_SECONDS:g} seconds"'
                    )
            time.sleep(pause)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids in the order of the tasks."""
        return tuple(task.pid for task in self.tasks)

    @property
    def all_ended(self) -> bool:
        """Whether no task runs (those that could not be started count as ended)."""
        # Else a step of which one task could not be forked would wait for it for ever.
        return not any(task.running for task in self.tasks)

    @property
    def pumps(self) -> list[OutputPump]:
        return [pump for task in self.tasks for pump in task.pumps if not pump.ended]
