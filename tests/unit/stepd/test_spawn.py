"""The quick way to start a task does what the slow one does: the same program sees the same, and fails the same."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spritz.stepd import spec
from spritz.stepd.tasks import namespaces, spawn, start

pytestmark = pytest.mark.skipif(spawn.quick is None, reason="installed without the compiled part")

#: What a program can see of how it was started; its own numbers are replaced.
LOOK = r"""
echo pid $SLURM_TASK_PID $$
env | grep -v '^_=' | grep -v SLURM_TASK_PID | sort
umask; pwd; id
grep -E '^(Sig|Cpus_allowed_list|Groups)' /proc/self/status | grep -v SigQ
ls /proc/$$/fd
cut -d' ' -f 5,6,19 /proc/$$/stat
cat /proc/$$/limits /proc/$$/oom_score_adj
cat
echo bad >&2
exit 7
"""


class Seen:
    """Output, errors and wait status of one task."""

    def __init__(self, out: str, err: str, status: int) -> None:
        self.out = out
        self.err = err
        self.status = status


def run(
    monkeypatch: pytest.MonkeyPatch,
    directory: Path,
    argv: tuple[str, ...],
    *,
    quick: bool,
    cpus: tuple[int, ...] = (),
    environment: dict[bytes, bytes] | None = None,
    **fields: Any,
) -> Seen:
    """Start a task in this directory, one way or the other, and wait for it."""
    if not quick:
        monkeypatch.setattr(spawn, "quick", None)
    given: dict[str, Any] = {
        "identity": spec.Identity(os.getuid(), os.getgid(), tuple(os.getgroups())),
        "umask": 0o027,
        "limits": (("CORE", 0), ("NOFILE", 77)),
    }
    task = spec.TaskSpec(3, argv, cpus=cpus)
    known = spec.SupervisorSpec(
        job_id=1, restart_count=0, step_id=0, label="1.0", node="n", node_index=0, tasks=(task,), **(given | fields)
    )
    variables = {b"PATH": b"/nowhere:/usr/bin:/bin", b"NAME": b"\xff=value"} if environment is None else environment
    (directory / "in").write_bytes(b"input\n")
    streams = (
        os.open(directory / "in", os.O_RDONLY | os.O_CLOEXEC),
        os.open(directory / "out", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600),
        os.open(directory / "err", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600),
    )
    monkeypatch.chdir(directory)
    pid = spawn.start_task(known, task, dict(variables), streams, partial(start.say, descriptor=streams[2]))
    status = os.waitpid(pid, 0)[1]
    for descriptor in streams:
        os.close(descriptor)
    monkeypatch.undo()

    def without_pid(text: str) -> str:
        return re.sub(rf"(?<!\S){pid}(?!\S)", "PID", text)  # as a word: its digits may be part of a path

    out, err = (directory / "out").read_bytes(), (directory / "err").read_text()
    return Seen(without_pid(out.decode("latin-1")), without_pid(err), status)


def both(monkeypatch: pytest.MonkeyPatch, directory: Path, argv: tuple[str, ...], **fields: Any) -> Seen:
    """What both ways show."""
    quick = run(monkeypatch, directory, argv, quick=True, **fields)
    slow = run(monkeypatch, directory, argv, quick=False, **fields)
    assert (quick.out, quick.err, quick.status) == (slow.out, slow.err, slow.status)
    return quick


def test_the_program_sees_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    ignored = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGQUIT)}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        seen = both(monkeypatch, tmp_path, ("sh", "-c", LOOK), cpus=(cpu,), nice=1)
    finally:
        for number, handler in ignored.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    assert seen.status == 7 << 8
    assert seen.err == "bad\n"
    lines = seen.out.splitlines()
    assert lines[0] == "pid PID PID"
    assert "NAME=\xff=value" in lines
    assert "0027" in lines
    niceness = min(os.nice(0) + 1, 19)
    assert f"PID PID {niceness}" in lines, "a process group and a session of its own, and niceness 1 more than ours"
    assert f"Cpus_allowed_list:\t{cpu}" in lines
    assert "SigBlk:\t0000000000000000" in lines
    (ignored_mask,) = [int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:")]
    assert not ignored_mask & ~(3 << 31), "but for 32 and 33, which are the C library's and may be inherited"
    assert lines[-1] == "input"


@pytest.mark.parametrize(
    ("name", "error"),
    [("missing", "No such file or directory"), ("./missing", "No such file or directory"), ("/", "Permission denied")],
)
def test_a_program_that_is_not_there_is_told_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, error: str
) -> None:
    seen = both(monkeypatch, tmp_path, (name,))
    assert seen.err.startswith("slurmstepd: error: execve(): ")
    assert seen.err.endswith(f"{name.removeprefix('./')}: {error}\n")
    assert os.waitstatus_to_exitcode(seen.status) in (2, 13)


def test_other_failures_are_told_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    # No limit on open files: the slow way opens the script where all files of this process are still open.
    seen = both(monkeypatch, tmp_path, (str(script),), limits=())
    assert "bad interpreter(/no/such/interpreter)" in seen.err
    script.write_text("neither a program nor a script")
    assert "Exec format error" in both(monkeypatch, tmp_path, (str(script),)).err
    assert "null byte" in both(monkeypatch, tmp_path, ("true", "a\0b")).err
    assert both(monkeypatch, tmp_path, ("true",), environment={b"PATH": b""}).status != 0
    assert "sched_setaffinity" in both(monkeypatch, tmp_path, ("true",), cpus=(60000,)).err


def test_a_limit_that_cannot_be_set_is_told_and_the_task_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As root every limit can be: RLIMIT_NOFILE beyond fs.nr_open cannot by anybody."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    beyond = 2**40
    assert hard < beyond
    seen = both(monkeypatch, tmp_path, ("sh", "-c", "echo ran"), limits=(("NOFILE", beyond),))
    assert seen.out == "ran\n"
    assert seen.err == f"slurmstepd: error: Can't propagate RLIMIT_NOFILE of {beyond} bytes from submit host\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_becomes_the_user_for_good(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = both(monkeypatch, tmp_path, ("id",), identity=spec.Identity(64123, 64124, (64124, 64125)), limits=())
    assert seen.out == "uid=64123 gid=64124 groups=64124,64125\n"


#: prctl(2): a process that has changed its user gets its own files in /proc back
_PR_SET_DUMPABLE = 4


def show_names(uid: int, hosts: Path, output: int) -> None:
    """Become that user; write what a task sees, started both ways, with a NUL after each."""
    if uid != os.geteuid():
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1)
    argv = ("sh", "-c", "hostname; cat /etc/hosts; id; grep CapEff /proc/self/status; exit 4")
    task = spec.TaskSpec(0, argv)
    namespaces.enter_user_namespace()
    known = spec.SupervisorSpec(
        job_id=1, restart_count=0, step_id=0, label="1.0", node="n17", node_index=0, tasks=(task,), umask=0o022,
        identity=spec.Identity(uid, os.getgid(), tuple(os.getgroups())), hosts_file=str(hosts),
    )  # fmt: skip
    os.chdir("/")
    for way in (spawn.quick, None):
        spawn.quick = way
        pid = spawn.start_task(
            known, task, {b"PATH": b"/usr/bin:/bin"}, (output, output, output), partial(start.say, descriptor=output)
        )
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
        os.write(output, b"\0")


@pytest.mark.parametrize("uid", [0, 64123])
def test_names_of_its_own_are_the_same(uid: int) -> None:
    if os.geteuid() != 0 and uid:
        uid = os.geteuid()
    elif os.geteuid() != 0:
        pytest.skip("only root can be root")
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as output:
        hosts = Path(directory) / "hosts"
        hosts.write_text("127.0.0.1 n17 n18\n")
        os.chmod(directory, 0o755)
        os.chmod(hosts, 0o644)
        child = os.fork()
        if not child:
            try:
                show_names(uid, hosts, output.fileno())
            finally:
                os._exit(sys.exc_info()[0] is not None)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        output.seek(0)
        quick, slow, rest = output.read().split(b"\0")
    assert rest == b""
    assert quick == slow
    if uid == 0:
        assert quick.startswith(b"n17\n127.0.0.1 n17 n18\n"), "root may always"
    assert socket.gethostname() != "n17"
