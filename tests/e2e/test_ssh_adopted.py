"""`spritz adopt` under a real sshd: users without a job are refused, those with one are held by it.

sshd runs in a mount namespace where /etc/pam.d/sshd is the test's. Source: Slurm's guide to pam_slurm_adopt.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port

from .node_harness import NodeCluster, need_version_2, running, wait_until
from .people import Person, made_people

SSHD = "/usr/sbin/sshd"
pytestmark = [pytest.mark.root, pytest.mark.slow]


class Ssh:
    """An sshd of the test's own."""

    def __init__(self, cluster: NodeCluster) -> None:
        self.directory = cluster.root / "ssh"
        self.directory.mkdir(mode=0o755)
        self.port = free_port()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-qN", "", "-t", "ed25519", "-f", str(self.directory / name)], check=True)
        (self.directory / "config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.directory}/host\nUsePAM yes\nStrictModes no\n"
            f"AuthorizedKeysFile {self.directory}/user.pub\nPidFile none\nPasswordAuthentication no\n"
        )
        spritz = sysconfig.get_path("scripts") + "/spritz"
        (self.directory / "pam").write_text(
            "auth required pam_permit.so\n"
            f"account required pam_exec.so stdout {spritz} adopt --conf {cluster.conf}\n"
            "session required pam_permit.so\n"
        )
        cluster.root.chmod(0o755)
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        script = f"mount --bind {self.directory}/pam /etc/pam.d/sshd && exec {SSHD} -D -e -f {self.directory}/config"
        with open(self.directory / "log", "wb") as log:
            self.process = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdout=log, stderr=log)
        wait_until(lambda: "listening" in self.log(), "sshd listens")

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def command(self, user: str, *words: str) -> list[str]:
        options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes"]
        key = ["-i", str(self.directory / "user"), "-F", "none"]
        return ["ssh", "-q", *options, *key, "-p", str(self.port), f"{user}@127.0.0.1", *words]

    def run(self, user: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(user, *words), capture_output=True, text=True, timeout=60)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


@pytest.fixture
def people() -> Iterator[dict[str, Person]]:
    with made_people("a", "b") as found:
        yield found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NodeCluster]:
    if os.getuid() != 0 or not os.path.exists(SSHD) or shutil.which("ssh") is None:
        pytest.skip("takes root and an OpenSSH server")
    need_version_2()
    with running(NodeCluster(tmp_path, nodes=1)) as started:
        yield started


def test_users_with_a_job_are_admitted_and_held_by_it(cluster: NodeCluster, people: dict[str, Person]) -> None:
    ssh = Ssh(cluster)
    try:
        owner, other = people["a"], people["b"]
        refused = ssh.run(owner.name, "echo in")
        assert refused.returncode == 255, (refused, ssh.log())
        job = cluster.job(uid=owner.uid, gid=owner.gid, groups=owner.groups, user=owner.name, work_dir="/")
        cluster.step(job, 0, ("/bin/sleep", "1000"), work_dir="/")
        supervisor = cluster.supervisor_pid(job, "0")
        held = ssh.run(owner.name, "cat /proc/self/cgroup")
        assert f"/slurmstepd_{supervisor}/adopted" in held.stdout, (held, ssh.log())
        refused = ssh.run(other.name, "echo in")
        assert refused.returncode == 255
        assert "in" not in refused.stdout
        assert ssh.run("root", "echo in").stdout == "in\n"
        # The session ends with the job, whatever it does.
        session = subprocess.Popen(
            ssh.command(owner.name, "echo here; trap '' TERM HUP; sleep 1000"), stdout=subprocess.PIPE, text=True
        )
        assert session.stdout is not None
        assert session.stdout.readline() == "here\n"
        cluster.terminate(job, kill_wait_seconds=0)
        cluster.finished(job, 0)
        assert session.wait(60) != 0
        session.stdout.close()
        assert ssh.run(owner.name, "echo in").returncode == 255
    finally:
        ssh.close()
