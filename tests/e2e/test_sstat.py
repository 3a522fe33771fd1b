"""sstat: what running steps use, asked of their supervisors through the controller and the node daemons."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.e2e.cluster import PATIENCE_SECONDS, Cluster, until

#: A shell that keeps some memory and burns a little time, then waits for a file.
BUSY = """#!/bin/sh
exec {python} -c '
import os, sys, time
kept = bytearray(80_000_000)
end = time.process_time() + 0.2
while time.process_time() < end:
    pass
open("ready-" + os.environ["SLURM_PROCID"], "w").close()
while not os.path.exists("over"):
    time.sleep(0.05)
'
"""


def sstat(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from spritz.cli.sstat import entry; entry()", *arguments],
        env={"PATH": os.environ["PATH"], "SLURM_CONF": str(cluster.conf)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def test_a_running_step_says_what_it_has_used(cluster: Cluster) -> None:
    job = cluster.submit(BUSY.format(python=sys.executable))
    until(lambda: (cluster.work / "ready-0").exists(), "the job's task is busy")
    done = sstat(
        cluster, "-naP", "-j", str(job), "-o", "jobid,ntasks,maxrss,maxrssnode,mincputask,nodelist,pids,avecpu"
    )
    assert (done.returncode, done.stderr) == (0, "")
    name, tasks, memory, node, task, nodes, pids, _ = done.stdout.strip().split("|")
    assert (name, tasks, node, task, nodes) == (f"{job}.batch", "1", "n1", "0", "n1")
    assert 70_000 < float(memory.rstrip("K")) < 1_000_000
    assert set(map(int, pids.split(","))) & set(cluster.job_processes(job))
    tot = sstat(cluster, "-nP", "-j", f"{job}.batch", "-o", "tresusageintot").stdout
    assert {item.partition("=")[0] for item in tot.split(",")} >= {"cpu", "mem"}
    assert sstat(cluster, "-nP", "-j", str(job)).stdout == "", "a job's own script is no step proper"
    (cluster.work / "over").touch()
    cluster.wait_state(job, "COMPLETED")


def test_what_does_not_run_is_named_and_is_no_failure(cluster: Cluster) -> None:
    job = cluster.submit("sleep 100")
    cluster.wait_state(job, "RUNNING")
    held = cluster.submit("true", priority=0)
    for asked, said in (
        (f"{job}.7", f"sstat: error: StepId={job}.7 not found running.\n"),
        (str(held), f"sstat: error: No steps running for job {held}\n"),
        ("99999", "sstat: error: couldn't get steps for job 99999\n"),
    ):
        done = sstat(cluster, "-n", "-j", asked)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", said)
    for arguments, said in (
        ((), "sstat: error: You didn't give me any jobs to stat.\n"),
        (("-j", "bogus"), "sstat: fatal: Bad job/step specified: bogus\n"),
        (("-j", str(job), "-o", "bogus"), 'sstat: error: Invalid field requested: "bogus"\n'),
    ):
        done = sstat(cluster, *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
