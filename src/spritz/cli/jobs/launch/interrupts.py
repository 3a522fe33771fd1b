"""Signals to srun and salloc, handled in the reactor's loop instead of in signal handlers.

Source: srun(1) SIGNALS AND ESCAPE SEQUENCES; the effect of each follows Slurm 22.05 (`srun_job.c`, `allocate.c`).
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from spritz.cli.jobs.launch.run import StepRun
    from spritz.stepd.reactor import Reactor

#: Signals that srun handles. SIGTSTP keeps its default: it stops srun, and the tasks continue.
CAUGHT = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGCONT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
_FORWARDED = (signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)
_AGAIN_SECONDS = 1.0


class Interrupts:
    """Catches signals and calls `handler(number)` from the reactor. The command replaces `handler` in each phase."""

    def __init__(self, reactor: Reactor, handler: Callable[[int], None]) -> None:
        self.handler = handler
        self.on_child: Callable[[], None] = lambda: None
        self._pending: list[int] = []
        reactor.on_child = self._deliver
        for number in CAUGHT:
            signal.signal(number, self._note)
        # With SIGTTIN ignored, reads fail with EIO: without a shell, nothing could continue a stopped srun.
        signal.signal(signal.SIGTTIN, signal.SIG_IGN)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pending.append(number)

    def _deliver(self) -> None:
        while self._pending:
            self.handler(self._pending.pop(0))
        self.on_child()


def restore_in_child() -> None:
    """Restore the default actions in a child before it calls exec."""
    for number in (*CAUGHT, signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)


class StepSignals:
    """The handler of signals while a step runs."""

    def __init__(self, run: StepRun, *, on_resize: Callable[[], None] = lambda: None) -> None:
        self._run = run
        self._on_resize = on_resize
        self._interrupted_at = -_AGAIN_SECONDS
        self.forced = 0

    def __call__(self, number: int) -> None:
        run = self._run
        if number == signal.SIGINT:
            self._interrupt()
        elif number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            self._force(signal.SIGKILL)
        elif number == signal.SIGCONT:
            run.inform("got SIGCONT")
        elif number == signal.SIGWINCH:
            self._on_resize()
        elif number in _FORWARDED:
            run.send_signal(number)

    def _interrupt(self) -> None:
        run = self._run
        now = time.monotonic()
        again = now - self._interrupted_at < _AGAIN_SECONDS
        self._interrupted_at = now
        if not again and run.settings.disable_status and not run.settings.quit_on_interrupt:
            run.inform(f"sending Ctrl-C to {run.name}")
            run.send_signal(signal.SIGINT)
        elif not again and not run.settings.quit_on_interrupt and not self.forced:
            run.inform("interrupt (one more within 1 sec to abort)")
            run.tell_states()
        else:
            if not self.forced:
                run.inform(f"sending Ctrl-C to {run.name}")
                run.endings.interrupted = True
                run.send_signal(signal.SIGINT)
            # Differs: Slurm kills the tasks at once; here they have KillWait to clean up.
            self._force(0)

    def _force(self, number: int) -> None:
        self.forced += 1
        # Otherwise srun would read no more from the supervisors, and not learn that the tasks have ended.
        self._run.give_up_output()
        if self.forced == 1:
            self._run.inform("forcing job termination")
            self._run.abort(number)
        else:
            self._run.kill_tasks(0)
