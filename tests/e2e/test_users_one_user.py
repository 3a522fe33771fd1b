"""A cluster of one ordinary user, with nothing prepared for it: `spritz up`, and what others can do there."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.client.command.sync import connect_controller
from spritz.client.locate import locate_controller
from spritz.model.commands.job import JobSubmitted, SubmitJob
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Job, JobSpec
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import ListJobs
from tests.e2e.cluster import until
from tests.e2e.people import Person, Refused, interpreter, made_people

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("useradd") is None, reason="makes users: needs root and useradd"
)


def spritz(person: Person, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`spritz …` as that user, with an environment in which nothing is set but where Python finds us."""
    command, environment = interpreter(person)
    program = [*command, "-c", "from spritz.cli.spritz import entry; entry()", *arguments]
    return subprocess.run(
        program,
        env=environment,
        user=person.uid,
        group=person.gid,
        extra_groups=person.groups,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )


class Own:
    """The default cluster of a user, in their home."""

    def __init__(self, owner: Person, root: Path) -> None:
        self.owner = owner
        self.root = root
        config = locate_controller(str(root / "etc/slurm.conf"))
        self.name, self.port, self.owners = config.cluster_name, config.port, config.owners()

    def job(self, number: int) -> Job:
        """A job, as root sees it."""
        request = ListJobs(filter=JobFilter(targets=(JobTarget(number),)))
        with connect_controller(locate_controller(str(self.root / "etc/slurm.conf"))) as controller:
            return next(iter(controller.stream(request, Jobs))).jobs[0]


@pytest.fixture(scope="module")
def people() -> Iterator[dict[str, Person]]:
    with made_people("carol", "dave") as made:
        yield made


@pytest.fixture(scope="module")
def own(people: dict[str, Person]) -> Iterator[Own]:
    """carol's, started with an empty environment."""
    carol = people["carol"]
    up = spritz(carol, "up")
    assert up.returncode == 0, up.stdout + up.stderr
    yield Own(carol, carol.home / ".local/state/spritz/default")
    down = spritz(carol, "down")
    assert down.returncode == 0, down.stdout + down.stderr


def request_of(directory: Path, **fields: object) -> SubmitJob:
    spec = JobSpec(name="job", batch=True, work_dir=str(directory), time_limit_minutes=1, **fields)  # type: ignore[arg-type]
    return SubmitJob(spec=spec, script=b"#!/bin/sh\nid -u\n", environment=(b"PATH=/usr/bin:/bin",))


def test_an_ordinary_user_needs_no_environment_and_no_root(own: Own) -> None:
    assert {path.stat().st_uid for path in own.root.rglob("*")} == {own.owner.uid}
    number = own.owner.ask(own, request_of(own.owner.home), JobSubmitted).job_id
    until(lambda: own.job(number).state == "COMPLETED", lambda: f"the job completes: {own.job(number)}")
    assert (own.owner.home / f"slurm-{number}.out").read_text() == f"{own.owner.uid}\n"
    status = spritz(own.owner, "status")
    assert status.returncode == 0, status.stdout + status.stderr
    assert "1 of 1 usable" in status.stdout


def test_jobs_of_others_are_refused_at_once_and_root_submits_for_the_owner(own: Own, people: dict[str, Person]) -> None:
    root = Person(name="root", uid=0, gid=0, home=Path("/root"), groups=(0,))
    for person in (people["dave"], root):
        with pytest.raises(Refused, match="ESLURM_USER_ID_MISSING"):
            person.ask(own, request_of(Path("/tmp")), JobSubmitted)
    number = root.ask(own, request_of(own.owner.home, uid=own.owner.uid), JobSubmitted).job_id
    until(lambda: own.job(number).state == "COMPLETED", lambda: f"the job completes: {own.job(number)}")


def test_others_cannot_look_into_its_files(own: Own, people: dict[str, Person]) -> None:
    (own.owner.home).chmod(0o755)
    try:
        for name in ("state", "log", "run"):
            assert people["dave"].run("ls", str(own.root / name)).returncode != 0
    finally:
        own.owner.home.chmod(0o700)


def test_a_home_that_cannot_be_written_is_told_with_a_way_out(people: dict[str, Person]) -> None:
    dave = people["dave"]
    dave.home.chmod(0o555)
    os.chown(dave.home, 0, 0)
    try:
        up = spritz(dave, "up")
        assert up.returncode == 1
        assert str(dave.home) in up.stderr
        assert "--dir" in up.stderr
        assert "Traceback" not in up.stderr
        doctor = spritz(dave, "doctor")
        assert "no cluster in" in doctor.stdout
        assert "Traceback" not in doctor.stderr
    finally:
        os.chown(dave.home, dave.uid, dave.gid)
        dave.home.chmod(0o700)


@pytest.mark.slow
def test_a_uid_without_a_name_has_a_cluster_too() -> None:
    """Containers run as arbitrary users, with no entry in the passwd database, no name and no home."""
    home = Path(tempfile.mkdtemp(prefix="spritz-nameless-"))
    os.chown(home, 61234, 61234)
    nameless = Person(name="61234", uid=61234, gid=61234, home=home, groups=())
    directory = str(home / "c")
    try:
        up = spritz(nameless, "up", "--dir", directory, "--nodes", "2")
        assert up.returncode == 0, up.stdout + up.stderr
        try:
            own = Own(nameless, Path(directory))
            number = nameless.ask(own, request_of(home), JobSubmitted).job_id
            until(lambda: own.job(number).state == "COMPLETED", lambda: f"the job completes: {own.job(number)}")
        finally:
            down = spritz(nameless, "down", "--dir", directory)
        assert down.returncode == 0, down.stdout + down.stderr
    finally:
        shutil.rmtree(home)
