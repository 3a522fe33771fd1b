"""slurmrestd on a machine of its own, which has nothing but slurm.conf and the cluster's key."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest

from tests.machines.classic import Classic
from tests.machines.lan import Lan, Machine, eventually
from tests.page import page_command, page_of

pytestmark = [pytest.mark.root, pytest.mark.xdist_group("machines")]

_PORT = 26820
_KEY = b"k" * 32


@pytest.fixture(scope="module")
def site() -> Iterator[Classic]:
    """alpha has slurmctld; slurmd runs nowhere, so no relay does either."""
    with Lan() as lan:
        key = lan.root / "jwt.key"
        key.write_bytes(_KEY)
        key.chmod(0o600)
        tokens = ("AuthAltTypes=auth/jwt", f"AuthAltParameters=jwt_key={key}")
        yield Classic(lan, *tokens, "NodeName=alpha CPUs=1")


def ask(machine: Machine, path: str, user: str = "", body: Path | None = None) -> tuple[int, str]:
    """The status and the text of an answer of the machine's slurmrestd; (0, "") if it does not serve."""
    claims = {"iat": int(time.time()), "exp": int(time.time()) + 600, "sun": user}
    headers = [f"X-SLURM-USER-TOKEN: {jwt.encode(claims, _KEY, algorithm='HS256')}"] if user else []
    headers += ["Content-Type: application/json"] if body else []
    command = page_command(f"http://127.0.0.1:{_PORT}{path}", *headers, body=str(body or ""))
    return page_of(machine.out(*command))


def begin(site: Classic, machine: Machine, conf: Path, log: str) -> None:
    words = ("slurmrestd", "-a", "rest_auth/jwt", f"0.0.0.0:{_PORT}")
    machine.start(*words, log=log, SLURM_CONF=str(conf), SLURMRESTD_SECURITY="disable_user_check")
    eventually(lambda: ask(machine, "/livez")[0] == 200, "slurmrestd serves")


def test_the_clusters_key_reaches_slurmctld(site: Classic) -> None:
    beta = site.lan.machine("beta")
    begin(site, beta, site.conf, "restd.log")
    assert ask(beta, "/readyz") == (200, "ok\n")
    status, text = ask(beta, "/slurm/v0.0.42/nodes", user="root")
    assert (status, [node["name"] for node in json.loads(text)["nodes"]]) == (200, ["alpha"])
    job = {"script": "#!/bin/sh\n" + "# long\n" * 200_000, "current_working_directory": "/tmp", "environment": ["A=1"]}
    body = site.root / "job.json"
    body.write_text(json.dumps({"job": job}))
    status, text = ask(beta, "/slurm/v0.0.42/job/submit", user="root", body=body)
    assert (status, json.loads(text)["job_id"]) == (200, 1)
    assert ask(beta, "/slurm/v0.0.42/nodes")[0] == 401  # the key gives callers without a token nothing


def test_events_come_to_a_caller_of_another_machine(site: Classic) -> None:
    """slurmrestd is no user there, so the feed is its caller's. The dashboard on Kubernetes lives on it."""
    for user in ("root", "root", "nobody"):
        status, text = ask(site["beta"], "/spritz/v1/events?follow=no", user=user)
        assert (status, "event: hello" in text) == (200, True), text
    assert ask(site["beta"], "/spritz/v1/events?follow=no")[0] == 401


def test_it_is_not_ready_without_the_key_or_slurmctld(site: Classic) -> None:
    """A pod of it is Ready by this: before, it was as soon as its port was open."""
    gamma, beta = site.lan.machine("gamma"), site["beta"]
    keyless = site.root / "keyless/slurm.conf"
    keyless.parent.mkdir()
    shutil.copy2(site.conf, keyless)
    begin(site, gamma, keyless, "keyless.log")
    status, text = ask(gamma, "/readyz")
    assert status == 503
    assert "Unable to contact slurm controller" in text
    pid = int((site.root / "alpha/ctld.pid").read_text())
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: ask(beta, "/readyz")[0] == 503, "slurmctld has gone")
    site.start("alpha", "slurmctld")
    eventually(lambda: ask(beta, "/readyz")[0] == 200, "slurmctld is back")
