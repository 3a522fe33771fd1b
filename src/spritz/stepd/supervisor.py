"""One step on one node: starts its tasks, transfers their I/O, ends them, and reports the result.

Runs in a process of its own, in one thread, independent of others: the node daemon may die and return, the client may
go away. The result is on disk before it is reported; where the disk refuses it, it stays here until the controller has
it. No write of this process decides how the step ends.

Life: `prepare` (files, client) → tasks run → all have ended → task epilogs → nothing of the step is left → result
written and reported → output delivered → forgotten.

The end has stages (`_step_on`), each of which waits for something that may take long or never come, and each wait has a
limit of its own:

    a task that does not die        UnkillableStepTimeout: the step ends all the same, and the node is drained
    a task epilog                   EPILOG_SECONDS
    what ends a container           the spec's seconds
    a file that takes no output     a minute; two seconds once the step is told to end
    a stream held by a stranger     two seconds
    a daemon that is away           none: the result lies in the spool, and this process leaves
    a disk that takes no result     none: this process is the only one that has it, and stays

Sources: srun(1), sbatch(1), slurm.conf(5) TaskProlog, TaskEpilog, UnkillableStepTimeout.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

from spritz.model.node_daemon.reports import StepFinished, TaskEnd
from spritz.model.scarcity import SCARCE, UNWRITABLE
from spritz.notation.octets import octets
from spritz.stepd import control, processes, protocol, record
from spritz.stepd.clients.connections import ClientUnreachable
from spritz.stepd.clients.group import ClientGroup
from spritz.stepd.daemonlink import DaemonLink
from spritz.stepd.notes import note
from spritz.stepd.reactor import Reactor, Timer, close_in_child
from spritz.stepd.resources.confine import Confinement
from spritz.stepd.resources.energy import counters
from spritz.stepd.resources.gpu import visible_in
from spritz.stepd.resources.siblings import Siblings
from spritz.stepd.resources.usage import MemoryGroup, StepUsage, sample_intervals
from spritz.stepd.spec import CLIENT, NOTHING, SupervisorSpec
from spritz.stepd.streams.files import StreamError
from spritz.stepd.streams.outlet import Outlet
from spritz.stepd.taskgroup import Task, TaskGroup, TaskStreams
from spritz.stepd.tasks import epilogs
from spritz.stepd.tasks.start import AsUser
from spritz.stepd.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.stepd.mpi import Mpi
    from spritz.stepd.pmi import PmiServer
    from spritz.stepd.pmix.server_process import PmixServer

#: Seconds after the end for which a foreign process may hold a stream open.
_LINGER_SECONDS = 2.0

#: Longest that the end of a step which ended by itself waits for a file of the user's that takes no output, such as one
#: of a file server that fails over.
_OUTPUT_SECONDS = 60.0
#: Seconds between samples of memory without a cgroup limit, far from the limit and near it.
_WATCH_SECONDS = 1.0
_WATCH_CLOSELY_SECONDS = 0.1
_MIB = 1024 * 1024
#: MiB of a job without a limit of its own.
_NO_LIMIT = 1 << 40
#: Seconds after which the result is synced to disk if the daemon has not taken it.
_ACKNOWLEDGE_SECONDS = 1.0
#: Seconds until the next attempt to write a result to a disk that refused it.
_SYNC_AGAIN_SECONDS = 5.0
#: Slurm's wait status of a job whose output could not be opened: ESLURMD_IO_ERROR, shown as 0:53.
_STATUS_IO_ERROR = 53


class Supervisor:
    """Owns the tasks of one step on this node until nothing of them is left."""

    def __init__(
        self,
        spec: SupervisorSpec,
        record_file: int,
        daemon: socket.socket,
        listener: socket.socket,
        memory: MemoryGroup | None = None,
        confinement: Confinement | None = None,
    ) -> None:
        """In the step's spool directory; `record_file` is its record, open for writing. A restarted daemon connects
        to `listener`.

        `memory` is the cgroup to hold a memory limit in; without one living processes are sampled.
        `confinement` keeps tasks to the devices and cores of the step.
        """
        self.spec = spec
        self._record = record.RecordFile(record_file)
        self._reactor = Reactor()
        self._reactor.on_child = self._reap
        gpus = visible_in(spec.environment)
        self._usage = StepUsage(
            gpus=spec.gpu_accounting and gpus,
            memory=spec.memory_counted,
            energy=counters(spec.energy_source, spec.devices_given, gpus=gpus),
        )
        self._group = TaskGroup(spec)
        self._clients = ClientGroup(
            spec, self._reactor, self._group, on_terminate=self._terminate, on_gone=self._client_gone
        )
        self._clients.on_finished = self._maybe_leave
        self._streams = TaskStreams(
            spec, self._reactor, self._clients.emit_output, self._clients.taken, self._stream_ended
        )
        self._daemon = DaemonLink(self._reactor, daemon, listener, on_order=self._order, on_gone=self._maybe_leave)
        self._memory = memory
        self._siblings = Siblings(os.getcwd())
        self._confinement = confinement
        self._tree = Tree(spec.cgroup_tree)
        self._kills = 0
        self._mpi: Mpi | None = None
        self._spool = os.getcwd() if spec.pmix is not None else ""
        self._epilogs: dict[int, int] = {}
        #: end commands of containers, by process id: the task, and a file of the output; None: not begun
        self._ends: dict[int, tuple[int, int]] | None = None
        self._kill_timer: Timer | None = None
        self._end_told = False
        self._ended_early = False
        #: orders for tasks that came while the client was awaited; None: it is not
        self._early: list[control.Order] | None = None
        self._stop_timer: Timer | None = None
        self._sample_timer: Timer | None = None
        self._sample_intervals = sample_intervals(spec.sample_seconds)
        self._stderr: Outlet | None = None
        #: when outlets that still write are given up; 0.0: not asked yet
        self._outlets_until = 0.0
        self._complaint = ""
        self._started_at = 0.0
        self._oom = False
        self._oom_kills = 0
        self._last_said = False
        self._launch_error = ""
        self._error_kind = ""
        self._ending_since = 0.0
        self._result: StepFinished | None = None
        #: The result needs this process no more: it is on disk, or the daemon has it, and sees to that.
        self._synced = False
        self._sync_timer: Timer | None = None
        self._forgotten = False
        #: wait4 has said so: orphans become children of this process, so nothing of the step is left
        self._childless = False

    def run(self) -> socket.socket | None:
        """Run the step. Returns the daemon's connection if another step may follow on it, None if the
        process must end.
        """
        try:
            self._prepare()
            self._await_client()
            self._start()
        except (ClientUnreachable, StreamError) as error:
            self._refuse(str(error), "io")
        except OSError as error:
            # A shortage on the machine is not the job's fault; the job may be retried elsewhere.
            of_node = error.errno in SCARCE or error.errno in UNWRITABLE
            self._refuse(f"{error.strerror or error}", "node" if of_node else "exec")
        # In the order in which they came, and after the tasks are there: a suspension that came while the client was
        # awaited found no process, and the step would run beside the job that has its CPUs.
        early, self._early = self._early, None
        for order in early or ():
            self._order(order)
        self._step_on()
        self._reactor.run()
        return self._close()

    def _close(self) -> socket.socket | None:
        connection = self._daemon.release()
        self._reactor.close()
        self._record.close()
        # With a child left this process must not be used for another step: that step's end would wait for it.
        return connection if self._forgotten and self._childless else None

    # Start

    def _prepare(self) -> None:
        if self._confinement is not None:
            self._confinement.begin(self.spec)
        if self.spec.io_address:
            self._clients.connect_primary()
        if self.spec.oci_directory:
            with self._in_spool():
                self._make_oci_directory()
        with AsUser(self.spec.identity):
            os.umask(self.spec.umask)
            self._change_directory()
            self._streams.prepare(self._group.tasks)
        os.umask(0o022)
        if self._memory is not None:
            try:
                self._memory.begin(self.spec.memory_limit_mib, self.spec.swap_limit_mib)
            except OSError as error:
                self._memory = None  # not permitted after all: the limit is held by sampling
                note(
                    f'slurmstepd: error: step.uncontained label={self.spec.label} error="{error}" '
                    'detail="its memory limit is held by sampling"'
                )

    def _await_client(self) -> None:
        """Where the client is behind others: what it does not know of must not run. Orders are read meanwhile. Raises
        ClientUnreachable.
        """
        if not self._clients.awaits_client:
            return
        self._early = []
        self._clients.on_client = self._reactor.stop
        self._reactor.run()
        self._clients.on_client = lambda: None
        if self._ended_early:
            raise ClientUnreachable("the step was ended before its client was reached")
        if not self._clients.has_client:
            raise ClientUnreachable("connect io: the client has gone")

    @contextlib.contextmanager
    def _in_spool(self) -> Iterator[None]:
        """For what is made in the spool besides the record: where that cannot be, the daemon has the node drained."""
        try:
            yield
        except OSError as error:
            if error.errno in UNWRITABLE:
                self._record.error = error.errno
            raise

    def _make_oci_directory(self) -> None:
        directory = self.spec.oci_directory
        import shutil  # its modules of compression would be copied with each fork

        shutil.rmtree(directory, ignore_errors=True)  # of a job that was requeued after its node had failed
        os.mkdir(directory, 0o700)
        if os.geteuid() == 0:
            os.chown(directory, self.spec.identity.uid, self.spec.identity.gid)

    def _change_directory(self) -> None:
        try:
            os.chdir(octets(self.spec.work_dir))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            os.chdir("/tmp")
            self._complaint = f"couldn't chdir to `{self.spec.work_dir}': {reason}: going to /tmp instead"

    def _start(self) -> None:
        self._stderr = self._streams.outlet_of_stderr(self._group.tasks[0])
        if self._complaint:
            self.say(f"error: {self._complaint}")
        if self.spec.io_address and self.spec.kill_without_client and not self._clients.has_client:
            raise ClientUnreachable("connect io: the client has gone")  # it would not end tasks that start now
        self._group.start(self._streams, self._mpi_server())
        self._started_at = time.time()
        # On record before it is reported: if this process is killed now, the next daemon finds by it what is to be
        # killed.
        self._record.append(record.processes_entry((os.getpid(), *self._group.pids)))
        self._clients.started()
        self._daemon.send(control.Started(self._started_at, self._group.pids))
        self._usage.begin()
        if self._is_watched or self.spec.sample_seconds > 0:
            self._sample_timer = self._reactor.after(next(self._sample_intervals), self._sample)

    def _mpi_server(self) -> PmiServer | PmixServer | None:
        if self.spec.pmi is None and self.spec.pmix is None:
            return None
        from spritz.stepd.mpi import Mpi

        self._mpi = Mpi(
            self.spec,
            self._spool,
            self._reactor,
            self._clients,
            terminate=self._terminate,
            say=self.say,
            ending=lambda: self._kill_timer is not None or self._group.all_ended,
        )
        with self._in_spool():
            return self._mpi.start()

    def _refuse(self, text: str, kind: str) -> None:
        """Fail the step: not all of its tasks can be started."""
        self._launch_error, self._error_kind = text, kind
        self.say(f"error: {text}")
        # Those that were started end by the kill below, with their own status.
        for task in self._group.tasks:
            if not task.pid:
                task.status = _STATUS_IO_ERROR if kind == "io" else 1 << 8
                self._clients.ended(task)
        processes.kill_descendants(os.getpid())

    # Orders

    def _order(self, order: control.Order) -> None:
        if self._early is not None and not isinstance(order, control.Terminate | control.Measure):
            self._early.append(order)
        elif isinstance(order, control.Signal):
            first = self._group.tasks[0]
            if not order.first_only:
                processes.send(processes.descendants(os.getpid()), order.number)
            elif first.running:
                processes.send([first.pid], order.number)
        elif isinstance(order, control.Terminate):
            if self._early is not None:
                self._ended_early = True
                self._reactor.stop()
            # One line per step, not per node: the first node writes it, as in Slurm. The first may be a node that has
            # failed: then all tell the client, which prints the line of the first alone.
            if order.message and self._result is None and not self._end_told:
                self._end_told = True
                if self.spec.node_index == 0:
                    self.say(order.message)
                elif "NODE FAILURE" in order.message:
                    self._tell_client(order.message)
            self._terminate(order.kill_wait_seconds)
        elif isinstance(order, control.Suspend):
            self._suspend(order.resume, order.grace_seconds)
        elif isinstance(order, control.Attach):
            self._clients.attach(order.io_address, order.io_key)
        elif isinstance(order, control.Notify):
            if order.to_client:
                self._tell_client(order.message)
            else:
                self.say(order.message)
        elif isinstance(order, control.Measure):
            self._look()
            pids = tuple(processes.descendants(os.getpid()))
            self._daemon.answer(control.Measured(self._usage.usage(), pids))
        elif isinstance(order, control.Forget):
            self._forgotten = self._synced = True  # the daemon syncs it, if the controller does not store it soon
            self._maybe_leave()

    def _terminate(self, kill_wait_seconds: float) -> None:
        # A controller that has heard nothing repeats the order, each time with the whole of KillWait.
        now = time.monotonic()
        if self._kill_timer is not None and now < self._kill_timer.due <= now + kill_wait_seconds:
            return  # a repeated order must not delay the end
        if self._outlets_until > now + _LINGER_SECONDS:
            self._bound_outlets(_LINGER_SECONDS)  # only files of the user's are waited for
        # Frozen or stopped processes get no SIGTERM before they continue: the grace would pass unused.
        self._cancel_stop()
        self._tree.thaw()
        everything = self._below()
        if kill_wait_seconds > 0:
            processes.send(everything, signal.SIGCONT)
            processes.send(everything, signal.SIGTERM)
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._kill_timer = self._reactor.after(kill_wait_seconds, self._kill)

    def _kill(self) -> None:
        """SIGKILL to everything, repeatedly until no process is left."""
        if self._ends:
            return  # nothing of the step is left but what ends its containers, which has a time limit of its own
        self._kills += 1
        # Processes that survived the signal once fork faster than they are found, or cannot be killed.
        if self._kills > 1 and self._below():
            self._tree.kill(self._below)
        if not processes.kill_descendants(os.getpid()):
            return
        # A task that does not die has no status, and without one the end would never be reported.
        if self._too_long() and not self._group.all_ended:
            for task in self._group.tasks:
                if task.running:
                    self._task_ended(task, int(signal.SIGKILL))
            self._step_on()
        else:
            self._kill_timer = self._reactor.after(0.2, self._kill)

    def _too_long(self) -> bool:
        """Whether UnkillableStepTimeout has passed since this was first asked."""
        now = time.monotonic()
        self._ending_since = self._ending_since or now
        return now - self._ending_since > self.spec.unkillable_seconds

    def _suspend(self, resume: bool, grace_seconds: float) -> None:
        # A pending SIGSTOP would stop processes that were ordered to continue or end.
        self._cancel_stop()
        everything = self._below()
        if resume:
            self._tree.thaw()
            processes.send(everything, signal.SIGCONT)
            return
        processes.send(everything, signal.SIGTSTP)
        # SIGTSTP does not stop a task with default handling, as it leads its session; but the CPUs belong to another
        # job by now.
        processes.send([pid for pid in everything if not processes.minds(pid, signal.SIGTSTP)], signal.SIGSTOP)
        self._stop_timer = self._reactor.after(grace_seconds, self._stand_still)

    def _stand_still(self) -> None:
        """Stop everything: if a cgroup can freeze the processes, no signal of the user wakes them."""
        processes.send(self._below(), signal.SIGSTOP)
        self._tree.freeze(self._below)

    def _below(self) -> list[int]:
        return processes.descendants(os.getpid())

    def _cancel_stop(self) -> None:
        if self._stop_timer is not None:
            self._stop_timer.cancel()
            self._stop_timer = None

    def _client_gone(self) -> None:
        """srun died: its step dies with it."""
        if self.spec.kill_without_client and not self._group.all_ended:
            self._terminate(self.spec.kill_wait_seconds)

    # While tasks run

    def _reap(self) -> None:
        while True:
            try:
                # SIGCHLD signals merge, so one wake-up reaps every child that has ended.
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                break
            if pid == 0:
                break
            if self._mpi is not None and pid == self._mpi.pid:
                self._mpi.reaped()
                continue
            outlet = next((outlet for outlet in self._streams.outlets if outlet.pid == pid), None)
            if outlet is not None:
                outlet.reaped()
                continue
            if self._ends is not None and pid in self._ends:
                self._end_ended(pid, status)
                continue
            task = self._group.by_pid.get(pid)
            # Also children that were adopted from a task (subreaper): their use belongs to the step, though not to a
            # task.
            self._usage.add(used, None if task is None else task.spec.task_id)
            # Its status does not count for the step.
            if pid in self._epilogs:
                self._write_error(epilogs.ending(self._epilogs.pop(pid)))
                if status:
                    self.say(epilogs.failed(status))
            if task is not None and task.status is None:
                self._task_ended(task, status)
        self._step_on()

    def _task_ended(self, task: Task, status: int) -> None:
        task.status = status
        # The kernel may have killed a child of the task, which goes on, or ends as it likes.
        oom_kills = self._new_oom_kills()
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if oom_kills or (killed and self._oom):
            task.flags |= protocol.EXIT_OOM
        # What it wrote is read before its end is told: a client that hears of all ends leaves.
        for pump in task.pumps:
            pump.drain()
        if task.input is not None:
            task.input.close()
        self._run_epilogs(task)
        self._clients.ended(task)

    def _new_oom_kills(self) -> int:
        """Processes killed for memory since the last call."""
        if self._memory is None:
            return 0
        before, self._oom_kills = self._oom_kills, self._memory.kills()
        self._oom = self._oom or bool(self._oom_kills)
        return self._oom_kills - before

    @property
    def _is_watched(self) -> bool:
        """Whether there is a memory limit, to be held by sampling."""
        return self._memory is None and self.spec.memory_limit_mib > 0

    def _look(self) -> int:
        return self._usage.sample([(task.spec.task_id, task.pid) for task in self._group.tasks if task.running])

    def _sample(self) -> None:
        used = self._look()
        wait = next(self._sample_intervals)
        if self._is_watched:
            wait = min(wait, self._hold_memory(used))
        self._sample_timer = self._reactor.after(wait, self._sample)

    def _hold_memory(self, used: int) -> float:
        """Kill the step if it exceeds its limit, or its job does and no other step here has more memory.

        Returns the seconds until the next look.
        """
        limit, job_limit = self.spec.memory_limit_mib * _MIB, (self.spec.job_memory_limit_mib or _NO_LIMIT) * _MIB
        others = self._siblings.memory_bytes(time.monotonic())
        if used + sum(others) > job_limit:
            others = self._siblings.look()  # a step may have ended
        together = used + sum(others)
        if used > limit:
            self._kill_for_memory(f"StepId={self.spec.label}", used, limit)
        elif together > job_limit and used >= max(others, default=0):
            self._kill_for_memory(f"JobId={self.spec.job_id}", together, job_limit)
        close = used * 2 > limit or together * 2 > job_limit
        return _WATCH_CLOSELY_SECONDS if close else _WATCH_SECONDS

    def _kill_for_memory(self, what: str, used: int, limit: int) -> None:
        if not self._oom:
            self.say(f"error: {what} exceeded memory limit ({used} > {limit}), being killed")
            self.say("error: Exceeded job memory limit")
        self._oom = True
        self._kill()

    def _run_epilogs(self, task: Task) -> None:
        if self.spec.task_epilogs:
            started = epilogs.start_epilogs(self.spec, task.spec.task_id, task.pid, self.say)
            self._epilogs.update(started)
            # A process id is not reused before it is reaped, and reaped ones are no longer here.
            self._reactor.after(epilogs.EPILOG_SECONDS, lambda: epilogs.end_late(self._epilogs.keys() & started.keys()))

    # End

    def _step_on(self) -> None:
        """Advance through the stages of the end as far as possible."""
        # Called by whatever may have ended a wait, also when nothing has. Each stage asks again whether it is over.
        if not self._group.all_ended or self._epilogs or self._ends:
            return
        if self._result is None:
            if self._mpi is not None:
                self._mpi.end()
            # Before the result: with it the node gives the step's CPUs to others.
            if self._left_over() or self._containers_left():
                return
            self._say_last()
            if self._outlets_write():
                return
            self._conclude()
        self._maybe_leave()

    def _left_over(self) -> bool:
        """Whether processes are left; they are killed, and searched again."""
        writers = any(outlet.pid for outlet in self._streams.outlets)
        served = self._mpi is not None and self._mpi.pid
        # Orphans become our children: without children there are no descendants either.
        if self._childless or not (self._group.by_pid or served or writers):
            self._childless = True
            return False
        # Two looks: a process whose parent ends between the two steps of one is in neither.
        if writers and not served and not self._below() and not self._below():
            return False
        if self._too_long():
            self._give_up()
            return False
        processes.kill_descendants(os.getpid())
        self._reactor.after(0.1, self._reap)
        return True

    def _containers_left(self) -> bool:
        """Whether containers of the tasks are still being ended. Starts that."""
        if self._ends is None:
            self._ends = {}
            for task in self._group.tasks:
                if task.spec.end and task.pid:
                    pid, output = epilogs.start_end(self.spec, task.spec, task.pid)
                    self._ends[pid] = task.spec.task_id, output
                    processes.spared.add(pid)
            if self._ends:
                self._childless = False
                self._reactor.after(self.spec.end_seconds, lambda: epilogs.end_late(self._ends or ()))
        return bool(self._ends)

    def _end_ended(self, pid: int, status: int) -> None:
        assert self._ends is not None
        task_id, output = self._ends.pop(pid)
        why = epilogs.last_line(output)
        processes.spared.discard(pid)
        if status:
            late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            why = f"not done in {self.spec.end_seconds:g} s" if late else why or f"status={status}"
            self.say(f"error: the container of task {task_id} could not be ended or saved: {why}")

    def _give_up(self) -> None:
        """Some processes do not die: run the site's program; the node will be drained.

        Source: slurm.conf(5) UnkillableStepProgram, UnkillableStepTimeout.
        """
        self._error_kind = self._error_kind or "unkillable"
        survivors = ", ".join(filter(None, map(processes.described, self._below())))
        note(
            f'slurmstepd: error: step.unkillable label={self.spec.label} node={self.spec.node} processes="{survivors}" '
            f'detail="not gone {self.spec.unkillable_seconds} s after SIGKILL (UnkillableStepTimeout)"'
        )
        program = os.fsencode(self.spec.unkillable_program)
        if not program or os.fork():
            return
        try:
            close_in_child()
            os.setsid()
            nothing = os.open(NOTHING, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nothing, descriptor)
            step = self.spec.label.partition(".")[2]
            variables = {
                "SLURM_JOB_ID": str(self.spec.job_id),
                "SLURM_STEP_ID": step,
                "SLURMD_NODENAME": self.spec.node,
            }
            os.execve(program, [program], {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **variables})
        finally:
            os._exit(127)

    def _say_last(self) -> None:
        """Report, once, that no process of the step runs any more."""
        if self._last_said:
            return
        self._last_said = True
        if self._memory is not None and self._memory.end():
            self._oom = True
        if self._oom:
            self.say(
                f"error: Detected 1 oom_kill event in StepId={self.spec.label}. "
                "Some of the step tasks have been OOM Killed."
            )

    def _outlets_write(self) -> bool:
        """Whether files of the user's are still being written by processes of ours; these have a time limit."""
        writing = []
        for outlet in self._streams.outlets:
            if not self._streams.is_filled(outlet):
                outlet.close()
                if outlet.pid:
                    writing.append(outlet)
        if not writing:
            return False
        now = time.monotonic()
        if not self._outlets_until:
            patient = self._kill_timer is None and any(outlet.has_output for outlet in writing)
            self._bound_outlets(_OUTPUT_SECONDS if patient else _LINGER_SECONDS)
        if now < self._outlets_until:
            return True
        for outlet in writing:
            outlet.kill()
        return False

    def _bound_outlets(self, seconds: float) -> None:
        self._outlets_until = time.monotonic() + seconds
        self._reactor.after(seconds + 0.01, self._step_on)

    def _conclude(self) -> None:
        self._tree.end_adopted()
        if self._sample_timer is not None:
            self._sample_timer.cancel()
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._result = StepFinished(
            node=self.spec.node,
            job_id=self.spec.job_id,
            restart_count=self.spec.restart_count,
            step_id=self.spec.step_id,
            ended_at=time.time(),
            tasks=tuple(TaskEnd(task.spec.task_id, task.status or 0) for task in self._group.tasks),
            usage=self._usage.usage(),
            oom=self._oom,
            launch_failed=bool(self._launch_error) and self._error_kind != "io",
            error=self._launch_error,
            error_kind=self._error_kind,
        )
        if self.spec.oci_directory:
            with contextlib.suppress(OSError):  # DisableCleanup leaves files in it
                os.rmdir(self.spec.oci_directory)
        # Written, then reported. Killed between the two, the daemon finds it in the record; the other way round a
        # daemon that is killed as well loses it, and the next one reports that the supervisor was killed. Not synced
        # yet: the daemon mostly takes it at once, and a sync for each step is what a busy disk has least of.
        self._record.append(record.result_entry(self._result))
        self._tell_result()
        self._reactor.after(_ACKNOWLEDGE_SECONDS, self._sync_result)
        if self._group.pumps:
            self._reactor.after(_LINGER_SECONDS, self._close_streams)
        else:
            self._clients.finish()

    def _tell_result(self) -> None:
        assert self._result is not None
        self._daemon.finished(
            control.Finished(self._result, unstored=not self._record.is_complete, disk_error=self._record.error)
        )

    def _sync_result(self) -> None:
        """Write the result to disk. Where that fails this process is the only one that has it, and stays for it."""
        # A result that the daemon has taken is its own care; only one that waits for it must survive a crash.
        if not self._synced:
            assert self._result is not None
            self._synced = self._record.sync(record.result_entry(self._result))
        if self._synced:
            self._maybe_leave()
        elif self._sync_timer is None:
            self._tell_result()
            self._sync_timer = self._reactor.after(_SYNC_AGAIN_SECONDS, self._sync_again)

    def _sync_again(self) -> None:
        self._sync_timer = None
        self._sync_result()

    def _stream_ended(self) -> None:
        if self._result is not None and not self._group.pumps:
            self._clients.finish()

    def _close_streams(self) -> None:
        """Our processes are gone; any remaining holder of a stream does not belong to the step."""
        # A client that reads slowly is waited for: what fills the pipe may be the step's own.
        if self._clients.blocked:
            self._reactor.after(_LINGER_SECONDS, self._close_streams)
            return
        for pump in self._group.pumps:
            pump.drain()
            pump.close()

    def _maybe_leave(self) -> None:
        """Exit when there is nothing left to send; the result is on disk for an absent daemon."""
        if self._result is None or not self._clients.finished:
            return
        if self._synced:
            for outlet in self._streams.outlets:
                outlet.kill()
            self._reactor.stop()
        elif not self._daemon.connected:
            self._sync_result()  # nobody will take it soon: on disk, it needs no process

    def _tell_client(self, text: str) -> None:
        """Send a line to the client that the step was started for, and nowhere else."""
        line = octets(f"slurmstepd: {text}\n")
        self._clients.tell_primary(protocol.frame(protocol.MESSAGE, protocol.ALL_TASKS, line))

    def say(self, text: str) -> None:
        """Write a line to the step's standard error."""
        self._write_error(octets(f"slurmstepd: {text}\n"))

    def _write_error(self, line: bytes) -> None:
        if line and self._stderr is not None:
            self._stderr.say(line)
        if line and self.spec.io_address and self._group.tasks[0].spec.stderr in (CLIENT, NOTHING):
            self._clients.emit(protocol.frame(protocol.MESSAGE, protocol.ALL_TASKS, line))
