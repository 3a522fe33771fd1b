"""What a dead supervisor left is killed, and never a process that has one of the numbers by now."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.golden import samples

from spritz.node import cgroup
from spritz.node.spool import Spool
from spritz.node.supervisors import leftovers
from spritz.process_identity import Process, identify, lives
from spritz.stepd import processes, record, spec

DIRECTORY = "job00007.0.batch"


@pytest.fixture
def innocent() -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody else, which leads a session: sshd, a database, another user's job."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        yield process
        process.kill()


def without_containers(step: spec.SupervisorSpec) -> spec.SupervisorSpec:
    return replace(step, tasks=tuple(replace(task, end=()) for task in step.tasks), oci_directory="")


def left_step(spool: Path, entries: bytes) -> str:
    """A step's directory as a supervisor leaves it that was killed, or whose machine lost its power."""
    directory = spool / DIRECTORY
    directory.mkdir()
    (directory / spec.RECORD).write_bytes(record.spec_entry(without_containers(samples.step()[0])) + entries)
    before = os.getcwd()
    os.chdir(directory)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(spec.CONTROL)
    os.chdir(before)
    return str(directory)


def test_a_task_that_is_still_there_is_found_with_its_session(
    tmp_path: Path, innocent: subprocess.Popen[bytes]
) -> None:
    directory = left_step(tmp_path, record.processes_entry((os.getpid(), innocent.pid)))
    assert leftovers.leftovers(directory) == [identify(innocent.pid)]


def test_numbers_of_an_earlier_boot_are_nobodys(
    tmp_path: Path, innocent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`slurmd -c` after a boot ended whoever had the numbers by then."""
    monkeypatch.setattr(record, "this_boot", lambda: "an earlier one")
    directory = left_step(tmp_path, record.processes_entry((4_000_001, innocent.pid)))
    monkeypatch.undo()
    assert leftovers.leftovers(directory) == []
    leftovers.end_and_forget(Spool(str(tmp_path)), directory)
    assert not os.path.exists(directory)
    assert lives(identify(innocent.pid))


def test_a_number_that_was_given_out_again_is_a_strangers(
    tmp_path: Path, innocent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "identify", lambda pid: Process(pid, identify(pid).started - 1))
    directory = left_step(tmp_path, record.processes_entry((4_000_001, innocent.pid)))
    assert leftovers.leftovers(directory) == []
    leftovers.forget_all([str(tmp_path)])
    assert lives(identify(innocent.pid))


def test_numbers_without_starts_are_no_processes(tmp_path: Path, innocent: subprocess.Popen[bytes]) -> None:
    """As the release before wrote them, and as a record ends that was cut short."""
    directory = left_step(tmp_path, record.pids_entry((4_000_001, innocent.pid)))
    assert leftovers.leftovers(directory) == []


def test_a_session_whose_leader_is_gone_is_nobodys(tmp_path: Path) -> None:
    script = "import os, sys\nos.setsid()\nif os.fork(): os._exit(0)\nprint(flush=True)\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as leader:
        assert leader.stdout is not None
        leader.stdout.readline()
        known = identify(leader.pid)
        assert processes.in_sessions([known]), "not waited for: the number is its own"
        leader.wait()
        assert processes.in_sessions([known]) == []
        assert leader.stdin is not None
        leader.stdin.close()


def test_the_cgroup_of_a_number_that_another_supervisor_has_is_that_ones(
    tmp_path: Path, innocent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def left_in(directory: str, pid: int) -> list[Process]:
        asked.append(pid)
        return []

    monkeypatch.setattr(cgroup, "left_in", left_in)
    directory = left_step(tmp_path, record.pids_entry((innocent.pid,)))
    leftovers.leftovers(directory)
    assert set(asked) == {innocent.pid}, "the number is some other program's, which has no such group"
    asked.clear()
    monkeypatch.setattr(processes, "name_of", lambda pid: "slurmstepd")
    leftovers.leftovers(directory)
    assert asked == []


def test_processes_of_a_cgroup_are_those_inside_when_it_was_read(
    tmp_path: Path, innocent: subprocess.Popen[bytes]
) -> None:
    group = tmp_path / "slurmstepd_9"
    group.mkdir()
    (group / "cgroup.procs").write_text(f"{innocent.pid}\n")
    assert cgroup.left_in(str(tmp_path), 9) == [identify(innocent.pid)]


#: In a pid namespace of its own: a task's number is given to a stranger, who makes a session with it.
REUSE = """
import os, signal, subprocess, sys, time
from pathlib import Path
from spritz.node.supervisors import leftovers
from spritz.process_identity import identify, send
from spritz.stepd import record, spec
from msgspec.structs import replace
from tests.golden import samples

def without_containers(step):
    return replace(step, tasks=tuple(replace(task, end=()) for task in step.tasks), oci_directory="")

def started(after=0):
    if after:
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(after))
    return subprocess.Popen(["sleep", "1000"], start_new_session=True)

directory = Path(sys.argv[1], "job00007.0.batch")
directory.mkdir()
task = started()
entries = record.processes_entry((task.pid + 1000, task.pid))
(directory / spec.RECORD).write_bytes(record.spec_entry(without_containers(samples.step()[0])) + entries)
known = identify(task.pid)
assert leftovers.leftovers(str(directory)) == [known]
task.kill(); task.wait()
while True:  # the clock of starts has hundredths of a second
    stranger = started(task.pid - 1)
    if stranger.pid == task.pid and identify(stranger.pid) != known:
        break
    stranger.kill(); stranger.wait()
assert leftovers.leftovers(str(directory)) == []
assert not send(known, signal.SIGKILL)
leftovers.forget_all([sys.argv[1]])
assert stranger.poll() is None
print("the stranger lives")
"""


def test_a_stranger_with_a_tasks_number_lives(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    words = [unshare or "unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() == 0:
        words = [word for word in words if word not in ("--user", "--map-root-user")]
    probe = [*words, "sh", "-c", "echo 300 > /proc/sys/kernel/ns_last_pid"]
    if unshare is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("takes a pid namespace whose next number can be set")
    done = subprocess.run(
        [*words, sys.executable, "-c", textwrap.dedent(REUSE), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
        timeout=120,
    )
    assert done.stdout == "the stranger lives\n", done.stderr
