"""Whatever is wrong with the server, the command does its work, once, and in bounded time.

See docs/decisions/0168.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spritz.commandserver.reply import ENDED
from spritz.commandserver.request import PROTOCOL
from tests.e2e.cluster import is_alive, until
from tests.e2e.launched import Launched, child_of
from tests.e2e.socket_names import socket_name

VERSION = b"slurm 25.05.0\n"


def works_directly(launched: Launched) -> None:
    """A command ran by itself, with the right result."""
    before = len(launched.direct_calls())
    done = launched.run("squeue", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, VERSION, b"")
    assert launched.direct_calls()[before:] == ["squeue"]


def listening(launched: Launched, *, backlog: int = 5) -> socket.socket:
    """Something else in the server's place."""
    launched.socket.parent.mkdir(mode=0o700, exist_ok=True)
    found = socket.socket(socket.AF_UNIX)
    # Longer paths do not fit into an address.
    here = os.open(launched.socket.parent, os.O_PATH)
    found.bind(f"/proc/self/fd/{here}/{launched.socket.name}")
    os.close(here)
    found.listen(backlog)
    return found


def test_a_stale_socket(launched: Launched) -> None:
    listening(launched).close()
    works_directly(launched)
    launched.warm()


def test_a_file_in_place_of_the_socket(launched: Launched) -> None:
    launched.socket.parent.mkdir(mode=0o700)
    launched.socket.write_text("no socket")
    works_directly(launched)


def test_a_server_that_never_answers(impatient: Launched) -> None:
    with listening(impatient):
        works_directly(impatient)
    impatient.warm()


@pytest.mark.slow
def test_a_server_whose_queue_is_full(impatient: Launched) -> None:
    with listening(impatient, backlog=0):
        waiting = []
        here = os.open(impatient.socket.parent, os.O_PATH)
        for _ in range(3):
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            waiting.append(client)
            try:
                client.connect(f"/proc/self/fd/{here}/{impatient.socket.name}")
            except BlockingIOError:
                break
        os.close(here)
        works_directly(impatient)
        for client in waiting:
            client.close()


@pytest.mark.parametrize("answer", [b"", b"\0", b"garbage that is no reply at all\n" * 100, b"X" * 8])
def test_a_server_that_speaks_something_else(launched: Launched, answer: bytes) -> None:
    with listening(launched) as imposter:
        before = len(launched.direct_calls())
        process = subprocess.Popen(
            [launched.directory / "squeue", "--version"], stdout=subprocess.PIPE, env=launched.environment()
        )
        connection, _ = imposter.accept()
        connection.sendall(answer)
        connection.close()
        assert process.communicate(timeout=100)[0] == VERSION
        assert len(launched.direct_calls()) == before + 1


def test_a_stopped_server_is_replaced_in_time(impatient: Launched) -> None:
    """Its idle children are stopped too: nothing of it answers."""
    server = impatient.warm()
    children = [int(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
    for pid in (server, *children):
        os.kill(pid, signal.SIGSTOP)
    lock = impatient.socket.with_name(impatient.socket.name + ".lock")
    # As if it had been stopped for an hour.
    os.utime(lock, (time.time() - 3600, time.time() - 3600))
    works_directly(impatient)
    impatient.warm()
    assert len(impatient.servers()) == 2
    for pid in (*children, server):  # the server would end children that are stopped
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_a_server_that_was_busy_a_moment_ago_is_not_replaced(impatient: Launched) -> None:
    server = impatient.warm()
    children = [int(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
    for pid in (server, *children):
        os.kill(pid, signal.SIGSTOP)
    lock = impatient.socket.with_name(impatient.socket.name + ".lock")
    os.utime(lock)
    works_directly(impatient)
    for pid in (*children, server):  # the server would end children that are stopped
        os.kill(pid, signal.SIGCONT)
    impatient.warm()
    assert impatient.servers() == [server]


@pytest.mark.slow
def test_a_killed_server_is_followed_by_another(launched: Launched) -> None:
    server = launched.warm()
    children = [int(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
    os.kill(server, signal.SIGKILL)
    until(lambda: not any(map(is_alive, children)), "its idle children do not stay behind")
    works_directly(launched)
    assert launched.warm() != server


def running_command(launched: Launched) -> tuple[subprocess.Popen[bytes], int]:
    """A served command that waits for input, and its child."""
    server = launched.warm()
    process = subprocess.Popen(
        ["sbatch", "-o", "/dev/null"],
        executable=launched.directory / "sbatch",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=launched.environment(SLURM_CONF="/nowhere/slurm.conf"),
    )
    return process, child_of(process, server)


def test_a_server_killed_in_the_middle_of_a_call(launched: Launched) -> None:
    """The command goes on, and its launcher hears of its end from itself."""
    process, child = running_command(launched)
    os.kill(launched.servers()[-1], signal.SIGKILL)
    out, err = process.communicate(b"#!/bin/sh\ntrue\n", timeout=100)
    assert process.returncode == 1
    assert (out, err) == (
        b"",
        b"sbatch: error: Could not establish a configuration source\n"
        b"sbatch: no slurm.conf at /nowhere/slurm.conf; `spritz up` starts a cluster on this machine\n",
    )
    until(lambda: not is_alive(child), "the child ends")


def test_server_and_child_killed_in_the_middle_of_a_call(launched: Launched) -> None:
    """No process is left to report; the command is not run again."""
    process, child = running_command(launched)
    before = launched.direct_calls()
    os.kill(launched.servers()[-1], signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    assert (
        process.communicate(timeout=100)[1] == b"sbatch: error: the command server ended in the middle of this call\n"
    )
    assert process.returncode == 1
    assert launched.direct_calls() == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_command_that_dies_by_a_signal(launched: Launched, number: signal.Signals) -> None:
    process, child = running_command(launched)
    os.kill(child, number)
    process.communicate(timeout=100)
    assert process.returncode == -number


def test_a_server_that_is_told_to_end_looks_after_its_calls(launched: Launched) -> None:
    process, child = running_command(launched)
    server = launched.servers()[-1]
    os.kill(server, signal.SIGTERM)
    until(lambda: not launched.socket.exists(), "it takes no further calls")
    process.kill()
    process.communicate()
    until(lambda: not is_alive(child) and not is_alive(server), "command and server end")


def test_a_directory_that_others_may_enter_is_not_used(launched: Launched) -> None:
    (launched.runtime / "spritz").mkdir(mode=0o755)
    works_directly(launched)
    works_directly(launched)
    assert launched.servers() == []


def test_a_link_in_place_of_the_directory_is_not_followed(launched: Launched, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (launched.runtime / "spritz").symlink_to(elsewhere)
    works_directly(launched)
    assert launched.servers() == []
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_a_server_of_another_user_is_not_used(launched: Launched) -> None:
    """A socket in our directory whose server is another user: only root could have put it there."""
    script = (
        "import os, socket, sys, time\n"
        "os.setuid(12345)\n"
        "found = socket.socket(fileno=3)\n"
        "found.listen(5)\n"
        "print(1, flush=True)\n"
        "connection, _ = found.accept()\n"
        "print(len(connection.recv(1000)), flush=True)\n"
    )
    launched.socket.parent.mkdir(mode=0o700)
    found = socket.socket(socket.AF_UNIX)
    here = os.open(launched.socket.parent, os.O_PATH)
    found.bind(f"/proc/self/fd/{here}/{launched.socket.name}")
    os.close(here)
    # Root may write to any socket; the owner of the listening side is what counts.
    process = subprocess.Popen(
        [sys.executable, "-c", script.replace("fileno=3", f"fileno={found.fileno()}")],
        stdout=subprocess.PIPE,
        pass_fds=[found.fileno()],
    )
    found.close()
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    works_directly(launched)
    assert process.stdout.readline() == b"0\n", "it was told nothing"
    process.wait(100)
    process.stdout.close()


def test_strangers_get_nothing_from_the_server(launched: Launched) -> None:
    """Requests that are none, and connections that say nothing, cost a child and no more."""
    server = launched.warm()
    here = os.open(launched.socket.parent, os.O_PATH)
    for data in (b"", b"GET / HTTP/1.0\r\n\r\n" * 30, PROTOCOL, PROTOCOL + b"\xff" * 400, PROTOCOL + b"\0" * 400):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(40)
            client.connect(f"/proc/self/fd/{here}/{launched.socket.name}")
            try:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                while said := client.recv(100):
                    assert ENDED not in said
            except ConnectionError:
                pass
    os.close(here)
    assert launched.warm() == server


def test_a_new_installation_gets_a_new_server(launched: Launched) -> None:
    server = launched.warm()
    text = launched.script.read_bytes()
    launched.script.unlink()
    launched.script.write_bytes(text)
    launched.script.chmod(0o755)
    works_directly(launched)
    assert launched.warm() != server


@pytest.mark.slow
def test_edited_sources_are_never_answered_by_the_old_ones(launcher: Path, tmp_path: Path, packages: Path) -> None:
    """From a checkout: no `site-packages` in its path."""
    checkout = tmp_path / "src"
    shutil.copytree(packages, checkout)
    (tmp_path / "launched").mkdir()
    launched = Launched(tmp_path / "launched", launcher, checkout)
    try:
        server = launched.warm()
        source = checkout / "spritz/cli/squeue.py"
        for said in (b"once", b"twice"):
            launched.warm()
            source.write_text(
                source.read_text() + f"\ndef main(argv, context):\n    context.out('{said.decode()}')\n    return 0\n"
            )
            assert launched.run("squeue").stdout == said
        launched.warm()
        assert launched.run("squeue").stdout == b"twice"
        assert launched.servers()[-1] != server
    finally:
        launched.close()


def test_without_an_interpreter_in_sight_the_script_is_executed(launched: Launched, packages: Path) -> None:
    """pip writes another first line where the path of Python has a space in it."""
    launched.script.write_text(
        f"#!/bin/sh\n'''exec' env PYTHONPATH={packages} \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n"
        "from spritz.commandserver.direct import entry\nentry()\n"
    )
    assert launched.run("squeue", "--version").stdout == VERSION
    assert launched.servers() == []


def test_no_script_at_all_is_said(launched: Launched) -> None:
    launched.script.unlink()
    done = launched.run("squeue", "--version")
    assert done.returncode == 127
    assert b"spritz-command: No such file or directory" in done.stderr


def test_a_link_to_a_command_elsewhere_finds_its_installation(launched: Launched, tmp_path: Path) -> None:
    link = tmp_path / "squeue"
    link.symlink_to(launched.directory / "squeue")
    done = subprocess.run([link, "--version"], env=launched.environment(), capture_output=True, timeout=100)
    assert done.stdout == VERSION


@pytest.mark.slow
def test_too_few_descriptors_for_a_connection(launched: Launched) -> None:
    """The limit leaves room for standard streams and nothing else: what follows is Python's affair, and says so."""
    launched.warm()
    for limit, expected in ((4, None), (6, None), (12, VERSION)):
        done = subprocess.run(
            ["sh", "-c", f"ulimit -n {limit}; exec squeue --version"],
            env=launched.environment(),
            capture_output=True,
            timeout=100,
        )
        assert done.stdout == VERSION or (expected is None and done.returncode != 0 and done.stderr)


def test_the_names_of_sockets_are_computed_alike(launched: Launched) -> None:
    launched.warm()
    assert launched.socket.exists()
    assert launched.socket.name == socket_name(str(launched.script))
