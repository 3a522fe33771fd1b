"""`spritz dashboard` over a real cluster, without a browser: who gets in, what pages show, what forms do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.e2e.cluster import until

BIN = Path(sys.executable).parent


class Dashboard:
    """A cluster of `spritz up --dashboard`."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="spritz-web-"))
        self.cluster = self.root / "c"
        self.client = httpx.Client()
        self.link = ""

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SPRITZ"))}
        kept["PATH"] = f"{BIN}:{kept['PATH']}"
        return {**kept, "SLURM_CONF": str(self.cluster / "etc/slurm.conf"), "SPRITZ_HOME": str(self.root / "runs")}

    def run(self, *words: str) -> str:
        return subprocess.run(
            [BIN / words[0], *words[1:]], env=self.env, check=True, capture_output=True, text=True, timeout=100,
            cwd=self.root,
        ).stdout  # fmt: skip

    def start(self) -> None:
        said = self.run(
            "spritz", "up", "--dashboard", "--dir", str(self.cluster), "--nodes", "2", "--cpus", "4", "--gpus", "8",
        )  # fmt: skip
        match = re.search(r"http://\S+/login\?link=\S+", said)
        assert match, said
        self.link = match[0]
        parts = urlsplit(self.link)
        self.client = httpx.Client(base_url=f"{parts.scheme}://{parts.netloc}", timeout=30)

    @staticmethod
    def enter(client: httpx.Client, link: str) -> int:
        """Log in by a link, as a person does who opens it and presses its button; returns the status."""
        shown = client.get(link)
        assert "set-cookie" not in shown.headers, "to look at a link changes nothing"
        word = parse_qs(urlsplit(link).query)["link"][0]
        return client.post(link.partition("?")[0], data={"link": word}).status_code

    def stop(self) -> None:
        self.client.close()
        self.run("spritz", "down", "--quiet", "--dir", str(self.cluster))
        shutil.rmtree(self.root, ignore_errors=True)

    def page(self, path: str, *, status: int = 200, part: bool = False) -> str:
        headers = {"accept": "text/html", **({"HX-Request": "true"} if part else {})}
        answer = self.client.get(path, headers=headers)
        assert answer.status_code == status, answer.text[:600]
        return answer.text

    @property
    def form_token(self) -> str:
        match = re.search(r'X-Form-Token": "(\w+)"', self.page("/"))
        assert match
        return match[1]

    def act(self, path: str, **fields: Any) -> dict[str, Any]:
        """What the notice says."""
        headers = {"HX-Request": "true", "X-Form-Token": self.form_token}
        answer = self.client.post(path, data=fields, headers=headers)
        assert answer.status_code == 200, answer.text[:600]
        notice: dict[str, Any] = json.loads(answer.headers["hx-trigger"])["notice"]
        return notice


@pytest.fixture(scope="module")
def dashboard() -> Iterator[Dashboard]:
    found = Dashboard()
    try:
        found.start()
        assert found.enter(found.client, found.link) == 303
        yield found
    finally:
        found.stop()


def test_a_link_logs_in_once_and_nothing_is_shown_without_a_session(dashboard: Dashboard) -> None:
    with httpx.Client(base_url=dashboard.client.base_url) as stranger:
        assert dashboard.enter(stranger, dashboard.link) == 403, "it has been used"
        answer = stranger.get("/queue?state=pending", headers={"accept": "text/html"})
        assert answer.headers["location"] == "/login?next=%2Fqueue%3Fstate%3Dpending"
        assert stranger.get("/grid.json").status_code == 401
        assert stranger.post("/jobs/act", data={"verb": "cancel", "job": "1"}).status_code == 401
        assert stranger.get("/login?next=//elsewhere.example").status_code == 200
    assert dashboard.client.get("/login?next=//elsewhere.example").headers["location"] == "/"
    assert dashboard.client.get("/", headers={"host": "evil.example"}).status_code == 421
    printed = dashboard.run("spritz", "dashboard", "--dir", str(dashboard.cluster)).strip()
    with httpx.Client() as other:
        assert dashboard.enter(other, printed) == 303


def test_every_page_has_its_security_headers_and_loads_nothing_from_outside(dashboard: Dashboard) -> None:
    pages = (
        "/", "/queue", "/history", "/timeline", "/nodes", "/nodes/node1", "/partitions", "/partitions/main",
        "/reservations", "/topology", "/usage", "/usage/past", "/health", "/submit", "/runs", "/sweeps", "/pipelines",
    )  # fmt: skip
    for path in pages:
        answer = dashboard.client.get(path, headers={"accept": "text/html"})
        assert answer.status_code == 200, (path, answer.text[:400])
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', answer.text), path
        assert not re.search(r"<[^>]+ (?:style|on\w+)=", answer.text), f"{path}: the policy forbids it"
        part = dashboard.page(path, part=True)
        assert part.lstrip().startswith('<div id="live"'), path
    assert dashboard.page("/jobs/99999", status=404)
    assert dashboard.page("/nodes/nowhere", status=404)


def test_a_job_is_shown_with_its_reason_its_output_and_its_end(dashboard: Dashboard) -> None:
    name = '<script>alert("x")</script>\u202e'
    script = "echo one; printf '\\033[31mred\\033[0m\\n'; sleep 600"
    job = int(dashboard.run("sbatch", "--parsable", "-J", name, "--gpus-per-node=8", "-N2", "--wrap", script))
    wait = int(dashboard.run("sbatch", "--parsable", "-J", "waits", "--gpus-per-node=1", "--wrap", "true"))
    until(lambda: "Running" in dashboard.page(f"/jobs/{job}"), "it runs")
    text = dashboard.page("/queue")
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;\ufffd" in text
    assert "<script>alert" not in text
    until(lambda: "next in line" in dashboard.page("/queue?state=pending"), "its reason is told")
    assert f"/jobs/{job}" not in dashboard.page("/queue?state=pending")
    assert f"/jobs/{job}" in dashboard.page(f"/jobs/{wait}/explain")
    grid = dashboard.client.get("/grid.json")
    assert {row[0]: row[2] for row in grid.json()["nodes"]} == {"node1": [job] * 8, "node2": [job] * 8}
    again = dashboard.client.get("/grid.json", headers={"If-None-Match": grid.headers["etag"]})
    assert again.status_code in (200, 304)
    until(
        lambda: dashboard.client.get(f"/jobs/{job}/log").json()["text"].endswith("red\x1b[0m\n"), "its output is read"
    )
    found = dashboard.client.get(f"/jobs/{job}/log/find?q=ONE").json()["lines"]
    assert [line for _, line in found] == ["one"]
    assert dashboard.act("/jobs/act", verb="cancel", job=[str(job), str(wait)])["text"] == "Cancelled: 2 jobs."
    until(lambda: "Cancelled" in dashboard.page(f"/jobs/{job}"), "it has ended")


def test_what_a_plain_job_and_the_cluster_use_is_kept_over_time(dashboard: Dashboard) -> None:
    job = int(dashboard.run("sbatch", "--parsable", "--wrap", "sleep 600"))

    def figures(path: str) -> dict[str, Any]:
        return {one["title"]: one for one in dashboard.client.get(path).json()["figures"]}

    until(lambda: "Memory, highest so far" in figures(f"/jobs/{job}/series.json"), "its page is open, so it is sampled")
    assert figures(f"/jobs/{job}/series.json")["CPUs kept busy"]["names"] == ["busy", "has"]
    assert figures("/usage/series.json?over=1h")["GPUs"]["data"][2][0] == 16
    dashboard.run("scancel", str(job))


def test_forms_need_the_token_of_their_session_and_links_to_share_only_look(dashboard: Dashboard) -> None:
    job = int(dashboard.run("sbatch", "--parsable", "-H", "--wrap", "true"))
    fields = {"verb": "cancel", "job": str(job)}
    assert dashboard.client.post("/jobs/act", data=fields).status_code == 403
    assert dashboard.client.post("/jobs/act", data={**fields, "form_token": "x"}).status_code == 403
    elsewhere = {"Sec-Fetch-Site": "cross-site", "X-Form-Token": dashboard.form_token}
    assert dashboard.client.post("/jobs/act", data=fields, headers=elsewhere).status_code == 403
    shared = dashboard.client.post(f"/jobs/{job}/share", headers={"X-Form-Token": dashboard.form_token})
    match = re.search(r"http://\S+/shared/[\w\-]+", shared.text)
    assert match, shared.text[-500:]
    with httpx.Client(base_url=dashboard.client.base_url) as guest:
        page = guest.get(match[0])
        assert page.status_code == 200
        assert "Cancel" not in page.text
        assert not guest.cookies
        assert guest.get(f"{match[0]}/log").status_code == 200
        assert guest.get(f"/jobs/{job}").status_code == 401
        assert guest.get("/queue").status_code == 401
        assert guest.post("/jobs/act", data=fields).status_code == 401
        dashboard.client.post("/links/revoke", data={"all": "yes"}, headers={"X-Form-Token": dashboard.form_token})
        assert guest.get(match[0]).status_code == 404
    assert dashboard.act("/jobs/act", verb="release", job=str(job))["kind"] == "good"
    until(lambda: "Completed" in dashboard.page(f"/jobs/{job}"), "it ran")
    refused = dashboard.act("/jobs/act", verb="cancel", job="99999")
    assert refused["kind"] == "bad"
    assert "Invalid job id" in refused["text"]


def test_submitting_says_what_would_become_of_it_and_then_does_it(dashboard: Dashboard) -> None:
    fields = {"name": "by form", "time": "5", "directory": str(dashboard.root), "script": "#!/bin/sh\r\necho done\r\n"}
    headers = {"HX-Request": "true", "X-Form-Token": dashboard.form_token}
    tested = dashboard.client.post("/submit", data={**fields, "verb": "test"}, headers=headers)
    assert "to start at" in tested.text
    refused = dashboard.client.post("/submit", data={**fields, "verb": "test", "gpus": "9"}, headers=headers)
    assert refused.status_code == 422
    assert "Requested node configuration is not available" in refused.text
    notice = dashboard.act("/submit", verb="submit", **fields)
    until(lambda: "Completed" in dashboard.page(notice["there"]), "it ran")
    assert "by form" in dashboard.page(f"{notice['there']}/resubmit")
    notice = dashboard.act("/submit", verb="submit", script="#!/bin/sh\n", more="--hold")
    job = notice["there"].rpartition("/")[2]
    assert dashboard.run("squeue", "-h", "-j", job, "-o", "%Z") == f"{os.path.realpath(dashboard.env['HOME'])}\n"
    dashboard.run("scancel", job)


def test_nodes_are_drained_with_a_reason_and_resumed(dashboard: Dashboard) -> None:
    assert dashboard.act("/nodes/act", verb="drain", node="node2")["kind"] == "bad", "a reason is needed"
    assert dashboard.act("/nodes/act", verb="drain", node="node2", reason="fan <b>") == {
        "kind": "good", "text": "Drained: 1 node.", "there": "",
    }  # fmt: skip
    until(lambda: "fan &lt;b&gt;" in dashboard.page("/nodes?condition=drain"), "the reason is shown")
    assert dashboard.act("/nodes/act", verb="resume", node="node2")["kind"] == "good"
    until(lambda: "No node matches" in dashboard.page("/nodes?condition=drain"), "it takes jobs again")


@pytest.mark.slow
def test_runs_are_listed_compared_and_shown_with_their_curves(dashboard: Dashboard) -> None:
    lines = [json.dumps({"step": step, "time": 1e9 + step, "loss": 1 / step}) for step in (1, 2, 4)]
    (dashboard.root / "train.sh").write_text(
        "#!/bin/sh\ncat >> $SPRITZ_RUN_DIR/metrics.jsonl <<'EOF'\n" + "\n".join(lines) + "\nEOF\n"
    )
    run = ("spritz", "run", "--no-snapshot", "--name", "shown", "--tag", "first", "--", "sh", "train.sh")
    for _ in range(2):
        dashboard.run(*run)
    until(lambda: dashboard.page("/runs?tag=first").count("Completed") >= 2, "both have ended")
    assert "No run matches" in dashboard.page("/runs?q=nothing-like-it")
    page = dashboard.page("/runs/shown-1")
    assert "train.sh" in page
    assert re.search(r"/jobs/\d+", page)
    figures = dashboard.client.get("/runs/shown-1/series.json").json()["figures"]
    assert {figure["title"]: figure["data"][1] for figure in figures}["loss"] == [1.0, 0.5, 0.25]
    assert "shown-2" in dashboard.page("/runs/compare?run=shown-1&run=shown-2")
    both = dashboard.client.get("/runs/compare.json?run=shown-1&run=shown-2").json()["figures"]
    assert [(figure["names"], figure["data"][0]) for figure in both] == [(["shown-1", "shown-2"], [1.0, 2.0, 4.0])]
    assert dashboard.page("/runs/nothing", status=404)


def test_sessions_and_log_outs_outlive_a_restart(dashboard: Dashboard) -> None:
    address = str(dashboard.client.base_url)
    with httpx.Client(base_url=address) as stays, httpx.Client(base_url=address) as leaves:
        for client in (stays, leaves):
            link = dashboard.run("spritz", "dashboard", "--dir", str(dashboard.cluster)).strip()
            assert dashboard.enter(client, link) == 303
        cookies = dict(leaves.cookies)
        match = re.search(r'X-Form-Token": "(\w+)"', leaves.get("/queue").text)
        assert match
        assert leaves.post("/logout", data={"form_token": match[1]}).status_code == 303
        dashboard.run("spritz", "dashboard", "--stop", "--dir", str(dashboard.cluster))
        again = dashboard.run("spritz", "dashboard", "--dir", str(dashboard.cluster)).strip()
        parts = urlsplit(again)
        address = f"{parts.scheme}://{parts.netloc}"
        with httpx.Client(base_url=address, cookies=dict(stays.cookies), timeout=30) as client:
            assert client.get("/queue").status_code == 200
        with httpx.Client(base_url=address, cookies=cookies, timeout=30) as client:
            assert client.get("/queue").status_code == 401
    kept = dict(dashboard.client.cookies)
    dashboard.client.close()
    dashboard.client = httpx.Client(base_url=address, cookies=kept, timeout=30)
