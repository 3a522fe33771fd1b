"""Tracking from end to end: with a small server that speaks MLflow's API, and with MLflow where it is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster import until
from tests.e2e.experiments_lab import Lab, cluster, lab
from tests.unit.experiments.mlflow_server import mlflow_server

__all__ = ["cluster", "lab"]  # fixtures
pytestmark = [pytest.mark.xdist_group("tracking"), pytest.mark.timeout(300)]

SHOW = """\
import json, os, time
print({name: os.environ.get(name) for name in ("MLFLOW_RUN_ID", "WANDB_RUN_ID", "WANDB_RESUME")})
while os.environ.get("WAIT_FOR") and not os.path.exists(os.environ["WAIT_FOR"]):
    time.sleep(0.05)
"""

TRAIN = """\
import json, os, time
for step in range(4):
    with open(f"model-step={step}.pt", "wb") as file:
        file.write(bytes(1000))
    with open(os.environ["SPRITZ_RUN_DIR"] + "/metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "acc": [0.1, 0.9, 0.5, 0.4][step], "time": time.time()}) + "\\n")
usage = os.environ["SPRITZ_RUN_DIR"] + "/usage"
while not (os.path.isdir(usage) and len(os.listdir(usage)) == int(os.environ["SLURM_NNODES"])
           and all(os.path.getsize(f"{usage}/{name}") for name in os.listdir(usage))):
    sum(range(100000))
"""

MLFLOW = """\
import os, time
import mlflow
with mlflow.start_run() as run:
    for step in range(2):
        mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
    open("half", "w").close()
    while not os.path.exists("on"):
        time.sleep(0.05)
    for step in range(2, 4):
        mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
print(run.info.run_id)
"""


def directory_of(lab: Lab, name: str) -> Path:
    return lab.home / "runs" / name


def metrics_of(lab: Lab, name: str) -> dict[str, float]:
    found = lab.run_json(name)["index"]
    assert isinstance(found, dict)
    metrics: dict[str, float] = found["metrics"]
    return metrics


def test_a_requeued_run_goes_on_with_its_ids(lab: Lab) -> None:
    (lab.project / "train.py").write_text(SHOW)
    go = lab.directory / "go"
    with mlflow_server() as server:
        lab.environment |= {"MLFLOW_TRACKING_URI": server.url, "http_proxy": ""}
        words = ("run", "-d", "--track", "--tag", "paper", "--env", f"WAIT_FOR={go}", "--", "python3", "train.py")
        name = lab(*words).strip()
        first = directory_of(lab, name) / "log" / "0-0.log"
        until(lambda: first.exists() and first.read_text().endswith("\n"), "the first life prints its ids")
        job_id = str(lab.run_json(name)["index"]["job_id"])  # type: ignore[index]  # JSON
        lab.slurm("scontrol", "requeue", job_id)
        # A requeued job is not eligible for two minutes in Slurm 22.05.
        until(lambda: lab.state(name) == "PENDING", "the run is queued again")
        lab.slurm("scontrol", "update", f"JobId={job_id}", "StartTime=now")
        second = directory_of(lab, name) / "log" / "1-0.log"
        until(lambda: second.exists() and second.read_text().endswith("\n"), "the second life prints its ids")
        assert first.read_text().splitlines()[0] == second.read_text().splitlines()[0]
        go.touch()
        until(lambda: lab.state(name) == "COMPLETED", "the run ends")
        ((run_id, run),) = server.runs.items()
        assert f"'MLFLOW_RUN_ID': '{run_id}'" in first.read_text()
        assert run["info"]["status"] == "FINISHED"
        tags = server.tags(run_id)
        assert (tags["spritz.run"], tags["spritz.job"], tags["tag.paper"]) == (name, job_id, "true")
        assert len(tags["mlflow.source.git.commit"]) == 40
        server.log(run_id, loss=0.25)
        assert lab("show", name).count("Metrics    loss 0.25") == 1
        assert name in lab("runs", "--metric", "loss<0.3")


def test_an_untracked_run_is_left_alone(lab: Lab) -> None:
    (lab.project / "train.py").write_text(SHOW)
    assert "'MLFLOW_RUN_ID': None" in lab("run", "--", "python3", "train.py")
    assert not (lab.home / "mlflow").exists()
    job = (directory_of(lab, "train-1") / "job.sh").read_text()
    assert " track" not in job
    assert lab("track", status=1) == ""


def test_written_metrics_use_of_both_nodes_and_checkpoints(lab: Lab) -> None:
    (lab.project / "train.py").write_text(TRAIN)
    (lab.project / "pretrained-0.pt").write_bytes(b"x")  # of the snapshot: neither a checkpoint nor kept at the end
    lab("run", "-N", "2", "--", "python3", "train.py")
    assert metrics_of(lab, "train-1") == {"acc": 0.4}
    assert "acc 0.4" in lab("runs", "--metric", "acc>=0.4")
    assert lab("runs", "--metric", "acc>0.4") == "No run matches.\n"
    chart = lab("show", "train-1", "--usage")
    assert "rank 0 (" in chart
    assert "rank 1 (" in chart
    assert "started" in chart
    code = directory_of(lab, "train-1") / "code"
    policy = ("--keep-last", "1", "--keep-best", "acc")
    listed = json.loads(lab("checkpoints", "train-1", *policy, "--json"))["checkpoints"]
    assert sorted((item["step"], item["kept"]) for item in listed) == [(0, False), (1, True), (2, False), (3, True)]
    assert len(list(code.glob("model-*.pt"))) == 4
    lab("checkpoints", "train-1", *policy, "--prune")
    assert sorted(path.name for path in code.glob("*.pt")) == ["model-step=1.pt", "model-step=3.pt"]
    lab("checkpoints", "train-1", "--prune", status=2)
    lab("checkpoints", "train-1", "--keep-best", "nonexistent", "--prune", status=1)


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="needs spritz[experiments]")
def test_a_tracking_server_that_dies_costs_the_run_nothing(lab: Lab) -> None:
    (lab.project / "train.py").write_text(MLFLOW)
    try:
        name = lab("run", "-d", "--track", "--", sys.executable, "train.py").strip()
        code = directory_of(lab, name) / "code"
        until(lambda: (code / "half").exists(), "half of the training is logged", seconds=100)
        state = json.loads((lab.home / "mlflow" / "server.json").read_text())
        children = Path(f"/proc/{state['pid']}/task/{state['pid']}/children")
        (server,) = map(int, children.read_text().split())
        os.kill(server, signal.SIGKILL)
        (code / "on").touch()
        until(lambda: lab.state(name) == "COMPLETED", "the run ends", seconds=100)
        assert metrics_of(lab, name) == {"loss": 0.25}
        # A keeper found dead is started again by the next run, with the same address and token.
        os.kill(state["pid"], signal.SIGKILL)
        lab("run", "--", "true")
        again = json.loads(lab("track", "start", "--json"))
        assert again["url"] == state["url"]
        assert json.loads((lab.home / "mlflow" / "server.json").read_text())["token"] == state["token"]
    finally:
        lab("track", "stop", "--force")
    assert lab("track", status=1) == ""
