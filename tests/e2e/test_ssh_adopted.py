"""`spritz adopt` under a real sshd: users without a job are refused, those with one are held by it.

sshd runs in a mount namespace where /etc/pam.d/sshd is the test's. Source: Slurm's guide to pam_slurm_adopt.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.model.job.record import Job
from spritz.model.node_daemon.launch import SuspendTasks
from spritz.node.cgroup import directory_name, prepare_tree
from spritz.stepd.resources.usage import group_name
from spritz.stepd.tree import is_frozen
from tests.ports import free_port

from .node_harness import NodeCluster, need_version_2, running, wait_until
from .people import Person, made_people

SSHD = "/usr/sbin/sshd"
pytestmark = [pytest.mark.root, pytest.mark.slow]


class Ssh:
    """An sshd of the test's own."""

    def __init__(self, cluster: NodeCluster, session: str = "") -> None:
        """`session`: lines of PAM for it."""
        self.port = free_port()
        self.directory = cluster.root / f"ssh{self.port}"
        self.directory.mkdir(mode=0o755)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-qN", "", "-t", "ed25519", "-f", str(self.directory / name)], check=True)
        (self.directory / "config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.directory}/host\nUsePAM yes\nStrictModes no\n"
            f"AuthorizedKeysFile {self.directory}/user.pub\nPidFile none\nPasswordAuthentication no\n"
        )
        adopt = f"{sysconfig.get_path('scripts')}/spritz adopt --conf {cluster.conf}"
        (self.directory / "pam").write_text(
            "auth required pam_permit.so\n"
            f"account required pam_exec.so stdout {adopt}\n"
            + (session or "session required pam_permit.so").replace("ADOPT", adopt)
            + "\n"
        )
        # What gives sessions a mount namespace; root's are left alone.
        (self.directory / "namespace").write_text("/tmp tmpfs tmpfs root\n")
        cluster.root.chmod(0o755)
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        script = (
            f"mount --bind {self.directory}/pam /etc/pam.d/sshd && "
            f"mount --bind {self.directory}/namespace /etc/security/namespace.conf && "
            f"exec {SSHD} -D -e -f {self.directory}/config"
        )
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


def test_a_suspended_job_takes_no_session(cluster: NodeCluster, people: dict[str, Person]) -> None:
    ssh = Ssh(cluster)
    try:
        owner = people["a"]
        older, newer = (
            cluster.job(uid=owner.uid, gid=owner.gid, groups=owner.groups, user=owner.name, work_dir="/")
            for _ in range(2)
        )
        for job in (older, newer):
            cluster.step(job, 0, ("/bin/sleep", "1000"), work_dir="/")
        awake = cluster.supervisor_pid(older, "0")
        group = Path(prepare_tree(directory_name(str(cluster.spool())))) / group_name(
            cluster.supervisor_pid(newer, "0")
        )

        def suspend(job: Job) -> None:
            order = SuspendTasks(term=1, node=cluster.names[0], job_id=job.id, restart_count=0, grace_seconds=0)
            cluster.controller.tell(order)

        suspend(newer)
        wait_until(lambda: is_frozen(str(group)), "the newer job is frozen")
        held = ssh.run(owner.name, "cat /proc/self/cgroup")
        assert f"/slurmstepd_{awake}/adopted" in held.stdout, (held, ssh.log())
        suspend(older)
        wait_until(lambda: is_frozen(f"{group.parent}/{group_name(awake)}"), "the older job is frozen too")
        refused = ssh.run(owner.name, "echo in")
        assert refused.returncode == 255, (refused, ssh.log())
        for job in (older, newer):
            cluster.terminate(job, kill_wait_seconds=0)
            cluster.finished(job, 0)
    finally:
        ssh.close()


NAMESPACE = "session required pam_namespace.so mount_private"
DIRECTORIES = "session required pam_exec.so stdout ADOPT --directories"


@pytest.fixture
def contained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeCluster]:
    """A node whose jobs have a /tmp of their own; its files are elsewhere."""
    if os.getuid() != 0 or not os.path.exists(SSHD) or shutil.which("ssh") is None:
        pytest.skip("takes root and an OpenSSH server")
    if not glob.glob("/lib/*/security/pam_namespace.so"):
        pytest.skip("takes pam_namespace")
    need_version_2()
    # Outside /tmp, which is to be covered.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="spritz-ssh-") as place:
        os.chmod(place, 0o755)
        monkeypatch.setattr(tempfile, "tempdir", place)
        made = NodeCluster(tmp_path, nodes=1, extra="JobContainerType=job_container/tmpfs")
        (made.root / "job_container.conf").write_text(f"AutoBasePath=true BasePath={made.root}/base Dirs=/tmp\n")
        with running(made):
            yield made


def test_a_session_sees_the_directories_of_its_job(contained: NodeCluster, people: dict[str, Person]) -> None:
    owner = people["a"]
    job = contained.job(uid=owner.uid, gid=owner.gid, groups=owner.groups, user=owner.name, work_dir="/")
    write = "echo of the job >/tmp/note; echo of the job >/dev/shm/note; exec sleep 1000"
    contained.step(job, 0, ("/bin/sh", "-c", write), work_dir="/")
    home = contained.root / "base" / f"{job.id}.0" / "tmp"
    wait_until((home / "note").exists, "the job has written")
    mine = Path("/tmp") / f"of-the-machine-{contained.port}"
    mine.touch()
    ssh = Ssh(contained, f"{NAMESPACE}\n{DIRECTORIES}")
    try:
        seen = ssh.run(owner.name, "cat /tmp/note /dev/shm/note; ls /tmp; echo mine >/tmp/of-the-session")
        assert seen.stdout == "of the job\nof the job\nnote\n", (seen, ssh.log())
        assert (home / "of-the-session").read_text() == "mine\n"
        assert mine.name in ssh.run("root", f"ls {mine}").stdout, "root sees the machine's"
        assert mine.exists()
        assert not os.path.exists("/tmp/note")
        # A session without a namespace of its own must not cover the machine's /tmp: it is refused.
        ssh.close()
        ssh = Ssh(contained, DIRECTORIES)
        refused = ssh.run(owner.name, "echo in")
        assert refused.returncode != 0, ssh.log()
        assert "pam_namespace must come before" in refused.stdout
        assert "in\n" not in refused.stdout
        assert mine.exists()
    finally:
        ssh.close()
        mine.unlink()
        contained.terminate(job, kill_wait_seconds=0)
        contained.finished(job, 0)
