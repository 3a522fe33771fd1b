"""A server that speaks the part of MLflow's REST API that we use; tests/e2e/test_tracking.py asks the real one too."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

TOKEN = "t0ken"


class Mlflow:
    """State of the server."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {"Default": "0"}
        self.runs: dict[str, dict[str, Any]] = {}
        #: path -> content
        self.artifacts: dict[str, bytes] = {}
        self.artifact_root = "mlflow-artifacts:/"
        self.url = ""
        self.token = ""

    def tags(self, run_id: str) -> dict[str, str]:
        return {tag["key"]: tag["value"] for tag in self.runs[run_id]["data"]["tags"]}

    def log(self, run_id: str, **metrics: float) -> None:
        self.runs[run_id]["data"]["metrics"] = [
            {"key": name, "value": value, "timestamp": 1000, "step": 0} for name, value in metrics.items()
        ]

    def answer(self, path: str, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path.startswith("/api/2.0/mlflow-artifacts/"):
            return (400, {"message": "Invalid path"}) if "#" in given["path"] else (200, {})
        call = path.removeprefix("/api/2.0/mlflow/")
        if call == "experiments/search":
            return 200, {"experiments": [{"experiment_id": at} for at in self.experiments.values()]}
        if call == "experiments/get-by-name":
            if given["experiment_name"] not in self.experiments:
                return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST"}
            return 200, {"experiment": {"experiment_id": self.experiments[given["experiment_name"]]}}
        if call == "experiments/create":
            self.experiments[given["name"]] = str(len(self.experiments))
            return 200, {"experiment_id": self.experiments[given["name"]]}
        if call == "runs/create":
            run_id = f"{len(self.runs):032x}"
            info = {"run_id": run_id, "status": "RUNNING", "run_name": given["run_name"],
                    "experiment_id": given["experiment_id"],
                    "artifact_uri": f"{self.artifact_root}{given['experiment_id']}/{run_id}/artifacts"}  # fmt: skip
            self.runs[run_id] = {"info": info, "data": {"tags": given["tags"], "metrics": []}}
            return 200, {"run": self.runs[run_id]}
        if call == "runs/search":
            named = re.fullmatch(r"tags\.`spritz\.run` = '(.*)'", given["filter"])
            found = [run for at, run in self.runs.items() if not named or self.tags(at).get("spritz.run") == named[1]]
            return 200, {"runs": [run for run in found if run["info"]["experiment_id"] in given["experiment_ids"]]}
        if call == "metrics/get-history":
            values = self.runs[given["run_id"]]["data"]["metrics"]
            return 200, {"metrics": [row for row in values if row["key"] == given["metric_key"]]}
        if call == "runs/get":
            return 200, {"run": self.runs[given["run_id"]]}
        if call == "runs/update":
            self.runs[given["run_id"]]["info"]["status"] = given["status"]
            return 200, {"run_info": self.runs[given["run_id"]]["info"]}
        if call == "runs/set-tag":
            self.runs[given["run_id"]]["data"]["tags"].append({"key": given["key"], "value": given["value"]})
            return 200, {}
        return 404, {"error_code": "ENDPOINT_NOT_FOUND"}


@contextmanager
def mlflow_server(token: str = "") -> Iterator[Mlflow]:
    """A server on a free port of the loopback; with `token`, requests must bear it."""
    state = Mlflow()
    state.token = token

    class Handler(BaseHTTPRequestHandler):
        def _serve(self, given: dict[str, Any]) -> None:
            answer: dict[str, Any] = {}
            status = 401
            if not state.token or self.headers.get("Authorization") == f"Bearer {state.token}":
                status, answer = state.answer(urlsplit(self.path).path, given)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._serve(dict(parse_qsl(urlsplit(self.path).query)))

        def do_PUT(self) -> None:
            path = unquote(urlsplit(self.path).path).removeprefix("/api/2.0/mlflow-artifacts/artifacts/")
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if "#" not in path:  # MLflow's own rule
                state.artifacts[path] = content
            self._serve({"path": path})

        def do_POST(self) -> None:
            self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
