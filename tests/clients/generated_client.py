"""Run with the generator's Python: a client generated from a version's document does what a user would.

python generated_client.py DIRECTORY VERSION URL TOKEN, where DIRECTORY holds the package `client`.
"""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

directory, version, url, token = sys.argv[1:]
sys.path.insert(0, directory)
V = version.replace(".", "")
client = importlib.import_module("client").AuthenticatedClient(base_url=url, token=token)


def call(group: str, name: str, **arguments: Any) -> Any:
    module = importlib.import_module(f"client.api.{group}.{group}_{V}_{name}")
    response = module.sync_detailed(client=client, **arguments)
    assert response.status_code == 200, (name, response.status_code, response.content)
    assert response.parsed is not None, name
    return response.parsed


def model(name: str) -> Any:
    return getattr(importlib.import_module("client.models"), f"V{V[1:].upper()}{name}")


assert call("slurm", "get_ping").pings[0].responding
description = model("JobDescMsg")(
    name="generated", environment=["PATH=/bin:/usr/bin"], current_working_directory="/tmp", hold=True, tasks=1
)
request = model("JobSubmitReq")(script="#!/bin/sh\ntrue\n", job=description)
job = call("slurm", "post_job_submit", body=request).job_id
assert job in [one.job_id for one in call("slurm", "get_jobs").jobs]
found = call("slurm", "get_job", job_id=str(job)).jobs[0]
assert (found.name, [state.value for state in found.job_state], found.hold) == ("generated", ["PENDING"], True)
call("slurm", "post_job", job_id=str(job), body=model("JobDescMsg")(name="renamed"))
assert call("slurm", "get_job", job_id=str(job)).jobs[0].name == "renamed"
call("slurm", "delete_job", job_id=str(job))
assert call("slurm", "get_nodes").nodes
assert call("slurm", "get_partitions").partitions[0].name == "main"
assert call("slurm", "get_diag").statistics.jobs_submitted >= 1
assert any(one.name == "root" for one in call("slurmdb", "get_accounts").accounts)
assert call("slurmdb", "get_associations").associations
deadline = time.monotonic() + 60
while not any(one.job_id == job for one in call("slurmdb", "get_jobs").jobs):
    assert time.monotonic() < deadline, "accounting does not know the job"
print("done")
