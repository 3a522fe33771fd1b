"""The tracking server's processes: MLflow on SQLite, protected by a token, and a keeper that restarts it.

    python -m spritz.experiments.tracking_server keep HOME [ADDRESS]

The keeper holds a lock while it runs, so that no home has two servers. It chooses a port and writes the state file
(`tracking`). A restarted server keeps port and token, so that jobs still reach it. The server is MLflow's own
application in a single process: `mlflow server` starts three, and requires no token.
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import hmac
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

from spritz.experiments.home import is_held
from spritz.experiments.tracking import process_start

#: Seconds; a server that runs shorter is restarted with growing delays.
_HEALTHY_SECONDS = 60.0
_PAUSE_SECONDS_MAX = 30.0
#: After this many failures in a row, the server is not started again.
_FAILURES_MAX = 8
#: Seconds to wait for the end of a server whose keeper was killed.
_PORT_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


def keep(home: Path, address: str) -> int:
    """Run the server until SIGTERM; 0, or 1 if it cannot be kept alive."""
    folder = home / "mlflow"
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if not is_held(error):
            print(f"{folder / 'lock'}: {error.strerror}: the file system refuses locks", flush=True)
            return 1
        print("another keeper has this home", flush=True)
        return 0
    path = folder / "server.json"
    # Kept when the server stops, so that a later server is at the same address for jobs that still run.
    kept_path = folder / "address.json"
    before = _state(kept_path)
    token = before.get("token") or secrets.token_urlsafe(24)
    host = "127.0.0.1" if address == "127.0.0.1" else socket.gethostname()
    port = free_port(address, int(before.get("port") or 0), _PORT_SECONDS)
    state = {
        "url": f"http://{host}:{port}", "host": socket.gethostname(), "address": address, "port": port,
        "pid": os.getpid(), "started": process_start(os.getpid()), "token": token,
    }  # fmt: skip
    stopping = []
    child: subprocess.Popen[bytes] | None = None

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.append(number)
        if child is not None:
            child.terminate()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    write(kept_path, {"port": port, "token": token})
    write(path, state)
    failures = 0
    while not stopping and failures < _FAILURES_MAX:
        begun_at = time.monotonic()
        child = subprocess.Popen(
            [sys.executable, "-m", "spritz.experiments.tracking_server", "serve",
             str(home), address, str(port), host],
            stdin=subprocess.DEVNULL, env={**os.environ, "SPRITZ_TRACK_TOKEN": token},
        )  # fmt: skip
        status = child.wait()
        if stopping:
            break
        failures = 0 if time.monotonic() - begun_at > _HEALTHY_SECONDS else failures + 1
        print(f"the server ended with status {status}; it is started again", flush=True)
        time.sleep(min(_PAUSE_SECONDS_MAX, 0.1 * 2**failures))
    return 0 if stopping else 1


def serve(home: Path, address: str, port: int, host: str) -> int:
    """Run MLflow's application in this process."""
    # The server must release the port if its keeper is killed.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    folder = home / "mlflow"
    # Set before the import of MLflow, which reads them once: they turn off its job runner and telemetry.
    os.environ |= {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(
            {f"{name}:{port}" for name in (host, "127.0.0.1", "localhost", socket.getfqdn())}
        ),
    }
    token = os.environ.pop("SPRITZ_TRACK_TOKEN")
    import uvicorn
    from mlflow.server import constants

    store = f"sqlite:///{folder}/mlflow.db"
    os.environ |= {
        constants.BACKEND_STORE_URI_ENV_VAR: store,
        constants.REGISTRY_STORE_URI_ENV_VAR: store,
        constants.ARTIFACT_ROOT_ENV_VAR: "mlflow-artifacts:/",
        constants.ARTIFACTS_DESTINATION_ENV_VAR: str(folder / "artifacts"),
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
    }
    from mlflow.server.fastapi_app import app
    from mlflow.server.handlers import initialize_backend_stores

    initialize_backend_stores(store, store, "mlflow-artifacts:/")

    uvicorn.run(guarded(app, token), host=address, port=port, log_level="warning", access_log=False)
    return 0


def guarded(application: Application, token: str) -> Application:
    """The application, with the token as a bearer token, or as the password of a browser's user `spritz`."""
    basic = base64.b64encode(f"spritz:{token}".encode())
    accepted = (b"Bearer " + token.encode(), b"Basic " + basic)

    async def guard(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        authorization = dict(scope.get("headers") or ()).get(b"authorization", b"")
        if (
            scope["type"] == "lifespan"
            or scope.get("path") == "/health"
            or any(hmac.compare_digest(authorization, right) for right in accepted)
        ):
            await application(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b'Basic realm="spritz track"')]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"`spritz track` prints the address with its token\n"})

    return guard


def free_port(address: str, wanted: int, seconds: float) -> int:
    """The wanted port if it becomes free within `seconds`, else another. Raises OSError if the address is not local."""
    deadline = time.monotonic() + seconds
    while True:
        late = not wanted or time.monotonic() > deadline
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, 0 if late else wanted))
                return int(probe.getsockname()[1])
            except OSError:
                if late:
                    raise
        time.sleep(0.1)


def write(path: Path, state: dict[str, Any]) -> None:
    """Replace the state file, readable only by its owner because of the token."""
    scratch = path.with_suffix(f".{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(state, file, indent=1)
    os.replace(scratch, path)


def _state(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state


if __name__ == "__main__":
    if sys.argv[1] == "keep":
        sys.exit(keep(Path(sys.argv[2]), sys.argv[3]))
    sys.exit(serve(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]))
