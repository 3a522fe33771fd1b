"""The dashboard as a site's service, by proxy, PAM and OpenID Connect: each viewer acts with its own rights."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.e2e.cluster import BIN, until, user_name
from tests.e2e.people import Person, made_people
from tests.e2e.rest_site import Site, site
from tests.e2e.users import others_can_run
from tests.unit.web.test_web_login import Idp, issuer

__all__ = ["issuer", "site"]

pytestmark = pytest.mark.slow


@contextmanager
def serving(site: Site, *options: str) -> Iterator[str]:
    """The address of a dashboard with these options."""
    directory = Path(site.root) / f"dashboard-{options[1]}"
    command = [
        sys.executable, "-m", "spritz.web.main", *options, "--listen", "127.0.0.1:0", "--rest",
        f"http://127.0.0.1:{site.port}", "--directory", str(directory),
    ]  # fmt: skip
    with directory.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(command, env=site.env, stdout=log, stderr=log)
    state = directory / "dashboard.json"
    try:
        until(state.exists, lambda: f"it serves: {directory.with_suffix('.log').read_text()}")
        yield json.loads(state.read_text())["url"]
    finally:
        process.terminate()
        assert process.wait(30) == 0


@pytest.fixture(scope="module")
def address(site: Site) -> Iterator[str]:
    """Of a dashboard behind a proxy at 127.0.0.1."""
    with serving(site, "--login", "proxy", "--proxy-from", "127.0.0.1") as url:
        yield url


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
        if os.geteuid():
            why = f"This dashboard runs as {user_name()}, and neither"
        else:  # another user cannot start the reader from root's home, for instance
            why = "There is no output yet." if others_can_run() else "Nothing can be read as daemon: Permission denied."
        assert shown["problem"].startswith(why)
        assert ('href="/runs"' in other.get("/").text) is (not os.geteuid())
    with httpx.Client(base_url=address, headers={"X-Remote-User": user_name()}, timeout=60) as owner:
        assert act(owner, "cancel", job) == "Cancelled: 1 job."
        until(lambda: "Cancelled" in owner.get(f"/jobs/{job}").text, "it has ended")
    with httpx.Client(base_url=address, headers={"X-Remote-User": "no-such-user-at-all"}, timeout=60) as unknown:
        assert unknown.get("/").status_code == 502


PASSWORD = "correct horse %s"


@pytest.fixture(scope="module")
def people(site: Site) -> Iterator[dict[str, Person]]:
    """Two users with passwords of this machine."""
    if not others_can_run():
        pytest.skip("other users cannot run our commands")
    with made_people("ann", "ben") as found:
        lines = "".join(f"{person.name}:{PASSWORD % person.name}\n" for person in found.values())
        subprocess.run(["chpasswd"], input=lines, text=True, check=True)
        yield found
        for person in found.values():  # who has processes, such as a server of commands, cannot be deleted
            until(partial(_ended, person.name), f"processes of {person.name} end")


def _ended(user: str) -> bool:
    return subprocess.run(["pkill", "-KILL", "-u", user]).returncode == 1


@contextmanager
def entered(url: str, trust: ssl.SSLContext, user: str, password: str) -> Iterator[httpx.Client]:
    """A browser after it has sent the form of the login."""
    with httpx.Client(base_url=url, verify=trust, timeout=60) as client:
        answer = client.post("/login", data={"user": user, "password": password, "next": "/queue"})
        if answer.status_code == 303:
            assert "Secure" in answer.headers["set-cookie"]
        yield client


def certificate(directory: Path) -> tuple[Path, Path]:
    """For 127.0.0.1, and its key."""
    cert, key = directory / "cert.pem", directory / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def form_token(client: httpx.Client) -> dict[str, str]:
    match = re.search(r'X-Form-Token": "(\w+)"', client.get("/").text)
    assert match
    return {"HX-Request": "true", "X-Form-Token": match[1]}


@pytest.mark.root
def test_by_pam_and_tls_users_submit_and_read_what_they_may_read(site: Site, people: dict[str, Person]) -> None:
    ann, ben = people["ann"], people["ben"]
    cert, key = certificate(site.root)
    trust = ssl.create_default_context(cafile=str(cert))
    with serving(site, "--login", "pam", "--tls-cert", str(cert), "--tls-key", str(key)) as url:
        assert url.startswith("https://")
        with entered(url, trust, ann.name, "wrong") as stranger:
            assert stranger.get("/queue").status_code == 401
        with (
            entered(url, trust, ann.name, PASSWORD % ann.name) as one,
            entered(url, trust, ben.name, PASSWORD % ben.name) as other,
        ):
            fields = {"name": "of-ann", "directory": str(ann.home), "script": "#!/bin/sh\nid -un; env; sleep 600\n"}
            tested = one.post("/submit", data={**fields, "verb": "test"}, headers=form_token(one))
            assert "to start at" in tested.text
            answer = one.post("/submit", data={**fields, "verb": "submit"}, headers=form_token(one))
            there = json.loads(answer.headers["hx-trigger"])["notice"]["there"]
            until(lambda: ann.name in one.get(f"{there}/log").json()["text"], lambda: one.get(f"{there}/log").text)
            text = one.get(f"{there}/log").json()["text"]
            assert f"HOME={ann.home}" in text
            assert "SLURM_JWT" not in text, "a token that ends would be in the way of the job's own commands"
            assert "SPRITZ_TEST" not in text, "the environment of the service is not the job's"
            assert one.get(f"{there}/log/find?q={ann.name}").json()["lines"]
            until(lambda: "of-ann" in other.get("/queue").text, "another user sees the job")
            assert other.get(f"{there}/log").json()["problem"] == "Permission denied", "its directory is closed to ben"
            # What an option names is read as the viewer, too.
            secret = Path(site.root) / "root-only.sh"
            secret.write_text("#!/bin/sh\n")
            secret.chmod(0o600)
            refused = other.post(
                "/submit", data={"script": "", "more": str(secret), "verb": "submit"}, headers=form_token(other)
            )
            assert refused.status_code == 422
            assert "root-only.sh" in refused.text
            run = ann.run(
                str(BIN / "spritz"), "run", "--no-snapshot", "--name", "hers", "--", "true",
                env={"SLURM_CONF": site.env["SLURM_CONF"], "PATH": f"{BIN}:{os.environ['PATH']}"},
            )  # fmt: skip
            assert run.returncode == 0, run.stderr
            until(lambda: "hers-1" in one.get("/runs").text, lambda: one.get("/runs").text)
            assert "hers-1" not in other.get("/runs").text
            assert act(one, "cancel", int(there.rpartition("/")[2])) == "Cancelled: 1 job."


def test_by_an_identity_provider_a_user_enters_and_leaves(site: Site, issuer: str) -> None:
    user = user_name() if os.geteuid() else "daemon"
    with serving(site, "--login", "oidc", "--oidc-issuer", issuer, "--oidc-client", "us") as url:
        with httpx.Client(base_url=url, timeout=60, follow_redirects=True) as browser:
            assert "/login/oidc" in browser.get("/queue", headers={"accept": "text/html"}).text
            Idp.user = user
            page = browser.get("/login/oidc?next=/nodes")
            assert (page.status_code, page.url.path) == (200, "/nodes"), page.text[:600]
            assert user in page.text
            job = site.submit(name="mine", tasks=1, hold=True, as_user=user)
            assert act(browser, "cancel", job) == "Cancelled: 1 job."
            left = browser.post("/logout", data={"form_token": form_token(browser)["X-Form-Token"]})
            assert left.url.path == "/login"
            assert browser.get("/grid.json").status_code == 401
        with httpx.Client(base_url=url, timeout=60, follow_redirects=True) as browser:
            for Idp.user in ("../../etc", "root"):
                assert browser.get("/login/oidc").status_code == 403
            assert browser.get("/login/back?code=1&state=2").status_code == 403


def test_private_jobs_are_their_owners(site: Site, address: str) -> None:
    site.configure("PrivateData=jobs")
    job = site.submit(name="secret-name", tasks=1, hold=True)
    with httpx.Client(base_url=address, headers={"X-Remote-User": user_name()}, timeout=60) as owner:
        until(lambda: "secret-name" in owner.get("/queue").text, "its owner sees it")
    with httpx.Client(base_url=address, headers={"X-Remote-User": "bin"}, timeout=60) as other:
        assert "secret-name" not in other.get("/queue").text
        # (What accounting tells of it is for PrivateData of slurmdbd.conf to say.)
        assert other.get(f"/jobs/{job}/explain").status_code == 404
