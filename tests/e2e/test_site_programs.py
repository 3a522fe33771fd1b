"""The site's programs around jobs, with real daemons. Source: slurm.conf(5) PROLOG AND EPILOG SCRIPTS."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from spritz.model.job.record import Hold
from spritz.model.states import JobFlag, NodeFlag
from tests.e2e.cluster import BIN, Cluster, until

Make = Callable[..., Cluster]


def configured(cluster: Cluster, **programs: str) -> Cluster:
    """Start with these keys' programs, given as shell text; `$W` is the work directory."""
    for key, text in programs.items():
        path = cluster.root / key
        path.write_text(f"#!/bin/sh\nW={cluster.work}\n{text}\n")
        path.chmod(0o755)
        cluster.extra += f"\n{key}={path}"
    cluster.write_conf()
    return cluster.start()


def lines(path: Path) -> list[str]:
    """What a program has noted; nothing if it has not run."""
    return path.read_text().splitlines() if path.exists() else []


def srun(cluster: Cluster, *words: str, command: str = "srun") -> subprocess.CompletedProcess[str]:
    """One of our launching commands, in the work directory."""
    environment = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": "/",
        "SLURM_CONF": str(cluster.conf),
        "SPRITZ_NO_SERVER": "1",
    }
    return subprocess.run(
        [BIN / command, *words], cwd=cluster.work, env=environment, capture_output=True, text=True, timeout=100
    )


def test_a_job_is_configuring_until_prologslurmctld_has_run_and_epilogslurmctld_hears_of_its_end(
    make_cluster: Make,
) -> None:
    cluster = configured(
        make_cluster(),
        PrologSlurmctld='echo "$SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID $SLURM_JOB_NODELIST $(id -un)" >> $W/before\n'
        "while ! test -e $W/go; do sleep 0.02; done",
        EpilogSlurmctld='echo "$SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID $SLURM_JOB_EXIT_CODE2" >> $W/after',
    )
    number = cluster.submit("echo ran > ran; exit 3")
    until(lambda: lines(cluster.work / "before"), "PrologSlurmctld has begun")
    assert cluster.job(number).flags & JobFlag.CONFIGURING
    assert srun(cluster, "-h", "-o", "%t %T %N", command="squeue").stdout == "CF CONFIGURING n1\n"
    assert "JobState=CONFIGURING " in srun(cluster, "show", "job", str(number), command="scontrol").stdout
    assert not (cluster.work / "ran").exists()
    (cluster.work / "go").touch()
    job = cluster.wait_state(number, "FAILED")
    assert not job.flags & JobFlag.CONFIGURING
    assert lines(cluster.work / "ran") == ["ran"]
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    assert lines(cluster.work / "before") == [f"prolog_slurmctld {number} n1 {user}"]
    until(lambda: lines(cluster.work / "after"), "EpilogSlurmctld has run")
    assert lines(cluster.work / "after") == [f"epilog_slurmctld {number} 3:0"]


@pytest.mark.slow
def test_a_batch_job_whose_prologslurmctld_fails_runs_when_it_no_longer_does(make_cluster: Make) -> None:
    cluster = configured(make_cluster(), PrologSlurmctld="echo $SLURM_JOB_RESTART_COUNT >> $W/n; test -e $W/well")
    number = cluster.submit("echo ran > ran")
    until(lambda: cluster.job(number).restart_count == 1, "the job queues again")
    (cluster.work / "well").touch()
    assert cluster.wait_state(number, "COMPLETED").restart_count >= 1
    assert lines(cluster.work / "n")[:2] == ["0", "1"]
    until(lambda: "prolog_slurmctld.failed" in cluster.controller_log(), "the failure's line")


def test_srun_waits_for_prologslurmctld_and_is_told_when_it_fails(make_cluster: Make) -> None:
    cluster = configured(make_cluster(), PrologSlurmctld="echo x >> $W/n; test -e $W/well")
    failed = srun(cluster, "true")
    assert failed.returncode != 0, failed
    said = f"srun: error: PrologSlurmctld failed: {cluster.root}/PrologSlurmctld: exit status 1"
    assert said in failed.stderr  # on a busy machine after a line that it waits
    (cluster.work / "well").touch()
    done = srun(cluster, "sh", "-c", "echo hello")
    assert (done.returncode, done.stdout) == (0, "hello\n"), done
    assert len(lines(cluster.work / "n")) == 2


def test_a_controller_that_was_killed_runs_the_prolog_of_a_configuring_job_again(make_cluster: Make) -> None:
    cluster = configured(make_cluster(), PrologSlurmctld="echo x >> $W/n; while ! test -e $W/go; do sleep 0.02; done")
    number = cluster.submit("true")
    until(lambda: lines(cluster.work / "n"), "PrologSlurmctld has begun")
    cluster.kill_controller()
    cluster.start_controller()
    until(lambda: len(lines(cluster.work / "n")) == 2, "it has begun again")
    (cluster.work / "go").touch()
    assert cluster.wait_state(number, "COMPLETED").restart_count == 0


def test_prolog_and_epilog_run_once_on_every_node_that_a_job_uses(make_cluster: Make) -> None:
    cluster = configured(
        make_cluster(),
        Prolog='echo "$SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID" >> $W/before-$SLURMD_NODENAME',
        Epilog='echo "$SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID" >> $W/after-$SLURMD_NODENAME',
        TaskProlog="echo export FROM=prolog",
        TaskEpilog="echo $SLURM_PROCID >> $W/tasks",
    )
    done = srun(cluster, "-N2", "-n2", "sh", "-c", "echo $FROM")
    assert (done.returncode, done.stdout) == (0, "prolog\nprolog\n"), done
    for node in ("n1", "n2"):
        until(lambda node=node: lines(cluster.work / f"after-{node}"), "the Epilog has run")  # type: ignore[misc]
        number = lines(cluster.work / f"before-{node}")[0].split()[1]
        assert lines(cluster.work / f"before-{node}") == [f"prolog_slurmd {number}"]
        assert lines(cluster.work / f"after-{node}") == [f"epilog_slurmd {number}"]
    assert sorted(lines(cluster.work / "tasks")) == ["0", "1"]


@pytest.mark.parametrize(
    ("options", "hold"),
    [("", Hold.ADMIN), pytest.param("nohold_on_prolog_fail", Hold.NONE, marks=pytest.mark.slow)],
)
def test_a_failing_prolog_drains_its_node_and_the_job_queues_again_held(
    make_cluster: Make, options: str, hold: Hold
) -> None:
    cluster = make_cluster()
    cluster.extra = f"SchedulerParameters={options}" if options else ""
    configured(cluster, Prolog="test $SLURMD_NODENAME != n1")
    number = cluster.submit("echo $SLURMD_NODENAME > ran")
    until(lambda: cluster.job(number).restart_count == 1, "the job queues again")
    view = cluster.node("n1")
    assert (bool(view.node.flags & NodeFlag.DRAIN), view.node.reason) == (True, "Prolog error")
    if hold is Hold.NONE:
        cluster.wait_state(number, "COMPLETED")
        assert lines(cluster.work / "ran") == ["n2"]
    else:
        job = cluster.job(number)
        assert (job.hold, job.reason_detail) == (hold, "launch failed requeued held")
        assert not (cluster.work / "ran").exists()
        output, cause = cluster.work / f"slurm-{number}.out", f"Job prolog failed: {cluster.root}/Prolog: exit status 1"
        until(lambda: lines(output) == [f"slurmd: error: {cause}"], "the job's output has the cause")
        srun(cluster, "update", "nodename=n1", "state=resume", command="scontrol")
        step = srun(cluster, "-Q", "-N2", "-n2", "hostname")  # it may have to wait for n1, where the job is cleared
        assert step.returncode in (1, 143)  # if its task on n2 had begun, and was ended
        named = f"srun: error: Task launch for StepId={number + 1}.0 failed on node n1: {cause}"
        assert [named, f"srun: error: Application launch failed: {cause}"] == step.stderr.splitlines()[:2]


def test_a_failing_epilog_drains_its_node(make_cluster: Make) -> None:
    cluster = configured(make_cluster(), Epilog="exit 1")
    number = cluster.submit("true")
    cluster.wait_state(number, "COMPLETED")
    until(lambda: cluster.node("n1").node.flags & NodeFlag.DRAIN, "the node drains")
    assert cluster.node("n1").node.reason == "Epilog error"


def test_salloc_runs_the_sites_default_command_and_the_interactive_step(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.extra = 'SallocDefaultCommand="echo site $SLURM_JOB_ID"'
    configured(cluster)
    assert srun(cluster, command="salloc").stdout.startswith("site ")
    cluster.extra = (
        "LaunchParameters=use_interactive_step\n"
        "InteractiveStepOptions=\"--interactive sh -c 'echo step $SLURM_STEP_ID on $SLURMD_NODENAME'\""
    )
    cluster.write_conf()
    done = srun(cluster, command="salloc")
    assert done.stdout.split()[::2] == ["step", "on"], done
    assert done.stdout.endswith(" on n1\n")


def test_srun_prolog_and_epilog_of_the_cluster_run_where_srun_runs(make_cluster: Make) -> None:
    cluster = configured(
        make_cluster(),
        SrunProlog='echo "$SLURM_SCRIPT_CONTEXT $1 $2 $SLURM_JOB_NODELIST $SLURM_JOB_UID" >> $W/n',
        SrunEpilog='echo "$SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID $SLURM_NNODES" >> $W/n',
    )
    assert srun(cluster, "sh", "-c", "echo step >> n; exit 3").returncode == 3
    assert [line.split()[0] for line in lines(cluster.work / "n")] == ["prolog_srun", "step", "epilog_srun"]
    assert lines(cluster.work / "n")[0] == f"prolog_srun sh -c n1 {os.getuid()}"
    assert lines(cluster.work / "n")[2] == "epilog_srun 1 1"


def test_a_prolog_of_srun_that_fails_ends_it_and_an_epilog_that_fails_is_told(make_cluster: Make) -> None:
    cluster = configured(make_cluster())
    done = srun(cluster, "--prolog=/bin/false", "echo", "ran")
    assert (done.returncode, done.stdout) == (137, "")
    assert done.stderr == "srun: error: srun prolog failed rc = 1. Aborting step.\n"
    done = srun(cluster, "--epilog=/bin/false", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr == "srun: error: srun epilog failed status=1\n"


def test_options_of_srun_replace_the_clusters_prolog_and_epilog(make_cluster: Make) -> None:
    cluster = configured(make_cluster(), SrunProlog="echo cluster >> $W/n", SrunEpilog="echo cluster >> $W/n")
    own = cluster.work / "own"
    own.write_text(f"#!/bin/sh\necho own >> {cluster.work}/n\n")
    own.chmod(0o755)
    assert srun(cluster, f"--prolog={own}", "--epilog=none", "true").returncode == 0
    assert lines(cluster.work / "n") == ["own"]
    missing = srun(cluster, "--prolog=/no/such", "--epilog=none", "echo", "ran")
    assert (missing.returncode, missing.stdout) == (0, "ran\n")
    assert "Access denied for /no/such: No such file or directory" in missing.stderr
