"""Job control: served commands at a terminal, under a shell that has it.

The shell is the system's `sh`, interactive, on a pseudo-terminal of its own. See termios(3), credentials(7).
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.launched import Launched

_SECONDS = 100.0


class Shell:
    """An interactive shell, or another program, on a terminal of its own. Everything it prints is in `text`."""

    def __init__(self, environment: dict[str, str], cwd: Path, argv: Sequence[str] = ("sh", "-i")) -> None:
        self._master, slave = pty.openpty()
        # What is typed is not to be taken for what is printed.
        settings = termios.tcgetattr(slave)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**environment, "PS1": "", "ENV": "", "TERM": "dumb"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.text = ""

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._master)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def type(self, keys: str) -> None:
        """As from the keyboard."""
        os.write(self._master, keys.encode())

    def expect(self, wanted: str) -> str:
        """Wait for this text after what was expected before; returns what came in between."""
        deadline = time.monotonic() + _SECONDS
        while wanted not in self.text:
            if not select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"no {wanted!r} in {self.text!r}")
            self.text += os.read(self._master, 4096).decode(errors="replace")
        before, _, self.text = self.text.partition(wanted)
        return before

    def run(self, line: str, wanted: str) -> str:
        """A line to the shell, and what it leads to."""
        self.type(line + "\n")
        return self.expect(wanted)


@pytest.fixture
def shell(launched: Launched, tmp_path: Path) -> Iterator[Shell]:
    """A server is warm, and the shell finds the commands."""
    launched.warm()
    with Shell(launched.environment(SLURM_CONF="/nowhere/slurm.conf"), tmp_path) as found:
        yield found


def child_of_call(launched: Launched) -> int:
    """The server's child that has a terminal; 0 if there is none."""
    server = launched.servers()[-1]
    for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split():
        try:
            if os.readlink(f"/proc/{pid}/fd/0").startswith("/dev/pts/"):
                return int(pid)
        except OSError:
            pass
    return 0


def launcher_of(shell: Shell) -> int:
    """The shell's one child."""
    pid = shell.process.pid
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(found[0]) if found else 0


def state_of(pid: int) -> str:
    """As ps shows it; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.mark.parametrize("served", [True, False])
def test_ctrl_c_ends_a_loop_of_commands_too(launched: Launched, shell: Shell, served: bool) -> None:
    """`sbatch` waits for a script to be typed. A shell goes on to the next turn after an exit, whatever its status."""
    before = launched.direct_calls()
    shell.run(f"export SPRITZ_NO_SERVER={'' if served else 1}; echo $((6 * 7))", "42")
    shell.type("while :; do sbatch; echo and again; done\n")
    call = until(lambda: child_of_call(launched) if served else launcher_of(shell), "it has begun")
    until(lambda: state_of(call) == "S", "it reads")
    shell.type("\x03")
    until(lambda: not launcher_of(shell), "it is interrupted, and the loop with it")
    assert "and again" not in shell.run("echo status=$?", "status=130")
    assert (launched.direct_calls() == before) == served


@pytest.mark.parametrize("served", [True, False])
def test_ctrl_z_stops_nothing_where_no_shell_could_continue_it(
    launched: Launched, tmp_path: Path, served: bool
) -> None:
    """The command is its terminal's first process, as under `ssh -t`."""
    launched.warm()
    environment = launched.environment(SLURM_CONF="/nowhere/slurm.conf", SPRITZ_NO_SERVER="" if served else "1")
    with Shell(environment, tmp_path, [str(launched.directory / "sbatch")]) as alone:
        call = until(lambda: child_of_call(launched) if served else alone.process.pid, "it has begun")
        until(lambda: state_of(call) == "S", "it reads")
        alone.type("\x1a")
        alone.run("#!/bin/sh\ntrue\n\x04", "/nowhere/slurm.conf")


def test_ctrl_z_stops_and_fg_continues(launched: Launched, shell: Shell) -> None:
    shell.type("sbatch\n")
    child = until(lambda: child_of_call(launched), "it has begun")
    shell.type("\x1a")
    until(lambda: state_of(child) == "T", "the command stops")
    shell.run("jobs", "topped")
    shell.type("fg\n")
    until(lambda: state_of(child) == "S", "the command goes on")
    shell.type("#!/bin/sh\ntrue\n\x04")
    shell.expect("/nowhere/slurm.conf")
    shell.run("echo status=$?", "status=1")


def test_reading_the_terminal_in_the_background_stops_the_job(launched: Launched, shell: Shell) -> None:
    shell.type("sbatch &\n")
    until(lambda: child_of_call(launched), "it has begun")
    until(lambda: state_of(launcher_of(shell)) == "T", "the job is stopped")
    shell.run("jobs", "topped")
    shell.run("echo typed", "typed")
    shell.type("fg\n")
    shell.type("#!/bin/sh\ntrue\n\x04")
    shell.expect("/nowhere/slurm.conf")


@pytest.mark.parametrize("served", [True, False])
@pytest.mark.parametrize(
    "line",
    [
        "sh -c 'set -m; (while kill -0 $$ 2>/dev/null; do sleep 0.01; done; sbatch; echo status=$?) &'",
        "env --ignore-signal=TTIN sbatch & wait %1; echo status=$?",
    ],
    ids=["orphaned", "ignoring"],
)
def test_reading_the_terminal_is_an_error_where_nothing_could_be_stopped(
    launched: Launched, shell: Shell, served: bool, line: str
) -> None:
    """In the background: a group that lost its shell, and a caller that ignores SIGTTIN. A read gives EIO there, which
    sbatch takes for the end of the script, as Slurm's does."""
    calls = launched.direct_calls()
    shell.run(f"export SPRITZ_NO_SERVER={'' if served else 1}; echo $((6 * 7))", "42")
    assert "Batch script is empty!" in shell.run(line, "status=1")
    assert (launched.direct_calls() == calls) == served


def test_a_step_is_interrupted_as_without_a_server(
    launched: Launched, make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster(nodes=1).start()
    launched.warm()
    before = launched.direct_calls()
    with Shell(launched.environment(SLURM_CONF=str(cluster.conf)), tmp_path) as shell:
        shell.type("srun sh -c 'echo at work; exec sleep 1000'; echo status=$?\n")
        shell.expect("at work")
        shell.type("\x03")
        shell.expect("one more within 1 sec to abort")
        shell.type("\x03")
        shell.type("\x03")
        shell.expect("status=")
        shell.type("srun cat; echo status=$?\n")
        until(lambda: child_of_call(launched), "it has begun")
        shell.run("typed words", "typed words")
        shell.type("\x04")
        shell.expect("status=0")
        # In the background it leaves the terminal alone, and its output comes.
        shell.run("srun sh -c 'echo from the background; sleep 1000' &", "from the background")
        shell.run("echo mine", "mine")
        shell.run("kill %1; wait %1; echo status=$?", "status=")
    assert launched.direct_calls() == before
