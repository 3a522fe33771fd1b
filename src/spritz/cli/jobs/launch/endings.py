"""The ends of a step's tasks: srun's messages and exit status.

Source: srun(1) EXIT STATUS; texts and the choice among several statuses follow Slurm 22.05 (`_task_finish`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.ranges import format_ids
from spritz.notation.signals import signal_description
from spritz.stepd import protocol

if TYPE_CHECKING:
    from collections.abc import Callable

RUNNING, EXITED, ABNORMAL = "running", "exited", "exited abnormally"


class Endings:
    """Collects the ends of tasks. Equal ends on a node that arrive together share a message.

    `say` prints an error line. `once`: the same exit code is printed only once (SLURM_SRUN_REDUCE_TASK_EXIT_MSG).
    `verbose` prints a message for every end, with the step's `name` (-v).
    """

    def __init__(
        self,
        tasks: int,
        say: Callable[[str], None],
        *,
        once: bool = False,
        verbose: Callable[[str], None] | None = None,
        name: str = "",
    ) -> None:
        self.states: dict[int, str] = {}
        #: wait status that decides the exit status: the highest signal, else the highest code
        self.worst = 0
        self.ended = 0
        self.first_abnormal = False
        #: a task, or a process of its own, was killed for memory
        self.out_of_memory = False
        #: srun itself ended the tasks: do not report ends by signal
        self.interrupted = False
        #: another part reports the ends of tasks
        self.silent = False
        self._tasks = tasks
        self._say = say
        self._once = once
        self._verbose = verbose
        self._name = name
        self._told: set[int] = set()
        self._pending: dict[tuple[str, int, int], list[int]] = {}

    @property
    def all_ended(self) -> bool:
        return self.ended >= self._tasks

    @property
    def pending(self) -> bool:
        """Whether messages are delayed in order to combine them with further ends of the same kind."""
        return bool(self._pending)

    def started(self, tasks: tuple[int, ...]) -> None:
        """Note that these tasks have started."""
        for task in tasks:
            self.states.setdefault(task, RUNNING)

    def note(self, node: str, task: int, status: int, flags: int) -> None:
        """Note that a task has ended with this wait status. Out of memory counts as exit code 1, as in Slurm."""
        if self.states.get(task, RUNNING) is not RUNNING:
            return
        if flags & protocol.EXIT_OOM:
            self.out_of_memory = True
            status = 1 << 8
        self.ended += 1
        self.states[task] = ABNORMAL if status else EXITED
        self.first_abnormal = self.first_abnormal or bool(status)
        if status or self._verbose is not None:
            self._pending.setdefault((node, status, flags), []).append(task)
        if status & 0x7F:
            self.worst = max(self.worst, status, key=lambda status: status & 0x7F)
        elif not self.worst & 0x7F:
            self.worst = max(self.worst, status)

    def give_up(self, tasks: tuple[int, ...], status: int) -> None:
        """Count tasks whose end will not be reported as ended with this wait status. Prints no message about them."""
        for task in tasks:
            if self.states.get(task, RUNNING) is RUNNING:
                self.ended += 1
                self.states[task] = ABNORMAL
                self.first_abnormal = True
                self.worst = self.worst or status

    def lose(self, tasks: tuple[int, ...]) -> None:
        """Expect no end of these tasks of a failed node, without which the step goes on. srun's exit status is that of
        the others, as in Slurm.
        """
        for task in tasks:
            if self.states.get(task, RUNNING) is RUNNING:
                self._tasks -= 1
                self.states[task] = ABNORMAL

    def flush(self) -> None:
        """Print messages that were held back so that tasks of a node with the same status share a line."""
        pending, self._pending = self._pending, {}
        for (node, status, flags), tasks in pending.items():
            if self._verbose is not None:
                _tell_notification(self._verbose, self._name, status, tasks)
                if not status:
                    self._verbose(f"launch/slurm: _task_finish: {node}: {_which(tasks)}: Completed")
                    continue
            if self.silent or (self.interrupted and status & 0x7F):
                continue
            if self._once and status in self._told:
                continue
            self._told.add(status)
            self._say(f"{node}: {_which(tasks)}: {describe(status, flags)}")

    def exit_status(self) -> int:
        """srun's exit status: 128 + signal, or the highest exit code."""
        return 128 + (self.worst & 0x7F) if self.worst & 0x7F else self.worst >> 8

    def overview(self) -> list[str]:
        """A line such as `tasks 0-1: running` for each state of a task."""
        lines = []
        for state in (RUNNING, EXITED, ABNORMAL):
            tasks = [task for task, task_state in self.states.items() if task_state is state]
            if tasks:
                lines.append(f"{_which(tasks)}: {state}")
        return lines


def _tell_notification(verbose: Callable[[str], None], name: str, status: int, tasks: list[int]) -> None:
    """Print the message of -v about tasks that ended with this wait status."""
    count = f"{len(tasks)} task{'' if len(tasks) == 1 else 's'}"
    verbose(
        f"launch/slurm: _task_finish: Received task exit notification for {count} of {name} (status=0x{status:04x})."
    )


def _which(tasks: list[int]) -> str:
    return f"task {tasks[0]}" if len(tasks) == 1 else f"tasks {format_ids(tasks)}"


def describe(status: int, flags: int = 0) -> str:
    """A wait status in words: `Exited with exit code 3`, `Killed`, `Segmentation fault (core dumped)`."""
    if flags & protocol.EXIT_OOM:
        return "Out Of Memory"
    if status & 0x7F:
        return signal_description(status & 0x7F) + (" (core dumped)" if status & 0x80 else "")
    return f"Exited with exit code {status >> 8}"
