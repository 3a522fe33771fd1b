"""Paths of a local cluster's files.

Source: XDG Base Directory Specification: state is data that should survive restarts but is not precious.
"""

from __future__ import annotations

import glob
import os
import socket

from spritz.client.errors import ClientError
from spritz.client.locate import read_keys, state_home
from spritz.config.settings import substitute


class ClusterPaths:
    """The directory of a local cluster, and the files in it."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.etc = os.path.join(self.root, "etc")
        self.state = os.path.join(self.root, "state")
        self.spool = os.path.join(self.root, "spool")
        self.log = os.path.join(self.root, "log")
        self.run = os.path.join(self.root, "run")
        self.slurm_conf = os.path.join(self.etc, "slurm.conf")
        self.gres_conf = os.path.join(self.etc, "gres.conf")
        self.slurmdbd_conf = os.path.join(self.etc, "slurmdbd.conf")
        self.database = os.path.join(self.state, "accounting.db")
        self.controller_pid = os.path.join(self.run, "slurmctld.pid")
        self.node_pid = os.path.join(self.run, "slurmd.pid")
        self.database_pid = os.path.join(self.run, "slurmdbd.pid")
        self.login_pid = os.path.join(self.run, "sackd.pid")
        self.login_log = os.path.join(self.log, "sackd.log")
        self.cluster_key = os.path.join(self.etc, "slurm.key")
        self.rest_socket = os.path.join(self.run, "slurmrestd.socket")
        self.rest_log = os.path.join(self.log, "slurmrestd.log")
        self.controller_log = os.path.join(self.log, "slurmctld.log")
        self.database_log = os.path.join(self.log, "slurmdbd.log")
        self.node_log = os.path.join(self.log, "slurmd.log")

    @classmethod
    def of(cls, directory: str | None) -> ClusterPaths:
        """The cluster in `directory`, or the user's default one."""
        return cls(directory or default_root())

    def create(self) -> None:
        """Create the directories; other users may read only those that their commands need (etc)."""
        os.makedirs(self.root, mode=0o755, exist_ok=True)
        os.makedirs(self.etc, mode=0o755, exist_ok=True)
        for private in (self.state, self.log, self.run):
            os.makedirs(private, mode=0o700, exist_ok=True)
        # Jobs of other users (a root cluster) pass through the spool directory to their scripts.
        os.makedirs(self.spool, mode=0o711, exist_ok=True)


def default_root() -> str:
    """Directory of the user's default cluster."""
    return os.path.join(state_home(), "default")


class SitePaths(ClusterPaths):
    """A cluster that `spritz up` did not create: its slurm.conf is known, and the site starts its daemons.

    Logs and the state's directory are those that slurm.conf names; a log that it does not name is in words.
    """

    def __init__(self, conf: str) -> None:
        super().__init__(os.path.dirname(conf))
        self.slurm_conf = os.path.abspath(conf)
        try:
            keys = read_keys(_KEYS, self.slurm_conf)
        except ClientError:
            keys = {}
        cluster = keys.get("clustername", "").lower()
        host = socket.gethostname().partition(".")[0]

        def path(key: str, otherwise: str) -> str:
            return substitute(keys.get(key, ""), nodename="*", hostname=host, clustername=cluster) or otherwise

        self.state = path("statesavelocation", "")
        self.controller_log = path("slurmctldlogfile", "slurmctld's log (SlurmctldLogFile)")
        self.node_log = _newest(path("slurmdlogfile", "slurmd's log (SlurmdLogFile)"))
        self.database_log = "slurmdbd's log (LogFile)"


_KEYS = frozenset({"statesavelocation", "slurmctldlogfile", "slurmdlogfile", "clustername"})


def _newest(pattern: str) -> str:
    """The file of a pattern that was written last: a machine may have several nodes. The pattern without a file."""
    files = glob.glob(pattern) if "*" in pattern else []
    return max(files, key=_written_at, default=pattern)


def _written_at(path: str) -> float:
    try:
        return os.path.getmtime(path)
    except OSError:
        return 0.0  # rotated away meanwhile, or a link to nothing
