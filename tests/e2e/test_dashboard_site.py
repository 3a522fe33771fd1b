"""The dashboard as a site's service, behind a proxy: each viewer acts by its own token."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.cluster import until, user_name
from tests.e2e.rest_site import Site, site

__all__ = ["site"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(site: Site) -> Iterator[str]:
    """Of a dashboard behind a proxy at 127.0.0.1."""
    directory = Path(site.root) / "dashboard"
    directory.mkdir()
    command = [
        sys.executable, "-m", "spritz.web.main", "--login", "proxy", "--proxy-from", "127.0.0.1", "--listen",
        "127.0.0.1:0", "--rest", f"http://127.0.0.1:{site.port}", "--directory", str(directory),
    ]  # fmt: skip
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, env=site.env, stdout=log, stderr=log)
    state = directory / "dashboard.json"
    try:
        until(state.exists, lambda: f"it serves: {(directory / 'log').read_text()}")
        yield json.loads(state.read_text())["url"]
    finally:
        process.terminate()
        assert process.wait(30) == 0


def act(client: httpx.Client, verb: str, job: int) -> str:
    """What the notice says."""
    token = re.search(r'X-Form-Token": "(\w+)"', client.get("/").text)
    assert token
    headers = {"HX-Request": "true", "X-Form-Token": token[1]}
    answer = client.post("/jobs/act", data={"verb": verb, "job": str(job)}, headers=headers)
    notice: dict[str, str] = json.loads(answer.headers["hx-trigger"])["notice"]
    return notice["text"]


def test_viewers_act_with_their_own_rights(site: Site, address: str) -> None:
    job = site.submit(name="mine", tasks=1, hold=True)
    with httpx.Client(base_url=address, timeout=60) as nobody:
        assert nobody.get("/queue").status_code == 401
    with httpx.Client(base_url=address, headers={"X-Remote-User": "daemon"}, timeout=60) as other:
        until(lambda: "mine" in other.get("/queue").text, "another user sees the job")
        refused = act(other, "cancel", job)
        assert "Access/permission denied" in refused
        shown = other.get(f"/jobs/{job}/log").json()
        assert "cannot read" in shown["problem"]
        assert other.get("/runs").status_code in (200, 400)
        assert 'href="/runs"' not in other.get("/").text
    with httpx.Client(base_url=address, headers={"X-Remote-User": user_name()}, timeout=60) as owner:
        assert act(owner, "cancel", job) == "Cancelled: 1 job."
        until(lambda: "Cancelled" in owner.get(f"/jobs/{job}").text, "it has ended")
    with httpx.Client(base_url=address, headers={"X-Remote-User": "no-such-user-at-all"}, timeout=60) as unknown:
        assert unknown.get("/").status_code == 502


def test_private_jobs_are_their_owners(site: Site, address: str) -> None:
    site.configure("PrivateData=jobs")
    job = site.submit(name="secret-name", tasks=1, hold=True)
    with httpx.Client(base_url=address, headers={"X-Remote-User": user_name()}, timeout=60) as owner:
        until(lambda: "secret-name" in owner.get("/queue").text, "its owner sees it")
    with httpx.Client(base_url=address, headers={"X-Remote-User": "bin"}, timeout=60) as other:
        assert "secret-name" not in other.get("/queue").text
        # (What accounting tells of it is for PrivateData of slurmdbd.conf to say.)
        assert other.get(f"/jobs/{job}/explain").status_code == 404
