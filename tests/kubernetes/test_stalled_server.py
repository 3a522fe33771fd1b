"""Operators as processes while the API server is stopped, and when it goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

CRDS = Path(__file__).parents[2] / "packaging/kubernetes/crds.yaml"

#: Of a lease: two thirds of it without an answer, and the leader stops.
SECONDS = 1.5


def _until(holds: Callable[[], object], what: Callable[[], str]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, what()
        time.sleep(0.05)


def test_an_operator_leads_again_when_the_api_server_was_stopped(tmp_path: Path) -> None:
    logs = {name: tmp_path / f"{name}.log" for name in ("server", "one", "two")}

    def start(name: str, *words: str) -> subprocess.Popen[bytes]:
        with logs[name].open("wb") as log:
            return subprocess.Popen([sys.executable, "-m", *words], stdout=log, stderr=log)

    def events(name: str) -> list[str]:
        lines = logs[name].read_text().splitlines()
        return [json.loads(line)["event"] for line in lines if line.startswith("{") and line.endswith("}")]

    def count(event: str) -> int:
        return sum(events(name).count(event) for name in ("one", "two"))

    def words() -> str:
        return "\n".join(f"{name}: {log.read_text()[-3000:]}" for name, log in logs.items() if log.exists())

    (tmp_path / "kube").mkdir()
    directory = str(tmp_path / "kube")
    server = start("server", "spritz_testing.kubernetes", "--nodes", "0", "--directory", directory, str(CRDS))
    running = [server]
    try:
        _until(lambda: "KUBECONFIG=" in logs["server"].read_text(), words)
        found = re.search(r"KUBECONFIG=(\S+)", logs["server"].read_text())
        assert found is not None
        for name in ("one", "two"):
            options = (
                "--clusters",
                "--kubeconfig",
                found[1],
                "--lease-seconds",
                str(SECONDS),
                "--namespace",
                "default",
            )
            running.append(start(name, "spritz.k8s.operator", *options))
        _until(lambda: count("leader.elected") == 1, words)
        for time_number in (1, 2):
            os.kill(server.pid, signal.SIGSTOP)
            _until(lambda: count("leader.lost") == time_number, words)  # noqa: B023
            os.kill(server.pid, signal.SIGCONT)
            _until(lambda: count("leader.elected") == time_number + 1, words)  # noqa: B023
        assert [process.poll() for process in running] == [None] * 3, words()
        for process in running[1:]:
            process.terminate()
        assert [process.wait(60) for process in running[1:]] == [0, 0], words()
    finally:
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(60)
