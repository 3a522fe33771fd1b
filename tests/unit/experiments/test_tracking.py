"""Who is tracked, by which server, and who may ask it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spritz.experiments import inside, tracking, tracking_server
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import settings
from tests.unit.experiments.mlflow_server import TOKEN, mlflow_server


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Homes whose server was started."""
    found: list[Path] = []
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(tracking, "_start", lambda home, address: found.append(home))
    return found


def state(home: Path, **values: object) -> None:
    (home / "mlflow").mkdir(exist_ok=True)
    known = {"url": "http://127.0.0.1:9", "host": os.uname().nodename, "address": "127.0.0.1", "token": "t",
             "pid": os.getpid(), "started": tracking.process_start(os.getpid())}  # fmt: skip
    (home / "mlflow" / "server.json").write_text(json.dumps(known | values))


def test_runs_are_tracked_where_wanted_or_where_a_server_was_started(tmp_path: Path, starts: list[Path]) -> None:
    assert tracking.plan(tmp_path, "", {}) is None
    assert tracking.plan(tmp_path, "off", {}) is None
    assert starts == []
    assert tracking.plan(tmp_path, "mlflow", {}) is not None
    assert starts == [tmp_path]
    state(tmp_path)
    found = tracking.plan(tmp_path, "auto", {})
    assert found == tracking.Plan(str(tmp_path / "mlflow" / "server.json"))
    assert tracking.plan(tmp_path, "off", {}) is None
    assert starts == [tmp_path]


def test_a_server_found_dead_is_started_again(tmp_path: Path, starts: list[Path]) -> None:
    state(tmp_path, started="1")
    assert tracking.plan(tmp_path, "", {}) is not None
    assert starts == [tmp_path]


def test_a_server_of_another_host_is_not_started_here(tmp_path: Path, starts: list[Path]) -> None:
    state(tmp_path, host="elsewhere")
    assert tracking.plan(tmp_path, "", {}) is None
    with pytest.raises(ExperimentError, match="does not answer"):
        tracking.plan(tmp_path, "mlflow", {})
    assert starts == []


def test_a_job_starts_no_server(tmp_path: Path, starts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    with pytest.raises(ExperimentError, match="a job cannot start it"):
        tracking.plan(tmp_path, "mlflow", {})
    assert starts == []


def test_a_given_server_is_used_when_asked_and_else_left_alone(tmp_path: Path, starts: list[Path]) -> None:
    assert tracking.plan(tmp_path, "", {"MLFLOW_TRACKING_URI": "http://site"}) is None
    assert tracking.plan(tmp_path, "mlflow", {"MLFLOW_TRACKING_URI": "http://site"}) == tracking.Plan("")
    assert tracking.plan(tmp_path, "mlflow", {"MLFLOW_TRACKING_URI": "databricks"}) is None
    assert starts == []


def test_a_damaged_state_file_is_named(tmp_path: Path) -> None:
    state(tmp_path)
    (tmp_path / "mlflow" / "server.json").write_text("{")
    with pytest.raises(ExperimentError, match=r"server\.json"):
        tracking.known(tmp_path)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("track: mlflow\n", {"track": "mlflow"}),
        ("track: off\n", {"track": "off"}),
        ("track: {server: auto, experiment: mnist}\n", {"track": "auto", "experiment": "mnist"}),
        ("track: mlflow\nrun: {track: off}\n", {"track": "off"}),
        ("", {}),
    ],
)
def test_the_setting(tmp_path: Path, text: str, options: dict[str, str]) -> None:
    (tmp_path / "spritz.yaml").write_text(text)
    assert settings.read(tmp_path).run == options


@pytest.mark.parametrize("text", ["track: wandb\n", "track: {servr: mlflow}\n", "track: [mlflow]\n"])
def test_mistakes_in_the_setting(tmp_path: Path, text: str) -> None:
    (tmp_path / "spritz.yaml").write_text(text)
    with pytest.raises(ExperimentError, match="track"):
        settings.read(tmp_path)


@pytest.mark.parametrize(
    ("path", "header", "status"),
    [
        ("/api", b"", 401),
        ("/api", b"Bearer wrong", 401),
        ("/api", b"Bearer t", 200),
        ("/", b"Basic " + base64.b64encode(b"spritz:t"), 200),
        ("/", b"Basic " + base64.b64encode(b"spritz:x"), 401),
        ("/health", b"", 200),
    ],
)
def test_the_server_asks_for_the_token(path: str, header: bytes, status: int) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {}

    scope = {"type": "http", "path": path, "headers": [(b"authorization", header)] if header else []}

    async def ask() -> None:
        await tracking_server.guarded(application, "t")(scope, receive, send)

    asyncio.run(ask())
    assert sent[0]["status"] == status


def test_the_state_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    tracking_server.write(tmp_path / "server.json", {"token": "t"})
    assert (tmp_path / "server.json").stat().st_mode & 0o777 == 0o600


def test_a_keeper_that_has_ended_but_is_not_reaped_is_dead() -> None:
    child = subprocess.Popen(["true"])
    status = Path(f"/proc/{child.pid}/stat")
    while status.read_text().rpartition(")")[2].split()[0] != "Z":
        pass
    assert tracking.process_start(child.pid) == ""
    child.wait()
    assert tracking.process_start(os.getpid()) != ""


def test_files_become_artifacts_of_the_mlflow_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "train-1"
    (directory / "code" / "out").mkdir(parents=True)
    (directory / "code" / "out" / "a é.pt").write_bytes(b"12")
    (directory / "code" / "empty").write_bytes(b"")

    def store(*paths: str) -> str:
        return tracking.store_artifacts(tmp_path, directory, directory / "code", paths)

    with pytest.raises(ExperimentError, match="train-1 is not tracked"):
        store("empty")
    with mlflow_server(TOKEN) as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)
        known = {"run": "train-1", "state": "", "experiment": "e", "code": str(directory / "code"), "tags": {}}
        (directory / "track.json").write_text(json.dumps(known))
        run_id = dict(inside.track(directory))["MLFLOW_RUN_ID"]
        assert store("out/a é.pt", "empty") == run_id
        place = f"1/{run_id}/artifacts"
        assert server.artifacts == {f"{place}/out/a é.pt": b"12", f"{place}/empty": b""}
        (directory / "code" / "a#b").write_bytes(b"")
        server.artifacts.clear()
        with pytest.raises(ExperimentError, match=r"did not take all files: .*a%23b: 400: .*Invalid path"):
            store("a#b", "empty")
        assert list(server.artifacts) == [f"{place}/empty"]
        server.runs[run_id]["info"]["artifact_uri"] = "s3://bucket/x"
        with pytest.raises(ExperimentError, match="but in s3://bucket/x"):
            store("empty")
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "wrong")
        with pytest.raises(ExperimentError, match="did not take all files: .*401"):
            store("empty")
    with pytest.raises(ExperimentError, match="did not take all files"):
        store("empty")
