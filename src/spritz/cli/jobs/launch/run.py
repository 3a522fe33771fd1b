"""The loop around a running step: from the first supervisor's connection until all have sent DONE.

Decides what to print and when, and when to end the step. Source: srun(1); texts of Slurm 22.05.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.jobs.launch.endings import Endings
from spritz.cli.jobs.launch.listener import Connection, Link, Listener, send_all
from spritz.cli.jobs.launch.pmi import Hub
from spritz.cli.jobs.launch.pmix import PmixHub
from spritz.cli.jobs.launch.streams.input import Input
from spritz.cli.jobs.launch.streams.output import Sink
from spritz.model.ids import step_name
from spritz.notation import hostlist
from spritz.stepd import protocol
from spritz.stepd.reactor import READABLE, Reactor, Timer
from spritz.stepd.streams.labels import Labels

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from spritz.cli.call.context import Context
    from spritz.cli.jobs.launch.settings import Settings
    from spritz.model.job.step import Step

#: Seconds in which equal ends of tasks are collected into one message.
_TOGETHER_SECONDS = 0.05
#: Seconds that srun waits, in addition to KillWait, for a step that was ordered to end.
_ABORT_MARGIN_SECONDS = 2
#: Seconds for supervisors to connect before srun asks the controller about the step: the first interval, and the
#: longest, because srun asks less and less often.
_SOON_SECONDS = 0.5
#: Between two looks whether the FIFO for output has a reader.
_READER_PAUSE_SECONDS = 0.1
#: Seconds for the first frame of a supervisor that has connected.
_HEAR_SECONDS = 0.01
_CONNECT_SECONDS = 10.0
#: Seconds for a supervisor that lost its connection to connect again while the step still exists.
_LOST_SECONDS = 30.0

#: Seconds until srun asks again which nodes have failed, while it waits for the end of a step that a failed node ended.
_FAILED_SECONDS = 2.0

#: The message of the remaining nodes of a step with --no-kill about lost ones (a hostlist).
_NODE_FAILURE = re.compile(rb"^slurmstepd: error: Node failure on (\S+)$", re.MULTILINE)


class StepRun:
    """A step from its client's point of view.

    `end_step(signal)` asks the controller to end the step (0: TERM, KillWait, KILL). `alive()` asks the controller on
    which nodes the step still runs, as (job id, node); None if it does not answer. `launch_error(job_id, node)`: why
    the step could not be started there, as of the last `alive()` ("": unknown). `others`: parts of the step in further
    components of the job.
    """

    def __init__(
        self,
        reactor: Reactor,
        listener: Listener,
        step: Step,
        settings: Settings,
        context: Context,
        *,
        end_step: Callable[[int], None],
        alive: Callable[[], Collection[tuple[int, str]] | None],
        launch_error: Callable[[int, str], str] = lambda job_id, node: "",
        others: tuple[Step, ...] = (),
    ) -> None:
        self.reactor = reactor
        #: job id of each part -> (index of the part, rank of its first node, number of its nodes)
        self._parts: dict[int, tuple[int, int, int]] = {}
        #: job id of each node, by rank
        self.owners: list[int] = []
        for part in (step, *others):
            self._parts[part.job_id] = len(self._parts), len(self.owners), len(part.nodes)
            self.owners += [part.job_id] * len(part.nodes)
        self.step = step = _joined(step, others)
        self.name = f"StepId={step.job_id}.{step_text(step.step_id)}"
        self.settings = settings
        self.context = context
        self.endings = Endings(
            step.tasks,
            context.error,
            once=settings.exit_messages_once,
            verbose=context.info if settings.verbose else None,
            name=self.name,
        )
        self.links: list[Link] = []
        self._by_rank: dict[int, Link] = {}
        self._connections: list[Connection] = []
        self.aborting = False
        self.input: Input | None = None
        self.on_started: Callable[[], None] = lambda: None
        #: called when all output has arrived and only final messages are left
        self.on_over: Callable[[], None] = lambda: None
        self._listener = listener
        self._end_step = end_step
        self._alive = alive
        self._launch_error = launch_error
        self._nodes_left = set(range(len(step.nodes)))
        self._connected = 0
        self._patience = _SOON_SECONDS
        self._checking = False
        self._labels = Labels(step.tasks)
        #: standard output and errors of each part, and whether its lines begin with their task
        self._sinks: list[tuple[Sink, Sink]] = []
        self._labelled: list[bool] = []
        self._by_descriptor: dict[int, Sink] = {}
        self._flush_timer: Timer | None = None
        self._wait_timer: Timer | None = None
        self._terminated = False
        self._asks_for_failed = False
        self._broken_pipe = False
        self._lost_output = False
        self._input_waits = False
        self._hub: Hub | None = None
        self._pmix_hub: PmixHub | None = None
        #: exit status that a task chose when it ended the whole step (MPI_Abort)
        self._abort_status = 0
        self.report_binding = False
        #: program of each task, printed once all run (None: not printed)
        self.program_of: Callable[[int], str] | None = None
        self._expected = len(step.nodes)
        self._left: int | None = None
        #: output and errors of this task only (None: of all)
        self.filters: tuple[int | None, int | None] = (None, None)

    # -- before

    def use_output(self, stdout: int, stderr: int, *, labelled: bool) -> None:
        """Set the descriptors for the next part's output; equal descriptors share a sink."""
        self._labelled.append(labelled)
        self._sinks.append((self._sink(stdout), self._sink(stderr)))

    def _sink(self, descriptor: int) -> Sink:
        sink = self._by_descriptor.get(descriptor)
        if sink is None:
            sink = self._by_descriptor[descriptor] = Sink(self.reactor, descriptor, self._output_lost)
        return sink

    def await_reader(self) -> bool:
        """Wait a moment for the reader of a FIFO, and handle signals. False once the user has ended the step.

        A step that has ended otherwise still has its output in the connections of its supervisors.
        """
        time.sleep(_READER_PAUSE_SECONDS)
        self.reactor.on_child()
        return not self.aborting

    def give_up_output(self) -> None:
        """Drop the output that its reader does not take: the user wants srun to end."""
        for sink in self._by_descriptor.values():
            sink.give_up()

    def use_input(self, descriptor: int, task: int | None, *, read_bytes: int = 0, wait: bool = False) -> None:
        """Set the tasks' standard input. `wait`: start at `input.start` instead of when all tasks run."""
        self.input = Input(self.reactor, descriptor, task, lambda: self.links, read_bytes=read_bytes)
        self._input_waits = wait

    def expect_only(self, parts: Iterable[Step]) -> None:
        """Expect only supervisors of the nodes on which these parts run; the others have ended."""
        running = {(part.job_id, name) for part in parts for name in part.running_nodes}
        ranks = enumerate(zip(self.owners, self.step.node_names, strict=True))
        self._nodes_left = {rank for rank, node in ranks if node in running}
        self._expected = len(self._nodes_left)

    def leave(self, status: int) -> None:
        """Make `run` return this status; the step continues."""
        self._left = status
        self.reactor.stop()

    # -- the loop

    def run(self) -> int:
        """Run until the step has ended; return srun's exit status."""
        self.reactor.watch(self._listener.fileno(), READABLE, self._accept)
        self._check_soon()
        self._accept(READABLE)
        if self._nodes_left:
            self.reactor.run()
        if self.input is not None:
            self.input.stop()
        self.reactor.forget(self._listener.fileno())
        self._listener.close()
        for connection in self._connections:
            connection.close()
        for sink in self._by_descriptor.values():
            sink.drain()
        self.on_over()
        self.endings.flush()
        return self._exit_status()

    def _exit_status(self) -> int:
        if self._left is not None:
            return self._left
        status = self._abort_status or self.endings.exit_status()
        if status in (128 + 9, 128 + 15) and not self.aborting:
            self.inform(f"Force Terminated {self.name}")
        if self._broken_pipe:
            return 141
        if self.endings.interrupted and status == 128 + 15:
            return 128 + 2  # after Ctrl-C, signals reach the tasks by two ways in any order, so their statuses vary
        return status or int(self._lost_output)

    def inform(self, text: str) -> None:
        """Print a message of srun's, unless --quiet."""
        if not self.settings.quiet:
            self.context.info(text)

    def tell_states(self) -> None:
        """Report task states after a single Ctrl-C."""
        for line in self.endings.overview():
            self.inform(f"{self.name} {line}")

    def send_signal(self, number: int) -> None:
        """Send a signal to all processes of all tasks."""
        frame = protocol.frame(protocol.SIGNAL, protocol.ALL_TASKS, protocol.pack_number(number))
        send_all((link for link in self.links if not link.done), frame)

    def terminate(self, signal: int = 0) -> None:
        """Ask the controller to end the step, once."""
        if not self._terminated:
            self._terminated = True
            self._end_step(signal)

    def abort(self, signal: int = 0) -> None:
        """End the step, and limit the wait for its end."""
        self.expect_end()
        self.terminate(signal)

    def expect_end(self) -> None:
        """The step is being ended: print a message, and limit the wait."""
        if self.aborting:
            return
        self.aborting = True
        seconds = self.settings.kill_wait_seconds + _ABORT_MARGIN_SECONDS
        self.inform(f"Job step aborted: Waiting up to {seconds} seconds for job step to finish.")
        self.reactor.after(seconds + _ABORT_MARGIN_SECONDS, self._timed_out)

    def kill_tasks(self, seconds: int) -> None:
        """Ask the supervisors to end their tasks, because the controller does not answer."""
        send_all(self.links, protocol.frame(protocol.TERMINATE, protocol.ALL_TASKS, protocol.pack_number(seconds)))

    # -- frames of supervisors

    def _accept(self, ready: int) -> None:
        while (descriptor := self._listener.accept()) is not None:
            connection = Connection(
                self.reactor,
                descriptor,
                on_hello=self._greeted,
                on_frame=self._received,
                on_lost=self._lost,
                on_read=self._after_read,
                on_end=self._connection_ended,
            )
            self._connections.append(connection)

    def _received(self, link: Link, kind: int, task: int, payload: bytes) -> None:
        if kind == protocol.STDOUT or kind == protocol.STDERR:
            self._output(link, kind, task, payload)
        elif kind == protocol.EXIT:
            self.endings.note(link.node, task, *protocol.unpack_exit(payload))
        elif kind == protocol.STDIN_CREDIT:
            link.uncredited -= protocol.unpack_number(payload)
            if self.input is not None:
                self.input.credited()
            self._credited()
        elif kind == protocol.STARTED:
            self._started(link, payload)
        elif kind == protocol.MESSAGE:
            self._message(link, payload)
        elif kind == protocol.PMI_FENCE:
            self._pmi_hub().fence(link, payload, last=task == protocol.ALL_TASKS)
        elif kind == protocol.PMIX:
            self._hub_of_pmix().take(link, payload, last=task == protocol.ALL_TASKS)
        elif kind == protocol.PMI_ABORT:
            self._aborted(payload)
        elif kind == protocol.DONE:
            link.done = True
            self._node_finished(link)

    def _pmi_hub(self) -> Hub:
        if self._hub is None:
            self._hub = Hub(lambda: self.links, len(self.step.nodes))
        return self._hub

    def _hub_of_pmix(self) -> PmixHub:
        if self._pmix_hub is None:
            self._pmix_hub = PmixHub(lambda: self.links)
        return self._pmix_hub

    def _aborted(self, payload: bytes) -> None:
        """A task has asked to end all tasks (MPI_Abort)."""
        if payload:
            self._abort_status = self._abort_status or protocol.unpack_status(payload) & 0xFF
        self.abort(9)

    def _greeted(self, connection: Connection, place: int, payload: bytes) -> Link | None:
        """A supervisor has connected, for the first time or again."""
        hello = protocol.decode_hello(payload)
        part, first, count = self._parts.get(hello.job_id, (0, 0, 0))
        known = (hello.key, hello.step_id) == (self._listener.key, self.step.step_id)
        if not known or hello.node_index >= count or (place >= 0 and place != hello.node_index):
            return None
        rank = first + hello.node_index
        link = self._by_rank.get(rank)
        if link is None:
            link = self._by_rank[rank] = Link(hello, part, rank)
            self.links.append(link)
            self._connected += 1
        elif not link.is_numbered or hello.attempt <= link.hello.attempt:
            return None
        elif link.lost_at is not None:
            self._connected += 1
        link.move(connection, place, hello)
        return link

    def _started(self, link: Link, payload: bytes) -> None:
        link.started = True
        if self.report_binding:
            self._tell_binding(link, payload)
        if self.settings.verbose:
            self.context.info(f"launch/slurm: _task_start: Node {link.node}, {len(link.hello.task_ids)} tasks started")
        if self.program_of is not None:
            link.pids = protocol.decode_started(payload).pids
        self.endings.started(link.hello.task_ids)
        if sum(link.started for link in self.links) == self._expected:
            self.on_started()
            if self.program_of is not None:
                self._tell_tasks(self.program_of)
            if self.input is not None and not self._input_waits:
                self.input.start()

    def _tell_tasks(self, program_of: Callable[[int], str]) -> None:
        """--debugger-test: print node, process and program of each task."""
        tasks = []
        for link in self.links:
            tasks += [(task, link.node, pid) for task, pid in zip(link.hello.task_ids, link.pids, strict=False)]
        for task, node, pid in sorted(tasks):
            self.context.info(f"task:{task}, host:{node}, pid:{pid}, executable:{program_of(task)}")

    def _tell_binding(self, link: Link, payload: bytes) -> None:
        """--cpu-bind=verbose: print each task's CPU mask in the format of Slurm's task plugin."""
        masks = self.step.nodes[link.rank].cpus_by_task
        pids = protocol.decode_started(payload).pids
        for local, (task, pid, mask) in enumerate(zip(link.hello.task_ids, pids, masks, strict=False)):
            line = f"cpu-bind=MASK - {link.node}, task {task:2d} {local:2d} [{pid}]: mask 0x{mask} set\n"
            self._sinks[link.part][1].write(line.encode())

    def _credited(self) -> None:
        """A supervisor has used up standard input."""

    def _output(self, link: Link, kind: int, task: int, payload: bytes) -> None:
        only = self.filters[kind - protocol.STDOUT]
        if only is not None and only != task:
            return
        sink = self._sinks[link.part][kind - protocol.STDOUT]
        sink.write(self._labels.apply(task, kind, payload) if self._labelled[link.part] else payload)
        if sink.full:
            for connection in self._connections:
                connection.pause(True)
            self.reactor.after(0.01, self._resume)

    def _resume(self) -> None:
        if any(sink.full for sink in self._by_descriptor.values()):
            self.reactor.after(0.01, self._resume)
            return
        for connection in self._connections:
            connection.pause(False)

    def _message(self, link: Link, payload: bytes) -> None:
        if (failed := _NODE_FAILURE.search(payload)) is not None:
            names = self.step.node_names
            lost = set(hostlist.expand(failed[1].decode()))
            if any(names[rank] in lost for rank in self._nodes_left):
                self._ask_for_failed()
            return
        reporter = self.settings.one_node_tells
        ending = b"*** STEP" in payload or b"*** JOB" in payload
        if not ending or reporter == str(link.rank):
            self.context.stdout.flush()
            self._sinks[link.part][1].write(payload)
        if ending and not self._terminated:
            self.expect_end()
        if ending and b"NODE FAILURE" in payload:
            self._ask_for_failed()

    def _ask_for_failed(self) -> None:
        if not self._asks_for_failed:
            self._asks_for_failed = True
            self.reactor.after(0, self._leave_failed_nodes)

    def _leave_failed_nodes(self) -> None:
        """Nodes of the step failed: name them, and do not wait for what they would say.

        The controller gives the nodes of a dead switch up one after another: ask again until the step is over.
        """
        self._asks_for_failed = self.aborting
        if self.aborting:
            self.reactor.after(_FAILED_SECONDS, self._leave_failed_nodes)
        if self._alive() is None:
            return
        for rank in sorted(self._nodes_left):
            node = self.step.nodes[rank]
            error = self._launch_error(self.owners[rank], node.allocation.node)
            if not error:
                continue
            self.context.error(error)
            if self.settings.no_kill:
                self.endings.lose(node.task_ids)
            else:
                self.endings.give_up(node.task_ids, 9)
            self._nodes_left.discard(rank)
            if self._pmix_hub is not None:
                self._pmix_hub.ended(rank)
            link = self._by_rank.get(rank)
            if link is None:
                self._expected -= 1
                continue
            self._connected += link.lost_at is not None
            link.close()
        if not self._nodes_left:
            self.reactor.stop()
        else:
            self._after_read()

    def _after_read(self) -> None:
        """All frames of a read were handled: print combined messages about tasks."""
        if not self.endings.pending:
            if self.endings.ended:
                self._first_ended()
            return
        if self._flush_timer is None:
            self._flush_timer = self.reactor.after(_TOGETHER_SECONDS, self._flush_endings)
        self._first_ended()

    def _flush_endings(self) -> None:
        self._flush_timer = None
        self.endings.flush()

    def _first_ended(self) -> None:
        if self.endings.all_ended:
            return
        if self.settings.kill_on_bad_exit and self.endings.first_abnormal and not self._terminated:
            self.endings.flush()
            self._say_terminating()
            self.terminate()
        elif self.settings.wait_seconds and self._wait_timer is None:
            self._wait_timer = self.reactor.after(self.settings.wait_seconds, self._waited)

    def _say_terminating(self) -> None:
        self.inform(f"launch/slurm: _step_signal: Terminating {self.name}")

    def _waited(self) -> None:
        if self.endings.all_ended or self._terminated:
            return
        self.endings.flush()
        self.inform(f"First task exited {self.settings.wait_seconds}s ago")
        self.tell_states()
        self._say_terminating()
        self.abort(9)

    # -- ends

    def _node_finished(self, link: Link) -> None:
        self._nodes_left.discard(link.rank)
        link.close()
        if self._pmix_hub is not None:
            self._pmix_hub.ended(link.rank)
        if not self._nodes_left:
            self.reactor.stop()
        else:
            self._after_read()  # nothing more is read from a closed link

    def _connection_ended(self, connection: Connection) -> None:
        self._connections.remove(connection)
        for link in list(connection.links.values()):
            self._lost(link)

    def _lost(self, link: Link) -> None:
        """A connection broke before DONE: the supervisor died, or will connect again."""
        if link.done or link.closed or link.rank not in self._nodes_left:
            return
        if not link.is_numbered:
            self._link_ended(link)
            return
        link.lose(time.monotonic())
        self._connected -= 1
        self._patience = _SOON_SECONDS
        self._check_soon()

    def _link_ended(self, link: Link) -> None:
        """A supervisor, or its node, died."""
        self.endings.flush()
        error = self._launch_error(self.owners[link.rank], link.node)
        node_failed = link.node in error  # as in "Node failure on n3"
        if not self.aborting:
            missing = f"Aborting, io error and missing step on node {link.rank}{error and f': {error}'}"
            self.context.error(error if node_failed else missing)
        if node_failed and self.settings.no_kill:
            self.endings.lose(link.hello.task_ids)
        for task in link.hello.task_ids:
            self.endings.note(link.node, task, 9, 0)
        if not self.settings.no_kill and len(self._nodes_left) > 1:
            self.abort()
        self._node_finished(link)

    def _check_soon(self) -> None:
        if not self._checking:
            self._checking = True
            self.reactor.after(self._patience, self._check_connected)

    def _check_connected(self) -> None:
        """Supervisors are missing: ask whether the step still runs on their nodes."""
        if self._connected < self._expected and self._nodes_left:
            self._judge(self._alive())
        else:
            self._checking = False

    def _judge(self, running: Collection[tuple[int, str]] | None) -> None:
        """Give up supervisors that are not connected and whose nodes no longer run the step.

        `running`: the controller's answer, see `alive`.
        """
        # Supervisors of a short step may connect and end meanwhile: read connections made before that answer first.
        self._accept(READABLE)
        if not all(connection.greeted for connection in self._connections):
            self.reactor.after(_HEAR_SECONDS, lambda: self._judge(running))
            return
        self._checking = False
        if self._connected >= self._expected or not self._nodes_left:
            return
        here = {link.rank for link in self.links if link.lost_at is None}
        absent = sorted(self._nodes_left - here)
        gone = [
            rank
            for rank in absent
            if running is not None and (self.owners[rank], self.step.node_names[rank]) not in running
        ]
        late = time.monotonic() - _LOST_SECONDS
        lost = [link for rank in absent if (link := self._by_rank.get(rank)) is not None]
        for link in lost:
            if link.rank in gone or (link.lost_at is not None and link.lost_at < late):
                self._connected += 1
                self._link_ended(link)
        missing = [rank for rank in gone if rank not in self._by_rank]
        if not missing:
            if self._nodes_left:
                self._patience = min(2 * self._patience, _CONNECT_SECONDS)
                self._check_soon()
            return
        why = ""
        for rank in missing:
            node = self.step.nodes[rank]
            name = node.allocation.node
            error = self._launch_error(self.owners[rank], name)
            self.context.error(f"Task launch for {self.name} failed on node {name}{error and f': {error}'}")
            why = why or error
            self.endings.give_up(node.task_ids, 1 << 8)
            self._nodes_left.discard(rank)
        self._expected -= len(missing)
        self.context.error(f"Application launch failed: {why or 'Job step not running'}")
        if not self._nodes_left:
            self.reactor.stop()
            return
        if not self.settings.no_kill:
            self.abort()
        self._check_soon()

    def _timed_out(self) -> None:
        if self._nodes_left:
            self.context.error("Timed out waiting for job step to complete")
            for rank in self._nodes_left:
                self.endings.give_up(self.step.nodes[rank].task_ids, 9)
            self.reactor.stop()

    def _output_lost(self, error: OSError) -> None:
        """The reader closed our output (`srun … | head`): end the step, as SIGPIPE would have ended the program.

        A full disk does not end the step. Differs: Slurm silently drops the output and exits with 0.
        """
        if not isinstance(error, BrokenPipeError):
            self._lost_output = True
            self.context.error(f"Write to stdout or stderr failed: {error.strerror}")
        elif not self._broken_pipe:
            self._broken_pipe = True
            self.endings.interrupted = True
            self.terminate()


def _joined(step: Step, others: tuple[Step, ...]) -> Step:
    """The components of a heterogeneous step as one step, with the nodes and tasks of all."""
    if not others:
        return step
    parts = (step, *others)
    nodes = tuple(node for part in parts for node in part.nodes)
    return replace(step, nodes=nodes, tasks=sum(part.tasks for part in parts))


def step_text(step_id: int) -> str:
    """A step id as text: `0`, `interactive`."""
    return step_name(step_id)
