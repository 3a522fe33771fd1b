"""Step supervisors, and the zygote that forks them, as small state machines: `stepd.supervisor` without its tasks' I/O.

A supervisor is a process of its host: it lives on when its daemon dies, stops when it is stopped, and dies with its
machine. What it does with its step's directory, its record and the daemon's connection is what the real one does, in
the same order (`stepd.zygote.supervise`, `stepd.daemonlink`, `stepd.supervisor`), by the same code where that is apart
from processes: `stepd.record` and `stepd.control`.

A client of steps (srun) that wants to be one, is a `StepClient`: it hears how tasks end, and its end ends the step.
A step whose `io_address` belongs to none has a client that says nothing, and never ends.

Not modelled: standard I/O, MPI, task prologs and epilogs, containers, memory limits, cgroups, and the tree by which
supervisors reach their client.
"""

from __future__ import annotations

import errno
import os
import signal
from math import inf
from typing import TYPE_CHECKING

from spritz.model.node_daemon.reports import StepFinished, TaskEnd, Usage
from spritz.model.scarcity import UNWRITABLE
from spritz.stepd import control, record
from spritz.stepd.clients.uplink import BROKEN_SECONDS
from spritz.stepd.spec import CONTROL, RECORD, SCRIPT, SUPERVISOR
from spritz_testing.daemons.node.local import LocalSocket, pair
from spritz_testing.daemons.node.step_clients import StepClient
from spritz_testing.daemons.node.work import StepRun, Task, behaviour_of
from spritz_testing.daemons.system import threads
from spritz_testing.daemons.system.world import Process

__all__ = ["SimulatedSupervisor", "SimulatedZygote", "StepClient", "connect"]

if TYPE_CHECKING:
    from asyncio import TimerHandle
    from collections.abc import Callable

    from spritz.stepd.spec import SupervisorSpec
    from spritz_testing.daemons.node.nodes import NodeMachine

#: As the real one has them: steps in a row, seconds idle, seconds to the sync of a result that nobody took, and to the
#: next one on a disk that refuses it, seconds between two SIGKILLs.
_STEPS_MAX = 100
_IDLE_SECONDS = 10.0
_ACKNOWLEDGE_SECONDS = 1.0
_SYNC_AGAIN_SECONDS = 5.0
_KILL_AGAIN_SECONDS = 0.2

#: As the real supervisor has it: wait status of tasks whose client could not be reached; seconds between attempts.
_STATUS_IO_ERROR = 53
_REACH_SECONDS = 0.25

#: Orders that do not wait for tasks to start.
_READ_EARLY = control.Terminate | control.Measure

#: Where a supervisor may die (`NodeMachine.on_point`): it has taken the step over, its tasks run and nobody knows it,
#: its result is in the spool, unless the disk refused it, and nobody knows that.
POINTS = ("begun", "started", "written")

#: Seconds for a fork, for the preparation of a step, and for the look for what it left: from, to.
_FORK_SECONDS = 0.001, 0.01
_PREPARE_SECONDS = 0.001, 0.02
_END_SECONDS = 0.0005, 0.005


class SimulatedZygote:
    """As `node.supervisors.zygote.Zygote`."""

    def __init__(
        self,
        log_descriptor: int | None = None,
        files_limit: tuple[int, int] | None = None,
        *,
        own_namespaces: bool = False,
    ) -> None:
        process = threads.world().running
        self._daemon = process
        self._machine: NodeMachine = process.host.machine
        self.pid = 0

    def start(self) -> None:
        """Start it unless it runs. Raises OSError on a machine that cannot fork."""
        if self.pid in self._machine.zygotes:
            return
        if number := self._machine.fork():
            raise OSError(number, os.strerror(number))
        self.pid = self._machine.world.next_pid()
        self._machine.zygotes.add(self.pid)
        zygote, machine = self.pid, self._machine
        self._daemon.on_end.append(lambda silently: machine.zygotes.discard(zygote))

    def launch(self, directory: str) -> LocalSocket:
        """Fork a supervisor for the step in `directory`. Returns our end of its connection. Raises OSError."""
        self.start()
        process = Process(self._machine.host, "slurmstepd")
        ours, theirs = pair(self._daemon, process)
        SimulatedSupervisor(self._machine, process, theirs, self.pid).fork(directory)
        return ours

    def close(self) -> None:
        self._machine.zygotes.discard(self.pid)
        self.pid = 0


class SimulatedSupervisor:
    """A supervisor: one step after another, until it is not needed."""

    def __init__(self, machine: NodeMachine, process: Process, connection: LocalSocket, zygote: int) -> None:
        self.machine = machine
        self.process = process
        self.zygote = zygote
        self.directory = ""
        self._files = machine.files
        self._first: LocalSocket = connection
        self._connection: LocalSocket | None = None
        #: connections of later daemons, until it takes them
        self._waiting: list[LocalSocket] = []
        self._decoder, self._decoded = control.OrderDecoder(), connection
        self._outgoing = b""
        #: orders for tasks that have not started: some come with Begin
        self._early: list[control.Order] = []
        self._steps = 0
        #: its other name for the socket, outside of steps
        self._name = ""
        self._timers: list[TimerHandle] = []
        self._clear()
        machine.supervisors.append(self)
        process.on_end.append(self._ended)

    def _clear(self) -> None:
        """Nothing of a step is known."""
        self.step: StepRun | None = None
        self.taken_at = 0.0
        self.spec: SupervisorSpec | None = None
        self._record: record.RecordFile | None = None
        self._started: control.Started | None = None
        self._finished: control.Finished | None = None
        self._result: StepFinished | None = None
        #: wait statuses of tasks that it has seen end
        self._statuses: dict[int, int] = {}
        self._is_forgotten = self._is_synced = False
        self._kill_timer: TimerHandle | None = None
        self._killing_since = 0.0
        self._error = self._error_kind = ""
        self._begun = False
        #: whether it reads orders: its tasks run, or have run, or could not be started, or wait for the client
        self._reads_orders = False
        self._client: StepClient | None = None
        #: until when it tries to reach the client; inf: it has, or has given up
        self._reaches_until = inf

    @property
    def node(self) -> str:
        """The node of its step."""
        assert self.spec is not None, "it has a step"
        return self.spec.node

    @property
    def runs_step(self) -> bool:
        """Whether a step of it has begun, and has no result yet."""
        return self._begun and self._result is None

    # Life of the process

    def fork(self, directory: str) -> None:
        """Be forked by the zygote, and begin."""
        self._after(self.machine.random.uniform(*_FORK_SECONDS), lambda: self._forked(directory))

    def _forked(self, directory: str) -> None:
        if number := self.machine.fork():
            self._not_forked(number)
            self.process.end()
        else:
            self._begin(directory)

    def _not_forked(self, number: int) -> None:
        try:
            self._first.sendall(control.encode(control.NotForked(number)))
        except OSError:  # the daemon is gone
            pass

    def _ended(self, silently: bool) -> None:
        self.machine.supervisors.remove(self)
        if self._client is not None:
            self._client.lose(self, self.node)
        if self.step is not None:
            self.step.adopted_by = self.zygote if self.zygote in self.machine.zygotes else 0
            if self.step.end is not None and not silently and not self._is_end_known:
                self.step.end.untold = True
        for connection in self._waiting:
            connection.close()

    @property
    def _is_end_known(self) -> bool:
        """Whether the step's end is in the spool, or the daemon has it."""
        if self._result is None or self._record is None:
            return False
        return self._record.is_complete or (self._finished is not None and self._connection is not None)

    def _leave(self) -> None:
        """Exit: the socket's second name goes."""
        if self._name:
            try:
                self._files.unlink(self._name)
            except OSError:
                pass  # it is gone, or the disk is broken: the next daemon finds a dead name
        self.process.end()

    def _after(self, seconds: float, call: Callable[[], None]) -> TimerHandle:
        """Call it then; the calls of a step end with it."""
        timer = self.process.loop.call_later(seconds, call)
        self._timers.append(timer)
        return timer

    def _is_lost_at(self, point: str) -> bool:
        """It has come to this one of `POINTS`. Whether it died there."""
        for told in self.machine.on_point:
            told(self, point)
        return not self.process.is_alive

    # Beginning of a step

    def _begin(self, directory: str) -> None:
        self._steps += 1
        self.directory = directory
        try:
            descriptor, spec = self._enter(directory)
        except OSError as error:
            if error.errno in UNWRITABLE:
                self._not_forked(error.errno or 0)
            self._leave()
            return
        except ValueError:
            self._leave()
            return
        self.spec, self._begun = spec, True
        self.taken_at = self.machine.world.now
        self._record = record.RecordFile(descriptor)
        if self._is_lost_at("begun"):
            return
        low, high = self.machine.start_seconds or _PREPARE_SECONDS
        self._after(self.machine.random.uniform(low, high) + behaviour_of(spec).start, self._start)

    def _enter(self, directory: str) -> tuple[int, SupervisorSpec]:
        """Make the step ours: its record, its script, the socket of later daemons. Raises OSError, ValueError."""
        files = self._files
        descriptor = files.open(f"{directory}/{RECORD}", os.O_RDWR)
        known = record.parse(bytes(files.inode(descriptor).data))
        if known is None:
            raise ValueError(f"{directory} holds no step")
        if known.spec.batch:
            script = files.open(f"{directory}/{SCRIPT}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            files.write(script, known.spec.script)
            files.close(script)
        self._listen(directory)
        if not files.inode(descriptor).links:
            raise FileExistsError(errno.EEXIST, "the step was given up before it could begin")
        return descriptor, known.spec

    def _listen(self, directory: str) -> None:
        path, files = f"{directory}/{CONTROL}", self._files
        if self._name:
            try:
                files.link(self._name, path)
                return
            except FileExistsError:
                raise
            except OSError:  # another file system, or the name was removed
                pass
        files.bind(path, self)
        name = f"{os.path.dirname(directory)}/{SUPERVISOR}{self.process.pid}"
        try:
            files.link(path, name)
            self._name = name
        except OSError:
            pass  # it does without, as the real one

    def _start(self) -> None:
        assert self.spec is not None, "it has begun"
        self.step = StepRun(self.machine, self, self.spec, self.directory)
        self._client = self.machine.world.step_clients.get(self.spec.io_address) if self.spec.io_address else None
        self._reaches_until = self.process.loop.time() + BROKEN_SECONDS
        self._reach()

    def _reach(self) -> None:
        """Connect to the client, and start the tasks. A machine that cannot be reached is tried again for a while."""
        client, late = self._client, self.process.loop.time() >= self._reaches_until
        if self._reaches_until == inf:
            return  # it was ended meanwhile
        if client is None or client.join(self):
            self._start_tasks()
        elif late or not client.is_cut(self):
            self._refuse("connect io: the client has gone")
        else:
            self._after(_REACH_SECONDS, self._reach)
            self._read_orders()

    def _start_tasks(self) -> None:
        assert self.step is not None, "it has begun"
        assert self._record is not None, "it has begun"
        self._reaches_until = inf
        self.step.begin()
        pids = tuple(task.pid for task in self.step.tasks)
        self._record.append(record.processes_entry((self.process.pid, *pids)))
        self._started = control.Started(self.process.host.wall(), pids)
        if self._is_lost_at("started"):
            return
        if self._reads_orders:
            self._send(self._started)
        self._read_orders()

    def _refuse(self, error: str) -> None:
        """The client was not reached: nothing is started."""
        assert self.spec is not None, "it has begun"
        self._reaches_until = inf
        self._error, self._error_kind = error, "io"
        self._statuses = {task.task_id: _STATUS_IO_ERROR for task in self.spec.tasks}
        self._after(self.machine.random.uniform(*_END_SECONDS), self._conclude)
        self._read_orders()

    def _read_orders(self) -> None:
        if not self._reads_orders:
            self._reads_orders = True
            waiting, self._waiting = self._waiting, []
            for connection in (self._first, *waiting):
                self._take(connection)
        early, self._early = self._early, []
        for order in early:
            self._order(order)

    def client_gone(self, client: StepClient) -> None:
        """srun died: its step dies with it."""
        if self._client is client and self.spec is not None and self._result is None and self.spec.kill_without_client:
            self._terminate(self.spec.kill_wait_seconds)

    # The daemon's connection

    def accept(self, daemon: Process) -> LocalSocket:
        """A daemon connects to its socket. In the daemon's turn; returns the daemon's end."""
        theirs, ours = pair(daemon, self.process)
        if not self._reads_orders:
            self._waiting.append(ours)
        else:
            self.process.loop.arrive(self._accepted, ours)
        return theirs

    def _accepted(self, connection: LocalSocket) -> None:
        if not self._reads_orders:
            self._waiting.append(connection)
        else:
            self._take(connection)

    def _take(self, connection: LocalSocket) -> None:
        self._drop(connection)
        self._connection = connection
        if self._decoded is not connection:
            self._decoder, self._decoded = control.OrderDecoder(), connection
        self._outgoing = b""
        self.process.loop.add_reader(connection.fileno(), self._readable)
        for report in (self._started, self._finished):
            if report is not None:
                self._send(report)

    def _drop(self, but: LocalSocket | None = None) -> None:
        if self._connection is not None and self._connection is not but:
            self.process.loop.remove_reader(self._connection.fileno())
            self._connection.close()
        self._connection = None

    def _send(self, report: control.Report) -> None:
        if self._connection is None:
            return
        self._outgoing += control.encode(report)
        try:
            self._outgoing = self._outgoing[self._connection.send(self._outgoing) :]
        except OSError:
            pass  # full: the next report takes it along; or at its end, which is read

    def _readable(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            data = connection.recv(65536)
        except BlockingIOError:
            return
        if not data:
            self._drop()
            if self._is_idle:
                self._leave()
            else:
                self._maybe_leave()
            return
        for order in self._decoder.feed(data):
            self._order(order)

    # Orders

    def _order(self, order: control.Order) -> None:
        step = self.step
        if isinstance(order, control.Begin):
            if self._is_idle:
                self._begin_next(order.directory)
        elif step is None or (self._reaches_until < inf and not isinstance(order, _READ_EARLY)):
            self._early.append(order)
        elif isinstance(order, control.Signal):
            step.signal(order.number, first_only=order.first_only)
        elif isinstance(order, control.Terminate) and self._reaches_until < inf:
            self._refuse("the step was ended before its client was reached")
        elif isinstance(order, control.Terminate):
            self._terminate(order.kill_wait_seconds)
        elif isinstance(order, control.Suspend):
            step.signal(signal.SIGCONT if order.resume else signal.SIGSTOP)
        elif isinstance(order, control.Measure):
            self._send(control.Measured(self._usage(step), tuple(task.pid for task in step.living())))
        elif isinstance(order, control.Forget):
            self._is_forgotten = self._is_synced = True
            self._maybe_leave()

    def _terminate(self, kill_wait_seconds: float) -> None:
        assert self.step is not None, "orders are read when it runs"
        due = self.process.loop.time() + kill_wait_seconds
        if self._result is not None or (self._kill_timer is not None and self._kill_timer.when() <= due):
            return  # a repeated order must not delay the end
        if kill_wait_seconds > 0:
            self.step.signal(signal.SIGCONT)
            self.step.signal(signal.SIGTERM)
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._kill_timer = self._after(kill_wait_seconds, self._kill)

    def _kill(self) -> None:
        """SIGKILL to everything, until nothing is left or UnkillableStepTimeout has passed."""
        assert self.step is not None, "it runs"
        assert self.spec is not None, "it runs"
        if not self.step.living():
            return
        now = self.process.loop.time()
        if not self._killing_since:
            self._killing_since = now
        self.step.signal(signal.SIGKILL)
        if now - self._killing_since > self.spec.unkillable_seconds:
            self._error_kind = "unkillable"
            for task in self.step.living():
                self._statuses.setdefault(task.spec.task_id, int(signal.SIGKILL))
            self._conclude_soon()
        else:
            self._kill_timer = self._after(_KILL_AGAIN_SECONDS, self._kill)

    # The end

    def task_ended(self, step: StepRun, task: Task) -> None:
        """From the machine: a task is over."""
        if self.process.is_alive and self.step is step:
            self.process.loop.arrive(self._reap, step, task)

    def _reap(self, step: StepRun, task: Task) -> None:
        if self.step is step and self._result is None:
            self._statuses.setdefault(task.spec.task_id, task.status or 0)
            if self._client is not None:
                self._client.tell(self, step.spec.node, task.spec.task_id, task.status or 0)
            self._conclude_soon()

    def _conclude_soon(self) -> None:
        assert self.step is not None, "it runs"
        if len(self._statuses) == len(self.step.tasks):
            self._after(self.machine.random.uniform(*_END_SECONDS), self._conclude)

    def _usage(self, step: StepRun) -> Usage:
        return Usage(cpu_user_seconds=round(sum(task.ran_seconds for task in step.tasks), 3), rss_peak_mib=1.0)

    def _conclude(self) -> None:
        step, spec = self.step, self.spec
        if self._result is not None:
            return
        assert step is not None, "it runs"
        assert spec is not None, "it runs"
        assert self._record is not None, "it runs"
        self._result = StepFinished(
            node=spec.node,
            job_id=spec.job_id,
            restart_count=spec.restart_count,
            step_id=spec.step_id,
            ended_at=self.process.host.wall(),
            tasks=tuple(TaskEnd(task.task_id, self._statuses[task.task_id]) for task in spec.tasks),
            usage=self._usage(step),
            error=self._error,
            error_kind=self._error_kind,
        )
        if self._client is not None:
            self._client.leave(self)
        self._record.append(record.result_entry(self._result))
        if self._is_lost_at("written"):
            return
        self._tell_result()
        self._after(_ACKNOWLEDGE_SECONDS, self._sync_result)
        self._maybe_leave()

    def _tell_result(self) -> None:
        assert self._result is not None, "it has concluded"
        assert self._record is not None, "it has concluded"
        unstored = not self._record.is_complete
        self._finished = control.Finished(self._result, unstored=unstored, disk_error=self._record.error)
        self._send(self._finished)

    def _sync_result(self) -> None:
        if self._result is None or self._record is None:
            return
        if not self._is_synced:
            self._is_synced = self._record.sync(record.result_entry(self._result))
        if self._is_synced:
            self._maybe_leave()
        else:
            self._tell_result()
            self._after(_SYNC_AGAIN_SECONDS, self._sync_result)

    def _maybe_leave(self) -> None:
        if self._result is None:
            return
        if self._is_synced:
            self._close_step()
        elif self._connection is None:
            self._sync_result()

    def _close_step(self) -> None:
        """Nothing is left to do for the step: wait for another one, or exit."""
        assert self._record is not None, "it has concluded"
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._record.close()
        goes_on = self._is_forgotten and self._connection is self._first and self._steps < _STEPS_MAX
        if self._error_kind == "unkillable" or not goes_on or self._waiting:
            self._leave()
            return
        self._clear()
        self._send(control.Idle())
        self._after(_IDLE_SECONDS, self._idle_too_long)

    @property
    def _is_idle(self) -> bool:
        return self._steps > 0 and not self._begun

    def _idle_too_long(self) -> None:
        if self._is_idle:
            self._leave()

    def _begin_next(self, directory: str) -> None:
        """An idle supervisor gets another step: what follows on the connection is for that."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self.process.loop.remove_reader(self._first.fileno())
        self._connection = None
        self._begin(directory)


def connect(directory: str) -> LocalSocket | None:
    """As `node.spool.connect`."""
    process = threads.world().running
    try:
        supervisor = process.host.machine.files.find(f"{directory}/{CONTROL}").listener
    except OSError:
        return None
    if supervisor is None or not supervisor.process.is_alive:
        return None
    found: LocalSocket = supervisor.accept(process)
    return found
