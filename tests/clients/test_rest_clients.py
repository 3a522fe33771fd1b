"""Programs of PyPI that speak to slurmrestd, unmodified: a client generated from the document of Slurm 25.11, and the
executor of pyslurmutils with its own tests. `make clients` installs the second.
"""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.clients.test_clients import PYTHON, needs
from tests.e2e.cluster import user_name
from tests.e2e.rest_site import Site, site, token

__all__ = ["site"]

pytestmark = pytest.mark.timeout(600)


def run(site: Site, *argv: str, cwd: Path | None = None) -> str:
    """Standard output of a program of the clients' Python that must succeed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    environ |= {"SLURM_URL": f"http://127.0.0.1:{site.port}", "SLURM_USER": user_name(), "SLURM_TOKEN": token()}
    done = subprocess.run([PYTHON, *argv], env=environ, cwd=cwd, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{argv}\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@needs("slurmrestapi")
@pytest.mark.parametrize("version", ["v0042", "v0043", "v0044"])
def test_the_client_generated_by_openapi_generator_works(site: Site, version: str) -> None:
    program = textwrap.dedent(f"""
        import os, time
        import slurmrestapi
        from slurmrestapi import models

        V = "{version}"
        settings = slurmrestapi.Configuration(host=os.environ["SLURM_URL"])
        settings.api_key["token"] = os.environ["SLURM_TOKEN"]
        settings.api_key["user"] = os.environ["SLURM_USER"]
        settings.access_token = os.environ["SLURM_TOKEN"]
        with slurmrestapi.ApiClient(settings) as client:
            slurm, slurmdb = slurmrestapi.SlurmApi(client), slurmrestapi.SlurmdbApi(client)

            def call(api, name, *arguments, **named):
                return getattr(api, f"{{api.__class__.__name__[:-3].lower()}}_{{V}}_{{name}}")(*arguments, **named)

            def model(name):
                return getattr(models, V[0].upper() + V[1:] + name)

            assert call(slurm, "get_ping").pings[0].responding
            job = model("JobDescMsg")(name="generated", environment=["PATH=/bin:/usr/bin"], hold=True,
                                      current_working_directory="/tmp")
            request = model("JobSubmitReq")(script="#!/bin/sh\\ntrue\\n", job=job)
            number = call(slurm, "post_job_submit", request).job_id
            found = call(slurm, "get_job", str(number)).jobs[0]
            assert (found.name, found.job_state, found.hold) == ("generated", ["PENDING"], True), found
            assert number in [one.job_id for one in call(slurm, "get_jobs").jobs]
            call(slurm, "post_job", str(number), model("JobDescMsg")(name="renamed"))
            assert call(slurm, "get_job", str(number)).jobs[0].name == "renamed"
            call(slurm, "delete_job", str(number))
            assert call(slurm, "get_nodes").nodes
            assert call(slurm, "get_partitions").partitions[0].name == "main"
            assert call(slurm, "get_diag").statistics.jobs_submitted >= 1
            assert any(one.name == "root" for one in call(slurmdb, "get_accounts").accounts)
            assert call(slurmdb, "get_associations").associations
            deadline = time.monotonic() + 60
            while not any(one.job_id == number for one in call(slurmdb, "get_jobs").jobs):
                assert time.monotonic() < deadline, "accounting does not know the job"
        print("done")
    """)
    assert run(site, "-c", program) == "done\n"


@needs("pyslurmutils")
@pytest.mark.parametrize("version", ["v0.0.42", "v0.0.45"])
def test_pyslurmutils_passes_its_own_tests(site: Site, tmp_path: Path, version: str) -> None:
    # Jobs need its modules too, as they do on its own site.
    path = f"export PATH={Path(PYTHON).parent}:$PATH"
    words: tuple[str, ...] = (
        "--slurm-root-directory",
        str(tmp_path),
        "--slurm-api-version",
        version,
        "--slurm-pre-script",
        path,
    )
    words = (*words, "-k", "production", "-rA")
    said = run(
        site,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-k",
        "production",
        *words,
        "--pyargs",
        "pyslurmutils.tests",
        cwd=tmp_path,
    )
    assert " passed" in said
    assert "SKIPPED" not in said
