"""The user's MLflow server, and its settings for runs.

`mlflow/` in the home of runs has the database, the artifacts, and `server.json`: address, token, and the process that
keeps the server alive on the host where it was started (`tracking_server`). The file exists from the first start until
`spritz track stop`. While it exists, runs are tracked, and a server that has died is started again. This module never
imports MLflow: submitting a run must cost no more than reading a small file.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from spritz.experiments import inside
from spritz.experiments.cluster import slurm
from spritz.experiments.errors import ExperimentError
from spritz.extras import pip_install
from spritz.process_identity import Process, send, status_of

#: MLflow creates its tables at the first start, which takes seconds on a slow disk.
_READY_SECONDS = 90.0
_NODES_MAX = 64


@dataclass(frozen=True)
class Server:
    """The user's MLflow server as its state file describes it; the process may have ended since."""

    url: str
    #: host of its keeper, the address on which it listens, and the keeper's process
    host: str
    address: str
    pid: int
    started: str
    token: str

    def kept(self) -> bool:
        """Whether the keeper runs; on another host, whether the server answers."""
        if self.host != socket.gethostname():
            return answers(self)
        return bool(self.started) and process_start(self.pid) == self.started


def process_start(pid: int) -> str:
    """Start of a process in the kernel's ticks, because pids are reused. "" if it has ended or does not exist."""
    status = status_of(pid)
    return "" if status is None or status.state in "ZX" else str(status.started)


def state_path(home: Path) -> Path:
    return home / "mlflow" / "server.json"


def known(home: Path) -> Server | None:
    """The server of the state file; None without the file."""
    try:
        data = json.loads(state_path(home).read_text(encoding="utf-8"))
        return Server(**{name: data[name] for name in Server.__dataclass_fields__})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        raise ExperimentError(
            f"{state_path(home)}: {error}", hint="remove the file; `spritz track start` makes it again"
        ) from error


def answers(server: Server, seconds: float = 1.0) -> bool:
    """Whether the server answers a request within `seconds`."""
    try:
        client(server).call("experiments/search", {"max_results": 1}, timeout=seconds)
    except (inside.Unreachable, ValueError):
        return False
    return True


def client(server: Server) -> inside.Client:
    """A client of the server's REST API."""
    return inside.Client(server.url, token=server.token, direct=True)


def ensure(home: Path) -> None:
    """Start the server in the background unless it runs. Raises ExperimentError if it cannot be started from here."""
    server = known(home)
    if server is not None and server.kept():
        return
    if slurm.in_job():
        raise ExperimentError(
            "the tracking server does not run, and a job cannot start it", hint="`spritz track start` on a login node"
        )
    if server is not None and server.host != socket.gethostname():
        raise ExperimentError(
            f"the tracking server at {server.url} does not answer",
            hint=f"`spritz track start` on {server.host} restarts it there; here it starts a server on this machine",
        )
    _start(home, server.address if server else None)


def start(home: Path, address: str | None) -> Server:
    """Start the server unless it runs, and wait until it answers. Raises ExperimentError with its last log line."""
    server = known(home)
    begun = None
    if server is None or not server.kept():
        begun = _start(home, address or (server.address if server else None))
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        server = known(home)
        if server is not None and server.kept() and answers(server):
            return server
        if begun is not None and begun.poll() is not None and not (server is not None and server.kept()):
            break
        time.sleep(0.1)
    last_line = _last_words(home / "mlflow" / "server.log")
    raise ExperimentError(
        f"the tracking server does not answer{last_line}", hint=f"its log is {home}/mlflow/server.log"
    )


def _start(home: Path, address: str | None) -> subprocess.Popen[bytes]:
    if importlib.util.find_spec("mlflow") is None or importlib.util.find_spec("uvicorn") is None:
        raise ExperimentError("MLflow is not installed here", hint=pip_install("experiments"))
    folder = home / "mlflow"
    folder.mkdir(exist_ok=True, mode=0o700)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "MLFLOW_", "_MLFLOW"))
    }
    descriptor = os.open(folder / "server.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "spritz.experiments.tracking_server", "keep", str(home), address or binding()],
            stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor, start_new_session=True, env=environment,
            cwd=folder,
        )  # fmt: skip
    finally:
        os.close(descriptor)


def _last_words(path: Path) -> str:
    with suppress(OSError):
        lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        return f": {lines[-1].strip()}" if lines else ""
    return ""


def stop(home: Path) -> bool:
    """Stop the server and the tracking of runs; False without server. Raises ExperimentError on another host."""
    server = known(home)
    if server is None:
        return False
    if server.host != socket.gethostname() and server.kept():
        raise ExperimentError(f"the tracking server runs on {server.host}", hint="stop it there")
    state_path(home).unlink(missing_ok=True)
    deadline = time.monotonic() + 20.0
    if server.host == socket.gethostname() and server.kept():
        send(Process(server.pid, int(server.started)), signal.SIGTERM)
        while server.kept() and time.monotonic() < deadline:
            time.sleep(0.05)
    return True


def binding() -> str:
    """The address to listen on: loopback if all nodes are this machine, else all interfaces."""
    done = slurm.call(["sinfo", "-h", "-N", "-o", "%o"])
    ours = {"localhost", "127.0.0.1", socket.gethostname(), socket.getfqdn()}
    for name in list(dict.fromkeys(done.stdout.split()))[:_NODES_MAX]:
        if name in ours:
            continue
        try:
            address = socket.gethostbyname(name)
        except OSError:
            return "0.0.0.0"
        if not address.startswith("127.") and not _is_local(address):
            return "0.0.0.0"
    return "127.0.0.1"


def _is_local(address: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


@dataclass(frozen=True)
class Plan:
    """How a run is tracked: by the user's own server, with state file `state`, or by the server in the variables."""

    state: str


def plan(home: Path, mode: str, environment: Mapping[str, str]) -> Plan | None:
    """Whether and how to track. Starts the server if necessary, without waiting for it. Raises ExperimentError."""
    if mode == "off":
        return None
    uri = environment.get("MLFLOW_TRACKING_URI", "")
    if uri:
        # Another server, or another kind of store: do not interfere.
        return Plan("") if mode == "mlflow" and uri.startswith(("http://", "https://")) else None
    if mode != "mlflow" and not state_path(home).exists():
        return None
    try:
        ensure(home)
    except ExperimentError:
        if mode == "mlflow":
            raise
        return None
    return Plan(str(state_path(home)))


#: Variables of a run that must not reach the runs that it submits.
INJECTED = (
    *("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_RUN_ID", "MLFLOW_RUN_CONTEXT", "MLFLOW_EXPERIMENT_NAME"),
    *("WANDB_RUN_ID", "WANDB_RESUME", "WANDB_NAME"),
)


def last_values(
    server: inside.Client, names: Sequence[str], since: float, seconds: float = 2.0
) -> dict[str, dict[str, float]]:
    """Run -> last values of its metrics, from all MLflow runs with its tag. Raises Unreachable or ValueError."""
    experiments = [
        experiment["experiment_id"]
        for experiment in server.call("experiments/search", {"max_results": 1000}, timeout=seconds).get(
            "experiments", []
        )
    ]
    if len(names) == 1:
        condition = f"tags.`spritz.run` = '{names[0]}'"
    else:
        condition = f"attributes.start_time >= {int(since * 1000)}"
    values: dict[str, dict[str, float]] = {}
    token = ""
    while True:
        query: dict[str, Any] = {"experiment_ids": experiments, "filter": condition, "max_results": 1000,
                                 "order_by": ["attributes.start_time ASC"]}  # fmt: skip
        answer = server.call("runs/search", query | ({"page_token": token} if token else {}), timeout=seconds)
        for run in answer.get("runs", []):
            tags = {tag["key"]: tag["value"] for tag in run["data"].get("tags", [])}
            if tags.get("spritz.run") in names and "mlflow.parentRunId" not in tags:
                metrics = {metric["key"]: metric["value"] for metric in run["data"].get("metrics", [])}
                values.setdefault(tags["spritz.run"], {}).update(
                    {key: float(value) for key, value in metrics.items() if isinstance(value, int | float)}
                )
        token = answer.get("next_page_token", "")
        if not token:
            return values


#: Seconds without progress after which an upload is given up.
_UPLOAD_SECONDS = 60.0


def store_artifacts(home: Path, directory: Path, folder: Path, paths: Sequence[str]) -> str:
    """Store files, relative to `folder`, as artifacts of the run in `directory`; returns the id of its MLflow run.

    Raises ExperimentError if the run is not tracked, or its server does not take them.
    """
    try:
        run_id = str(json.loads((directory / "mlflow.json").read_text(encoding="utf-8"))["run_id"])
    except (OSError, ValueError, KeyError):
        raise ExperimentError(
            f"{directory.name} is not tracked", hint="`spritz run --track` opens an MLflow run"
        ) from None
    server = server_of(home, directory)
    if server is None:
        raise ExperimentError("the tracking server does not run", hint="`spritz track start` starts it")
    try:
        uri = str(server.call(f"runs/get?run_id={inside.quoted(run_id)}")["run"]["info"]["artifact_uri"])
        parts = urlsplit(uri)
        if parts.scheme != "mlflow-artifacts":
            raise ExperimentError(
                f"its artifacts are not stored by the tracking server, but in {uri}",
                hint=f"--get DIR, then `mlflow artifacts log-artifacts --run-id {run_id} --local-dir DIR`",
            )
        # MLflow refuses some names (with #, for example), which must not keep it from the other files.
        refused = ""
        for path in paths:
            with (folder / path).open("rb") as file:
                target = quote(os.fsencode(f"{parts.path.strip('/')}/{path}"))
                try:
                    server.put(target, file, os.fstat(file.fileno()).st_size, _UPLOAD_SECONDS)
                except ValueError as error:
                    refused = refused or str(error)
        if refused:
            raise ValueError(refused)
    except OSError as error:
        raise ExperimentError(f"{error.filename}: {error.strerror}") from error
    except (inside.Unreachable, ValueError, KeyError) as error:
        raise ExperimentError(f"the tracking server did not take all files: {error}") from error
    return run_id


def server_of(home: Path, directory: Path) -> inside.Client | None:
    """The server that tracks the run, if it may answer; None for a run without tracking."""
    try:
        data = json.loads((directory / "track.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if data.get("state"):
        server = known(home)
        return client(server) if server is not None and server.kept() else None
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    return inside.server(data) if uri.startswith(("http://", "https://")) else None
