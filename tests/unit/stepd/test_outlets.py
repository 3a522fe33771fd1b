"""Files that do not take what is written to them: no supervisor waits, and nothing that can be written is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.model.node_daemon.reports import TaskEnd
from spritz.stepd import control, spec
from spritz.stepd.reactor import Reactor
from spritz.stepd.streams import outlet
from spritz.stepd.streams.outlet import Outlet, is_local

from .conftest import Running, TaskSpec, Zygote, wait_until

KILLED = TaskEnd(0, signal.SIGKILL)


class Fifo:
    """A FIFO that is open for reading, and that `fill` leaves without any room."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self.reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def fill(self) -> None:
        writer = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        for size in (4096, 1):
            try:
                while True:
                    os.write(writer, b"x" * size)
            except BlockingIOError:
                continue
        os.close(writer)

    def read(self) -> bytes:
        """All that is in it now."""
        read = b""
        try:
            while data := os.read(self.reader, 1 << 20):
                read += data
        except BlockingIOError:
            pass
        return read


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Fifo]:
    made = Fifo(tmp_path / "fifo")
    yield made
    os.close(made.reader)


def processes_of(running: Running) -> list[str]:
    """Names of the supervisor's children."""
    text = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text()
    return [Path(f"/proc/{pid}/comm").read_text().strip() for pid in text.split()]


@pytest.mark.slow
def test_a_step_whose_output_is_a_full_fifo_ends_when_told(zygote: Zygote, fifo: Fifo) -> None:
    running = zygote.batch("#!/bin/sh\nexec sleep 1000\n", fifo.path)
    running.started()
    fifo.fill()
    running.order(control.Notify("a word"))
    running.order(control.Terminate("the end", 0.0))
    assert running.result().tasks == (KILLED,)
    running.order(control.Forget())
    wait_until(lambda: not Path(f"/proc/{running.pid}").exists(), "the supervisor ends, with what could not write")


def test_what_a_full_fifo_did_not_take_is_in_it_once_it_is_read(zygote: Zygote, fifo: Fifo) -> None:
    running = zygote.batch("#!/bin/sh\nexec sleep 1000\n", fifo.path)
    running.started()
    fifo.fill()
    for number in range(3):
        running.order(control.Notify(f"word {number}"))
    wait_until(lambda: outlet.NAME in processes_of(running), "a process writes")
    read = b""

    def everything() -> bool:
        nonlocal read
        read += fifo.read()
        return b"word 2\n" in read

    wait_until(everything, "all words arrive")
    assert read.strip(b"x") == b"".join(b"slurmstepd: word %d\n" % number for number in range(3))
    running.order(control.Terminate("", 0.0))
    assert running.result().tasks == (KILLED,)
    running.order(control.Forget())
    assert isinstance(running.report(), control.Idle), "nothing of the step is left: the supervisor can do another"


def test_more_words_than_a_full_fifo_could_ever_take_are_dropped(zygote: Zygote, fifo: Fifo) -> None:
    running = zygote.batch("#!/bin/sh\nexec sleep 1000\n", fifo.path)
    running.started()
    fifo.fill()
    for _ in range(100):
        running.order(control.Notify("w" * 50_000))
    running.order(control.Measure())
    while not isinstance(running.report(), control.Measured):
        pass
    status = Path(f"/proc/{running.pid}/status").read_text()
    assert int(status.split("VmData:")[1].split()[0]) < 100_000
    running.order(control.Terminate("", 0.0))
    assert running.result().tasks == (KILLED,)


@pytest.mark.parametrize("read", [True, False])
def test_labelled_lines_wait_for_a_fifo_and_not_for_ever(zygote: Zygote, fifo: Fifo, read: bool) -> None:
    """`srun --label` with a file: the supervisor writes what tasks write."""
    lines = 20_000
    script = f"i=0; while test $i -lt {lines}; do echo 1234567890123456789012345678901234567890; i=$((i+1)); done"
    task = TaskSpec(0, ("sh", "-c", script), (), (), spec.NOTHING, str(fifo.path), spec.NOTHING)
    running = zygote.launch(tasks=(task,), labelled_tasks=12)
    running.started()
    if not read:
        wait_until(lambda: outlet.NAME in processes_of(running), "a process writes")
        running.order(control.Terminate("", 0.0))
        assert running.result().tasks == (KILLED,)
        return
    received = b""

    def everything() -> bool:
        nonlocal received
        received += fifo.read()
        return received.count(b"\n") == lines

    wait_until(everything, "all lines arrive")
    assert received == b" 0: 1234567890123456789012345678901234567890\n" * lines
    assert running.result().tasks == (TaskEnd(0, 0),)


def test_a_program_that_cannot_be_started_is_told_to_no_full_fifo(zygote: Zygote, fifo: Fifo) -> None:
    fifo.fill()
    task = TaskSpec(0, ("/nowhere/at/all",), (), (), spec.NOTHING, str(fifo.path), str(fifo.path))
    assert zygote.launch(tasks=(task,)).result().tasks == (TaskEnd(0, 2 << 8),)


@pytest.fixture
def loop() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


def test_a_regular_file_is_written_at_once_and_without_a_process(loop: Reactor, tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    if not is_local(descriptor):
        pytest.skip("not on a local disk")
    made = Outlet(loop, descriptor, "1.0")
    made.say(b"line\n")
    assert ((tmp_path / "file").read_bytes(), made.pid) == (b"line\n", 0)
    made.close()
    made.say(b"more\n")
    assert (tmp_path / "file").read_bytes() == b"line\n"
    os.close(descriptor)


def test_a_file_that_refuses_is_noted_once(loop: Reactor, capfd: pytest.CaptureFixture[str]) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    made = Outlet(loop, descriptor, "1.0")
    made.say(b"line\n")
    assert made.pid
    os.waitpid(made.pid, 0)
    made.reaped()
    made.say(b"line\n")
    made.kill()
    os.close(descriptor)
    assert capfd.readouterr().err == 'slurmstepd: error: output.lost label=1.0 error="No space left on device"\n'


def test_a_daemon_that_does_not_read_holds_up_no_step(zygote: Zygote, tmp_path: Path) -> None:
    running = zygote.batch("#!/bin/sh\nexec sleep 1000\n", tmp_path / "out")
    pid = running.started().pids[0]
    running.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    for _ in range(5000):
        running.order(control.Measure())
    running.order(control.Terminate("", 0.0))
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the task ends")
    assert running.result().tasks == (KILLED,)


LOG = """
import os
from spritz.stepd.notes import note
reader, writer = os.pipe2(os.O_NONBLOCK)
try:
    while True: os.write(writer, b"x" * 4096)
except BlockingIOError: pass
os.set_blocking(writer, True)
os.dup2(writer, 2)
note("lost")
os.set_blocking(reader, False)
os.read(reader, 8192)
note("y" * 10_000)
read = b""
try:
    while data := os.read(reader, 65536): read += data
except BlockingIOError: pass
print(read.strip(b"x") == b"y" * 4095 + b"\\n")
os.close(reader)
note("nobody reads")
file = os.open("/dev/full", os.O_WRONLY)
os.dup2(file, 2)
note("the disk is full")
print("done")
"""


def test_a_log_that_takes_nothing_holds_up_and_ends_nobody() -> None:
    found = subprocess.run([sys.executable, "-c", LOG], capture_output=True, text=True, timeout=100, check=True)
    assert found.stdout == "True\ndone\n"
