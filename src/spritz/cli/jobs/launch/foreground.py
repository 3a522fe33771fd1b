"""salloc's command: a child process in its own process group, which gets the terminal if there is one.

Source: salloc(1); job control follows Slurm's salloc.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from spritz.cli.jobs.launch.interrupts import restore_in_child
from spritz.notation.octets import octets

if TYPE_CHECKING:
    from collections.abc import Callable

#: Signals with which a user ends a command: salloc does not report them as failures.
_WANTED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)


class Command:
    """Starts the command. Raises OSError if that fails. Calls `on_end` with the exit status for salloc."""

    def __init__(
        self, argv: list[str], environment: dict[str, str], directory: str, on_end: Callable[[int], None]
    ) -> None:
        self._on_end = on_end
        self._ended = False
        self._terminal = -1
        self._saved_group = os.getpgrp()
        self.pid = 0
        if os.isatty(0):
            self._terminal = os.dup(0)
            os.set_inheritable(self._terminal, False)
        path = find(argv[0], environment)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if not self.pid:
            self._become(path, argv, environment, directory, writer)
        os.close(writer)
        problem = os.read(reader, 64)
        os.close(reader)
        if problem:
            os.waitpid(self.pid, 0)
            number = int(problem)
            raise OSError(number, os.strerror(number))
        self._give_terminal(self.pid)

    def _become(self, path: str, argv: list[str], environment: dict[str, str], directory: str, writer: int) -> None:
        try:
            os.setpgid(0, 0)
            self._give_terminal(os.getpid())
            restore_in_child()
            try:
                os.chdir(octets(directory))
            except OSError as error:
                os.write(2, octets(f"salloc: error: Unable to chdir to {directory}: {error.strerror}\n"))
            os.execve(path, argv, {name: octets(value) for name, value in environment.items()})
        except OSError as error:
            os.write(writer, b"%d" % (error.errno or 1))
        finally:
            os._exit(1)

    def _give_terminal(self, group: int) -> None:
        """Make `group` the terminal's foreground, if our own process group is."""
        if self._terminal >= 0:
            try:
                if os.tcgetpgrp(self._terminal) in (self._saved_group, os.getpgrp()):
                    os.tcsetpgrp(self._terminal, group)
            except OSError:
                pass

    def take_terminal(self) -> None:
        """Make our process group the foreground again: the command has ended or stopped."""
        if self._terminal >= 0:
            try:
                os.tcsetpgrp(self._terminal, self._saved_group)
            except OSError:
                pass

    def send(self, number: int) -> None:
        """Send a signal to the command's process group, until the command has ended."""
        if self._ended:
            return  # it was waited for: the number may be another group's now
        try:
            os.killpg(self.pid, number)
        except OSError:
            pass

    def reap(self) -> None:
        """Handle SIGCHLD: the command ended or stopped."""
        while True:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if not pid:
                return
            if os.WIFSTOPPED(status):
                self._stopped()
                continue
            self._ended = True
            self.take_terminal()
            self._on_end(_exit_status(status))
            return

    def _stopped(self) -> None:
        """Ctrl-Z: stop salloc too, and continue the command once salloc continues."""
        if self._terminal < 0:
            return
        self.take_terminal()
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            os.tcsetpgrp(self._terminal, self.pid)
        except OSError:
            pass
        self.send(signal.SIGCONT)


def _exit_status(status: int) -> int:
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    return 0 if os.WTERMSIG(status) in _WANTED else 1


def find(name: str, environment: dict[str, str]) -> str:
    """The program's path, from PATH. Raises FileNotFoundError."""
    if "/" in name:
        return name
    for directory in environment.get("PATH", os.defpath).split(":"):
        path = os.path.join(directory or ".", name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(2, os.strerror(2))
