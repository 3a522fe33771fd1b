"""Who starts a daemon gets the prompt back when it serves, or an error and exit status 1. Source: slurmctld(8)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spritz.runtime.privilege import UnknownUser, become, current_user, lookup_user

START = "import os, sys, time\nfrom spritz.runtime.daemon.daemonize import daemonize, foreground\n"


def started(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START + program, *arguments],
        env={name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"} | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 100
    while not path.exists():
        assert time.monotonic() < deadline, f"there is no {path.name} after 100 s"
        time.sleep(0.01)


def lives(pid: int) -> bool:
    """Whether it is a process, and not one that only waits to be reaped."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 100
    while lives(pid):
        assert time.monotonic() < deadline, "the daemon still lives after 100 s"
        time.sleep(0.01)


def test_the_starting_command_returns_when_the_daemon_serves(tmp_path: Path) -> None:
    program = """
startup = daemonize()
open(sys.argv[1] + "/serving", "w").write(f"{os.getpid()} {os.getsid(0)} {os.getcwd()}")
startup.serves()
print("this must not be seen")
deadline = time.monotonic() + 100
while not os.path.exists(sys.argv[1] + "/stop") and time.monotonic() < deadline:
    time.sleep(0.01)
open(sys.argv[1] + "/stopped", "w").close()
"""
    result = started(program, str(tmp_path))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    pid, session, directory = (tmp_path / "serving").read_text().split()
    assert pid != session  # in a session of its own, and not its leader: it can get no terminal
    assert directory == "/"
    assert not (tmp_path / "stopped").exists()
    (tmp_path / "stop").touch()
    wait_for(tmp_path / "stopped")


def test_a_daemon_that_cannot_serve_is_reported() -> None:
    result = started("startup = daemonize(); startup.failed('slurmctld: fatal: port in use')")
    assert (result.returncode, result.stderr) == (1, "slurmctld: fatal: port in use\n")


@pytest.mark.parametrize("end", ["raise SystemExit('broken')", "os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_a_daemon_that_dies_before_it_serves_is_a_failure(end: str) -> None:
    result = started(f"daemonize(); {end}")
    assert result.returncode == 1
    assert ("broken" in result.stderr) == ("broken" in end)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_the_starting_command_ends_the_daemon_too(tmp_path: Path, number: int) -> None:
    """Ctrl-C while a daemon starts must not leave an unknown daemon behind."""
    program = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # the process that runs the tests may ignore it
startup = daemonize()
with open(sys.argv[1] + "/pid", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + "/pid", sys.argv[1] + "/starting")
time.sleep(60)
"""
    command = [sys.executable, "-c", START + program, str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as starter:
        wait_for(tmp_path / "starting")
        starter.send_signal(number)
        assert starter.wait(100) == 130
    wait_for_end(int((tmp_path / "starting").read_text()))


@pytest.mark.parametrize("call", ["fork", "waitpid", "read"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_moment_is_wrong_for_an_interrupt(tmp_path: Path, call: str, number: int) -> None:
    """The signal comes just as a call returns whose result must not be lost: no daemon stays, nor a traceback."""
    program = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # the process that runs the tests may ignore it
directory, call, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
starter, real = os.getpid(), getattr(os, call)
def interrupted(*arguments):
    result = real(*arguments)
    if os.getpid() == starter:
        setattr(os, call, real)
        os.kill(starter, number)
    return result
setattr(os, call, interrupted)
startup = daemonize()
with open(directory + "/pid", "w") as file:
    file.write(str(os.getpid()))
time.sleep(1000)
"""
    result = started(program, str(tmp_path), call, str(int(number)))
    assert (result.returncode, result.stderr) == (130, "")
    # The starter has waited for the daemon; one that was ended early has not even written its number.
    written = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""
    if written:
        wait_for_end(int(written))


def test_a_daemon_whose_starting_command_was_killed_stops_when_it_would_serve(tmp_path: Path) -> None:
    program = """
import signal
startup = daemonize()
signal.signal(signal.SIGTERM, lambda *_: (open(sys.argv[1] + "/stopped", "w").close(), os._exit(0)))
open(sys.argv[1] + "/starting", "w").close()
deadline = time.monotonic() + 100
while not os.path.exists(sys.argv[1] + "/go") and time.monotonic() < deadline:
    time.sleep(0.01)
startup.serves()
"""
    with subprocess.Popen([sys.executable, "-c", START + program, str(tmp_path)]) as starter:
        wait_for(tmp_path / "starting")
        starter.kill()
    (tmp_path / "go").touch()
    wait_for(tmp_path / "stopped")


def test_in_the_foreground_nothing_is_detached() -> None:
    result = started(
        "startup = foreground(systemd=False); startup.serves(); print('seen', os.getpid() == int(os.getpid()))"
    )
    assert (result.returncode, result.stdout) == (0, "seen True\n")


def test_users_are_found_by_name_and_by_number() -> None:
    me = current_user()
    assert lookup_user(me.name) == lookup_user(me.uid) == me
    for unknown in ("no-such-user", 4_000_000_000, 10**30):
        with pytest.raises(UnknownUser, match="no user"):
            lookup_user(unknown)


def test_becoming_oneself_changes_nothing() -> None:
    become(current_user())


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give up")
def test_root_is_given_up_for_good() -> None:
    program = """
from spritz.runtime.privilege import become, lookup_user
become(lookup_user("nobody"))
print(os.getresuid(), os.getresgid()[0] == lookup_user("nobody").gid, 0 in os.getgroups())
try:
    os.setuid(0)
except PermissionError:
    print("for good")
try:
    become(lookup_user("root"))
except PermissionError as error:
    print(error)
"""
    result = started(program)
    nobody = lookup_user("nobody").uid
    assert result.stdout.splitlines()[0] == f"({nobody}, {nobody}, {nobody}) True False"
    assert result.stdout.splitlines()[1] == "for good"
    assert "only root can become root" in result.stdout


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_once_by_the_daemon_itself_and_not_by_its_children(tmp_path: Path, abstract: bool) -> None:
    """sd_notify(3): an address that begins with @ is abstract."""
    address = f"@spritz-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    program = (
        "startup = foreground(systemd=True); startup.serves(); print(os.getpid(), os.environ.get('NOTIFY_SOCKET'))"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address.replace("@", "\0"))
        result = started(program, NOTIFY_SOCKET=address)
        systemd.setblocking(False)
        said = systemd.recv(1000).decode().split("\n")
        with pytest.raises(BlockingIOError):
            systemd.recv(1000)
    assert result.stderr == ""
    pid, left = result.stdout.split()
    assert said == ["READY=1", f"MAINPID={pid}"]
    assert left == "None"


@pytest.mark.parametrize("watched", [True, False])
def test_systemds_watchdog_is_told_that_the_loop_turns_if_there_is_one(tmp_path: Path, watched: bool) -> None:
    """sd_watchdog_enabled(3). A message for which there is no room holds nothing up."""
    address = str(tmp_path / "notify")
    program = (
        "startup = foreground(systemd=True); [startup.alive() for _ in range(10_000)]; "
        "print(os.environ.get('WATCHDOG_USEC'), os.environ.get('WATCHDOG_PID'))"
    )
    given = {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"} if watched else {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        result = started(program, NOTIFY_SOCKET=address, **given)
        systemd.setblocking(False)
        if watched:
            assert systemd.recv(1000) == b"WATCHDOG=1"
        else:
            with pytest.raises(BlockingIOError):
                systemd.recv(1000)
    assert (result.stdout, result.stderr) == ("None None\n", "")


@pytest.mark.parametrize(
    ("where", "complaint"), [({}, "Missing NOTIFY_SOCKET."), ({"NOTIFY_SOCKET": "/nowhere"}, "/nowhere: No such file")]
)
def test_a_daemon_that_cannot_tell_systemd_does_not_go_on(where: dict[str, str], complaint: str) -> None:
    result = started("startup = foreground(systemd=True); startup.serves(); print('serves')", **where)
    assert (result.returncode, result.stdout) == (1, "")
    assert complaint in result.stderr
