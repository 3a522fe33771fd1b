"""Reads all jobs and their scripts as a client on the login machine does: `python -m tests.endurance.reading` there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from spritz.client.command.sync import connect_controller
from spritz.model.job.record import Job
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import GetScript, ListJobs, Script

if TYPE_CHECKING:
    from tests.endurance.site import Site


class Read(msgspec.Struct):
    """What the controller knows."""

    jobs: list[Job]
    scripts: dict[int, bytes]


def read(site: Site) -> Read:
    """Read it on the login machine of a site."""
    done = site.login_run(sys.executable, "-m", "tests.endurance.reading", str(site.work / "final"), seconds=300)
    assert done.returncode == 0, done.stderr
    return msgspec.msgpack.decode((site.work / "final").read_bytes(), type=Read)


def main(path: str) -> None:
    with connect_controller() as controller:
        jobs = [job for piece in controller.stream(ListJobs(all=True), Jobs, timeout=100.0) for job in piece.jobs]
        scripts = {
            job.id: controller.call(GetScript(job_id=job.id), Script).script for job in jobs if job.spec.script_key
        }
    with open(path, "wb") as file:
        file.write(msgspec.msgpack.encode(Read(jobs=jobs, scripts=scripts)))


if __name__ == "__main__":
    main(sys.argv[1])
