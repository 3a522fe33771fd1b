"""A cluster of `spritz up` that takes tokens, with a slurmrestd before it: for the tests of REST."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import jwt
import pytest

from spritz.cli.local import layout
from spritz.cli.local.paths import ClusterPaths
from spritz.presentation.json.documents import VERSIONS
from spritz.presentation.json.documents import operations as operations_of
from spritz.rest.routing import Router
from tests.e2e.cluster import until, user_name
from tests.ports import free_port
from tests.unit.rest.schema import schema_of

KEY = b"k" * 32
BIN = Path(sys.executable).parent


class Site:
    """A cluster of `spritz up` with tokens allowed, and a slurmrestd before it."""

    def __init__(self, gpus: int = 0) -> None:
        #: of each node
        self.gpus = gpus
        self.root = Path(tempfile.mkdtemp(prefix="spritz-rest-"))
        self.root.chmod(0o755)
        self.paths = ClusterPaths.of(str(self.root / "c"))
        self.socket = str(self.root / "restd.socket")
        self.port = free_port()
        self.router = Router([one for version in VERSIONS for one in operations_of(version)])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> dict[str, str]:
        """Of commands for this cluster."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SPRITZ"))}
        return {**kept, "SLURM_CONF": self.paths.slurm_conf, "SLURMRESTD_SECURITY": "disable_user_check"}

    def start(self) -> None:
        """Everything."""
        self.paths.create()
        layout.write_files(self.paths, layout.virtual_shape(2, 4, 2000, self.gpus, ""), user_name())
        key = self.root / "jwt.key"
        key.write_bytes(KEY)
        key.chmod(0o600)
        lines = f"\nAuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={key}\n"
        for path in (self.paths.slurm_conf, self.paths.slurmdbd_conf):
            with open(path, "a", encoding="utf-8") as file:
                file.write(lines)
        up = [str(BIN / "spritz"), "up", "--quiet", "--dir", self.paths.root]
        subprocess.run(up, env=self.env, check=True, timeout=100)
        self.start_rest()
        # `spritz up` does not wait for slurmdbd, which jobs do not need; many requests do.
        until(self._accounts, "slurmdbd answers")

    def start_rest(self) -> None:
        """slurmrestd."""
        command = [sys.executable, "-m", "spritz.rest.main", f"unix:{self.socket}", f"127.0.0.1:{self.port}"]
        with (self.root / "restd.log").open("ab") as log:
            self._process = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)
        until(self._serves, lambda: f"slurmrestd serves: {(self.root / 'restd.log').read_text()}")

    def end_rest(self, number: int) -> None:
        """slurmrestd, by a signal."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(60)

    def _accounts(self) -> bool:
        return subprocess.run([BIN / "sacct"], env=self.env, capture_output=True, check=False).returncode == 0

    def _serves(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.socket) == 0

    def stop(self) -> None:
        """Everything, and nothing stays."""
        if self._process is not None:
            self._process.terminate()
            assert self._process.wait(60) == 0
        subprocess.run([BIN / "spritz", "down", "--quiet", "--dir", self.paths.root], env=self.env, timeout=100)
        shutil.rmtree(self.root, ignore_errors=True)

    def restart_controller(self) -> None:
        """slurmctld is killed, and started again."""
        pid = int(Path(self.paths.controller_pid).read_text())
        os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}").exists(), "it is gone")
        up = [str(BIN / "spritz"), "up", "--quiet", "--dir", self.paths.root]
        subprocess.run(up, env=self.env, check=True, timeout=100)

    def configure(self, line: str) -> None:
        """One more line of slurm.conf, of a key that is there already or not."""
        path, key = Path(self.paths.slurm_conf), line.partition("=")[0] + "="
        lines = [one for one in path.read_text().splitlines() if not one.startswith(key)]
        path.write_text("\n".join([*lines, line, ""]))
        subprocess.run([BIN / "scontrol", "reconfigure"], env=self.env, check=True, timeout=60)

    @classmethod
    @contextmanager
    def configured(cls, *lines: str, gpus: int = 0) -> Iterator[Site]:
        """One that has these lines of slurm.conf too; stopped at the end."""
        made = cls(gpus)
        try:
            made.start()
            for line in lines:
                made.configure(line)
            yield made
        finally:
            made.stop()

    def client(self) -> httpx.Client:
        """By the Unix socket."""
        return httpx.Client(transport=httpx.HTTPTransport(uds=self.socket), base_url="http://rest", timeout=60)

    def tcp(self, **headers: str) -> httpx.Client:
        """By TCP, with these headers."""
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=60)

    def get(self, path: str) -> httpx.Response:
        """One answer, whatever it is."""
        with self.client() as client:
            return client.get(path)

    def ask(self, method: str, path: str, body: Any = None, *, status: int = 200, as_user: str = "") -> Any:
        """One request; the answer's body, validated by the document of its version."""
        with self.client() as client:
            headers = {"X-SLURM-USER-TOKEN": token(as_user)} if as_user else {}
            answer = client.request(method, path, json=body, headers=headers)
        assert answer.status_code == status, answer.json().get("errors") or answer.text[-600:]
        found = self.router.find(path.partition("?")[0])
        assert found is not None
        operation = found[0][method]
        jsonschema.validate(answer.json(), schema_of(operation.version, operation.answer))
        assert bool(answer.json()["errors"]) is (status != 200)
        return answer.json()

    def submit(self, version: str = "v0.0.45", script: str = "#!/bin/sh\ntrue\n", as_user: str = "", **job: Any) -> int:
        """A batch job's number."""
        job = {"environment": ["PATH=/bin:/usr/bin"], "current_working_directory": str(self.root), **job}
        answer = self.ask("POST", f"/slurm/{version}/job/submit", {"script": script, "job": job}, as_user=as_user)
        assert isinstance(answer["job_id"], int)
        return answer["job_id"]


def token(user: str = "", **claims: Any) -> str:
    """Signed with the cluster's key."""
    return jwt.encode({"exp": 4_000_000_000, "iat": 1, "sun": user or user_name(), **claims}, KEY, algorithm="HS256")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One for the tests of a file, which changes it."""
    found = Site()
    try:
        found.start()
        yield found
    finally:
        found.stop()
