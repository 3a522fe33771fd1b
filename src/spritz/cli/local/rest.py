"""slurmrestd of a local cluster: `spritz up --rest` starts it on a Unix socket that only its user can open."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from spritz import installed
from spritz.cli.local import daemons
from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from spritz.cli.local.paths import ClusterPaths

MODULE = "spritz.rest.main"
#: Seconds within which slurmrestd must serve.
_START_SECONDS = 30.0


def pid_of(paths: ClusterPaths) -> int | None:
    """Pid of slurmrestd, None if it does not run."""
    return daemons.daemon_pid("", MODULE, paths.slurm_conf)


def start(paths: ClusterPaths, environ: dict[str, str]) -> None:
    """Start slurmrestd unless it runs, and return when it serves. Raises SpritzError with its output."""
    if pid_of(paths) is not None:
        return
    command = installed.python(MODULE, "-f", paths.slurm_conf, f"unix:{paths.rest_socket}")
    # slurmrestd refuses to run as SlurmUser, but this cluster has only one user.
    environ = {**environ, "SLURMRESTD_SECURITY": "disable_user_check"}
    with open(paths.rest_log, "wb") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, cwd="/", start_new_session=True
        )
    deadline = time.monotonic() + _START_SECONDS
    while not serves(paths):
        if child.poll() is not None or time.monotonic() > deadline:
            with open(paths.rest_log, encoding="utf-8", errors="replace") as log_text:
                output = log_text.read(2000).strip()
            raise SpritzError(output.splitlines()[0] if output else "slurmrestd did not start", hint=paths.rest_log)
        time.sleep(0.01)


def serves(paths: ClusterPaths) -> bool:
    """Whether a process listens on slurmrestd's socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            return probe.connect_ex(paths.rest_socket) == 0
        except OSError:  # the path is too long for a socket
            return False


def stop(paths: ClusterPaths) -> None:
    """Stop slurmrestd if it runs. Raises SpritzError if it does not stop."""
    pid = pid_of(paths)
    if pid is not None and not daemons.stop(pid):
        raise SpritzError(f"slurmrestd (pid {pid}) does not stop", hint=f"its log is {paths.rest_log}")


def socket_of(slurm_conf: str) -> str:
    """Path of slurmrestd's socket in the cluster of a slurm.conf that `spritz up` wrote; "" if there is none."""
    root = os.path.dirname(os.path.dirname(slurm_conf))
    path = os.path.join(root, "run", "slurmrestd.socket")
    return path if os.path.exists(path) else ""
