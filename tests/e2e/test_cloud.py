"""Nodes that come and go: the example of examples/cloud, with real daemons. Source: Slurm's Power Saving Guide."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spritz.model.job.record import Job
from spritz.model.queries.nodes import NodeView
from spritz.model.states import JobFlag, JobState, NodeFlag, NodeState
from tests.e2e.cluster import BIN, Cluster, is_alive, until
from tests.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "cloud"
NAMES = [f"cloud{number}" for number in range(1, 5)]

#: A ResumeProgram that waits for the file `go`; it does not outlive the test.
AT_A_WORD = 'while test -d $W && ! test -e $W/go; do sleep 0.02; done; exec ${0%/*}/resume.sh "$@"'

Make = Callable[..., "Cloud"]


class Cloud(Cluster):
    """Four nodes, each a slurmd that the example's programs start and end; what they were called with is noted."""

    def __init__(self, *, resume: str = "", partition: str = "", **keys: object) -> None:
        super().__init__(nodes=4)
        for name in ("resume", "suspend"):
            copy = self.root / f"{name}.sh"
            shutil.copy(EXAMPLE / f"{name}.sh", copy)
            text = resume if resume and name == "resume" else f'exec {copy} "$@"'
            note = 'cp "$SLURM_RESUME_FILE" $W/resume-file-new && mv $W/resume-file-new $W/resume-file\n'
            self._program(name, f'echo "$1" >> $W/{name}s\n{note if name == "resume" else ""}{text}')
        self._program("fail", 'echo "$1" >> $W/fails')
        words: dict[str, object] = {
            "ResumeProgram": self.root / "resume",
            "SuspendProgram": self.root / "suspend",
            "ResumeFailProgram": self.root / "fail",
            "SuspendTime": 0,
            "SuspendTimeout": 1,
            "ResumeTimeout": 100,
            "SuspendRate": 0,
            "SlurmctldParameters": "cloud_reg_addrs",
            "PrivateData": "cloud",
        }
        self.extra = "\n".join(f"{key}={value}" for key, value in {**words, **keys}.items())
        ports = ",".join(str(free_port()) for _ in NAMES)
        self.node_lines = "\n".join(
            f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname=localhost Port={port} CPUs=2 RealMemory=1000 State=CLOUD"
            for name, port in zip(NAMES, ports.split(","), strict=True)
        )
        self.partition_lines = f"PartitionName=cloud Nodes=cloud[1-4] Default=YES {partition}"
        self.write_conf()

    def _program(self, name: str, text: str) -> None:
        path = self.root / name
        path.write_text(f"#!/bin/sh\nW={self.work}\nexport CLOUD_PATH={BIN}\n{text}\n")
        path.chmod(0o755)

    def noted(self, name: str) -> list[str]:
        """What a program was called with, call by call."""
        path = self.work / name
        return path.read_text().split() if path.exists() else []

    def flags(self, name: str) -> int:
        """NodeFlag bits."""
        return self.node(name).node.flags

    def asleep(self) -> list[NodeView]:
        """Nodes that are powered down."""
        return [view for view in self.nodes() if view.node.flags & NodeFlag.POWERED_DOWN]

    def shown(self, *words: str) -> str:
        """What a command prints."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/", "SLURM_CONF": str(self.conf), "SPRITZ_NO_SERVER": "1"}
        done = subprocess.run(
            [BIN / words[0], *words[1:]], env=environment, capture_output=True, text=True, timeout=100
        )
        return done.stdout + done.stderr

    def close(self) -> None:
        """The daemons that the programs started end as well."""
        for name in NAMES:
            path = self.root / f"slurmd-{name}.pid"
            pid = int(path.read_text() or 0) if path.exists() else 0
            if pid and is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        super().close()


@pytest.fixture
def make_cloud() -> Iterator[Make]:
    """Makes clouds with a running controller; ended with the test."""
    made: list[Cloud] = []

    def make(**keys: object) -> Cloud:
        cloud = Cloud(**keys)  # type: ignore[arg-type]  # by name
        made.append(cloud)
        cloud.start_controller()
        return cloud

    yield make
    for cloud in made:
        cloud.close()


def test_nodes_start_when_a_job_needs_them_and_go_when_they_are_idle(make_cloud: Make) -> None:
    cloud = make_cloud()
    assert cloud.shown("sinfo", "-h", "-o", "%t %D %N").split() == ["idle~", "4", "cloud[1-4]"]
    assert "State=IDLE+CLOUD+POWERED_DOWN" in cloud.shown("scontrol", "show", "node", "cloud1")
    number = cloud.submit(f"{BIN}/srun sh -c 'echo $SLURMD_NODENAME'", nodes_min=2, tasks=2)
    job = cloud.wait_state(number, "COMPLETED")
    assert sorted(cloud.output(number).split()) == ["cloud1", "cloud2"]
    assert job.restart_count == 0
    # The whole gang in one call, and no other node.
    assert cloud.noted("resumes") == ["cloud[1-2]"]
    told = json.loads((cloud.work / "resume-file").read_text())
    assert told["all_nodes_resume"] == "cloud[1-2]"
    entry = told["jobs"][0]
    assert (entry["job_id"], entry["nodes_alloc"], entry["nodes_resume"]) == (number, "cloud[1-2]", "cloud[1-2]")
    assert (entry["oversubscribe"], entry["partition"], entry["features"]) == ("OK", "cloud", None)
    until(lambda: len(cloud.asleep()) == 4, "all nodes are powered down again")
    assert sorted(cloud.noted("suspends")) in (["cloud[1-2]"], ["cloud1", "cloud2"])
    until(lambda: not list((cloud.root / "state").glob("resume-*.json")), "the resume file is gone")


def test_a_job_is_configuring_until_its_nodes_are_up(make_cloud: Make) -> None:
    cloud = make_cloud(resume=AT_A_WORD)
    number = cloud.submit("true")
    until(lambda: cloud.noted("resumes"), "ResumeProgram has been called")
    job = cloud.job(number)
    assert job.state is JobState.RUNNING
    assert job.flags & JobFlag.CONFIGURING
    assert cloud.shown("squeue", "-h", "-o", "%t").split() == ["CF"]
    assert cloud.shown("sinfo", "-h", "-o", "%t", "-n", "cloud1").split() == ["mix#"]
    # As 22.05 has it.
    assert "State=MIXED+CLOUD+NOT_RESPONDING+POWERING_UP" in cloud.shown("scontrol", "show", "node", "cloud1")
    (cloud.work / "go").touch()
    cloud.wait_state(number, "COMPLETED")


def test_a_node_that_does_not_come_up_is_down_and_its_job_queues_again(make_cloud: Make) -> None:
    cloud = make_cloud(resume='case $1 in cloud1) exit 1;; esac; exec ${0%/*}/resume.sh "$@"', ResumeTimeout=1)
    number = cloud.submit("echo $SLURMD_NODENAME")

    def again() -> Job | None:
        job = cloud.job(number)
        return job if job.restart_count else None

    until(again, "the job has been requeued")
    node = cloud.node("cloud1").node
    assert (node.state, node.reason) == (NodeState.DOWN, "ResumeTimeout reached")
    until(lambda: cloud.noted("fails")[:1] == ["cloud1"], "ResumeFailProgram has been called")
    assert cloud.shown("sinfo", "-h", "-o", "%t", "-n", "cloud1").split() == ["down~"]


def test_a_controller_that_is_killed_calls_no_program_twice(make_cloud: Make) -> None:
    cloud = make_cloud(resume=AT_A_WORD)
    number = cloud.submit("echo $SLURMD_NODENAME")
    until(lambda: cloud.noted("resumes"), "ResumeProgram has been called")
    until(lambda: cloud.node("cloud1").node.power_called, "that is journaled")
    cloud.kill_controller()
    cloud.start_controller()
    assert cloud.job(number).flags & JobFlag.CONFIGURING
    (cloud.work / "go").touch()
    cloud.wait_state(number, "COMPLETED")
    assert cloud.noted("resumes") == ["cloud1"]


def test_administrators_power_nodes_up_and_down(make_cloud: Make) -> None:
    cloud = make_cloud(SuspendTime=-1)
    assert cloud.shown("scontrol", "update", "nodename=cloud[3-4]", "state=power_up") == ""
    until(lambda: not cloud.flags("cloud3") & (NodeFlag.POWERED_DOWN | NodeFlag.POWERING_UP), "cloud3 is up")
    until(lambda: not cloud.flags("cloud4") & (NodeFlag.POWERED_DOWN | NodeFlag.POWERING_UP), "cloud4 is up")
    assert cloud.noted("resumes") == ["cloud[3-4]"]
    number = cloud.submit("echo ran; while ! test -e go; do sleep 0.02; done")
    cloud.wait_state(number, "RUNNING")
    name = cloud.job(number).allocation.names[0]  # type: ignore[union-attr]
    assert name == "cloud3"  # before those that are powered down
    assert cloud.shown("scontrol", "update", f"nodename={name}", "state=power_down") == ""
    assert cloud.shown("sinfo", "-h", "-o", "%t", "-n", name).split() == ["mix!"]
    assert not cloud.noted("suspends")
    (cloud.work / "go").touch()
    cloud.wait_state(number, "COMPLETED")
    until(lambda: cloud.flags(name) & NodeFlag.POWERED_DOWN, "it goes down when the job has gone")
    assert cloud.noted("suspends") == [name]


def test_without_private_data_cloud_nodes_that_are_down_are_not_shown(make_cloud: Make) -> None:
    cloud = make_cloud(PrivateData="jobs,nodes", SuspendTime=-1)
    assert cloud.shown("sinfo", "-h", "-N") == ""
    number = cloud.submit("true")
    cloud.wait_state(number, "COMPLETED")
    assert cloud.shown("sinfo", "-h", "-N", "-o", "%N").split() == ["cloud1"]
    assert cloud.shown("scontrol", "show", "node", "cloud2") == "Node cloud2 not found\n"
    assert cloud.shown("scontrol", "update", "nodename=cloud1", "nodeaddr=10.1.2.3", "nodehostname=vm-17") == ""
    assert "NodeAddr=10.1.2.3 NodeHostName=vm-17" in cloud.shown("scontrol", "show", "node", "cloud1")
