"""`spritz top` on a real cluster: in a terminal of 80 by 24 without colours, and its snapshots."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable

import pytest

from spritz.extras import pip_install
from tests.e2e.cluster import BIN, PATIENCE_SECONDS, Cluster
from tests.e2e.commands import environment, lines, run

_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|P[^\x1b]*\x1b\\|.)")


class Terminal:
    """`spritz top` in a pseudo-terminal. What it draws is one long text: it is looked for in what has come since."""

    def __init__(self, cluster: Cluster, *words: str) -> None:
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            try:
                os.chdir(cluster.work)
                variables = {**environment(cluster), "TERM": "vt100"}
                os.execve(BIN / "spritz", ["spritz", "top", *words], variables)
            finally:
                os._exit(127)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.raw = b""

    def shows(self, text: str, since: int = 0) -> None:
        """Wait until it has drawn this."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in self.text(since):
            assert time.monotonic() < deadline, f"{text!r} was not drawn: {self.text(since)[-3000:]!r}"
            self._read(0.2)

    def text(self, since: int = 0) -> str:
        """What was drawn, without the terminal's sequences."""
        return _ESCAPES.sub(b"", self.raw[since:]).decode("utf-8", "replace")

    def _read(self, seconds: float) -> None:
        if select.select([self._terminal], [], [], seconds)[0]:
            try:
                self.raw += os.read(self._terminal, 65536)
            except OSError:  # the other end has been closed
                time.sleep(0.01)

    def press(self, keys: str) -> int:
        """Type; the place in `raw` from which the answer comes."""
        place = len(self.raw)
        os.write(self._terminal, keys.encode())
        return place

    def end(self) -> int:
        """Its exit status."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            self._read(0.02)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self._terminal)
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it does not end: {self.text()[-2000:]!r}")

    def kill(self) -> None:
        """Whatever it does."""
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def test_a_day_at_the_terminal(make_cluster: Callable[..., Cluster]) -> None:
    pytest.importorskip("textual")
    cluster = make_cluster(nodes=2).start()
    job = cluster.submit("echo first line; printf '\\033[31mred\\n'; sleep 1000", name="train")
    cluster.wait_state(job, "RUNNING")
    terminal = Terminal(cluster)
    try:
        terminal.shows("2 nodes  CPU 1/16")
        terminal.shows("train")
        terminal.shows("first line")
        # Nothing asks for this job: an event brings it.
        cluster.submit(name="later", hold=True)
        terminal.shows("later")
        terminal.shows("(JobHeldUser)")
        since = terminal.press("w")
        terminal.shows("running: since", since)
        since = terminal.press("c")
        terminal.shows(f"cancel? scancel {job}", since)
        terminal.press("y")
        terminal.shows(f"done: scancel {job}", since)
        cluster.wait_state(job, "CANCELLED")
        since = len(terminal.raw)
        cluster.kill_controller()
        terminal.shows("slurmctld does not answer", since)
        since = len(terminal.raw)
        cluster.start_controller()
        terminal.shows("1 waiting", since)
        # A terminal without colours is sent none (39 and 49 are its own).
        assert not re.search(rb"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7])[0-9;]*m", terminal.raw)
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.raw.rstrip().endswith(b"\x1b[?1049l") or b"\x1b[?1049l" in terminal.raw
    finally:
        terminal.kill()


def test_snapshots_and_terminals_that_cannot_be_drawn_on(cluster: Cluster) -> None:
    job = cluster.submit("sleep 1000", name="train\x1b[31m")
    cluster.wait_state(job, "RUNNING")
    text = run(cluster, "spritz", "top", "--once")
    assert text.returncode == 0, text.stderr
    assert "2 nodes (1 idle, 0 closed), CPUs 1/16" in lines(text.stdout)[0]
    assert b"\x1b" not in text.stdout
    assert b"train" in text.stdout
    told = json.loads(run(cluster, "spritz", "top", "--json", "state:running").stdout)
    assert [one["job"] for one in told["jobs"]] == [str(job)]
    assert told["sums"]["cpus_used"] == 1
    refused = run(cluster, "spritz", "top")
    assert (refused.returncode, lines(refused.stderr)) == (
        1,
        ["spritz: error: spritz top needs a terminal; --once and --json do without"],
    )
    wrong = run(cluster, "spritz", "top", "--once", "colour:red")
    assert wrong.returncode == 2
    cluster.kill_controller()
    away = run(cluster, "spritz", "top", "--once", SLURM_CONF=str(cluster.conf))
    assert away.returncode == 1


def test_without_textual_the_extra_is_named(cluster: Cluster) -> None:
    program = (
        "import sys; sys.modules['textual'] = None\n"
        "from spritz.cli.call.context import Context\n"
        "from spritz.cli.spritz import main\n"
        "context = Context.of_process('spritz')\n"
        "sys.exit(main(['top'], context))\n"
    )
    pid, terminal = pty.fork()
    if not pid:
        try:
            os.execve(sys.executable, [sys.executable, "-c", program], {**environment(cluster), "TERM": "xterm"})
        finally:
            os._exit(127)
    text = b""
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:
            break
        if not data:
            break
        text += data
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    os.close(terminal)
    assert pip_install("top").encode() in text
