"""Start and stop the daemons of a local cluster, and tell whether they run.

A pid file alone proves nothing: the kernel reuses pids, and files are overwritten. A daemon counts as running if a
process runs our module with this cluster's slurm.conf; the pid file only saves a search through all processes.
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
    return installed.python(CONTROLLER, "-f", paths.slurm_conf)


def node_command(paths: ClusterPaths, nodes: str) -> list[str]:
    """The command line of a slurmd that serves all `nodes` (a hostlist)."""
    return installed.python(NODE, "-f", paths.slurm_conf, "-N", nodes)


def database_command(paths: ClusterPaths) -> list[str]:
    # max: a user cannot lower the niceness.
    nice = max(5, os.getpriority(os.PRIO_PROCESS, 0))
    return installed.python(DATABASE, "-f", paths.slurmdbd_conf, "-n", str(nice))


def daemon_pid(pid_file: str, module: str, slurm_conf: str) -> int | None:
    """Pid of the daemon, None if it does not run. `pid_file` may be "": all processes are searched then."""
    expected = {module.encode(), os.fsencode(slurm_conf)}
    try:
        with open(pid_file, encoding="ascii") as file:
            pid = int(file.read().strip() or "0")
    except (OSError, ValueError):
        pid = 0
    if expected.issubset(_words(pid)):
        return pid
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal() and expected.issubset(_words(int(name)))]
    # A child that the daemon has forked keeps the daemon's command line until it calls exec: take the parent.
    return next((pid for pid in pids if _parent(pid) not in pids), None)


def _words(pid: int) -> list[bytes]:
    """The command line of a process, as words; empty if the process does not exist, or we may not signal it."""
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
    """The hostlist with which a running slurmd was started; empty if it is not known."""
    words = _words(pid)
    return os.fsdecode(words[words.index(b"-N") + 1]) if b"-N" in words else ""


def living(paths: ClusterPaths) -> dict[str, int | None]:
    """Pids by daemon name, None where it does not run. A cluster without slurmdbd.conf has no slurmdbd."""
    pids = {
        "slurmctld": daemon_pid(paths.controller_pid, CONTROLLER, paths.slurm_conf),
        "slurmd": daemon_pid(paths.node_pid, NODE, paths.slurm_conf),
    }
    if os.path.exists(paths.slurmdbd_conf):
        pids["slurmdbd"] = daemon_pid(paths.database_pid, DATABASE, paths.slurmdbd_conf)
    return pids


def of_role(role: str) -> str:
    """The daemon of a machine that has joined as `role`."""
    return "slurmd" if role == "node" else "sackd"


def member(paths: ClusterPaths, role: str) -> int | None:
    """Pid of this machine's daemon in a cluster that it has joined; None if it does not run."""
    if role == "node":
        return daemon_pid(paths.node_pid, NODE, paths.slurm_conf)
    return daemon_pid(paths.login_pid, LOGIN, paths.slurm_conf)


#: Hint for home directories on NFS.
_ELSEWHERE = "`spritz up --dir DIRECTORY` keeps the cluster's files outside the home directory"


def start(commands: list[list[str]], environ: dict[str, str], timeout_seconds: float = 30.0) -> None:
    """Start daemons at the same time and return when all serve (each command returns when its daemon serves).

    Raises SpritzError with the output of the daemon that failed. On an error, and at Ctrl-C, ends daemons that are
    still starting.
    """
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
                raise SpritzError(
                    text.removeprefix("error: ") or f"{command[2]} ended with status {child.returncode}", hint=hint
                )
    except BaseException:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for child in children:
            _end_start(child)
        signal.signal(signal.SIGINT, before)
        raise


def _end_start(child: subprocess.Popen[bytes]) -> None:
    """Interrupt a command that is still starting its daemon; the command returns when the daemon is gone."""
    child.terminate()
    try:
        child.communicate(timeout=25.0)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()


def start_database(paths: ClusterPaths, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start slurmdbd without waiting until it serves: jobs do not need it, and the controller sends it events later.

    Output from before slurmdbd opens its log goes to the same file. The caller must call `await_database` afterwards.
    """
    with open(paths.database_log, "ab") as output:
        return subprocess.Popen(
            database_command(paths),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environ,
            cwd="/",
            start_new_session=True,  # so that Ctrl-C for the user's next command does not reach it
        )


def await_database(paths: ClusterPaths, child: subprocess.Popen[bytes], timeout_seconds: float = 30.0) -> None:
    """Wait until slurmdbd has written its pid file, which is soon. Raises SpritzError if slurmdbd failed."""
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
    """Stop a daemon; return its pid if it does not stop, else None.

    Searches repeatedly: the first process found may be the command that is still starting the daemon.
    """
    pid_files = {"slurmctld": paths.controller_pid, "slurmd": paths.node_pid, "slurmdbd": paths.database_pid}
    while (pid := living(paths).get(name)) is not None:
        if not stop(pid):
            return pid
        # A daemon that was stopped before it installed its signal handler leaves its pid file.
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
    """Send SIGTERM to a process of ours and wait; False if it still runs afterwards."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True

    try:
        # It may have ended, and its number be another's, since it was found.
        if not any(word.startswith(b"spritz.") for word in _words(pid)):
            return True
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        ready, _, _ = select.select([handle], [], [], timeout_seconds)
        return bool(ready)
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)
