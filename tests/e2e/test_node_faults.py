"""Whatever is killed: jobs go on, ends are reported, nothing runs twice and nothing is left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from spritz.client.errors import ClientError
from spritz.model.job.record import Job
from spritz.model.node_daemon.reports import JobGone, RunningStep, StepFinished, TaskEnd
from spritz.stepd import record

from .cluster import is_alive
from .node_harness import NodeCluster, wait_until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NodeCluster]:
    """Two nodes in one slurmd."""
    made = NodeCluster(tmp_path)
    made.controller.start()
    made.start()
    yield made
    made.close()


def test_a_step_that_no_supervisor_began_is_not_taken_for_running(cluster: NodeCluster) -> None:
    job = waiting_job(cluster)
    cluster.kill()
    begun = cluster.spool() / f"job{job.id:05d}.0.batch"
    never = cluster.spool() / "job00077.0.batch"
    never.mkdir()
    whole = record.read(str(begun / "step"))
    assert whole is not None
    (never / "step").write_bytes(record.spec_entry(msgspec.structs.replace(whole.spec, job_id=77)))
    cluster.start()
    assert not never.exists()
    assert [one.job_id for one in cluster.controller.registrations[-2].running] == [job.id]
    cluster.terminate(job, kill_now=True)


def waiting_job(cluster: NodeCluster) -> Job:
    """A job that runs until the file `go` is there."""
    job = cluster.batch("#!/bin/sh\necho ran >> runs\nwhile ! test -e go; do sleep 0.01; done\necho end\nexit 3\n")
    wait_until((cluster.work / "runs").exists, "the job has begun")
    return job


def test_jobs_outlive_a_killed_slurmd_and_are_adopted(cluster: NodeCluster) -> None:
    job = waiting_job(cluster)
    cluster.kill()
    cluster.start()
    running = {one for request in cluster.controller.registrations[-2:] for one in request.running}
    assert {(one.job_id, one.restart_count) for one in running} == {(job.id, 0)}
    cluster.controller.tell(cluster.batch_message("#!/bin/sh\necho twice >> runs\n", job))
    (cluster.work / "go").touch()
    result = cluster.finished(job)
    assert (result.tasks, result.job_gone) == ((TaskEnd(0, 3 << 8),), True)
    assert (cluster.work / "runs").read_text() == "ran\n"


def test_an_end_while_slurmd_is_dead_is_reported_later(cluster: NodeCluster) -> None:
    job = waiting_job(cluster)
    supervisor = cluster.supervisor_pid(job)
    cluster.kill()
    (cluster.work / "go").touch()
    wait_until(lambda: not os.path.exists(f"/proc/{supervisor}"), "the supervisor has left its result")
    cluster.start()
    assert cluster.finished(job).tasks == (TaskEnd(0, 3 << 8),)
    wait_until(lambda: not list(cluster.spool().glob("job*")), "the spool is empty")


def test_a_killed_supervisor_is_noticed_and_its_processes_do_not_survive_it(cluster: NodeCluster) -> None:
    mine = f"1000.{cluster.port}"
    job = cluster.batch(f"#!/bin/sh\nsetsid sleep {mine} &\nsleep {mine} &\necho $! > pid\nmv pid pids\nsleep {mine}\n")
    wait_until((cluster.work / "pids").exists, "the job has begun")
    os.kill(cluster.supervisor_pid(job), signal.SIGKILL)
    result = cluster.finished(job, error_kind="supervisor")
    assert result.tasks == (TaskEnd(0, signal.SIGKILL),)
    assert not result.launch_failed
    assert not is_alive(int((cluster.work / "pids").read_text()))
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _command(pid) == mine]


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").rpartition(b"\0")[2].decode()
    except OSError:
        return ""


def test_a_supervisor_killed_while_slurmd_is_dead_is_cleaned_up_after(cluster: NodeCluster) -> None:
    job = waiting_job(cluster)
    supervisor = cluster.supervisor_pid(job)
    tasks = cluster.pids(job)[1:]
    cluster.kill()
    os.kill(supervisor, signal.SIGKILL)
    cluster.start()
    assert cluster.finished(job).error == "slurmstepd was killed"
    assert not any(map(is_alive, tasks))


def test_a_controller_that_is_away_hears_of_the_end_when_it_is_back(cluster: NodeCluster) -> None:
    job = waiting_job(cluster)
    cluster.controller.stop()
    (cluster.work / "go").touch()
    wait_until(lambda: "end" in cluster.output(job), "the job has ended")
    cluster.kill()
    cluster.start(wait=False)
    cluster.controller.start()
    assert cluster.finished(job).tasks == (TaskEnd(0, 3 << 8),)


def test_a_report_that_was_not_acknowledged_comes_again(cluster: NodeCluster) -> None:
    job = waiting_job(cluster)
    cluster.controller.answering = False
    (cluster.work / "go").touch()
    wait_until(lambda: len(cluster.controller.registrations) >= 4, "slurmd has connected again")
    cluster.controller.answering = True
    cluster.finished(job)
    assert len([report for report in cluster.controller.reports if isinstance(report, StepFinished)]) == 1


def test_steps_start_again_after_the_zygote_was_killed(cluster: NodeCluster) -> None:
    assert cluster.daemon is not None
    children = Path(f"/proc/{cluster.daemon.pid}/task/{cluster.daemon.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    wait_until(lambda: _state(children[0]) in ("Z", ""), "the zygote is dead")
    job = cluster.batch("#!/bin/sh\nexit 5\n")
    assert cluster.finished(job).tasks == (TaskEnd(0, 5 << 8),)


def _state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_a_stopped_slurmd_leaves_jobs_alone(cluster: NodeCluster) -> None:
    job = waiting_job(cluster)
    assert cluster.stop() == 0
    assert not (cluster.root / "slurmd.pid").exists()
    (cluster.work / "go").touch()
    cluster.start()
    assert cluster.finished(job).tasks == (TaskEnd(0, 3 << 8),)


def test_a_fresh_start_forgets_and_kills_what_ran(cluster: NodeCluster) -> None:
    job = waiting_job(cluster)
    pids = cluster.pids(job)
    cluster.kill()
    cluster.start("-c")
    assert all(request.running == () for request in cluster.controller.registrations[-2:])
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "its processes are gone")


def test_a_launch_cut_short_by_a_crash_never_runs(cluster: NodeCluster) -> None:
    cluster.kill()
    directory = cluster.spool() / "job00099.0.batch"
    directory.mkdir()
    (directory / "step").write_bytes(b"cut sho")
    cluster.start()
    assert not directory.exists()
    assert all(
        RunningStep(99, 0, 0xFFFFFFFB) not in registration.running for registration in cluster.controller.registrations
    )


def test_a_job_that_is_terminated_after_adoption_is_gone(cluster: NodeCluster) -> None:
    job = waiting_job(cluster)
    cluster.kill()
    cluster.start()
    cluster.terminate(job)
    cluster.controller.wait_for(JobGone, job_id=job.id)
    assert "CANCELLED AT" in cluster.output(job)


@pytest.mark.slow
def test_under_fire_every_job_runs_once_and_every_end_is_told(cluster: NodeCluster) -> None:
    """Jobs keep coming while slurmd is killed again and again; orders are repeated as the controller would."""
    jobs = [cluster.job() for _ in range(40)]
    script = "#!/bin/sh\necho $SLURM_JOB_ID >> ran\nsleep 0.05\nexit 6\n"
    for number, job in enumerate(jobs):
        if number % 8 == 7:
            cluster.kill()
            cluster.start()
            for lost in _unknown(cluster, jobs[:number]):
                cluster.batch(script, lost)
        for _ in range(3):
            try:
                cluster.controller.tell(cluster.batch_message(script, job))
            except ClientError:
                continue  # the connection broke: the order is given again, perhaps a second time
            break
    for job in jobs:
        assert cluster.finished(job).tasks == (TaskEnd(0, 6 << 8),)
    ran = (cluster.work / "ran").read_text().split()
    assert sorted(map(int, ran)) == [job.id for job in jobs]
    wait_until(lambda: not list(cluster.spool().glob("job*")), "the spool is empty")


def _unknown(cluster: NodeCluster, jobs: list[Job]) -> list[Job]:
    """Jobs that slurmd accepted and had not begun when it was killed: their nodes register without them."""
    reported = {step.job_id for request in cluster.controller.registrations[-2:] for step in request.running}
    return [
        job for job in jobs if job.id not in reported and cluster.controller.find(StepFinished, job_id=job.id) is None
    ]
