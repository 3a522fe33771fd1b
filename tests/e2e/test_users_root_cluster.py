"""Root daemons with a SlurmUser: jobs run as their submitters, and users cannot touch what belongs to others.

Source: slurm.conf(5) SlurmUser; scontrol(1), scancel(1); credentials(7).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct, structs

from spritz.model.commands.job import (
    CancelJobs,
    CancelResult,
    Done,
    HoldJob,
    JobSubmitted,
    NotifyJob,
    ReleaseJob,
    RequeueJob,
    ResumeJob,
    SuspendJob,
    TopJob,
    UpdateJob,
)
from spritz.model.commands.step import AttachStep, CreateStep, SignalStep, StepCreated
from spritz.model.ids import STEP_BATCH
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import ResourceLimit
from spritz.model.job.step import StepSpec
from spritz.model.node_daemon.reports import JobGone, NodeTrouble, RegisterNode, StepFinished
from spritz.model.queries.allocations import AllocationGranted, AwaitAllocation
from spritz.model.queries.daemons import PauseScheduling, Reconfigure, SetDebug, Shutdown
from spritz.model.queries.events import WatchEvents
from spritz.model.queries.jobs import GetScript, Script
from spritz.model.queries.steps import ListSteps, Steps
from spritz.model.resources import NodeCapacity
from spritz.model.states import JobState
from tests.e2e.cluster import Cluster, until
from tests.e2e.people import Person, Refused, made_people

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("useradd") is None, reason="makes users: needs root and useradd"
)


@pytest.fixture(scope="module")
def people() -> Iterator[dict[str, Person]]:
    """alice and bob, who share a group, and slurm, who runs the controller."""
    with made_people("alice", "bob", "slurm") as made:
        yield made


@pytest.fixture(scope="module")
def site(people: dict[str, Person]) -> Iterator[Cluster]:
    """One cluster for all these tests."""
    cluster = Cluster(slurm_user=people["slurm"].name)
    try:
        yield cluster.start()
    finally:
        cluster.close()


@pytest.fixture
def alice(people: dict[str, Person]) -> Person:
    return people["alice"]


@pytest.fixture
def bob(people: dict[str, Person]) -> Person:
    return people["bob"]


@pytest.fixture
def desk(site: Cluster, alice: Person) -> Iterator[Path]:
    """A directory of alice's that only she can enter."""
    path = site.work / "desk"
    path.mkdir(mode=0o700)
    os.chown(path, alice.uid, alice.gid)
    yield path
    shutil.rmtree(path)


def submit_as(person: Person, site: Cluster, script: str = "true", **fields: object) -> int:
    """Queue a job as that person; its number."""
    request = site.request(script, **({"work_dir": str(person.home)} | fields))
    return person.ask(site, request, JobSubmitted).job_id


def test_a_job_runs_as_its_submitter_with_groups_umask_limits_and_home(
    site: Cluster, alice: Person, desk: Path
) -> None:
    script = "umask; id -u; id -g; id -G; pwd; ulimit -Sn; touch made; exec cat /proc/self/status"
    number = submit_as(
        alice, site, script, work_dir=str(desk), umask=0o027, limits=(ResourceLimit("NOFILE", 333),), stdout="out"
    )
    site.wait_state(number, "COMPLETED")
    out, made = (desk / "out").stat(), (desk / "made").stat()
    lines = (desk / "out").read_text().splitlines()
    assert lines[:3] == ["0027", str(alice.uid), str(alice.gid)]
    assert sorted(lines[3].split()) == sorted(map(str, alice.groups))
    assert lines[4:6] == [str(desk), "333"]
    status = dict(line.split(":\t", 1) for line in lines[6:] if ":\t" in line)
    assert set(status["Uid"].split()) == {str(alice.uid)}
    assert set(status["Gid"].split()) == {str(alice.gid)}
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert [(one.st_uid, one.st_gid, one.st_mode & 0o777) for one in (out, made)] == [
        (alice.uid, alice.gid, 0o640),
        (alice.uid, alice.gid, 0o640),
    ]


def test_the_owner_is_the_user_that_the_kernel_names_not_the_request(site: Cluster, alice: Person, bob: Person) -> None:
    with pytest.raises(Refused):
        submit_as(alice, site, uid=bob.uid)
    with pytest.raises(Refused):
        submit_as(alice, site, uid=0)
    with pytest.raises(Refused, match="ESLURM_GROUP_ID_MISSING"):
        submit_as(alice, site, gid=0)
    number = submit_as(alice, site, begin_at=2e9, user="root", group="root", groups=(0,))
    spec = site.job(number).spec
    assert (spec.uid, spec.gid, spec.user, spec.group) == (alice.uid, alice.gid, alice.name, alice.name)
    assert 0 not in spec.groups
    site.cancel(number)


def test_an_administrator_submits_for_a_user(site: Cluster, alice: Person, desk: Path) -> None:
    number = site.submit("id -u > who", uid=alice.uid, work_dir=str(desk))
    site.wait_state(number, "COMPLETED")
    assert (desk / "who").read_text() == f"{alice.uid}\n"


def test_a_uid_that_no_database_knows_never_gets_a_group_of_roots(site: Cluster) -> None:
    """The kernel takes -1 for "the group that I have", and the daemon's is root's."""
    stranger = Person(name="stranger", uid=54321, gid=54322, home=Path("/tmp"), groups=())
    try:
        number = submit_as(stranger, site, "id -u; id -G", work_dir=str(site.work))
    except Refused:
        return  # as good
    site.wait_state(number, "COMPLETED")
    assert site.output(number).split() == ["54321", "54322"]


def others_changes(number: int) -> list[Struct]:
    """Every request that changes a job."""
    target = JobTarget(number)
    return [
        HoldJob(target=target),
        HoldJob(target=target, by_user=True),
        ReleaseJob(target=target),
        RequeueJob(target=target),
        RequeueJob(target=target, hold=True),
        SuspendJob(target=target),
        ResumeJob(target=target),
        TopJob(targets=(target,)),
        NotifyJob(target=target, message="x"),
        UpdateJob(target=target, changes={"name": "mine"}),
    ]


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_users_cannot_change_or_read_other_users_jobs(site: Cluster, alice: Person, bob: Person, state: str) -> None:
    begin_at = 2e9 if state == "PENDING" else 0.0
    number = submit_as(alice, site, "sleep 1000 # secret", begin_at=begin_at)
    site.wait_state(number, state)
    before = site.job(number)
    for request in others_changes(number):
        with pytest.raises(Refused, match="ESLURM_(ACCESS_DENIED|USER_ID_MISSING|DISABLED)"):
            bob.ask(site, request, Done)
    with pytest.raises(Refused, match="ESLURM_USER_ID_MISSING"):
        bob.ask(site, GetScript(job_id=number), Script)
    for signal in (0, 9, 10):
        outcome = bob.ask(site, cancel_request(number, signal), CancelResult).outcomes
        assert [one.code for one in outcome] == ["ESLURM_ACCESS_DENIED"]
    everything_of_alices = CancelJobs(filter=JobFilter(users=(alice.uid,)))
    assert all(one.code for one in bob.ask(site, everything_of_alices, CancelResult).outcomes)
    after = site.job(number)
    assert (after.state, after.hold, after.spec.name) == (before.state, before.hold, before.spec.name)
    assert b"secret" in alice.ask(site, GetScript(job_id=number), Script).script
    outcome = alice.ask(site, cancel_request(number), CancelResult).outcomes
    assert [one.code for one in outcome] == [""]
    assert site.wait_state(number, "CANCELLED").cancelled_by_uid == alice.uid


def cancel_request(number: int, signal: int = 0) -> CancelJobs:
    return CancelJobs(filter=JobFilter(targets=(JobTarget(number),)), signal=signal)


def test_root_and_slurmuser_may(site: Cluster, people: dict[str, Person], alice: Person) -> None:
    slurm = people["slurm"]
    number = submit_as(alice, site, "sleep 1000", begin_at=2e9)
    slurm.ask(site, HoldJob(target=JobTarget(number)), Done)
    # An administrator's hold is not the user's to lift.
    with pytest.raises(Refused, match="ESLURM_ACCESS_DENIED"):
        alice.ask(site, ReleaseJob(target=JobTarget(number)), Done)
    assert slurm.ask(site, GetScript(job_id=number), Script).script
    site.call(ReleaseJob(target=JobTarget(number)), Done)
    assert [outcome.code for outcome in slurm.ask(site, cancel_request(number), CancelResult).outcomes] == [""]
    assert site.wait_state(number, "CANCELLED").cancelled_by_uid == slurm.uid


@pytest.mark.parametrize(
    "request_",
    [
        Reconfigure(),
        Shutdown(),
        PauseScheduling(),
        SetDebug(level="quiet"),
        WatchEvents(since=0),
        RegisterNode(name="n1", capacity=NodeCapacity(), booted_at=1.0, daemon_started_at=1.0, version="25.05.0"),
        NodeTrouble(name="n1", reason="mine"),
        JobGone(node="n1", job_id=1, restart_count=0),
        StepFinished(node="n1", job_id=1, restart_count=0, step_id=STEP_BATCH, ended_at=1.0),
    ],
    ids=lambda request: type(request).__name__,
)
def test_users_are_neither_administrators_nor_nodes(site: Cluster, bob: Person, request_: Struct) -> None:
    with pytest.raises(Refused, match="ESLURM_(ACCESS_DENIED|USER_ID_MISSING)"):
        bob.ask(site, request_, Done)


@pytest.fixture
def secret(site: Cluster) -> Iterator[Path]:
    """A file that is root's alone, in a directory that all may enter."""
    path = site.work / "private"
    path.write_text("secret\n")
    path.chmod(0o600)
    yield path
    path.unlink()


@pytest.mark.parametrize("way", ["root directory", "symbolic link", "another's file", "made directories"])
def test_output_is_opened_with_the_users_rights(
    site: Cluster, alice: Person, desk: Path, secret: Path, way: str
) -> None:
    closed = site.root / "closed"
    closed.mkdir(mode=0o700, exist_ok=True)
    (desk / "link").symlink_to(secret)
    path = {
        "root directory": str(closed / "out"),
        "symbolic link": str(desk / "link"),
        "another's file": str(secret),
        "made directories": str(closed / "a/b/out"),
    }[way]
    for fields in ({"stdout": path}, {"stdout": "out", "stderr": path}, {"stdout": "out", "stdin": path}):
        number = submit_as(alice, site, "touch ran; cat", work_dir=str(desk), **fields)
        job = site.wait_state(number, "FAILED")
        assert not (desk / "ran").exists()
        assert job.exit_status == 53, "Slurm shows 0:53"
    assert secret.read_text() == "secret\n"
    assert list(closed.iterdir()) == []


def test_directories_made_for_output_are_the_users(site: Cluster, alice: Person, desk: Path) -> None:
    number = submit_as(alice, site, "echo hello", stdout=str(desk / "a/b/%j.out"))
    site.wait_state(number, "COMPLETED")
    assert (desk / f"a/b/{number}.out").read_text() == "hello\n"
    assert {path.stat().st_uid for path in desk.rglob("*")} == {alice.uid}


def test_a_work_directory_that_the_user_may_not_enter_is_replaced_and_said(
    site: Cluster, alice: Person, desk: Path
) -> None:
    closed = site.root / "closed"
    closed.mkdir(mode=0o700, exist_ok=True)
    number = submit_as(alice, site, "pwd", work_dir=str(closed), stdout=str(desk / "out"))
    site.wait_state(number, "COMPLETED")
    said, where = (desk / "out").read_text().splitlines()
    assert said == f"slurmstepd: error: couldn't chdir to `{closed}': Permission denied: going to /tmp instead"
    assert where == "/tmp"


def test_scripts_environments_and_state_are_unreadable_for_other_users(
    site: Cluster, alice: Person, bob: Person, desk: Path
) -> None:
    request = site.request("touch up; sleep 1000 # secret", work_dir=str(desk))
    request = structs.replace(request, environment=(*request.environment, b"TOKEN=secret"))
    number = alice.ask(site, request, JobSubmitted).job_id
    until((desk / "up").exists, "the script runs")
    found = bob.run("sh", "-c", f"find {site.root} -type f -exec cat {{}} + ; true").stdout
    assert "ClusterName" in found, "slurm.conf is there for all"
    assert "secret" not in found
    attempt = bob.run("sh", "-c", f"echo x > {site.root}/spool/n1/x || echo x > {site.root}/state/x || echo kept out")
    assert "kept out" in attempt.stdout
    for pid in site.job_processes(number):
        assert bob.run("cat", f"/proc/{pid}/environ").returncode != 0
    supervisor = site.supervisor(number)
    for sender in (alice, bob):
        assert sender.run("kill", "-9", str(supervisor)).returncode != 0
    site.cancel(number)
    site.wait_state(number, "CANCELLED")


def test_steps_do_not_tell_others_their_environment_or_the_key_of_their_streams(
    site: Cluster, alice: Person, bob: Person, desk: Path
) -> None:
    allocation = submit_as(alice, site, "sleep 1000", work_dir=str(desk))
    site.wait_state(allocation, "RUNNING")
    spec = StepSpec(
        argv=("/bin/sleep", "1000"),
        environment=(b"TOKEN=secret",),
        io_key="secret",
        work_dir=str(desk),
        stdout="/dev/null",
        stderr="/dev/null",
        stdin="/dev/null",
        overlap=True,
    )
    alice.ask(site, CreateStep(job_id=allocation, spec=spec), StepCreated)
    for person in (alice, bob):
        steps = [view.step for view in person.ask(site, ListSteps(), Steps).steps if view.step.job_id == allocation]
        assert any(step.spec.argv == ("/bin/sleep", "1000") for step in steps)
        assert "secret" not in str(steps)
    with pytest.raises(Refused, match="ESLURM_(ACCESS_DENIED|USER_ID_MISSING)"):
        bob.ask(site, CreateStep(job_id=allocation, spec=spec), StepCreated)
    with pytest.raises(Refused, match="ESLURM_(ACCESS_DENIED|USER_ID_MISSING)"):
        bob.ask(site, AttachStep(job_id=allocation, step_id=0, io_address="unix:@x", io_key="x"), StepCreated)
    with pytest.raises(Refused, match="ESLURM_(ACCESS_DENIED|USER_ID_MISSING)"):
        bob.ask(site, SignalStep(job_id=allocation, step_id=0, terminate=True), Done)
    with pytest.raises(Refused, match="ESLURM_(ACCESS_DENIED|USER_ID_MISSING)"):
        bob.ask(site, AwaitAllocation(job_id=allocation), AllocationGranted)
    site.cancel(allocation)
    site.wait_state(allocation, "CANCELLED")


def test_a_users_job_cannot_pose_as_its_supervisor_or_touch_the_spool(site: Cluster, alice: Person, desk: Path) -> None:
    script = (
        'cd "$(dirname "$0")"; pwd; rm -f spec claim result script 2>/dev/null; touch result 2>/dev/null && echo made;'
        " cat spec claim 2>/dev/null; ls -a 2>/dev/null; exit 4"
    )
    number = submit_as(alice, site, script, stdout=str(desk / "out"))
    job = site.wait_state(number, "FAILED")
    assert job.exit_status == 4 << 8
    assert (desk / "out").read_text() == f"{site.root}/spool/n1/job{number:05d}.0.batch\n"


def test_daemon_files_have_the_right_owners(site: Cluster, people: dict[str, Person]) -> None:
    slurm = people["slurm"]
    assert (site.root / "state").stat().st_uid == slurm.uid
    assert site.controller is not None
    status = Path(f"/proc/{site.controller.pid}/status").read_text()
    assert f"Uid:\t{slurm.uid}\t{slurm.uid}\t{slurm.uid}" in status
    private = [path for path in (site.root / "state").iterdir() if path.name.startswith(("journal", "image"))]
    assert private
    for path in private:
        assert (path.stat().st_uid, path.stat().st_mode & 0o077) == (slurm.uid, 0), path


def test_a_users_processes_are_gone_when_the_job_is(site: Cluster, alice: Person, desk: Path) -> None:
    number = submit_as(
        alice, site, "setsid nohup sh -c 'sleep 1000' > /dev/null 2>&1 &\nsleep 0.1; touch up", work_dir=str(desk)
    )
    site.wait_state(number, "COMPLETED")
    assert site.job_processes(number) == []
    assert site.job(number).state is JobState.COMPLETED
