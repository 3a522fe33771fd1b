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
#: Seconds within which it must serve.
_START_SECONDS = 30.0


def pid_of(paths: ClusterPaths) -> int | None:
    """The living process, or None."""
    return daemons.daemon_pid("", MODULE, paths.slurm_conf)


def start(paths: ClusterPaths, environ: dict[str, str]) -> None:
    """Start it unless it runs, and return when it serves. Raises SpritzError with what it printed."""
    if pid_of(paths) is not None:
        return
    command = installed.python(MODULE, "-f", paths.slurm_conf, f"unix:{paths.rest_socket}")
    # The cluster is this user's own, so there is no other user for it to run as.
    environ = {**environ, "SLURMRESTD_SECURITY": "disable_user_check"}
    with open(paths.rest_log, "wb") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, cwd="/", start_new_session=True
        )
    deadline = time.monotonic() + _START_SECONDS
    while not serves(paths):
        if child.poll() is not None or time.monotonic() > deadline:
            with open(paths.rest_log, encoding="utf-8", errors="replace") as log_text:
                said = log_text.read(2000).strip()
            raise SpritzError(said.splitlines()[0] if said else "slurmrestd did not start", hint=paths.rest_log)
        time.sleep(0.01)


def serves(paths: ClusterPaths) -> bool:
    """Whether something listens on its socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            return probe.connect_ex(paths.rest_socket) == 0
        except OSError:  # the path is longer than a socket's may be
            return False


def stop(paths: ClusterPaths) -> None:
    """Stop it if it runs. Raises SpritzError."""
    pid = pid_of(paths)
    if pid is not None and not daemons.stop(pid):
        raise SpritzError(f"slurmrestd (pid {pid}) does not stop", hint=f"its log is {paths.rest_log}")


def socket_beside(slurm_conf: str) -> str:
    """The socket of the cluster of a slurm.conf that `spritz up` has written, if it is there; else ""."""
    root = os.path.dirname(os.path.dirname(slurm_conf))
    path = os.path.join(root, "run", "slurmrestd.socket")
    return path if os.path.exists(path) else ""
