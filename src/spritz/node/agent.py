"""The shell of the node daemon: executes the decisions of its Machines, and reports events to them.

Owns the supervisors' connections, the spools, hooks and reports; decides nothing itself. One Agent for all nodes of the
process. `main` gives it a configuration and a connection to the controller.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from spritz.model.errors import SpritzError
from spritz.model.ids import STEP_BATCH, step_name
from spritz.model.node_daemon.launch import (
    Accepted,
    AttachClient,
    LaunchBatch,
    LaunchProlog,
    LaunchStep,
    MeasureStep,
    NotifyTasks,
    SignalTasks,
    StepMeasured,
    SuspendTasks,
    TerminateJob,
    TerminateStep,
)
from spritz.model.node_daemon.reports import JobGone, NodeTrouble, RunningStep, StepFinished, StepStarted, is_same_boot
from spritz.model.rejection import Rejection
from spritz.model.scarcity import SCARCE, UNWRITABLE, pauses
from spritz.node import actions as decided
from spritz.node import cgroup
from spritz.node import spool as spools
from spritz.node.actions import Actions
from spritz.node.cancelled import cancelled_text
from spritz.node.container import SHARED_MEMORY
from spritz.node.hardware.detection import uptime_seconds
from spritz.node.hardware.gpu_detection import FoundGpus, with_gpus
from spritz.node.launch.build import supervisor_spec
from spritz.node.launch.hooks import hook_variables
from spritz.node.launch.streams import batch_streams
from spritz.node.machine import Machine
from spritz.node.reporter import Reporter
from spritz.node.supervisors.connection import kill_supervisor
from spritz.node.supervisors.leftovers import end, end_and_forget, end_containers, leftovers, orphans
from spritz.node.supervisors.pool import Pool
from spritz.runtime.programs import Failure, run_programs
from spritz.runtime.worker import Worker
from spritz.stepd import control, processes
from spritz.timeouts import within

if TYPE_CHECKING:
    from spritz.client.channel.channel import Channel
    from spritz.client.channel.handling import Call, Handler
    from spritz.model.job.record import Job
    from spritz.node.container import Container
    from spritz.node.launch.build import NodeSetup
    from spritz.node.settings import Hooks, NodeSettings
    from spritz.node.supervisors.connection import SupervisorLink
    from spritz.node.supervisors.zygote import Zygote
    from spritz.process_identity import Process
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger
    from spritz.runtime.tasks import Supervisor
    from spritz.stepd.spec import SupervisorSpec

#: A step that ends within this time is not reported as started: the report of its end suffices.
STARTED_DELAY_SECONDS = 0.05
#: Seconds after which a result that the controller has not stored is synced to disk.
SYNC_SECONDS = 1.0
#: Seconds from the end of a supervisor to the removal of its cgroup.
SWEEP_SECONDS = 1.0
#: Seconds for a supervisor to report its step's usage.
MEASURE_SECONDS = 5.0
#: Seconds for a line to be written into a job's output.
OUTPUT_SECONDS = 10.0
#: Seconds by which removing a job's directories may delay the report of its end.
_REMOVAL_SECONDS = 60.0
#: Seconds after KillWait at which a supervisor is asked whether it lives, if it has not ended its step; and between two
#: such questions.
ENDING_SECONDS = 5.0
#: Seconds for its answer, at least (UnkillableStepTimeout, if that is longer).
ANSWER_SECONDS_MIN = 10.0
#: Seconds for a supervisor that lives, beyond UnkillableStepTimeout: for epilogs, and for containers to be saved.
LATE_SECONDS = 300.0

#: Orders that name a node.
ORDERS: tuple[type[Struct], ...] = (
    LaunchProlog,
    LaunchBatch,
    LaunchStep,
    SignalTasks,
    TerminateStep,
    TerminateJob,
    SuspendTasks,
    AttachClient,
    NotifyTasks,
)


class _NodeHere:
    __slots__ = (
        "before_boot",
        "gpus",
        "heard_at",
        "machine",
        "of_unknown_boot",
        "serial",
        "setup",
        "spool",
        "spool_id",
    )

    def __init__(self, machine: Machine, spool: spools.Spool, setup: NodeSetup) -> None:
        self.machine = machine
        #: when a controller of `machine.term` was last heard, monotonic seconds
        self.heard_at = 0.0
        self.spool = spool
        self.spool_id = ""
        #: steps that were begun before the machine's last boot
        self.before_boot: frozenset[RunningStep] = frozenset()
        #: steps found at the daemon's start of which it is unknown whether the machine has booted since they began
        self.of_unknown_boot: frozenset[RunningStep] = frozenset()
        #: held while a Prolog or Epilog runs, with PrologFlags=Serial
        self.serial = asyncio.Lock()
        self.setup = setup
        #: detected GPUs
        self.gpus = FoundGpus(gres=())


class _Starting:
    """A step that is to start, until its supervisor reports. `orders` that come before are passed on to that."""

    __slots__ = ("action", "orders", "pauses", "put_off")

    def __init__(self, action: decided.StartSupervisor, patience_seconds: float) -> None:
        self.action = action
        self.orders: list[control.Order] = []
        self.pauses = pauses(patience_seconds)
        #: timer of the next attempt; None before the first failure
        self.put_off: asyncio.TimerHandle | None = None


class Agent:
    """All nodes of this process. `settings` are per node; `adopt` first, then serve orders with `table()`."""

    def __init__(
        self,
        settings: Mapping[str, NodeSettings],
        hooks: Hooks,
        *,
        zygote: Zygote,
        tasks: Supervisor,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._hooks = hooks
        self._zygote = zygote
        self._tasks = tasks
        self._disk = Worker("job directories")
        #: looks for processes; a removal of many files, or a container's end, must not hold these up
        self._search = Worker("processes", waiting_max=100_000)
        self._clock = clock
        self._log = log
        self._supervisors = Pool(
            zygote,
            on_report=self._reported,
            on_end=self._supervisor_gone,
            on_dismissed=lambda link: self._sweep_soon(self._nodes[link.node]),
            on_room=self._start_waiting,
        )
        #: supervisors of steps that have not ended
        self._links: dict[tuple[str, RunningStep], SupervisorLink] = {}
        self._starting: dict[tuple[str, RunningStep], _Starting] = {}
        #: those of `_starting` that wait until others have started
        self._waiting: deque[tuple[_NodeHere, _Starting]] = deque()
        #: steps whose supervisors have written a result that the controller has not stored yet
        self._written: set[tuple[str, RunningStep]] = set()
        #: steps whose supervisors keep a result that they could not write
        self._unstored: dict[tuple[str, RunningStep], SupervisorLink] = {}
        #: those of `_written` that may not be on disk yet, and the timer that syncs them
        self._unsynced: set[tuple[str, RunningStep]] = set()
        self._sync_timer: asyncio.TimerHandle | None = None
        self._sweeps: set[str] = set()
        #: steps that were ordered to end, until a later check whether they do
        self._ending: set[tuple[str, RunningStep]] = set()
        #: steps whose supervisors cannot be killed
        self._stuck: set[tuple[str, RunningStep]] = set()
        self.reporter = Reporter(tasks, clock, log, self._acknowledged)
        self._nodes = {name: self._node_here(name, node_settings) for name, node_settings in settings.items()}
        self._carriers: dict[type[Struct], Callable[..., None]] = {
            decided.StartSupervisor: self._start,
            decided.SignalStep: self._signal,
            decided.EndStep: self._end,
            decided.SuspendStep: self._suspend,
            decided.AttachToStep: self._attach,
            decided.NotifyStep: self._notify,
            decided.CleanUp: self._clean_up,
            decided.RemoveSpool: self._remove_spool,
            decided.RunProlog: self._run_prolog,
            decided.RunEpilog: self._run_epilog,
            decided.Send: self._send,
        }

    def _node_here(self, name: str, settings: NodeSettings) -> _NodeHere:
        machine = Machine(
            name,
            prolog=_has_prolog(self._hooks, settings.setup),
            epilog=bool(self._hooks.epilog),
            kill_wait_seconds=settings.setup.kill_wait_seconds,
        )
        container = settings.setup.container
        covered = (*container.dirs, SHARED_MEMORY) if container is not None else ()
        return _NodeHere(machine, spools.Spool(settings.spool, covered), settings.setup)

    def configure(self, settings: Mapping[str, NodeSettings], hooks: Hooks) -> None:
        """New settings for existing nodes; running steps keep those that they were started with."""
        self._hooks = hooks
        for name, node_settings in settings.items():
            here = self._nodes.get(name)
            if here is not None:
                here.setup = with_gpus(node_settings.setup, here.gpus)
                here.machine.has_prolog = _has_prolog(hooks, node_settings.setup)
                here.machine.has_epilog = bool(hooks.epilog)
                here.machine.kill_wait_seconds = node_settings.setup.kill_wait_seconds

    def renew_supervisors(self) -> None:
        """Give no further step to existing supervisors: new ones must start in the daemon's current state."""
        self._supervisors.renew()

    def know_gpus(self, name: str, gpus: FoundGpus) -> None:
        """Record a node's detected GPUs; running steps keep what they were started with."""
        here = self._nodes.get(name)
        if here is not None:
            here.gpus = gpus
            here.setup = with_gpus(here.setup, gpus)

    # Orders of the controller

    def table(self) -> dict[type[Struct], Handler]:
        return {**dict.fromkeys(ORDERS, self.order), MeasureStep: self.measure}

    async def measure(self, message: MeasureStep, call: Call | None = None) -> StepMeasured | Rejection:
        """The usage of a step on one of these nodes."""
        wanted = (message.job_id, message.step_id)
        for (node, key), link in list(self._links.items()):
            if node == message.node and (key.job_id, key.step_id) == wanted and not link.finished:
                try:
                    async with within(MEASURE_SECONDS):
                        usage = await link.measure()
                except (ConnectionError, TimeoutError):
                    break
                return StepMeasured(node=node, usage=usage.usage, pids=usage.pids)
        return Rejection(code="ESLURM_INVALID_JOB_ID")

    async def measure_all(self) -> list[tuple[str, RunningStep, control.Measured]]:
        """The usage of every step on our nodes. Steps that end meanwhile, or do not answer in time, are left out."""
        links = [(node, key, link) for (node, key), link in self._links.items() if not link.finished]
        try:
            async with within(MEASURE_SECONDS):
                answers = await asyncio.gather(*(link.measure() for _, _, link in links), return_exceptions=True)
        except TimeoutError:
            return []
        return [
            (node, key, answer)
            for (node, key, _), answer in zip(links, answers, strict=True)
            if isinstance(answer, control.Measured)
        ]

    def order(self, message: Struct, call: Call | None = None) -> Accepted | Rejection:
        """Execute an order of a controller. An order of an older term, or for a node not served here, is refused."""
        here = self._nodes.get(message.node)  # type: ignore[attr-defined]  # every order in ORDERS has a node
        if here is None:
            return Rejection(code="ESLURM_INVALID_NODE_NAME")
        actions = here.machine.handle(message, message.term)  # type: ignore[attr-defined]  # and a term
        if isinstance(actions, Rejection):
            self._log.error("order.refused", kind=type(message).__name__, reason=actions.text)
            return actions
        here.heard_at = self._clock.monotonic()
        self._carry_out(here, actions)
        return Accepted()

    def jobs(self, node: str) -> tuple[Job, ...]:
        return self._nodes[node].machine.jobs

    def running(self, node: str) -> tuple[RunningStep, ...]:
        """Steps that run on the node, as its registration reports them."""
        return self._nodes[node].machine.running

    def runs(self, node: str) -> tuple[tuple[int, int, float], ...]:
        """(job id, restart count, start) of the jobs that `running` and `lives` name."""
        return self._nodes[node].machine.runs

    def last_job_id(self, node: str) -> int:
        """Highest job id that was seen here."""
        return self._nodes[node].machine.last_job_id

    def heard(self, node: str) -> tuple[int, float]:
        """Highest term of a controller that the node has heard, and for how many seconds it has not."""
        here = self._nodes[node]
        return here.machine.term, self._clock.monotonic() - here.heard_at

    def hear(self, term: int) -> None:
        """A sign of life of the controller of this term."""
        for here in self._nodes.values():
            if term >= here.machine.term:
                here.heard_at = self._clock.monotonic()

    def spool_id(self, node: str) -> str:
        """An id of the spool directory: another one than before means that the node has lost its memory of launches."""
        return self._nodes[node].spool_id

    def lives(self, node: str) -> tuple[tuple[int, int], ...]:
        """(job id, restart count) of the jobs that have not left the node."""
        return self._nodes[node].machine.lives

    def registered(self, node: str, term: int, ended_jobs: tuple[tuple[int, int], ...] = ()) -> None:
        """The controller of this term knows the node, on which these jobs have ended for it."""
        here = self._nodes[node]
        here.machine.term = max(here.machine.term, term)
        here.heard_at = self._clock.monotonic()
        self._carry_out(here, here.machine.end_jobs(ended_jobs))

    def dismissed(self, node: str) -> None:
        """The controller does not know the node: its jobs have no owner, or run elsewhere again."""
        here = self._nodes[node]
        if here.machine.busy:
            self._log.error("node.dismissed", node=node, steps=len(here.machine.running))
            self._carry_out(here, here.machine.dismissed())

    def connected(self, channel: Channel) -> None:
        """All nodes are registered on this connection."""
        self.reporter.connected(channel)

    # After a restart

    def adopt(self, boot_id: str = "") -> int:
        """Find the steps that an earlier daemon started. Returns their number. `boot_id` is of the machine's last boot.

        Raises SpritzError for steps that a later release started: ending them would lose their jobs.
        """
        count = 0
        for here in self._nodes.values():
            os.makedirs(here.spool.path, mode=0o755, exist_ok=True)
            try:
                here.spool_id = here.spool.identity()
            except OSError as error:  # a full disk: then it is unknown whether launches were forgotten
                self._log.error("spool.nameless", node=here.machine.node, error=error)
            scanned = here.spool.scan()
            self._tell_boots(here, scanned.found, boot_id)
            for directory, reason in scanned.unsupported:
                raise SpritzError(
                    f"a later release of slurmd started the step in {directory}: {reason}",
                    hint="start that release; or `slurmd -c`, which ends all steps of this node and forgets them",
                )
            for directory in scanned.unreadable:
                # Its end could not be reported, and the controller will start it elsewhere: it must not keep running.
                self._log.error("step.unreadable", node=here.machine.node, directory=directory)
                end_and_forget(here.spool, directory)
            for step in scanned.found:
                if not step.begun:
                    # By its path: another directory of the same step, in a reserve, may be the one that runs.
                    here.spool.remove_if_possible(step.directory)
                    continue
                count += 1
                here.machine.adopt(step.key, step.job)
                if step.result is not None:
                    self._result_written(here, step.key, step.result)
                    continue
                connection = spools.connect(step.directory)
                if connection is not None:
                    node = here.machine.node
                    link = self._supervisors.connect(node, step.key, step.directory, step.task_ids, connection)
                    self._links[node, step.key] = link
                elif (written := spools.read_record(step.directory)) is not None and written.result is not None:
                    self._carry_out(here, here.machine.noticed_end(step.key, written.result))
                else:
                    self._carry_out(here, here.machine.noticed_death(step.key))
            if here.setup.container is not None:
                here.setup.container.sweep(here.machine.lives)
        return count

    def _tell_boots(self, here: _NodeHere, steps: Sequence[spools.FoundStep], boot_id: str) -> None:
        """Report which of these steps began before the machine's last boot, and for which the spool or the kernel does
        not say. Stores the id of this boot, and those steps for later daemons: this one may end before it has reported
        their ends.
        """
        is_known = has_booted = False
        try:
            before = here.spool.last_boot()
            is_known = bool(before and boot_id)
            has_booted = is_known and not is_same_boot(before, boot_id)
            for step in steps if has_booted else ():
                spools.mark_before_boot(step.directory)
            if boot_id and before != boot_id:
                here.spool.store_boot(boot_id)
        except OSError as error:  # where it is unknown, the age of the spool's directories tells
            self._log.error("spool.bootless", node=here.machine.node, error=error)
        if not is_known:
            here.of_unknown_boot = frozenset(step.key for step in steps)
        here.before_boot = frozenset(step.key for step in steps if has_booted or spools.is_before_boot(step.directory))

    def release(self) -> None:
        """The daemon ends: close connections to supervisors, which continue."""
        self._supervisors.release()
        self._links.clear()
        self._zygote.close()
        for directory in {group for here in self._nodes.values() for group in here.setup.cgroups}:
            cgroup.remove(directory)

    # Actions

    def _carry_out(self, here: _NodeHere, actions: Actions) -> None:
        for action in actions:
            self._carriers[type(action)](here, action)

    def _start(self, here: _NodeHere, action: decided.StartSupervisor) -> None:
        starting = self._starting[here.machine.node, action.key] = _Starting(action, self._hooks.start_seconds)
        self._waiting.append((here, starting))
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and self._supervisors.has_room:
            here, starting = self._waiting.popleft()
            # it may have been cancelled meanwhile
            if self._starting.get((here.machine.node, starting.action.key)) is starting:
                self._try(here, starting)

    def _try(self, here: _NodeHere, starting: _Starting) -> None:
        """Write the step's spool and start its supervisor."""
        key, message = starting.action.key, starting.action.message
        try:
            if starting.put_off is not None:
                here.spool.remove_if_possible(here.spool.directory(key))
            directory, known = self._spooled(here, key, message)
            task_ids = tuple(task.task_id for task in known.tasks)
            link = self._supervisors.begin(here.machine.node, key, directory, task_ids)
        except (OSError, ValueError, LookupError) as error:
            if isinstance(error, OSError) and error.errno in SCARCE:
                self._put_off(here, starting, error)
            else:
                if isinstance(error, OSError) and error.errno in UNWRITABLE:
                    # As in Slurm: jobs launched here would keep failing.
                    reason = f"batch job complete failure: {_reason(error)}"
                    self.reporter.send(NodeTrouble(name=here.machine.node, reason=reason))
                # ValueError, LookupError: names and numbers in the message that contradict each other.
                self._give_up(here, starting, _reason(error))
            return
        self._links[here.machine.node, key] = link
        for order in starting.orders:
            link.order(order)
            if isinstance(order, control.Terminate):
                self._see_end(here, link, order.kill_wait_seconds)
        if self._log.enabled("debug"):
            self._log.debug("step.launched", job_id=key.job_id, step_id=key.step_id, node=here.machine.node)

    def _spooled(
        self, here: _NodeHere, key: RunningStep, message: LaunchBatch | LaunchStep
    ) -> tuple[str, SupervisorSpec]:
        """Write the step's spool: its directory, and the step. Raises OSError."""
        while True:
            directory = here.spool.directory(key)
            known = supervisor_spec(message, directory, here.setup)
            if here.setup.container is not None:
                user = known.identity
                here.setup.container.make(known.job_id, known.restart_count, user.uid, user.gid)
            try:
                here.spool.create(directory, known)
            except OSError as error:
                if error.errno not in UNWRITABLE:
                    raise
                self._spool_failed(here, error.errno)
                if not here.spool.divert(key):
                    raise
            else:
                return directory, known

    def _spool_failed(self, here: _NodeHere, number: int) -> None:
        """The spool cannot be written (`number`: the errno): no job may start here until an administrator says so.

        Jobs that run go on, and their ends are reported as ever.
        """
        self._log.error("spool.failed", node=here.machine.node, error=os.strerror(number))
        self.reporter.send(NodeTrouble(name=here.machine.node, reason=spools.spool_reason(number)))

    def _put_off(self, here: _NodeHere, starting: _Starting, error: OSError) -> None:
        """The machine is short of processes, memory or descriptors: retry soon, but not for ever."""
        key, node = starting.action.key, here.machine.node
        text = f"slurmstepd did not start: {error.strerror}"
        pause = next(starting.pauses, None)
        if any(isinstance(order, control.Terminate) for order in starting.orders):
            self._give_up(here, starting, text)
        elif pause is None:
            self._give_up(here, starting, text)
            # As in Slurm: jobs launched here would keep failing.
            trouble = NodeTrouble(name=node, reason=f"batch job complete failure: {error.strerror}")
            self._carry_out(here, [decided.Send(trouble)])
        else:
            if starting.put_off is None:
                seconds = self._hooks.start_seconds
                self._log.warning(
                    "step.put_off",
                    job_id=key.job_id,
                    step_id=key.step_id,
                    node=node,
                    error=error.strerror,
                    detail=f"tried again for {seconds:g} seconds (BatchStartTimeout)",
                )
            starting.put_off = asyncio.get_running_loop().call_later(pause, self._try, here, starting)

    def _give_up(self, here: _NodeHere, starting: _Starting, error: str) -> None:
        key = starting.action.key
        if starting.put_off is not None:
            starting.put_off.cancel()
        self._starting.pop((here.machine.node, key), None)
        self._log.error("step.failed", job_id=key.job_id, step_id=key.step_id, error=error)
        directory = here.spool.directory(key)
        self._tasks.spawn_contained(self._failed_start(here, key, directory, error), name="step.failed")

    async def _failed_start(self, here: _NodeHere, key: RunningStep, directory: str, error: str) -> None:
        now = self._clock.now()
        self._carry_out(here, here.machine.leftovers_gone(key, now, began=False, tasks=(), error=error))

    def _order(self, here: _NodeHere, key: RunningStep, order: control.Order) -> None:
        starting = self._starting.get((here.machine.node, key))
        if starting is not None:
            starting.orders.append(order)
        link = self._links.get((here.machine.node, key))
        if link is not None:
            link.order(order)
        elif starting is not None and isinstance(order, control.Terminate):
            self._give_up(here, starting, "cancelled before it could start")

    def _signal(self, here: _NodeHere, action: decided.SignalStep) -> None:
        self._order(here, action.key, control.Signal(action.signal, action.first_only))

    def _end(self, here: _NodeHere, action: decided.EndStep) -> None:
        text = cancelled_text(here.machine.node, action.key, action.cause, action.at)
        self._order(here, action.key, control.Terminate(text, action.kill_wait_seconds))
        link = self._links.get((here.machine.node, action.key))
        if link is not None:
            self._see_end(here, link, action.kill_wait_seconds)

    def _see_end(self, here: _NodeHere, link: SupervisorLink, kill_wait_seconds: float) -> None:
        """Check later whether the supervisor ends its step, as it was ordered to."""
        step = (link.node, link.key)
        if step not in self._ending:
            self._ending.add(step)
            wait = kill_wait_seconds + ENDING_SECONDS
            asyncio.get_running_loop().call_later(wait, self._look_at_end, here, link, link.key)

    def _look_at_end(self, here: _NodeHere, link: SupervisorLink, key: RunningStep) -> None:
        if self._is_ending(link, key):
            self._tasks.spawn_contained(self._watch_end(here, link, key), name="step.end")
        else:
            self._ending.discard((link.node, key))

    def _is_ending(self, link: SupervisorLink, key: RunningStep) -> bool:
        """Whether this supervisor has not ended this step yet. (It may have begun another.)"""
        return self._links.get((link.node, key)) is link and not link.closed

    async def _watch_end(self, here: _NodeHere, link: SupervisorLink, key: RunningStep) -> None:
        """Take the step over from a supervisor that does not answer, or takes far too long to end it.

        A supervisor that works gives up by itself what it cannot kill, after UnkillableStepTimeout.
        """
        limit = max(float(here.setup.unkillable_seconds), ANSWER_SECONDS_MIN)
        written = spools.read_record(link.directory)
        # A runtime may end, or save, a container for as long as its own limit says.
        ends = float(written.spec.end_seconds) if written is not None else 0.0
        deadline = self._clock.monotonic() + limit + LATE_SECONDS + ends
        why = ""
        try:
            while not why:
                try:
                    async with within(limit):
                        await link.measure()
                except TimeoutError:
                    why = f"it has not answered for {limit:g} seconds"
                except ConnectionError:
                    return
                if not why and self._clock.monotonic() > deadline:
                    why = "it does not end its step"
                if not self._is_ending(link, key):
                    return
                if not why:
                    await self._clock.sleep(ENDING_SECONDS)
                    if not self._is_ending(link, key):
                        return
            await self._take_over(here, link, key, why)
        finally:
            self._ending.discard((link.node, key))

    async def _take_over(self, here: _NodeHere, link: SupervisorLink, key: RunningStep, why: str) -> None:
        """Kill the supervisor; what it leaves is then ended as after any death of one."""
        killed = await self._search.run(kill_supervisor, link.directory)
        pid = 0 if killed is None else killed.pid
        self._log.error("supervisor.silent", job_id=key.job_id, step_id=key.step_id, node=link.node, pid=pid, why=why)
        deadline = self._clock.monotonic() + ENDING_SECONDS
        while self._is_ending(link, key) and self._clock.monotonic() < deadline:
            await self._clock.sleep(0.05)
        if self._is_ending(link, key):  # not even that ends it: it waits in the kernel
            self._stuck.add((link.node, key))
            link.close()
            self._supervisor_gone(link)

    def _suspend(self, here: _NodeHere, action: decided.SuspendStep) -> None:
        self._order(here, action.key, control.Suspend(action.resume, action.grace_seconds))

    def _attach(self, here: _NodeHere, action: decided.AttachToStep) -> None:
        self._order(here, action.key, control.Attach(action.io_address, action.io_key))

    def _notify(self, here: _NodeHere, action: decided.NotifyStep) -> None:
        self._order(here, action.key, control.Notify(action.message, action.to_client))

    def _send(self, here: _NodeHere, action: decided.Send) -> None:
        report = action.report
        if isinstance(report, StepFinished) and not report.ended_at:
            report = structs.replace(report, ended_at=self._clock.now())
        container = here.setup.container
        if container is not None and (
            isinstance(report, JobGone) or (isinstance(report, StepFinished) and report.job_gone)
        ):
            self._tasks.spawn_contained(self._remove_container(container, report), name="job.directories")
        else:
            self.reporter.send(report)

    async def _remove_container(self, container: Container, report: JobGone | StepFinished) -> None:
        """Remove the job's directories before reporting that the job is gone; large ones take a while."""
        try:
            job = (report.job_id, report.restart_count)
            await self._disk.run(lambda: container.remove(*job), seconds=_REMOVAL_SECONDS)
        except SpritzError as error:
            self._log.error("container.left", job_id=report.job_id, error=error.message)
        self.reporter.send(report)

    def _remove_spool(self, here: _NodeHere, action: decided.RemoveSpool) -> None:
        step = (here.machine.node, action.key)
        keeper = self._unstored.pop(step, None)
        if keeper is not None:
            keeper.order(control.Forget())
        written = step in self._written
        self._written.discard(step)
        self._unsynced.discard(step)
        # Not a directory whose record a supervisor may still write to.
        self._forget_spool(here, action.key, keep=written)

    def _forget_spool(self, here: _NodeHere, key: RunningStep, *, keep: bool = False) -> None:
        """Remove the step's spool; `keep`: the directory may serve another step."""
        try:
            if keep:
                here.spool.recycle(key)
            else:
                here.spool.forget(key)
        except OSError as error:  # the next daemon reports its end once more, which changes nothing
            self._log.error("spool.stuck", job_id=key.job_id, error=error)

    # Reports of supervisors

    def _reported(self, link: SupervisorLink, report: control.Report) -> None:
        here = self._nodes[link.node]
        starting = self._starting.pop((link.node, link.key), None) if self._starting else None
        if isinstance(report, control.NotForked):
            link.finished = True
            self._links.pop((link.node, link.key), None)
            link.close()
            self._supervisors.forget(link)
            if starting is not None:
                self._starting[link.node, link.key] = starting
                self._not_begun(here, starting, report.number)
        elif isinstance(report, control.Finished):
            self._finished(here, link, report)
        elif isinstance(report, control.Measured):
            link.measured(report)
        elif isinstance(report, control.Idle):
            self._supervisors.keep(link)
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(STARTED_DELAY_SECONDS, self._tell_started, link, link.key, report.at)

    def _not_begun(self, here: _NodeHere, starting: _Starting, number: int) -> None:
        """Try the step again: no supervisor could be forked, or it could not write the spool (`number`: the errno)."""
        error = OSError(number, os.strerror(number))
        if number not in UNWRITABLE:
            self._put_off(here, starting, error)
            return
        self._spool_failed(here, number)
        if here.spool.divert(starting.action.key):
            self._try(here, starting)
        else:
            self._give_up(here, starting, _reason(error))

    def _finished(self, here: _NodeHere, link: SupervisorLink, report: control.Finished) -> None:
        """Where the result is in the spool, the supervisor is free for another step before the controller has it."""
        step, result = (link.node, link.key), report.result
        if link.finished:
            return  # it tells again of a disk that fails, for which the node is drained already
        if report.disk_error:
            self._spool_failed(here, report.disk_error)
        link.finished = True
        self._links.pop(step, None)
        if report.unstored:
            self._unstored[step] = link
        else:
            link.order(control.Forget())
        if result.error:
            # The user of a batch job sees its exit code alone, where its output cannot be opened.
            self._log.error("step.failed", job_id=result.job_id, step=step_name(result.step_id), error=result.error)
        if report.unstored:
            self._carry_out(here, here.machine.noticed_end(link.key, result))
        else:
            self._result_written(here, link.key, result)

    def _result_written(self, here: _NodeHere, key: RunningStep, result: StepFinished) -> None:
        self._written.add((here.machine.node, key))
        self._unsynced.add((here.machine.node, key))
        if self._sync_timer is None:
            self._sync_timer = asyncio.get_running_loop().call_later(SYNC_SECONDS, self._sync_results)
        self._carry_out(here, here.machine.noticed_end(key, result))

    def _sync_results(self) -> None:
        """Sync results to disk that the controller has not stored, so that they survive a crash of this machine."""
        self._sync_timer = None
        nodes = {self._nodes[node].spool.directory(key): self._nodes[node] for node, key in self._unsynced}
        self._unsynced.clear()
        if nodes:
            self._tasks.spawn_contained(self._sync(nodes), name="results.sync")

    async def _sync(self, nodes: dict[str, _NodeHere]) -> None:
        """Sync the records in these directories. What fails is in memory until the controller has it."""
        for directory, error in (await self._disk.run(spools.sync, list(nodes))).items():
            self._spool_failed(nodes[directory], error.errno or errno.EIO)

    def _sweep_soon(self, here: _NodeHere) -> None:
        """Remove the cgroups of ending supervisors; once for all that end at about the same time."""
        for directory in here.setup.cgroups:
            if directory not in self._sweeps:
                self._sweeps.add(directory)
                asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep, directory)

    def _sweep(self, directory: str) -> None:
        self._sweeps.discard(directory)
        cgroup.sweep(directory)

    def _tell_started(self, link: SupervisorLink, key: RunningStep, started_at: float) -> None:
        if link.key is key and not link.finished and not link.closed:
            self._supervisors.started(link)
            self.reporter.send(
                StepStarted(
                    node=link.node,
                    job_id=key.job_id,
                    restart_count=key.restart_count,
                    step_id=key.step_id,
                    started_at=started_at,
                )
            )

    def _supervisor_gone(self, link: SupervisorLink) -> None:
        self._supervisors.forget(link)
        here = self._nodes[link.node]
        self._sweep_soon(here)
        if link.finished:
            return
        self._starting.pop((link.node, link.key), None)
        self._links.pop((link.node, link.key), None)
        written = spools.read_record(link.directory)
        if written is not None and written.result is not None:
            self._carry_out(here, here.machine.noticed_end(link.key, written.result))
            return
        self._log.error("supervisor.died", job_id=link.key.job_id, step_id=link.key.step_id, node=link.node)
        self._carry_out(here, here.machine.noticed_death(link.key))

    def _clean_up(self, here: _NodeHere, action: decided.CleanUp) -> None:
        self._tasks.spawn_contained(self._kill_leftovers(here, action.key), name="step.clean_up")

    async def _kill_leftovers(self, here: _NodeHere, key: RunningStep) -> None:
        directory = here.spool.directory(key)
        # Times tell only where nothing else does: a clock that was set forward makes every directory look old.
        unknown = key in here.of_unknown_boot
        booted = key in here.before_boot or (unknown and _is_of_an_earlier_boot(directory, self._clock.now()))
        began = not spools.give_up(directory)
        stuck = (here.machine.node, key) in self._stuck
        self._stuck.discard((here.machine.node, key))
        deadline = 0.0
        survivors: list[Process] = []
        wait = 0.02
        # No process outlives a boot.
        while began and not booted:
            # In a thread: another process's environment may have been swapped out.
            survivors = [*await self._search.run(leftovers, directory), *orphans(self._zygote.pid)]
            if stuck and (supervisor := await self._search.run(kill_supervisor, directory)) is not None:
                survivors.append(supervisor)
            now = self._clock.monotonic()
            # From the first look on: it may have waited, and no process is given up that nothing was sent to.
            deadline = deadline or now + max(here.setup.unkillable_seconds, 1)
            end(survivors)
            if not survivors or now > deadline:
                break
            await self._clock.sleep(wait)
            wait = min(1.0, wait * 2)
        if began and not booted:
            try:
                problems = await self._disk.run(end_containers, directory, seconds=_REMOVAL_SECONDS)
            except SpritzError as failed:
                problems = [failed.message]
            for problem in problems:
                self._log.error("step.container_left", job_id=key.job_id, step_id=key.step_id, problem=problem)
        if survivors:
            self._tell_unkillable(here, key, survivors)
        error = "slurmstepd was killed" if began else "slurmstepd did not start"
        if booted:
            error = "the node has booted"
        written = spools.read_record(directory)
        tasks = tuple(task.task_id for task in written.spec.tasks) if written is not None else ()
        now = self._clock.now()
        ended = here.machine.leftovers_gone(
            key, now, began=began, tasks=tasks, error=error, booted=booted, unkillable=bool(survivors)
        )
        self._carry_out(here, ended)

    def _tell_unkillable(self, here: _NodeHere, key: RunningStep, survivors: list[Process]) -> None:
        """Report processes that do not die, as a supervisor does. Source: slurm.conf(5) UnkillableStepProgram."""
        self._log.error(
            "step.unkillable",
            job_id=key.job_id,
            step_id=key.step_id,
            node=here.machine.node,
            processes=", ".join(filter(None, (processes.described(process.pid) for process in sorted(set(survivors))))),
        )
        program = here.setup.unkillable_program
        if program:
            variables = {
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "SLURM_JOB_ID": str(key.job_id),
                "SLURM_STEP_ID": "batch" if key.step_id == STEP_BATCH else step_name(key.step_id),
                "SLURMD_NODENAME": here.machine.node,
            }
            self._tasks.spawn_contained(self._run_unkillable(program, variables), name="unkillable")

    async def _run_unkillable(self, program: str, variables: Mapping[str, str]) -> None:
        failure = await run_programs((program,), variables, _REMOVAL_SECONDS)
        if failure is not None:
            self._log.error("unkillable.failed", **failure._asdict())

    # Prolog and Epilog

    def _run_prolog(self, here: _NodeHere, action: decided.RunProlog) -> None:
        self._tasks.spawn_contained(self._prolog(here, action), name="prolog")

    def _run_epilog(self, here: _NodeHere, action: decided.RunEpilog) -> None:
        self._tasks.spawn_contained(self._epilog(here, action), name="epilog")

    async def _prolog(self, here: _NodeHere, action: decided.RunProlog) -> None:
        job = action.job
        variables = hook_variables(job, "prolog_slurmd", here.setup.facts)
        container = here.setup.container
        failure = None
        if container is not None and container.init_script:
            failure = await self._begin_container(here, container, job, variables)
        if failure is None:
            failure = await self._run_hooks(here, self._hooks.prolog, variables, self._hooks.prolog_seconds)
        now = self._clock.now()
        if failure is None:
            self._carry_out(here, here.machine.prolog_ended(job, True, "", now))
            return
        self._log.error("prolog.failed", job_id=job.id, node=here.machine.node, **failure._asdict())
        error = f"Job prolog failed: {failure.problem}"
        self._carry_out(here, here.machine.prolog_ended(job, False, error, now))
        names = job.allocation.names if job.allocation is not None else ()
        if job.has_script and names[:1] == (here.machine.node,):
            await self._tell_in_output(here, job, f"slurmd: error: {error}")

    async def _tell_in_output(self, here: _NodeHere, job: Job, line: str) -> None:
        """Append a line to the batch job's standard error, as the user. Nothing else tells the user why it was held."""
        path = batch_streams(job, here.setup.host or here.setup.facts.name).stderr
        runner = (job.spec.uid, job.spec.gid, job.spec.groups or (job.spec.gid,)) if os.geteuid() == 0 else None
        words = ("-c", 'printf "%s\\n" "$1" >> "$0"', path, line)
        failure = await run_programs(("/bin/sh",), {}, OUTPUT_SECONDS, words, runner=runner)
        if failure is not None:
            self._log.verbose("prolog.not_told", job_id=job.id, path=path, **failure._asdict())

    async def _begin_container(
        self, here: _NodeHere, container: Container, job: Job, variables: Mapping[str, str]
    ) -> Failure | None:
        """Make the job's directories and run InitScript. Returns the failure, or None."""
        home = container.home(job.id, job.restart_count)
        try:
            container.make(job.id, job.restart_count, job.spec.uid, job.spec.gid)
        except OSError as error:
            return Failure(f"{error.filename}: {error.strerror}")
        environment = {**variables, "SLURM_JOB_MOUNT_SRC": home}
        return await self._run_hooks(here, (container.init_script,), environment, self._hooks.prolog_seconds)

    async def _run_hooks(
        self, here: _NodeHere, programs: tuple[str, ...], variables: Mapping[str, str], seconds: float
    ) -> Failure | None:
        if not self._hooks.serial:
            return await run_programs(programs, variables, seconds)
        async with here.serial:
            return await run_programs(programs, variables, seconds)

    async def _epilog(self, here: _NodeHere, action: decided.RunEpilog) -> None:
        job = action.job
        variables = hook_variables(job, "epilog_slurmd", here.setup.facts)
        failure = await self._run_hooks(here, self._hooks.epilog, variables, self._hooks.epilog_seconds)
        if failure is not None:
            self._log.error("epilog.failed", job_id=job.id, node=here.machine.node, **failure._asdict())
        self._carry_out(here, here.machine.epilog_ended(job, failure is None))

    # Acknowledgements

    def _acknowledged(self, report: Struct) -> None:
        here = self._nodes.get(getattr(report, "node", ""))
        if here is not None and isinstance(report, StepFinished):
            self._carry_out(here, here.machine.acknowledged(report))
            if report.step_id == STEP_BATCH and self._log.enabled("debug"):
                self._log.debug("job.reported", job_id=report.job_id)


def _has_prolog(hooks: Hooks, setup: NodeSetup) -> bool:
    """Whether a program runs before the first step of a job."""
    return bool(hooks.prolog) or bool(setup.container is not None and setup.container.init_script)


def _is_of_an_earlier_boot(directory: str, now: float) -> bool:
    """Whether this spool directory was last written before the machine booted, or its container started."""
    try:
        return os.stat(directory).st_mtime < now - uptime_seconds()
    except OSError:
        return False


def _reason(error: OSError | ValueError | LookupError) -> str:
    """Without Python's error number, as users read it."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
