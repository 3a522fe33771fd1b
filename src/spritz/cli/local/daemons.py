"""Start and stop the daemons of a local cluster, and tell whether they live.

A pid file alone proves nothing: pids are used again, and files overwritten. A daemon counts as alive when a process
runs our module with this cluster's slurm.conf; the pid file only saves looking through all of them.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time

from spritz import installed
from spritz.cli.local.paths import ClusterPaths
from spritz.model.errors import SpritzError

CONTROLLER = "spritz.controller.main"
NODE = "spritz.node.main"
DATABASE = "spritz.accounting.main"
LOGIN = "spritz.sack.main"


def controller_command(paths: ClusterPaths) -> list[str]:
    """The controller's command line."""
    return installed.python(CONTROLLER, "-f", paths.slurm_conf)


def node_command(paths: ClusterPaths, nodes: str) -> list[str]:
    """One node daemon for all `nodes` (a hostlist)."""
    return installed.python(NODE, "-f", paths.slurm_conf, "-N", nodes)


def database_command(paths: ClusterPaths) -> list[str]:
    """The accounting daemon's command line."""
    return installed.python(DATABASE, "-f", paths.slurmdbd_conf)


def daemon_pid(pid_file: str, module: str, slurm_conf: str) -> int | None:
    """Pid of the living daemon, or None."""
    expected = {module.encode(), os.fsencode(slurm_conf)}
    try:
        with open(pid_file, encoding="ascii") as file:
            pid = int(file.read().strip() or "0")
    except (OSError, ValueError):
        pid = 0
    if expected.issubset(_words(pid)):
        return pid
    found = [int(name) for name in os.listdir("/proc") if name.isdigit() and expected.issubset(_words(int(name)))]
    # A daemon's passing children bear its command line until they have one of their own.
    return next((pid for pid in found if _parent(pid) not in found), None)


def _words(pid: int) -> list[bytes]:
    """The command line of a process that we may stop; empty if there is none."""
    try:
        if os.geteuid() not in (0, os.stat(f"/proc/{pid}").st_uid):
            return []
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def served_nodes(pid: int) -> str:
    """The hostlist that a running slurmd was started with; empty if it cannot be told."""
    words = _words(pid)
    return os.fsdecode(words[words.index(b"-N") + 1]) if b"-N" in words else ""


def living(paths: ClusterPaths) -> dict[str, int | None]:
    """Pids by daemon name, None where it does not run. A cluster without slurmdbd.conf has no slurmdbd."""
    found = {
        "slurmctld": daemon_pid(paths.controller_pid, CONTROLLER, paths.slurm_conf),
        "slurmd": daemon_pid(paths.node_pid, NODE, paths.slurm_conf),
    }
    if os.path.exists(paths.slurmdbd_conf):
        found["slurmdbd"] = daemon_pid(paths.database_pid, DATABASE, paths.slurmdbd_conf)
    return found


def member(paths: ClusterPaths, role: str) -> int | None:
    """Pid of the daemon of a machine that has joined another's cluster, or None."""
    if role == "node":
        return daemon_pid(paths.node_pid, NODE, paths.slurm_conf)
    return daemon_pid(paths.login_pid, LOGIN, paths.slurm_conf)


#: for a home over NFS
_ELSEWHERE = "`spritz up --dir DIRECTORY` keeps the cluster's files elsewhere than in the home directory"


def start(commands: list[list[str]], environ: dict[str, str], timeout_seconds: float = 30.0) -> None:
    """Start daemons side by side; each command returns when its daemon serves. Raises SpritzError with what the
    failing one printed. One that has not served yet when that is raised, or at Ctrl-C, is ended."""
    children = [
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ, cwd="/"
        )
        for command in commands
    ]
    deadline = time.monotonic() + timeout_seconds
    try:
        for command, child in zip(commands, children, strict=True):
            try:
                output, _ = child.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise SpritzError(f"{command[2]} did not start within {timeout_seconds:.0f} s") from None
            if child.returncode != 0:
                text = output.decode(errors="replace").strip()
                hint = _ELSEWHERE if "local disk" in text else ""
                raise SpritzError(text or f"{command[2]} ended with status {child.returncode}", hint=hint)
    except BaseException:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for child in children:
            _end_start(child)
        signal.signal(signal.SIGINT, before)
        raise


def _end_start(child: subprocess.Popen[bytes]) -> None:
    """Interrupt a command that is still starting its daemon; it returns when that is gone."""
    child.terminate()
    try:
        child.communicate(timeout=25.0)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()


def start_database(paths: ClusterPaths, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start slurmdbd without waiting until it serves: jobs do not need it, and what happens meanwhile is recorded then.

    What it says before it has a log goes there too. `await_database` must follow.
    """
    with open(paths.database_log, "ab") as output:
        return subprocess.Popen(
            [*database_command(paths), "-n", str(max(5, os.getpriority(os.PRIO_PROCESS, 0)))],  # it can only be raised
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environ,
            cwd="/",
            start_new_session=True,  # a Ctrl-C for what is typed next is not for it
        )


def await_database(paths: ClusterPaths, child: subprocess.Popen[bytes], timeout_seconds: float = 30.0) -> None:
    """Return when slurmdbd can be found by its pid file, which is soon. Raises SpritzError if it failed."""
    deadline = time.monotonic() + timeout_seconds
    while daemon_pid(paths.database_pid, DATABASE, paths.slurmdbd_conf) is None:
        if child.poll() is not None and child.returncode != 0:
            raise SpritzError(f"slurmdbd ended with status {child.returncode}", hint=f"its log is {paths.database_log}")
        if time.monotonic() > deadline:
            raise SpritzError(
                f"slurmdbd did not start within {timeout_seconds:.0f} s", hint=f"its log is {paths.database_log}"
            )
        time.sleep(0.01)


def stop_named(paths: ClusterPaths, name: str) -> int | None:
    """Stop a daemon, looking again until there is none: what is seen first may be the command that still starts it.

    Its pid if it does not stop.
    """
    pid_files = {"slurmctld": paths.controller_pid, "slurmd": paths.node_pid, "slurmdbd": paths.database_pid}
    while (pid := living(paths).get(name)) is not None:
        if not stop(pid):
            return pid
        # One that was stopped before it could handle the signal has left its pid file.
        _remove_pid_file(pid_files[name], pid)
    return None


def _remove_pid_file(path: str, pid: int) -> None:
    try:
        with open(path, encoding="ascii") as file:
            if file.read().strip() != str(pid):
                return
        os.unlink(path)
    except (OSError, ValueError):
        return


def stop(pid: int, timeout_seconds: float = 10.0) -> bool:
    """SIGTERM and wait; False if it still lives afterwards."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True

    try:
        os.kill(pid, signal.SIGTERM)
        ready, _, _ = select.select([handle], [], [], timeout_seconds)
        return bool(ready)
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)
