"""What the steps of a simulated machine do: tasks that run for a while, heed signals, and end as the workload says.

A batch script says it in a line, a step in its arguments:

    #SIM seconds=12.5 exit=0                    in a script
    sim seconds=3 exit=1                        as argv

seconds       how long each task runs, unless it is stopped (1)
exit, signal  how it ends: its exit code, or the signal that it sends to itself
only          tasks that end so, by rank; of a script, by array task id. The others exit with 0: `only=0,3`
ignore        signals that do nothing, as numbers: `ignore=15,10`
fail_node     names of nodes, on which tasks exit with 1 at once: `fail_node=n3,n4`
start         seconds that their supervisor needs before they run, as with a slow file server
undying       seconds from SIGKILL to the end, as of a process that waits in the kernel

Tasks are independent of the supervisor that started them: they outlive it, and end with their machine.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spritz.model.ids import STEP_EXTERN
from spritz.model.job.record import Sharing
from spritz.model.resources import mask_ids, mask_of
from spritz.node import stored_job
from spritz_testing.daemons.history import Began, Ended, Signalled

if TYPE_CHECKING:
    from spritz.stepd.spec import SupervisorSpec, TaskSpec
    from spritz_testing.daemons.node.nodes import NodeMachine
    from spritz_testing.daemons.node.supervisors import SimulatedSupervisor
    from spritz_testing.daemons.system.world import Event

#: Ticks a second of the kernel's clock.
TICKS = 100

#: Signals whose default is not the end of the process.
_HARMLESS = frozenset((signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT))
_STOPS = frozenset((signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU))

#: Seconds from a deadly signal to the end of a task.
_DEATH_SECONDS = 0.001, 0.05

#: Seconds that a task waits in the kernel before it dies of a signal other than SIGKILL, where none dies at once.
_WAIT_SECONDS = 0.5, 40.0

#: Seconds until a task fails on a node where all do.
_FAILURE_SECONDS = 0.05

_LINE = re.compile(rb"^#SIM[ \t]+(.*)$", re.MULTILINE)


class Behaviour(Struct, frozen=True, kw_only=True):
    """What the tasks of a step do (see above)."""

    seconds: float = 1.0
    exit: int = 0
    signal: int = 0
    ignore: frozenset[int] = frozenset()
    #: None: all
    only: frozenset[int] | None = None
    fail_node: frozenset[str] = frozenset()
    start: float = 0.0
    undying: float = 0.0


def behaviour_of(spec: SupervisorSpec) -> Behaviour:
    """From the script, or from the arguments of the first task. What contains a job's processes runs until its end."""
    if spec.step_id == STEP_EXTERN:
        return Behaviour(seconds=float("inf"))
    if spec.batch:
        found = _LINE.search(spec.script)
        return _parse(found[1].decode() if found else "")
    argv = spec.tasks[0].argv
    return _parse(" ".join(argv[1:]) if argv[:1] == ("sim",) else "")


def _parse(text: str) -> Behaviour:
    given: dict[str, Any] = {}
    for word in text.split():
        key, _, value = word.partition("=")
        if key in ("seconds", "start", "undying"):
            given[key] = float(value)
        elif key in ("exit", "signal"):
            given[key] = int(value)
        elif key in ("ignore", "only"):
            given[key] = frozenset(map(int, value.split(",")))
        elif key == "fail_node":
            given[key] = frozenset(value.split(","))
        # other words are the workload's own
    return Behaviour(**given)


class Task:
    """One process. Its time stands still while it is stopped, or its machine hangs."""

    def __init__(self, step: StepRun, spec: TaskSpec) -> None:
        self.step = step
        self.spec = spec
        self.pid = step.machine.world.next_pid()
        self.began_at = step.machine.world.now
        #: wait status; None while it runs
        self.status: int | None = None
        self._fails = step.fails
        self._left = _FAILURE_SECONDS if self._fails else step.behaviour.seconds
        self._since = 0.0
        self._end: Event | None = None
        self._death: Event | None = None
        #: the signal of that
        self._dies_of = 0
        self.is_stopped = False
        #: seconds that it ran
        self.ran_seconds = 0.0
        self.go_on()

    @property
    def started_ticks(self) -> int:
        """As /proc shows it, from the machine's boot."""
        return int((self.began_at - self.step.machine.host.booted_at) * TICKS) + 1

    def go_on(self) -> None:
        """Its time goes on, unless it is stopped."""
        machine = self.step.machine
        waits = self.is_stopped or machine.hangs or self._dies_of == signal.SIGKILL
        if self._end is None and self.status is None and not waits:
            self._since = machine.world.now
            if self._left < float("inf"):
                self._end = machine.world.after(self._left, self._ended)

    def pause(self) -> None:
        """Its time stands still."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
            passed = self.step.machine.world.now - self._since
            self._left = max(0.0, self._left - passed)
            self.ran_seconds += passed

    def _ended(self) -> None:
        step, behaviour = self.step, self.step.behaviour
        number = step.job.array_task_id if step.spec.batch else self.spec.task_id
        if self._fails:
            self.end(1 << 8)
        elif behaviour.only is not None and number not in behaviour.only:
            self.end(0)
        else:
            self.end(behaviour.signal or behaviour.exit << 8)

    def signal(self, number: int) -> None:
        if self.status is not None:
            return
        if number == signal.SIGCONT:
            self.is_stopped = False
            self.go_on()
        elif number in _STOPS:
            self.is_stopped = True
            self.pause()
        elif number == signal.SIGKILL or (number not in self.step.behaviour.ignore and number not in _HARMLESS):
            self._die(number)

    def _die(self, number: int) -> None:
        machine = self.step.machine
        if self._death is not None and number != signal.SIGKILL:
            return
        seconds = machine.random.uniform(*_DEATH_SECONDS)
        waits = max(0.0, machine.undying_until - machine.world.now)
        if number == signal.SIGKILL:
            if self._death is not None and not (self.is_stopped and self._dies_of != number):
                return
            if self._death is not None:  # of a signal that it does not heed while it is stopped
                self._death.cancel()
            seconds += max(self.step.behaviour.undying, waits)
            self.pause()  # it does not come back to its program, however long the kernel keeps it
        elif waits:  # the kernel lets it go before long
            seconds += min(waits, machine.random.uniform(*_WAIT_SECONDS))
        self._dies_of = number
        self._death = machine.world.after(seconds, lambda: self._dies(number))

    def _dies(self, number: int) -> None:
        self._death = None
        machine = self.step.machine
        # A stopped process heeds no signal but SIGKILL; nothing runs on a machine that hangs.
        if machine.hangs or (self.is_stopped and number != signal.SIGKILL):
            self._death = machine.world.after(0.1, lambda: self._dies(number))
        else:
            self.end(number)

    def end(self, status: int) -> None:
        """It is over."""
        if self.status is not None:
            return
        self.pause()
        for event in (self._end, self._death):
            if event is not None:
                event.cancel()
        self.status = status
        self.step.task_ended(self)


class StepRun:
    """The processes of one step on one node: what the history knows of it."""

    def __init__(self, machine: NodeMachine, supervisor: SimulatedSupervisor, spec: SupervisorSpec, directory: str):
        self.machine = machine
        self.supervisor = supervisor
        self.spec = spec
        self.directory = directory
        self.behaviour = behaviour_of(spec)
        self.job = stored_job.unpack(spec)
        self.on_end: list[Callable[[StepRun], None]] = []
        self.tasks: list[Task] = []
        #: as the history has it, when its last process is gone
        self.end: Ended | None = None
        #: number of the zygote that its processes belong to, once their supervisor is gone
        self.adopted_by = 0

    def begin(self) -> None:
        """Start the tasks, and enter that."""
        self.machine.steps.append(self)
        self.machine.history.add(self._began())
        self.tasks = [Task(self, task) for task in self.spec.tasks]
        for told in list(self.machine.on_began):
            told(self)

    def _began(self) -> Began:
        spec, job = self.spec, self.job
        assert job.allocation is not None, "only jobs with an allocation are launched"
        share = next(share for share in job.allocation.nodes if share.node == spec.node)
        job_cpus = frozenset(mask_ids(mask_of(share.cpus)))
        bound = frozenset(cpu for task in spec.tasks for cpu in task.cpus)
        gres = ((gres.name, index) for gres in share.gres for index in mask_ids(mask_of(gres.indexes)))
        variables, words = _variables(spec), spec.tasks[0].argv
        return Began(
            at=self.machine.world.now,
            node=spec.node,
            job_id=spec.job_id,
            restart_count=spec.restart_count,
            step_id=spec.step_id,
            uid=spec.identity.uid,
            job_cpus=job_cpus,
            step_cpus=bound or job_cpus,
            gres=frozenset(gres),
            memory_mib=share.memory_mib,
            step_gres=frozenset(
                # Those that a step has not asked for are its job's, and all such steps have them.
                ("gpu", index)
                for index in _numbers(variables.get("SLURM_STEP_GPUS", ""))
                if "gpus=1" in words
            ),
            ports=_numbers(variables.get("SLURM_STEP_RESV_PORTS", "")),
            call=next((word for word in words if word.startswith("call=")), ""),
            shares=job.spec.sharing is Sharing.OVERSUBSCRIBE or "overlap=1" in words,
            script=spec.script.decode(errors="replace"),
            environment=variables,
            task_ids=tuple(task.task_id for task in spec.tasks),
            array_job_id=job.array_job_id,
            array_task_id=job.array_task_id,
            het_job_id=job.het_job_id,
            taken_at=self.supervisor.taken_at,
        )

    @property
    def fails(self) -> bool:
        """Whether its tasks fail at once here."""
        is_users = self.spec.step_id != STEP_EXTERN
        return is_users and (self.machine.fails_jobs or self.spec.node in self.behaviour.fail_node)

    @property
    def is_running(self) -> bool:
        return any(task.status is None for task in self.tasks)

    def living(self) -> list[Task]:
        return [task for task in self.tasks if task.status is None]

    def signal(self, number: int, *, first_only: bool = False) -> None:
        """A signal for all tasks, or the first."""
        tasks = self.tasks[:1] if first_only else self.tasks
        tasks = [task for task in tasks if task.status is None]
        if not tasks:
            return
        spec = self.spec
        self.machine.history.add(
            Signalled(
                at=self.machine.world.now,
                node=spec.node,
                job_id=spec.job_id,
                restart_count=spec.restart_count,
                step_id=spec.step_id,
                number=number,
            )
        )
        for task in tasks:
            task.signal(number)

    def task_ended(self, task: Task) -> None:
        if not self.is_running:
            self._over(lost=False)
        self.supervisor.task_ended(self, task)

    def lose(self) -> None:
        """Its machine has lost power."""
        for task in self.tasks:
            if task.status is None:
                task.pause()
                task.status = signal.SIGKILL
        self._over(lost=True)

    def _over(self, *, lost: bool) -> None:
        """The last process is gone: the worst of the tasks' ends is the step's."""
        self.machine.steps.remove(self)
        spec = self.spec
        statuses = [task.status or 0 for task in self.tasks]
        self.end = Ended(
            at=self.machine.world.now,
            node=spec.node,
            job_id=spec.job_id,
            restart_count=spec.restart_count,
            step_id=spec.step_id,
            exit_code=max(status >> 8 for status in statuses),
            signal=max(status & 127 for status in statuses),
            lost=lost,
            untold=not lost and not self.supervisor.process.is_alive,
        )
        self.machine.history.add(self.end)
        for told in self.on_end:
            told(self)


def _variables(spec: SupervisorSpec) -> dict[str, str]:
    pairs = (entry.decode(errors="replace").partition("=") for entry in spec.environment)
    return {name: value for name, _, value in pairs}


def _numbers(text: str) -> tuple[int, ...]:
    """Of `0,2-4`."""
    numbers: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)
