"""External jobs over REST: nodes of another system, reported by the event stream, ended by that system."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from tests.e2e.cluster import until, user_name
from tests.e2e.rest_site import BIN, Site, site, token
from tests.e2e.test_rest_events import reading

__all__ = ["site"]

BASE = "/slurm/v0.0.45"


def allocate(site: Site, **fields: Any) -> int:
    """An external job."""
    job = {"flags": ["EXTERNAL_JOB"], "current_working_directory": "/", "name": "pod", "time_limit": 10, **fields}
    found: int = site.ask("POST", f"{BASE}/job/allocate", {"job": job})["job_id"]
    return found


def record(site: Site, job: int) -> dict[str, Any]:
    found: dict[str, Any] = site.ask("GET", f"{BASE}/job/{job}")["jobs"][0]
    return found


def complete(site: Site, job: int, body: Any = None) -> int:
    with site.client() as client:
        return client.post(f"/spritz/v1/job/{job}/complete", json=body).status_code


def test_a_pod_is_a_job(site: Site) -> None:
    site.configure("MaxNodeCount=8")
    site.ask("POST", f"{BASE}/new/node/", {"node_conf": "NodeName=k1 CPUs=4 RealMemory=2000 State=EXTERNAL"})
    assert "EXTERNAL" in site.ask("GET", f"{BASE}/node/k1")["nodes"][0]["state"]
    with reading(site, "types=job") as frames:
        assert next(iter(frames))[0] == "hello"
        job = allocate(site, required_nodes=["k1"], tasks=1, cpus_per_task=4)
        started = next(body for _, body in frames if body.get("kind") == "JobStarted" and body["job_id"] == job)
    assert started["nodes"] == "k1"
    found = record(site, job)
    assert (found["job_state"], found["nodes"]) == (["RUNNING"], "k1")
    assert "EXTERNAL_JOB" in found["flags"]
    assert complete(site, job, {"exit_code": 3}) == 200
    assert complete(site, job) == 200, "said twice"
    assert record(site, job)["job_state"] == ["FAILED"]
    assert record(site, job)["exit_code"]["return_code"]["number"] == 3


@pytest.mark.slow
def test_scancel_waits_for_the_pod_to_be_gone(site: Site) -> None:
    site.configure("MaxNodeCount=8")
    job = allocate(site, tasks=1)
    until(lambda: record(site, job)["job_state"] == ["RUNNING"], "it runs")
    subprocess.run([BIN / "scancel", str(job)], env=site.env, check=True, timeout=60)
    assert record(site, job)["job_state"] == ["CANCELLED", "COMPLETING"]
    site.restart_controller()
    assert record(site, job)["job_state"] == ["CANCELLED", "COMPLETING"]
    assert complete(site, job) == 200
    assert record(site, job)["job_state"] == ["CANCELLED"]


def test_what_is_wrong_is_said(site: Site) -> None:
    assert complete(site, 999_999) == 404
    job = allocate(site, tasks=1)
    bodies: tuple[Any, ...] = ({"exit_code": 256}, {"code": 1}, [1])
    for body in bodies:
        assert complete(site, job, body) == 422
    assert complete(site, job) == 200
    with site.client() as client:
        script = {"script": "#!/bin/sh", "job": {"flags": ["EXTERNAL_JOB"], "environment": ["A=b"]}}
        assert client.post(f"{BASE}/job/submit", json=script).status_code == 500
    site.ask("GET", f"{BASE}/jobs/")


def test_a_submission_with_a_key_is_made_once(site: Site) -> None:
    body = {"job": {"flags": ["EXTERNAL_JOB"], "tasks": 1, "name": "once", "hold": True}}
    with site.client() as client:
        numbers = {
            client.post(f"{BASE}/job/allocate", json=body, headers={"Idempotency-Key": key}).json()["job_id"]
            for key in ("a", "a", "b", "a")
        }
    assert len(numbers) == 2
    for job in numbers:
        site.ask("DELETE", f"{BASE}/job/{job}")


@pytest.mark.skipif(os.geteuid() != 0, reason="jobs of other users need a slurmd of root")
def test_an_administrator_marks_the_external_jobs_that_it_queues_for_a_user(site: Site) -> None:
    """An operator finds its jobs again by their AdminComment, which their users cannot set."""
    external = {"flags": ["EXTERNAL_JOB"], "tasks": 1, "hold": True, "admin_comment": "mark"}
    script = {"script": "#!/bin/sh", "environment": ["A=b"], "hold": True, "admin_comment": "mark"}

    def comments(headers: dict[str, str], place: str, body: Any) -> list[tuple[str, str]]:
        with site.tcp(**headers) as client:
            job = client.post(f"{BASE}/job/{place}", json=body).json()["job_id"]
        found = site.ask("GET", f"{BASE}/job/{job}")["jobs"]
        site.ask("DELETE", f"{BASE}/job/{job}")
        return [(each["user_name"], each["admin_comment"]) for each in found]

    own = {"X-SLURM-USER-TOKEN": token("nobody")}
    acting = {"X-SLURM-USER-TOKEN": token(user_name()), "X-SLURM-USER-NAME": "nobody"}
    assert comments(acting, "allocate", {"job": external}) == [("nobody", "mark")]
    assert comments(acting, "allocate", {"hetjob": [external, external]}) == [("nobody", "mark")] * 2
    assert comments(own, "allocate", {"job": external}) == [("nobody", "")]
    assert comments(acting, "submit", {"job": script}) == [("nobody", "")], "what runs here is the user's"
