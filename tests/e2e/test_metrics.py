"""Metrics and health on slurmctld's own port, and what Prometheus makes of them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

import spritz.controller.metrics
from spritz.controller.metrics.paths import METRICS
from spritz.model.commands.job import Done, JobSubmitted
from spritz.model.queries.daemons import Ping, Pong, Reconfigure
from tests.e2e.cluster import Cluster, user_name
from tests.e2e.commands import run
from tests.e2e.controller_process import ControllerProcess, a_job, until
from tests.ports import free_port

ON = "MetricsType=metrics/openmetrics\n"
GPUS = "GresTypes=gpu\nNodeName=g1 CPUs=4 RealMemory=1000 Gres=gpu:2\n"
MONITORING = Path(spritz.controller.metrics.__file__).parent / "monitoring"

#: Every name of Slurm 25.11 that has no partition, user or account.
NAMES = Path(__file__).with_name("slurm_metrics.txt").read_text().split()


@pytest.fixture(scope="module")
def controller() -> Iterator[ControllerProcess]:
    """One for all: these tests look."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        process = ControllerProcess(Path(name), nodes=3, extra=ON + GPUS)
        process.start()
        with process.connect() as connection:
            for _ in range(3):
                connection.call(a_job("held", hold=True, account="physics"), JobSubmitted)
        yield process
        process.kill()


def get(controller: ControllerProcess, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{controller.port}{path}", headers=headers, timeout=60)


def values(text: str) -> dict[str, float]:
    """Samples by name and labels."""
    return {
        sample.name + "".join(f",{key}={value}" for key, value in sorted(sample.labels.items())): sample.value
        for family in plain(text)
        for sample in family.samples
    }


def test_every_page_is_read_by_the_parsers_of_prometheus_in_both_formats(controller: ControllerProcess) -> None:
    for path in METRICS:
        answer = get(controller, path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert values(answer.text) or path == "/metrics/jobs-use", "only that page may have no samples: no job runs"
    answer = get(controller, "/metrics", accept="application/openmetrics-text;version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert list(openmetrics(answer.text))  # type: ignore[no-untyped-call]  # it has no types


def test_the_figures_are_the_clusters(controller: ControllerProcess) -> None:
    found = values(get(controller, "/metrics").text)
    assert found["slurm_jobs"] == found["slurm_jobs_pending"] == found["slurm_jobs_hold"] == 3
    assert found["slurm_partition_jobs_pending,partition=debug"] == 3
    assert found["slurm_nodes"] == found["slurm_partition_nodes,partition=debug"] == 4
    assert (found["slurm_node_gpus,node=g1"], found["slurm_partition_gpus,partition=debug"]) == (2, 2)
    assert found["slurm_sdiag_jobs_submitted"] == 3
    assert found["spritz_journal_durable_event"] > 3
    users = [key for key in found if key.startswith("slurm_user_jobs_pending,")]
    assert [found[key] for key in users] == [3]


def test_every_name_of_slurm_is_there(controller: ControllerProcess) -> None:
    found = {key.partition(",")[0] for key in values(get(controller, "/metrics").text)}
    assert sorted(set(NAMES) - found) == []


def test_dashboard_and_alerts_name_metrics_that_there_are(controller: ControllerProcess) -> None:
    found = {key.partition(",")[0] for key in values(get(controller, "/metrics").text)}
    later = {"spritz_gpu_utilization_ratio", "spritz_node_load", "spritz_failures_total"}
    dashboard = json.loads((MONITORING / "grafana.json").read_text())
    texts = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    texts += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    named = {word for text in texts for word in re.findall(r"\b(?:slurm|spritz)_[a-z_]+", text)}
    assert len(named) > 20
    assert sorted(named - found - later) == []


def test_health_and_refusals(controller: ControllerProcess) -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        assert get(controller, path).text == "ok\n"
    assert get(controller, "/metrics/none").status_code == 404
    assert httpx.post(f"http://127.0.0.1:{controller.port}/metrics", content=b"x").status_code == 405
    assert httpx.head(f"http://127.0.0.1:{controller.port}/metrics").text == ""
    for request in (b"GET /livez HTTP/1.1\r\n\r\n", b"GET \0\0 HTTP/1.1\r\n\r\n", b"HEAD" + b"x" * 70_000):
        with socket.create_connection(("127.0.0.1", controller.port), timeout=30) as connection:
            connection.sendall(request)
            assert connection.recv(100).startswith(b"HTTP/1.1 4")
    with controller.connect(tcp=True) as connection:
        connection.call(Ping(), Pong)


def test_private_data_closes_it_unless_that_is_ignored(controller: ControllerProcess) -> None:
    def configured(extra: str) -> int:
        controller.write_conf(ON + GPUS + extra)
        with controller.connect() as connection:
            connection.call(Reconfigure(), Done)
        return get(controller, "/metrics/jobs").status_code

    assert configured("PrivateData=jobs\n") == 403
    assert configured("PrivateData=jobs\nMetricsParameters=ignore_private_data\n") == 200
    controller.write_conf(GPUS)
    with controller.connect() as connection:
        connection.call(Reconfigure(), Done)
    assert get(controller, "/metrics").status_code == 404
    assert configured("") == 200


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs Prometheus (Debian: prometheus)")
def test_promtool_takes_pages_and_rules(controller: ControllerProcess) -> None:
    text = get(controller, "/metrics").text
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 3), done.stderr
    complaints = [line for line in done.stderr.splitlines() if line.startswith("spritz_")]
    assert complaints == [], "Slurm's names are Slurm's; ours follow the rules"
    rules = subprocess.run(
        ["promtool", "check", "rules", str(MONITORING / "alerts.yml")], capture_output=True, text=True, timeout=60
    )
    assert rules.returncode == 0, rules.stdout + rules.stderr


@pytest.mark.slow
def test_what_a_running_job_uses_is_told_while_it_runs() -> None:
    """slurmd measures every five seconds, and sends what it measured with its heartbeats."""
    cluster = Cluster(nodes=1, extra=ON)
    try:
        cluster.start()
        program = "held = bytearray(64 << 20)\nwhile True: pass"
        command = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(program)}"
        done = run(cluster, "sbatch", "--parsable", "-o", "/dev/null", "--wrap", command)
        labels = f",account=,job_id={int(done.stdout)},user={user_name()}"

        def told(path: str, name: str) -> float:
            answer = httpx.get(f"http://127.0.0.1:{cluster.port}{path}", timeout=60)
            return values(answer.text).get(name, 0.0)

        until(lambda: told("/metrics/jobs-use", f"spritz_job_cpus_used{labels}") > 0.05, "the job is busy")
        assert told("/metrics/jobs-use", f"spritz_job_memory_used_bytes{labels}") > 64 << 20
        assert told("/metrics", f"spritz_user_cpus_used,username={user_name()}") > 0.05
        run(cluster, "scancel", done.stdout.decode().strip())
        until(lambda: not told("/metrics/jobs-use", f"spritz_job_memory_used_bytes{labels}"), "it has ended")
    finally:
        cluster.close()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("prometheus"), reason="needs Prometheus (Debian: prometheus)")
def test_prometheus_scrapes_it_and_its_alerts_fire(controller: ControllerProcess, tmp_path: Path) -> None:
    port = free_port()
    alerts = (MONITORING / "alerts.yml").read_text()
    (tmp_path / "alerts.yml").write_text(re.sub(r"for: \w+", "for: 0s", alerts))
    (tmp_path / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(tmp_path / "alerts.yml")],
                "scrape_configs": [
                    {"job_name": "spritz", "static_configs": [{"targets": [f"127.0.0.1:{controller.port}"]}]}
                ],
            }
        )
    )
    command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:

        def asked(path: str) -> list[dict[str, dict[str, str]]]:
            try:
                data = httpx.get(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=100).json()["data"]
            except (httpx.HTTPError, ValueError):  # it is not ready yet
                return []
            return data.get("result") or data.get("alerts") or []

        until(lambda: asked("query?query=slurm_jobs_pending"), f"a scrape: {(tmp_path / 'log').read_text()[-2000:]}")
        assert asked("query?query=slurm_jobs_pending")[0]["value"][1] == "3"  # type: ignore[index]
        until(
            lambda: "SpritzNodesNotResponding" in {one["labels"]["alertname"] for one in asked("alerts")},
            "the alert about nodes that no daemon is on",
        )
        # And Prometheus takes every expression of the dashboard.
        dashboard = json.loads((MONITORING / "grafana.json").read_text())
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                answer = httpx.get(
                    f"http://127.0.0.1:{port}/api/v1/query",
                    params={"query": target["expr"].replace("$job", ".*")},
                    timeout=30,
                )
                assert answer.json()["status"] == "success", target["expr"]
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.wait(60)
