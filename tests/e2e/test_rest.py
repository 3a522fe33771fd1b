"""slurmrestd before a real cluster: every version, every read, submission, accounts, tokens, and what it refuses.

Every answer is validated against the published document of its version.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
import ssl
import subprocess
import sys
import time
from typing import Any

import httpx
import jwt
import pytest

from spritz.presentation.json.documents import VERSIONS
from spritz.presentation.json.documents import operations as operations_of
from tests.e2e.cluster import until, user_name
from tests.e2e.rest_site import BIN, KEY, Site, site, token
from tests.ports import free_port

__all__ = ["site"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_read_of_every_version_is_what_its_document_says(site: Site, version: str) -> None:
    job = site.submit(version, "#!/bin/sh\nsleep 300\n", name=f"read-{version}", tasks=1)
    site.ask("GET", f"/slurmdb/{version}/jobs")
    until(lambda: "RUNNING" in site.ask("GET", f"/slurm/{version}/job/{job}")["jobs"][0]["job_state"], "it runs")
    until(lambda: site.get(f"/slurmdb/{version}/job/{job}").status_code == 200, "accounting knows it")
    names = {
        "job_id": str(job), "node_name": "ALL", "partition_name": "main", "reservation_name": "none", "qos": "normal",
        "cluster_name": site.ask("GET", f"/slurmdb/{version}/clusters")["clusters"][0]["name"], "name": "root",
        "account_name": "root", "id": "1",
    }  # fmt: skip
    names["node_name"] = site.ask("GET", f"/slurm/{version}/nodes")["nodes"][0]["name"]
    missing = {"reservation_name": 500, "id": 500}
    for one in operations_of(version):
        if one.method == "GET" and "requeue" not in one.path and "reconfigure" not in one.path:
            status = next((missing[name] for name in missing if f"{{{name}}}" in one.path), 200)
            site.ask("GET", one.path.format(**names), status=status)
    site.ask("DELETE", f"/slurm/{version}/job/{job}")
    until(lambda: "CANCELLED" in site.ask("GET", f"/slurm/{version}/job/{job}")["jobs"][0]["job_state"], "it ends")


def test_a_job_runs_as_it_was_described(site: Site) -> None:
    script = '#!/bin/sh\necho "$GREETING $SLURM_NTASKS $1 $SLURM_JOB_NAME" > said\n'
    environment = {"PATH": "/bin:/usr/bin", "GREETING": "hello"}
    job = site.submit(script=script, environment=environment, tasks=1, argv=["world"], name="talker", time_limit=5)
    said = site.root / "said"
    until(lambda: said.exists() and said.read_text(), "the job has written")
    assert said.read_text() == "hello 1 world talker\n"
    assert site.ask("GET", f"/slurm/v0.0.42/job/{job}")["jobs"][0]["time_limit"]["number"] == 5


def test_a_job_is_changed_held_requeued_and_cancelled(site: Site) -> None:
    job = site.submit(hold=True, name="before", priority=5)
    answer = site.ask("POST", f"/slurm/v0.0.44/job/{job}", {"name": "after", "time_limit": {"number": 7, "set": True}})
    assert answer["results"][0]["error_code"] == 0
    record = site.ask("GET", f"/slurm/v0.0.44/job/{job}")["jobs"][0]
    assert (record["name"], record["time_limit"]["number"], record["hold"]) == ("after", 7, True)
    wanted = {"job_name": "after", "job_state": ["PENDING"]}
    status = site.ask("DELETE", "/slurm/v0.0.45/jobs", wanted)["status"]
    assert [one["job_id"]["number"] for one in status] == [job]
    site.ask("DELETE", "/slurm/v0.0.45/jobs", {}, status=422)
    wrong = site.ask("DELETE", "/slurm/v0.0.45/jobs", {"nodes": ["", "]x"]}, status=500)
    assert "nodes" in wrong["errors"][0]["description"]
    running = site.submit(script="#!/bin/sh\nsleep 300\n")
    until(lambda: "RUNNING" in site.ask("GET", f"/slurm/v0.0.45/job/{running}")["jobs"][0]["job_state"], "it runs")
    site.ask("POST", "/slurm/v0.0.45/jobs/requeue", {"jobs": [str(running)], "flags": ["Hold"]})
    until(lambda: site.ask("GET", f"/slurm/v0.0.45/job/{running}")["jobs"][0]["hold"], "it is held")
    site.ask("DELETE", f"/slurm/v0.0.45/job/{running}")


def test_values_are_those_that_slurmrestd_of_slurm_tells(site: Site) -> None:
    """Compared by hand with 22.05's v0.0.38 on the same jobs: what runs is billed, flagged, and has its association."""
    job = site.submit(script="#!/bin/sh\nsleep 300\n", tasks=2, memory_per_node={"number": 100, "set": True})

    def record() -> dict[str, Any]:
        found: dict[str, Any] = site.ask("GET", f"/slurm/v0.0.42/job/{job}")["jobs"][0]
        return found

    waiting = site.submit(hold=True)
    pending = site.ask("GET", f"/slurm/v0.0.42/job/{waiting}")["jobs"][0]
    assert pending["billable_tres"]["set"] is False
    assert not {"JOB_WAS_RUNNING", "ACCRUE_COUNT_CLEARED"} & set(pending["flags"])
    until(lambda: "RUNNING" in record()["job_state"], "it runs")
    running = record()
    assert (running["billable_tres"]["number"], running["batch_host"]) == (2.0, running["nodes"])
    assert {"JOB_WAS_RUNNING", "ACCRUE_COUNT_CLEARED"} <= set(running["flags"])
    ours = [one["id"] for one in site.ask("GET", "/slurmdb/v0.0.42/associations")["associations"]]
    assert running["association_id"] in {*ours, 0}
    node = site.ask("GET", f"/slurm/v0.0.42/node/{running['nodes']}")["nodes"][0]
    assert node["tres_weighted"] == node["alloc_cpus"] >= 2
    for number in (job, waiting):
        site.ask("DELETE", f"/slurm/v0.0.45/job/{number}")


def test_arrays_het_jobs_and_allocations_are_submitted(site: Site) -> None:
    array = site.submit(array="1-3", hold=True)
    assert site.ask("GET", f"/slurm/v0.0.43/job/{array}")["jobs"][0]["array_task_string"] == "1-3"
    common = {"environment": ["A=1"], "current_working_directory": str(site.root), "hold": True, "tasks": 1}
    body = {"script": "#!/bin/sh\ntrue\n", "jobs": [common, {**common, "environment": []}]}
    het = site.ask("POST", "/slurm/v0.0.43/job/submit", body)["job_id"]
    assert len(site.ask("GET", f"/slurm/v0.0.43/job/{het}")["jobs"]) == 2
    given = site.ask("POST", "/slurm/v0.0.43/job/allocate", {"job": {"name": "held", "tasks": 1}})["job_id"]
    until(lambda: site.ask("GET", f"/slurm/v0.0.43/job/{given}")["jobs"][0]["job_state"] == ["RUNNING"], "it has nodes")
    for job in (array, het, given):
        site.ask("DELETE", f"/slurm/v0.0.43/job/{job}")


def test_nodes_partitions_and_reservations_change(site: Site) -> None:
    name = site.ask("GET", "/slurm/v0.0.45/nodes")["nodes"][0]["name"]
    site.ask("POST", f"/slurm/v0.0.45/node/{name}", {"state": ["DRAIN"], "reason": "by REST", "weight": 7})
    node = site.ask("GET", f"/slurm/v0.0.45/node/{name}")["nodes"][0]
    assert ("DRAIN" in node["state"], node["reason"], node["weight"]) == (True, "by REST", 7)
    site.ask("POST", "/slurm/v0.0.45/nodes", {"name": [name], "state": ["RESUME"]})
    site.ask("POST", f"/slurm/v0.0.45/node/{name}", {"state": ["DRAIN"]}, status=400)
    site.ask("GET", "/slurm/v0.0.45/node/nothere", status=500)
    fresh = {"name": "fresh", "nodes": {"configured": name}, "maximums": {"time": 60}, "flags": ["HIDDEN"]}
    site.ask("POST", "/slurm/v0.0.45/partitions", {"partitions": [fresh]})
    found = site.ask("GET", "/slurm/v0.0.45/partition/fresh")["partitions"][0]
    assert (found["maximums"]["time"]["number"], found["flags"]) == (60, ["HIDDEN"])
    site.ask("DELETE", "/slurm/v0.0.45/partition/fresh")
    wanted = {"name": "kept", "start_time": 4_000_000_000, "duration": 60, "node_list": [name], "users": [user_name()]}
    site.ask("POST", "/slurm/v0.0.43/reservation", wanted)
    assert site.ask("GET", "/slurm/v0.0.43/reservation/kept")["reservations"][0]["node_list"] == name
    site.ask("POST", "/slurm/v0.0.43/reservations", {"reservations": [{"name": "kept", "duration": 120}]})
    kept = site.ask("GET", "/slurm/v0.0.43/reservation/kept")["reservations"][0]
    assert kept["end_time"]["number"] - kept["start_time"]["number"] == 7200
    site.ask("DELETE", "/slurm/v0.0.43/reservation/kept")


def test_accounts_users_qos_and_associations_are_kept(site: Site) -> None:
    def at(rest: str) -> str:
        return f"/slurmdb/v0.0.45/{rest}"

    cluster = site.ask("GET", at("clusters"))["clusters"][0]["name"]
    site.ask("POST", at("qos"), {"qos": [{"name": "fast", "priority": 9, "limits": {"max": {"jobs": {"count": 4}}}}]})
    qos = site.ask("GET", at("qos/fast"))["qos"][0]
    assert (qos["priority"]["number"], qos["limits"]["max"]["jobs"]["count"]["number"]) == (9, 4)
    condition = {"accounts": ["physics"], "association": {"fairshare": 5, "maxjobs": 3}}
    body = {"association_condition": condition, "account": {"description": "Physics", "organization": "Science"}}
    assert "physics" in site.ask("POST", at("accounts_association"), body)["added_accounts"]
    assert site.ask("GET", at("account/physics"))["accounts"][0]["organization"] == "Science"
    body = {"association_condition": {"users": ["ada"], "accounts": ["physics"]}, "user": {"adminlevel": ["None"]}}
    site.ask("POST", at("users_association"), body)
    assert site.ask("GET", at("user/ada"))["users"][0]["default"]["account"] == "physics"
    one = {"cluster": cluster, "account": "physics", "user": "ada", "qos": ["fast"], "max": {"jobs": {"total": 8}}}
    site.ask("POST", at("associations"), {"associations": [one]})
    (found,) = site.ask("GET", at("associations?user=ada"))["associations"]
    assert (found["qos"], found["max"]["jobs"]["total"]["number"]) == (["fast"], 8)
    site.ask("POST", at("wckeys"), {"wckeys": [{"name": "study", "user": "ada", "cluster": cluster}]})
    (key,) = site.ask("GET", at("wckeys?user=ada"))["wckeys"]
    assert key["name"] == "study"
    # What is given out is taken back as it is.
    whole = site.ask("GET", at("config"))
    site.ask("POST", at("config"), {name: whole[name] for name in ("accounts", "users", "qos", "associations")})
    assert site.ask("GET", at("config"))["associations"] == whole["associations"]
    assert site.ask("DELETE", at("association?user=ada&account=physics"))["removed_associations"]
    site.ask("DELETE", at("user/ada"))
    assert site.ask("DELETE", at("account/physics"))["removed_accounts"] == ["physics"]
    assert site.ask("DELETE", at("qos/fast"))["removed_qos"] == ["fast"]
    site.ask("GET", at("account/physics"), status=500)


def test_what_is_kept_of_a_job_changes(site: Site) -> None:
    job = site.submit()
    until(lambda: site.ask("GET", "/slurmdb/v0.0.45/jobs")["jobs"], "accounting has jobs")

    def ended() -> bool:
        answer = site.get(f"/slurmdb/v0.0.45/job/{job}").json()
        return bool(answer["jobs"]) and "COMPLETED" in answer["jobs"][0]["state"]["current"]

    until(ended, "it has ended")
    assert site.ask("POST", f"/slurmdb/v0.0.44/job/{job}", {"comment": {"administrator": "seen"}})["results"]
    assert site.ask("GET", f"/slurmdb/v0.0.44/job/{job}")["jobs"][0]["comment"]["administrator"] == "seen"


# -- who asks


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "nonsense",
        jwt.encode({"exp": 4_000_000_000, "sun": "root"}, "x" * 32, algorithm="HS256"),
        jwt.encode({"exp": 1, "sun": "root"}, KEY, algorithm="HS256"),
        jwt.encode({"sun": "root"}, KEY, algorithm="HS256"),
        jwt.encode({"exp": 4_000_000_000, "sun": "nosuchuser"}, KEY, algorithm="HS256"),
        jwt.encode({"exp": 4_000_000_000, "sun": ["root"]}, KEY, algorithm="HS256"),
        jwt.encode({"exp": 4_000_000_000, "sun": "root"}, "", algorithm="none"),
        jwt.encode({"exp": 4_000_000_000, "sun": "root"}, KEY * 2, algorithm="HS512"),
        "e30.e30.e30",
        "." * 10_000,
    ],
)
def test_a_bad_token_is_not_taken(site: Site, bad: str) -> None:
    for headers in ({"X-SLURM-USER-TOKEN": bad}, {"Authorization": f"Bearer {bad}".strip()}):
        with site.tcp(**headers) as client:
            for path in ("/slurm/v0.0.45/jobs", "/slurmdb/v0.0.45/jobs", "/slurm/v0.0.45/ping"):
                answer = client.get(path)
                assert (answer.status_code, answer.text) == (401, "Authentication failure")
                assert answer.headers["connection"] == "close"


def test_callers_are_not_mistaken_for_each_other(site: Site) -> None:
    with site.tcp() as client:  # TCP has no peer that the kernel vouches for
        assert client.get("/slurm/v0.0.45/jobs").status_code == 401
    other = next(entry.pw_name for entry in pwd.getpwall() if entry.pw_uid not in (0, os.getuid()))
    mine = site.submit(hold=True)
    with site.tcp(**{"X-SLURM-USER-TOKEN": token(other)}) as client:
        assert client.get("/slurm/v0.0.45/ping").status_code == 200
        assert client.get("/slurm/v0.0.45/jobs").status_code == 200
        refused = client.delete(f"/slurm/v0.0.45/job/{mine}")
        assert refused.json()["errors"][0]["error_number"] == 2002
        assert client.get("/slurm/v0.0.45/reconfigure").json()["errors"]
        assert client.post("/slurmdb/v0.0.45/qos", json={"qos": [{"name": "mine"}]}).json()["errors"]
        # An ordinary user's token is for that user only, whatever user name the request gives.
        assert client.get("/slurm/v0.0.45/jobs", headers={"X-SLURM-USER-NAME": user_name()}).status_code == 401
        twice = [("X-SLURM-USER-TOKEN", token(other)), ("X-SLURM-USER-TOKEN", token())]
        assert client.get("/slurm/v0.0.45/jobs", headers=twice).status_code == 401
    with site.tcp(Authorization=f"Bearer {token()}", **{"X-SLURM-USER-NAME": other}) as client:
        # SlurmUser's may act for others, and has their rights then.
        assert client.delete(f"/slurm/v0.0.45/job/{mine}").json()["errors"][0]["error_number"] == 2002
    with site.tcp(Authorization=f"Bearer {token()}") as client:
        assert client.delete(f"/slurm/v0.0.45/job/{mine}").status_code == 200


def test_commands_show_the_token_of_their_environment(site: Site) -> None:
    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        env = {**site.env, **more}
        return subprocess.run([BIN / words[0], *words[1:]], env=env, capture_output=True, text=True, timeout=60)

    made = run("scontrol", "token", "lifespan=100").stdout
    name, _, value = made.strip().partition("=")
    assert name == "SLURM_JWT"
    claims = jwt.decode(value, KEY, algorithms=["HS256"])
    assert (claims["sun"], claims["exp"] - claims["iat"]) == (user_name(), 100)
    assert run("squeue", SLURM_JWT=value).returncode == 0
    refused = run("squeue", SLURM_JWT="x.y.z")
    assert (refused.returncode, "Protocol authentication error" in refused.stderr) == (1, True)
    assert run("scontrol", "token", "lifespan=never").returncode == 1
    assert run("scontrol", "token", "username=nosuchuser").returncode == 1
    # An empty name, as of a variable that is not set, must not give root's token.
    for word in ("username=", "username", "lifespan=", "name=root"):
        mistyped = run("scontrol", "token", word)
        assert (mistyped.returncode, mistyped.stdout, mistyped.stderr) == (1, "", f"Invalid option: `{word}`\n")


# -- what else is served, and what is refused


def test_unchanged_answers_are_not_sent_again(site: Site) -> None:
    site.submit(hold=True)
    with site.client() as client:
        for path in (
            "/slurm/v0.0.45/jobs",
            "/slurm/v0.0.45/nodes",
            "/slurm/v0.0.44/partitions",
            "/slurmdb/v0.0.45/qos",
        ):
            tag = client.get(path).headers["etag"]
            again = client.get(path, headers={"If-None-Match": tag})
            assert (again.status_code, again.content) == (304, b""), path
            assert client.get(path, headers={"If-None-Match": 'W/"other"'}).status_code == 200
        tag = client.get("/slurm/v0.0.45/jobs").headers["etag"]
        assert client.get("/slurm/v0.0.44/jobs", headers={"If-None-Match": tag}).json()["jobs"]
        site.submit(hold=True)
        assert client.get("/slurm/v0.0.45/jobs", headers={"If-None-Match": tag}).status_code == 200


def test_documents_and_a_page_are_served_from_here_alone(site: Site) -> None:
    with site.client() as client:
        whole = client.get("/openapi/v3").json()
        assert len(whole["paths"]) == sum(len({one.path for one in operations_of(v)}) for v in VERSIONS)
        page = client.get("/docs")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert not re.search(r"<script|src=|url\(|href=.?(http|//)", page.text)
        assert page.text.count("<details>") == sum(len(operations_of(v)) for v in VERSIONS)
        assert client.get("/docs/../../etc/passwd").status_code == 404
        assert client.get("/docs/..%2f..%2fetc%2fpasswd").status_code == 404
        names = client.post("/util/hostnames", json={"hostlist": "n[1-3]"}).json()["hostnames"]
        assert names == ["n1", "n2", "n3"]
        assert client.post("/util/hostlist", json={"hostnames": names}).json()["hostlist"] == "n[1-3]"
        assert client.get("/slurm/v0.0.45/ping", headers={"Accept": "application/yaml"}).text.startswith("---\npings:")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/slurm/v0.0.41/ping", None, 404),
        ("GET", "/slurm/v9/ping", None, 404),
        ("GET", "/nothing", None, 404),
        ("PUT", "/slurm/v0.0.45/jobs", None, 405),
        ("GET", "/slurm/v0.0.45/jobs?color=red", None, 422),
        ("GET", "/slurm/v0.0.45/job/abc", None, 404),
        ("GET", "/slurm/v0.0.45/job/99999999999999999999", None, 404),
        ("POST", "/slurm/v0.0.45/job/submit", b"", 400),
        ("POST", "/slurm/v0.0.45/job/submit", b"{", 400),
        ("POST", "/slurm/v0.0.45/job/submit", b"\xff\xfe", 400),
        ("POST", "/slurm/v0.0.45/job/submit", b"[" * 100_000, 400),
        ("POST", "/slurm/v0.0.45/job/submit", b'{"job": 5}', 400),
        ("POST", "/slurm/v0.0.45/job/submit", b"{}", 400),
        ("POST", "/slurm/v0.0.45/job/submit", b'{"script": "#!/bin/sh", "job": {"tasks": "x"}}', 400),
        ("POST", "/slurm/v0.0.45/job/submit", b'{"script": "#!/bin/sh", "job": {"name": "a"}}', 500),
        ("POST", "/slurm/v0.0.45/job/submit", b'{"script": "", "job": {"environment": ["A=1"]}}', 500),
        ("POST", "/slurm/v0.0.45/job/submit", b'{"script": "#!/bin/sh", "job": {"container_id": "x"}}', 500),
        ("POST", "/slurm/v0.0.45/job/submit", b" " * (33 * 1024 * 1024), 413),
    ],
)
def test_bad_requests_get_slurms_errors(site: Site, method: str, path: str, body: bytes | None, status: int) -> None:
    with site.client() as client:
        answer = client.request(method, path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text[-300:]
    assert "Traceback" not in answer.text
    if status not in (404, 405) or answer.headers["content-type"] == "application/json":
        (error, *_) = answer.json()["errors"]
        assert error["error_number"] > 0
        assert error["description"]


def test_greedy_clients_lose_their_connection_and_others_are_served(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.port)) as greedy:
        greedy.settimeout(60)
        try:
            for _ in range(100):
                greedy.sendall(b"GET / HTTP/1.1\r\n" if not _ else b"X-More: " + b"x" * 4000 + b"\r\n")
            answer = greedy.recv(100)
        except ConnectionError:
            answer = b""
        assert answer == b"" or b" 431 " in answer
    assert site.ask("GET", "/slurm/v0.0.45/ping")["pings"][0]["responding"] is True


def test_it_does_not_run_as_root_or_slurm_user_unless_told(site: Site) -> None:
    env = {name: value for name, value in site.env.items() if name != "SLURMRESTD_SECURITY"}
    command = [sys.executable, "-m", "spritz.rest.main", f"unix:{site.root}/other.socket"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "slurmrestd should not be run" in done.stderr


def test_tls_is_served_by_file(site: Site) -> None:
    certificate, key = site.root / "cert.pem", site.root / "key.pem"
    words = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", *words], check=True, capture_output=True, timeout=60)
    port = free_port()
    path = str(site.root / "beside-tls.socket")
    command = [sys.executable, "-m", "spritz.rest.main", f"127.0.0.1:{port}", f"unix:{path}"]
    broken = [*command, "--tls-cert", str(key), "--tls-key", str(key)]
    assert subprocess.run(broken, env=site.env, capture_output=True, timeout=60).returncode == 1
    with subprocess.Popen([*command, "--tls-cert", str(certificate), "--tls-key", str(key)], env=site.env) as process:
        try:

            def listens() -> bool:
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            until(listens, "it listens")
            trusted = ssl.create_default_context(cafile=str(certificate))
            headers = {"X-SLURM-USER-TOKEN": token()}
            with httpx.Client(verify=trusted, base_url=f"https://127.0.0.1:{port}", headers=headers) as client:
                assert client.get("/slurm/v0.0.45/ping").json()["pings"][0]["responding"] is True
            with httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://rest") as client:
                answer = client.get("/slurm/v0.0.45/ping").json()
                assert answer["pings"][0]["responding"] is True, "the kernel says who asks, without TLS and token"
        finally:
            process.terminate()


def test_a_connection_ends_with_its_token(site: Site) -> None:
    """The connection to slurmctld is kept; what it is good for is not."""
    for seconds in (3, 10, 60):  # long enough for a first answer, on a machine that may be busy
        with site.tcp(**{"X-SLURM-USER-TOKEN": token(exp=int(time.time()) + seconds)}) as client:
            if client.get("/slurm/v0.0.45/ping").status_code == 200:
                until(lambda: client.get("/slurm/v0.0.45/ping").status_code == 401, "the token is good no more")
                return
    pytest.fail("no token was good for an answer")
