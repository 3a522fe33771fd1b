"""Heterogeneous jobs on real daemons: every command, the environment, steps over components, a killed controller."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from spritz.model.states import JobState
from tests.e2e.cluster import Cluster, until
from tests.e2e.commands import lines, run, start

pytestmark = pytest.mark.usefixtures("no_jobs_left")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Five nodes with eight CPUs each, for all tests here."""
    made = Cluster(nodes=5)
    try:
        yield made.start()
    finally:
        made.close()


SCRIPT = """#!/bin/sh
#SBATCH -n2 -N1 -J lead -t 5
#SBATCH hetjob
#SBATCH -n3 -N3 -J second
#SBATCH hetjob
#SBATCH -c2
echo env $SLURM_HET_SIZE $SLURM_JOB_ID $SLURM_NTASKS
echo ids $SLURM_JOB_ID_HET_GROUP_0 $SLURM_JOB_ID_HET_GROUP_1 $SLURM_JOB_ID_HET_GROUP_2
echo tasks $SLURM_NTASKS_HET_GROUP_1 $SLURM_TASKS_PER_NODE_HET_GROUP_1 $SLURM_CPUS_PER_TASK_HET_GROUP_2
srun -l echo lead | sort
srun --het-group=1 -l sh -c 'echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_NNODES $SLURM_JOB_NAME' | sort
srun --het-group=0,1 -l sh -c 'echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_NODEID/$SLURM_NNODES' | sort
srun --het-group=0 -n1 sh -c 'exit 3' : --het-group=2 sh -c 'exit 5'
echo status $?
srun -n1 -l echo a : -n3 echo b | sort
srun --het-group=0,7 true || echo refused
exit 4
"""


def test_a_script_runs_steps_in_its_components(cluster: Cluster) -> None:
    (cluster.work / "het.sh").write_text(SCRIPT)
    number = int(run(cluster, "sbatch", "--parsable", "-o", "het.out", "het.sh").stdout)
    found = cluster.wait_all_ended([number, number + 1, number + 2])
    jobs = {one: found[one] for one in range(number, number + 3)}
    said = (cluster.work / "het.out").read_text().splitlines()
    errors = [line for line in said if line.startswith("srun:")]
    assert [line for line in said if not line.startswith("srun:")] == [
        f"env 3 {number} 2",
        f"ids {number} {number + 1} {number + 2}",
        "tasks 3 1(x3) 2",
        "0: lead",
        "1: lead",
        *(f"{task}: {task}/3 3 second" for task in range(3)),
        "0: 0/5 0/4",
        "1: 1/5 0/4",
        *(f"{task}: {task}/5 {task - 1}/4" for task in (2, 3, 4)),
        "status 5",
        "0: a",
        "1: b",
        "2: b",
        "3: b",
        "refused",
    ]
    assert "maximum value of 2" in errors[-1]
    assert {job.state for job in jobs.values()} == {JobState.FAILED}
    assert {job.exit_status for job in jobs.values()} == {4 << 8}
    assert len({job.started_at for job in jobs.values()}) == 1


def test_listings_name_components(cluster: Cluster) -> None:
    number = int(run(cluster, "sbatch", "--parsable", "-n1", ":", "-N2", "--wrap", "sleep 100").stdout)
    until(lambda: cluster.job(number).state is JobState.RUNNING, "it runs")
    assert sorted(lines(run(cluster, "squeue", "-h", "-o", "%i %A %D").stdout)) == [
        f"{number}+0 {number} 1",
        f"{number}+1 {number + 1} 2",
    ]
    assert lines(run(cluster, "squeue", "-h", "-o", "%i", "-j", f"{number}+1").stdout) == [f"{number}+1"]
    fields = "hetjobid,hetjobidset,hetjoboffset"
    (shown,) = lines(run(cluster, "squeue", "-h", "-O", fields, "-j", str(number + 1)).stdout)
    assert shown.split() == [str(number), f"{number}-{number + 1}", "1"]
    record = run(cluster, "scontrol", "-o", "show", "job", f"{number}+1").stdout.decode()
    assert record.startswith(f"JobId={number + 1} HetJobId={number} HetJobOffset=1 ")
    both = run(cluster, "scontrol", "-o", "show", "job", str(number)).stdout
    assert len(lines(both)) == 2
    (one,) = json.loads(run(cluster, "squeue", "--json", "-j", str(number + 1)).stdout)["jobs"]
    assert (one["het_job_id"]["number"], one["het_job_offset"]["number"]) == (number, 1)
    assert run(cluster, "scancel", f"{number}+1").returncode == 0
    until(lambda: cluster.job(number + 1).state is JobState.CANCELLED, "the component has ended")
    assert cluster.job(number).state is JobState.RUNNING
    assert run(cluster, "scancel", str(number)).returncode == 0
    cluster.wait_all_ended([number])


def test_a_component_that_waits_cannot_be_cancelled_alone(cluster: Cluster) -> None:
    number = int(run(cluster, "sbatch", "--parsable", "-H", "-n1", ":", "-n1", "--wrap", "true").stdout)
    refused = run(cluster, "scancel", f"{number}+1")
    assert refused.returncode != 0
    assert lines(refused.stderr) == [
        f"scancel: error: Kill job error on job id {number}+1: "
        "Operation not permitted on individual component of heterogeneous job"
    ]
    run(cluster, "scancel", str(number))
    cluster.wait_all_ended([number, number + 1])


def test_a_job_with_a_component_that_can_never_run_is_refused_as_a_whole(cluster: Cluster) -> None:
    before = set(cluster.jobs())
    whole = ("--exclusive", "-N2", ":", "--exclusive", "-N4", "--wrap", "true")
    refused = run(cluster, "sbatch", *whole)
    assert "Requested node configuration is not available" in lines(refused.stderr)[-1]
    array = run(cluster, "sbatch", "--array=1-3", "-n1", ":", "-n1", "--wrap", "true")
    assert lines(array.stderr) == ["sbatch: error: Batch job submission failed: Invalid job array specification"]
    assert set(cluster.jobs()) == before


def test_lines_of_the_components_that_ask_for_it_begin_with_their_task(cluster: Cluster) -> None:
    done = run(cluster, "srun", "-n1", "echo", "a", ":", "-l", "-n1", "echo", "b")
    assert sorted(lines(done.stdout)) == ["1: b", "a"]
    own = ("srun", "-n1", "-o", "own.%t", "echo", "a", ":", "-l", "-n1", "-o", "own.%t", "echo", "b")
    assert run(cluster, *own).returncode == 0
    assert [(cluster.work / f"own.{task}").read_text() for task in (0, 1)] == ["a\n", "1: b\n"]


def test_salloc_and_srun_make_heterogeneous_jobs(cluster: Cluster) -> None:
    inside = "echo $SLURM_HET_SIZE $SLURM_NTASKS_HET_GROUP_1; srun --het-group=1 -l hostname | wc -l; exit 3"
    done = run(cluster, "salloc", "-n1", ":", "-n2", "sh", "-c", inside)
    assert (done.returncode, lines(done.stdout)) == (3, ["2 2", "2"])
    done = run(cluster, "srun", "-l", "-n1", "sh", "-c", "exit 2", ":", "-n2", "sh", "-c", "echo $SLURM_PROCID; exit 4")
    assert (done.returncode, sorted(lines(done.stdout))) == (4, ["1: 1", "2: 2"])
    nothing = run(cluster, "srun", "-n1", "hostname", ":", "-n2")
    assert lines(nothing.stderr) == ["srun: fatal: No command given to execute."]


def test_one_more_client_hears_all_components(cluster: Cluster) -> None:
    script = "echo on; until [ -e seen ]; do echo tick; sleep 0.1; done; echo late"
    program = ("-n1", "sh", "-c", script)
    running = start(cluster, "srun", "-J", "watched", *program, ":", *program)
    assert running.stdout is not None
    assert running.stdout.readline() == b"on\n"
    (job,) = [job for job in cluster.jobs().values() if job.spec.name == "watched" and not job.het_offset]
    watching = start(cluster, "sattach", "-l", f"{job.id}.0")
    assert watching.stdout is not None
    heard: set[bytes] = set()
    while len(heard) < 2:
        line = watching.stdout.readline()
        assert line, f"the client has ended, and heard {heard}"
        heard.add(line)
    (cluster.work / "seen").touch()
    out, _ = watching.communicate(timeout=100)
    running.communicate(timeout=100)
    assert heard == {b"0: tick\n", b"1: tick\n"}
    assert (watching.returncode, sorted(set(lines(out)) - {"0: tick", "1: tick"})) == (0, ["0: late", "1: late"])


def test_a_killed_controller_comes_back_with_all_components(cluster: Cluster) -> None:
    first = int(
        run(
            cluster, "sbatch", "--parsable", "-N2", "--exclusive", ":", "-N2", "--exclusive", "--wrap", "sleep 600"
        ).stdout
    )
    until(lambda: cluster.job(first).state is JobState.RUNNING, "the first runs")
    second = int(run(cluster, "sbatch", "--parsable", "-N1", ":", "-N3", "--exclusive", "--wrap", "true").stdout)
    cluster.kill_controller()
    cluster.start_controller()
    until(cluster.answers, "the controller answers")
    jobs = cluster.jobs()
    assert [jobs[number].het_job_id for number in (first, first + 1, second, second + 1)] == [first] * 2 + [second] * 2
    assert jobs[second].state is JobState.PENDING
    run(cluster, "scancel", str(first))
    found = cluster.wait_all_ended([second, second + 1])
    ended = {number: found[number] for number in (second, second + 1)}
    assert {job.state for job in ended.values()} == {JobState.COMPLETED}
    assert len({job.started_at for job in ended.values()}) == 1
