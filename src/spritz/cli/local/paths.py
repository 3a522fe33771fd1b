"""Paths of a local cluster's files.

Source: XDG Base Directory Specification: state is data that should survive restarts but is not precious.
"""

from __future__ import annotations

import os

from spritz.client.locate import state_home


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
