"""Root's command server, for all users of a login host: a child becomes its caller, by the kernel's word."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spritz.cli.server.main import SYSTEM_DIRECTORY
from tests.e2e.cluster import is_alive, until
from tests.e2e.launched import PATIENCE_SECONDS, Launched, child_of, children_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,  # not beside another run on the machine, which has one such directory
    pytest.mark.xdist_group("system"),
    pytest.mark.skipif(
        os.geteuid() != 0 or os.path.exists(SYSTEM_DIRECTORY), reason="needs root, and no such server on this machine"
    ),
]
_USER, _GROUPS = 54321, (54322, 54323)
_OTHER = 54331
#: what a child holds between calls: its line to the parent
_IDLE = ["/dev/null", "socket:"]


@pytest.fixture
def system(launcher: Path, packages: Path) -> Iterator[tuple[Launched, int]]:
    """Commands that everybody may run, and the server's process id."""
    base = Path(tempfile.mkdtemp(prefix="spritz-system-"))
    base.chmod(0o755)
    launched = Launched(base, launcher, packages)
    launched.log.touch()
    launched.log.chmod(0o666)
    process = subprocess.Popen(
        [launched.script, "--system"], stdin=subprocess.DEVNULL, start_new_session=True, env=launched.environment()
    )
    socket_path = Path(SYSTEM_DIRECTORY) / launched.socket.name
    try:
        until(socket_path.exists, "it listens")
        yield launched, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(100)
        for path in Path(SYSTEM_DIRECTORY).glob(f"{launched.socket.name}*"):  # others may have a server of their own
            path.unlink()
        with contextlib.suppress(OSError):
            os.rmdir(SYSTEM_DIRECTORY)
        shutil.rmtree(base)
        for user in (_USER, _OTHER):
            shutil.rmtree(f"/tmp/spritz-{user}", ignore_errors=True)


def start(
    launched: Launched,
    *words: str,
    user: int = _USER,
    groups: tuple[int, ...] = _GROUPS,
    files: int = 0,
    **env: str,
) -> subprocess.Popen[bytes]:
    """A command of that user's, who may open no more than so many files (0: as many as we)."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files) if files else limits)

    return subprocess.Popen(
        words,
        executable=launched.directory / words[0],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": "/", **env},
        user=user,
        group=user,
        extra_groups=groups,
        preexec_fn=limit,
    )


def version(launched: Launched, **surroundings: Any) -> None:
    """Any short command, to its end."""
    process = start(launched, "squeue", "--version", **surroundings)
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out, err) == (0, b"slurm 25.05.0\n", b"")


def idle_children(server: int, user: int) -> set[int]:
    """Those that work for that user."""
    found = set()
    for pid in map(int, Path(f"/proc/{server}/task/{server}/children").read_text().split()):
        try:
            fields = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        if f"Uid:\t{user}\t{user}\t{user}\t{user}" in fields and is_alive(pid):
            found.add(pid)
    return found


def held(pid: int) -> set[str]:
    """What its descriptors lead to."""
    found = set()
    with contextlib.suppress(OSError):  # it has just closed one, or ended
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            found.add(os.readlink(entry))
    return found


def kinds_held(pid: int) -> list[str]:
    """As `held`, without numbers."""
    return sorted(link.partition("[")[0] for link in held(pid))


def rested(server: int, user: int) -> set[int]:
    """The user's children, once there are some and all are idle: a call that comes earlier gets another child."""
    children = until(lambda: idle_children(server, user), "a child is kept")
    until(lambda: all(kinds_held(child) == _IDLE for child in children), "its launcher has ended")
    return children


def remembers(pid: int, word: bytes) -> bool:
    """Whether it stands anywhere in a process's memory."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, access, *_ = line.split()
            if "r" not in access or "[v" in line:
                continue
            first, last = (int(part, 16) for part in place.split("-"))
            memory.seek(first)
            if word in memory.read(last - first):
                return True
    return False


def test_a_child_is_its_caller_and_nobody_else(system: tuple[Launched, int]) -> None:
    launched, server = system
    process = start(launched, "sbatch", SLURM_CONF="/nowhere/slurm.conf")
    children = Path(f"/proc/{server}/task/{server}/children")

    def child() -> int:
        for pid in map(int, children.read_text().split()):
            if is_alive(pid) and os.readlink(f"/proc/{pid}/fd/0") == os.readlink(f"/proc/{process.pid}/fd/0"):
                return pid
        return 0

    status = Path(f"/proc/{until(child, 'the command has begun')}/status").read_text()
    fields = {line.partition(":")[0]: line.partition(":")[2].split() for line in status.splitlines()}
    assert fields["Uid"] == fields["Gid"] == [str(_USER)] * 4
    assert fields["Groups"] == [str(group) for group in _GROUPS]
    assert int(fields["CapEff"][0], 16) == int(fields["CapPrm"][0], 16) == 0
    _, err = process.communicate(b"#!/bin/sh\n", timeout=100)
    assert b"/nowhere/slurm.conf" in err
    assert launched.direct_calls() == []


def test_a_user_gets_no_file_that_only_root_may_read(system: tuple[Launched, int], tmp_path: Path) -> None:
    launched, _ = system
    secret = launched.log.with_name("secret")
    secret.write_text("ClusterName=secret\n")
    secret.chmod(0o600)
    process = start(launched, "squeue", SLURM_CONF=str(secret))
    _, err = process.communicate(timeout=100)
    assert process.returncode == 1
    assert b"Permission denied" in err


def test_garbage_from_a_user_ends_a_child_and_no_more(system: tuple[Launched, int]) -> None:
    launched, server = system
    for _ in range(4):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"{SYSTEM_DIRECTORY}/{launched.socket.name}")
            client.sendall(b"\xff" * 400)
            client.settimeout(40)
            try:
                while client.recv(100):
                    pass
            except ConnectionError:
                pass
    process = start(launched, "squeue", "--version")
    assert process.communicate(timeout=100)[0] == b"slurm 25.05.0\n"
    assert is_alive(server)


def test_a_child_serves_its_user_again_and_nobody_else(system: tuple[Launched, int]) -> None:
    launched, server = system

    def serve(user: int) -> set[int]:
        """One call; which children work for the user, when they are between calls."""
        version(launched, user=user)
        return rested(server, user)

    first = serve(_USER), serve(_OTHER)
    assert [len(children) for children in first] == [1, 1]
    for _ in range(3):
        assert (serve(_USER), serve(_OTHER)) == first
    assert launched.direct_calls() == []


def test_nothing_of_one_user_is_in_memory_that_works_for_another(system: tuple[Launched, int]) -> None:
    launched, server = system
    word = "tanzbaer-" * 3
    version(launched, TOKEN=word)
    version(launched, user=_OTHER)
    (first,), (second,) = rested(server, _USER), rested(server, _OTHER)
    assert remembers(first, word.encode())
    assert not remembers(second, word.encode())
    assert not remembers(server, word.encode())


def test_a_child_that_has_become_a_user_cannot_take_calls_by_itself(system: tuple[Launched, int]) -> None:
    """It holds nothing that leads to other users' calls: no listener, and one line, which leads to the parent."""
    launched, server = system
    version(launched)
    version(launched, user=_OTHER)
    (child,) = rested(server, _USER)
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines() if launched.socket.name in line]
    listening = [line[6] for line in lines if line[3] == "00010000"]
    assert listening
    assert not held(child) & {f"socket:[{inode}]" for inode in listening}


def test_other_groups_are_another_caller(system: tuple[Launched, int]) -> None:
    launched, server = system
    version(launched)
    version(launched, groups=_GROUPS[:1])
    groups = {Path(f"/proc/{child}/status").read_text() for child in rested(server, _USER)}
    assert len(groups) == 2
    assert launched.direct_calls() == []


def test_limits_are_those_of_each_call(system: tuple[Launched, int]) -> None:
    """A child that has a user's limits keeps them. A call with lower ones is its last, since it cannot go back."""
    launched, server = system
    version(launched, files=500)
    rested(server, _USER)
    version(launched, files=500)
    (child,) = rested(server, _USER)
    assert f"{500:<21}{500:<21}files" in Path(f"/proc/{child}/limits").read_text()
    version(launched, files=400)
    until(lambda: not idle_children(server, _USER), "it has gone")
    version(launched, files=500)


def test_idle_children_end_with_their_server(system: tuple[Launched, int]) -> None:
    launched, server = system
    version(launched)
    children = until(lambda: idle_children(server, _USER), "a child is kept")
    os.kill(server, signal.SIGKILL)
    until(lambda: not any(map(is_alive, children)), "no child is left")


def test_an_idle_child_that_its_user_stops_or_kills_is_replaced(system: tuple[Launched, int]) -> None:
    """A stopped one is not kept: a call would wait for it."""
    launched, server = system
    for number in (signal.SIGSTOP, signal.SIGKILL):
        version(launched)
        (child,) = until(lambda: idle_children(server, _USER), "a child is kept")
        os.kill(child, number)
        until(lambda child=child: child not in idle_children(server, _USER), "it has gone")  # type: ignore[misc]
    version(launched)


@pytest.fixture
def crowded(system: tuple[Launched, int]) -> Iterator[Callable[[], None]]:
    """Called, it lets the server have no more processes than it has, as its unit's TasksMax may."""
    _, server = system
    group = Path(f"/sys/fs/cgroup/pids/spritz_test_{os.getpid()}")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no control group for processes may be made here")

    def crowd() -> None:
        for pid in (server, *children_of(server)):
            (group / "cgroup.procs").write_text(str(pid))
        (group / "pids.max").write_text((group / "pids.current").read_text())

    yield crowd
    (group / "pids.max").write_text("max")

    def empty() -> bool:
        """Those that were forked meanwhile are let out as well."""
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):  # it has just ended
                (group.parent / "cgroup.procs").write_text(pid)
        return not (group / "cgroup.procs").read_text()

    until(empty, "all have left")
    group.rmdir()


@pytest.mark.parametrize("user", [0, _USER], ids=["caller", "stranger"])
def test_no_process_is_left_for_another_child(
    system: tuple[Launched, int], crowded: Callable[[], None], user: int
) -> None:
    """Calls are sent away at once, whoever is at work; when a process is free again they are served."""
    launched, server = system
    until(lambda: len(children_of(server)) >= 2, "it has its spare children")
    crowded()
    working = [start(launched, "sbatch", user=user) for _ in children_of(server)]
    try:
        for process in working:
            child_of(process, server)
        for _ in range(2):
            with socket.socket(socket.AF_UNIX) as caller:
                caller.settimeout(PATIENCE_SECONDS)
                caller.connect(f"{SYSTEM_DIRECTORY}/{launched.socket.name}")
                assert caller.recv(100) == b""
    finally:
        for process in working:
            process.communicate(timeout=100)

    def served() -> bool:
        before = len(launched.direct_calls())
        version(launched, user=0, groups=())
        return len(launched.direct_calls()) == before

    until(served, "whoever was at work has made room")


def test_many_users_at_once(system: tuple[Launched, int]) -> None:
    launched, _ = system
    processes = [start(launched, "squeue", "--version", user=user) for user in (_USER, _OTHER) * 12]
    for process in processes:
        assert process.communicate(timeout=100)[0] == b"slurm 25.05.0\n"
    assert launched.direct_calls() == []
