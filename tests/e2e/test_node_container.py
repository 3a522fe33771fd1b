"""JobContainerType=job_container/tmpfs: directories of the job's own. Source: job_container.conf(5)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.stepd.tasks.namespaces import may_cover

from .node_harness import NodeCluster, wait_until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NodeCluster]:
    if problem := may_cover():
        pytest.skip(f"no mount namespace can be made here: {problem}")
    found = NodeCluster(tmp_path, nodes=1, extra="JobContainerType=job_container/tmpfs")
    (found.root / "scratch").mkdir(mode=0o777)
    (found.root / "job_container.conf").write_text(
        f"AutoBasePath=true BasePath={found.root}/base/%n Dirs={found.root}/scratch\n"
        f"NodeName={found.hostlist} InitScript={found.root}/init\n"
    )
    init = found.root / "init"
    init.write_text('#!/bin/sh\necho "$SLURM_JOB_ID $SLURM_JOB_MOUNT_SRC" >>"${0%/*}/inits"\n')
    init.chmod(0o755)
    found.controller.start()
    try:
        yield found
    finally:
        found.close()


def test_each_job_has_its_own_and_its_steps_share_it(cluster: NodeCluster) -> None:
    cluster.start()
    scratch, base = cluster.root / "scratch", cluster.root / "base" / cluster.names[0]
    (scratch / "everyones").touch()
    script = f"#!/bin/sh\nls -A {scratch} /dev/shm; echo mine >{scratch}/note; echo mine >/dev/shm/note\n"
    script += f"touch {cluster.work}/noted\n"
    wait = f"until [ -e {cluster.work}/go ]; do sleep 0.02; done\n"
    first = cluster.batch(script + wait)
    wait_until((cluster.work / "noted").exists, "its notes are written")
    mount = f"{base}/{first.id}.0"
    assert (cluster.root / "inits").read_text() == f"{first.id} {mount}\n"
    see = cluster.work / "see"
    cluster.step(first, 0, ("/bin/sh", "-c", f"cat {scratch}/note /dev/shm/note"), stdout=str(see))
    wait_until(lambda: (cluster.root / "base" / cluster.names[0] / f"{first.id}.0").exists(), "the directory is there")
    assert cluster.finished(first, 0).tasks[0].status == 0 or see.read_text()
    second = cluster.batch(f"#!/bin/sh\nls -A {scratch} /dev/shm\n")
    cluster.finished(second)
    empty = f"/dev/shm:\n\n{scratch}:\n"
    assert cluster.output(second) == empty, "neither the machine's files nor another job's"
    # The daemon goes away and comes back while the first job runs: it keeps its directories, and loses them at its end.
    cluster.kill()
    cluster.start()
    assert os.path.isdir(mount)
    (cluster.work / "go").touch()
    cluster.finished(first)
    assert cluster.output(first) == empty
    assert see.read_text() == "mine\nmine\n"
    assert sorted(os.listdir(scratch)) == ["everyones"]
    for job in (first, second):
        cluster.terminate(job)
    wait_until(lambda: not os.listdir(base), "the directories are removed with their jobs")
    assert not [name for name in os.listdir("/dev/shm") if name == f"{first.id}.0"]


@pytest.mark.slow
def test_a_working_directory_that_is_covered_is_told(cluster: NodeCluster) -> None:
    cluster.start()
    deep = cluster.root / "scratch" / "deep"
    deep.mkdir(mode=0o777)
    job = cluster.batch("#!/bin/sh\npwd\n", work_dir=str(deep))
    assert cluster.finished(job).tasks[0].status == 0
    said = (deep / f"slurm-{job.id}.out").read_text()
    assert said.endswith("going to /tmp instead\n/tmp\n")
    assert f"couldn't chdir to `{deep}'" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("BasePath=/nowhere/at/all Dirs=/var/tmp\n", "BasePath: /nowhere/at/all"),
        ("AutoBasePath=true BasePath={root}/base Dirs=/no/such\n", "Dirs: /no/such: no such directory"),
        ("BasePath={root}/base Dirs={root}\n", "lies in {root}, which every job is to have of its own"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(cluster: NodeCluster, text: str, message: str) -> None:
    (cluster.root / "job_container.conf").write_text(text.format(root=cluster.root))
    command = [sys.executable, "-m", "spritz.node.main", "-D", "-f", str(cluster.conf), "-N", cluster.hostlist]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert message.format(root=cluster.root) in done.stderr
