"""A program in a job, in parallel to the command: opens the MLflow run, and samples each rank's usage.

The job's script starts it with any `python3` that the job has, so it imports only the standard library; its failures
must not harm the job. It is copied below the home of runs, so that Spritz need not be installed where the job runs
(`submission`).

    track    print lines for the shell that point MLflow's clients at the run's MLflow run
    close    report the run's end to MLflow, unless the program has done so
    mask     overwrite the named variables' values in the run's logs: secrets that the program has printed
    sample   periodically append a line with the usage of CPU, memory, I/O and GPUs to usage/RESTART-NODE.jsonl; on the
             first node also call `collect` of the program that is named (`event_files`)
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

#: Seconds to wait, once per start, for a server that is being started; a server that is gone must not delay the job.
WAIT_SECONDS = 45.0
_REQUEST_SECONDS = 5.0
#: Shorter values are not secrets, and occur in logs by chance (as in `secrets`).
SECRET_LENGTH_MIN = 8
#: Most Python files that are searched for set_experiment, and bytes of each.
_FILES_MAX = 2000
_FILE_BYTES_MAX = 1 << 20
_LOGS_MAX = 64
_COLLECT_SECONDS = 2.0


def main(words: list[str]) -> int:
    """Run a verb of the command line. Always 0."""
    directory = Path(os.environ["SPRITZ_RUN_DIR"])
    try:
        if words[0] == "track":
            sys.stdout.write("".join(f"export {name}={shlex.quote(value)}\n" for name, value in track(directory)))
        elif words[0] == "close":
            close(directory, int(words[1]))
        elif words[0] == "mask":
            mask(directory / "log", words[1:])
        elif words[0] == "sample":
            sample(directory, words[1] if words[1:] else "")
    except Exception as error:
        sys.stderr.write(f"spritz: {words[0]}: {type(error).__name__}: {error}\n")
    return 0


# --- MLflow -----------------------------------------------------------------------------------------------------------


class Unreachable(Exception):
    """No server answers at the address."""


class Client:
    """The few calls of MLflow's REST API that are needed."""

    def __init__(self, url: str, user: str = "", password: str = "", token: str = "", direct: bool = False) -> None:
        """`direct`: bypass proxies, which do not know the cluster's own hosts."""
        import base64

        self.url = url.rstrip("/")
        self._direct = direct
        self._header = f"Bearer {token}" if token else ""
        if user:
            self._header = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def call(self, path: str, values: dict[str, Any] | None = None, timeout: float = _REQUEST_SECONDS) -> Any:
        """The answer to a POST of `values`, or to a GET. Raises Unreachable, or ValueError with what MLflow says."""
        data = None if values is None else json.dumps(values).encode()
        return self._answer(f"mlflow/{path}", "GET" if data is None else "POST", data, {}, timeout)

    def put(self, path: str, file: BinaryIO, size: int, timeout: float) -> None:
        """Store `size` bytes of the file as an artifact. Raises as `call` does."""
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        self._answer(f"mlflow-artifacts/artifacts/{path}", "PUT", file, headers, timeout)

    def _answer(self, path: str, method: str, data: Any, headers: dict[str, str], timeout: float) -> Any:
        import urllib.error
        import urllib.request

        authorization = {"Authorization": self._header} if self._header else {}
        request = urllib.request.Request(
            f"{self.url}/api/2.0/{path}",
            data=data,
            headers={"Content-Type": "application/json", **headers, **authorization},
            method=method,
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({} if self._direct else None))
        try:
            with opener.open(request, timeout=timeout) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            text = error.read().decode("utf-8", "replace")
            if error.code in (502, 503, 504):
                raise Unreachable(f"{self.url}: {error}") from error
            raise ValueError(f"{path}: {error.code}: {text[:300]}") from error
        except OSError as error:
            raise Unreachable(f"{self.url}: {error}") from error

    def experiment_id(self, name: str) -> str:
        """The id of the experiment of this name, which is created if necessary."""
        for _ in range(2):
            try:
                answer = self.call(f"experiments/get-by-name?experiment_name={quoted(name)}")
                return str(answer["experiment"]["experiment_id"])
            except ValueError as error:
                if "RESOURCE_DOES_NOT_EXIST" not in str(error):
                    raise
            try:
                return str(self.call("experiments/create", {"name": name})["experiment_id"])
            except ValueError as error:
                if "RESOURCE_ALREADY_EXISTS" not in str(error):
                    raise
        raise ValueError(f"experiment {name} can neither be found nor made")


def quoted(text: str) -> str:
    """The text as a value in an address."""
    from urllib.parse import quote

    return quote(text, safe="")


def server(known: dict[str, Any]) -> Client:
    """The server that the run's record names: the user's own by its state file, or the one in the variables."""
    if known.get("state"):
        state = json.loads(Path(known["state"]).read_text(encoding="utf-8"))
        return Client(state["url"], token=state["token"], direct=True)
    return Client(
        os.environ["MLFLOW_TRACKING_URI"],
        os.environ.get("MLFLOW_TRACKING_USERNAME", ""),
        os.environ.get("MLFLOW_TRACKING_PASSWORD", ""),
        os.environ.get("MLFLOW_TRACKING_TOKEN", ""),
    )


def track_settings(directory: Path) -> dict[str, Any]:
    """The tracking settings that `spritz` wrote for this run; a trial, NAME.INDEX, has those of its sweep."""
    path = directory / "track.json"
    if not path.exists():
        sweep = directory.with_name(directory.name.rpartition(".")[0]) / "track.json"
        known = json.loads(sweep.read_text(encoding="utf-8"))
        known["run"] = directory.name
        known["tags"].update({"spritz.run": directory.name, "mlflow.runName": directory.name})
        path.write_text(json.dumps(known, indent=1), encoding="utf-8")
    settings = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(settings, dict)
    return settings


def track(directory: Path) -> list[tuple[str, str]]:
    """Variables for the command. Without an answer of the server, the run continues untracked."""
    known = track_settings(directory)
    tags = {**known["tags"], "spritz.job": os.environ.get("SLURM_JOB_ID", "")}
    variables = [("MLFLOW_EXPERIMENT_NAME", known["experiment"]), ("MLFLOW_RUN_CONTEXT", json.dumps(tags))]
    try:
        client, run_id = _opened(directory, known, tags)
    except (Unreachable, OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"spritz: no tracking: {error}; what the program logs goes to {directory}/mlflow.db\n")
        return [*variables, ("MLFLOW_TRACKING_URI", f"sqlite:///{directory}/mlflow.db")]
    if known.get("state"):
        state = json.loads(Path(known["state"]).read_text(encoding="utf-8"))
        variables += [("MLFLOW_TRACKING_URI", client.url), ("MLFLOW_TRACKING_TOKEN", state["token"])]
        for name in ("NO_PROXY", "no_proxy"):
            if os.environ.get("http_proxy") or os.environ.get("HTTP_PROXY"):
                host = client.url.rpartition("/")[2].partition(":")[0]
                variables.append((name, ",".join(filter(None, (os.environ.get(name), host)))))
    if sets_experiment(Path(known["code"])):
        # MLflow refuses a run of another experiment than the selected one, so identify runs only by their tags.
        return variables
    return [*variables, ("MLFLOW_RUN_ID", run_id)]


def _opened(directory: Path, known: dict[str, Any], tags: dict[str, str]) -> tuple[Client, str]:
    """The server and the id of the run's MLflow run, which later starts of the run continue."""
    deadline = time.monotonic() + float(os.environ.get("SPRITZ_TRACK_WAIT_SECONDS") or WAIT_SECONDS)
    while True:
        try:
            client = server(known)
            experiment = client.experiment_id(known["experiment"])
            break
        except (Unreachable, OSError) as error:
            # The state file is written when the server has an address; without it, it is being started.
            if time.monotonic() > deadline:
                raise Unreachable(str(error)) from error
        time.sleep(0.2)
    kept = directory / "mlflow.json"
    if kept.exists():
        run_id = str(json.loads(kept.read_text(encoding="utf-8"))["run_id"])
        client.call("runs/update", {"run_id": run_id, "status": "RUNNING"})
        client.call("runs/set-tag", {"run_id": run_id, "key": "spritz.job", "value": tags["spritz.job"]})
        return client, run_id
    answer = client.call(
        "runs/create",
        {
            "experiment_id": experiment,
            "run_name": known["run"],
            "start_time": int(time.time() * 1000),
            "user_id": tags.get("mlflow.user", ""),
            "tags": [{"key": key, "value": value} for key, value in sorted(tags.items()) if value],
        },
    )
    run_id = str(answer["run"]["info"]["run_id"])
    kept.write_text(json.dumps({"run_id": run_id, "experiment_id": experiment}) + "\n", encoding="utf-8")
    return client, run_id


def sets_experiment(code: Path) -> bool:
    """Whether the program chooses an experiment itself."""
    count = 0
    for folder, folders, names in os.walk(code):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in ("node_modules", "venv")]
        for name in names:
            if not name.endswith(".py"):
                continue
            count += 1
            if count > _FILES_MAX:
                return False
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    if b"mlflow.set_experiment(" in file.read(_FILE_BYTES_MAX):
                        return True
            except OSError:
                continue
    return False


def close(directory: Path, status: int) -> None:
    """MLflow's state of the run: a program that crashed, or that logged nothing, leaves it open."""
    known = track_settings(directory)
    run_id = json.loads((directory / "mlflow.json").read_text(encoding="utf-8"))["run_id"]
    words = "FINISHED" if status == 0 else "KILLED" if status > 128 else "FAILED"
    server(known).call(
        "runs/update", {"run_id": run_id, "status": words, "end_time": int(time.time() * 1000)}, timeout=2.0
    )


# --- secrets in logs --------------------------------------------------------------------------------------------------


def mask(logs: Path, names: list[str]) -> None:
    """Overwrite in place, with the same number of characters, so that readers keep their position in the log."""
    values = {os.environ.get(name, "") for name in names}
    # Arguments come as --password=VALUE or as the value alone.
    values |= {value.partition("=")[2] for value in values if value.startswith("-")}
    secrets = sorted((value.encode() for value in values if len(value) >= SECRET_LENGTH_MIN), key=len, reverse=True)
    for path in logs.iterdir() if secrets else ():
        if not path.is_file() or not path.stat().st_size:
            continue
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as text:
            for value in secrets:
                at = text.find(value)
                while at >= 0:
                    text[at : at + len(value)] = b"*" * len(value)
                    at = text.find(value, at + len(value))


# --- use of resources -------------------------------------------------------------------------------------------------


class Processes:
    """The job's processes on this node, by rank."""

    def __init__(self, job: str, node: str) -> None:
        self._job = job.encode()
        self._node = node.encode()
        #: pid -> (start, rank or None if the process belongs to no rank)
        self._ranks: dict[int, tuple[str, str | None]] = {}
        #: pid -> usage at the last sample: CPU seconds, bytes read and written
        self._last: dict[int, tuple[float, float, float]] = {}
        self._looked_at = time.monotonic()
        self._tick = os.sysconf("SC_CLK_TCK")
        self._page = os.sysconf("SC_PAGE_SIZE")

    def look(self) -> dict[str, list[float]]:
        """Rank -> (CPUs in use since the last sample, resident bytes, bytes read and written per second)."""
        now = time.monotonic()
        span = max(now - self._looked_at, 1e-3)
        self._looked_at = now
        usage: dict[str, list[float]] = {}
        ranks: dict[int, tuple[str, str | None]] = {}
        last: dict[int, tuple[float, float, float]] = {}
        for name in os.listdir("/proc"):
            if not name.isdecimal():
                continue
            pid = int(name)
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    words = file.read().rpartition(b")")[2].split()
                start = words[19].decode()
                known = self._ranks.get(pid)
                ranks[pid] = known if known is not None and known[0] == start else (start, self._rank(name))
                rank = ranks[pid][1]
                if rank is None:
                    continue
                used = (sum(map(int, words[11:15])) / self._tick, *_bytes_moved(name))
            except (OSError, IndexError, ValueError):
                continue
            last[pid] = used
            before = self._last.get(pid)
            row = usage.setdefault(rank, [0.0, 0.0, 0.0, 0.0])
            row[1] += int(words[21]) * self._page
            for place, column in enumerate((0, 2, 3)):
                # A new process has used all of its time since the last sample.
                row[column] += max(0.0, used[place] - (before[place] if before else 0.0)) / span
        self._ranks, self._last = ranks, last
        return usage

    def _rank(self, pid: str) -> str | None:
        """A process's rank by its environment: torchrun's or similar, else Slurm's task; None for the script and us."""
        if int(pid) == os.getpid():
            return None
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = dict(item.partition(b"=")[::2] for item in file.read().split(b"\0"))
        if variables.get(b"SLURM_JOB_ID") != self._job or b"SPRITZ_SAMPLER" in variables:
            return None
        # Nodes may share a kernel.
        if variables.get(b"SLURM_NODEID") != self._node:
            return None
        task = variables.get(b"SLURM_PROCID")
        if task is None or b"SLURM_STEP_ID" not in variables:
            return None
        return variables.get(b"RANK", task).decode()


def _bytes_moved(pid: str) -> tuple[float, float]:
    """Bytes that the process has read from and written to storage."""
    values = {}
    with open(f"/proc/{pid}/io", encoding="ascii") as file:
        for line in file:
            key, _, value = line.partition(":")
            values[key] = float(value)
    return values["read_bytes"], values["write_bytes"]


def gpus() -> dict[str, list[float]]:
    """GPU -> (load in percent, MiB of memory in use, MiB of memory), for the job's GPUs."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    fields = "index,uuid,utilization.gpu,memory.used,memory.total"
    done = subprocess.run(
        [program, f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=20, check=False,
    )  # fmt: skip
    visible = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    usage: dict[str, list[float]] = {}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) != 5 or (visible and words[0] not in visible and words[1] not in visible):
            continue
        try:
            usage[words[0]] = [float(word) if word[:1].isdecimal() else 0.0 for word in words[2:]]
        except ValueError:
            continue
    return usage


def log_sizes(directory: Path) -> dict[str, int]:
    """Bytes of ranks' logs so far, from which the times of their lines follow."""
    sizes: dict[str, int] = {}
    with os.scandir(directory / "log") as entries:
        for entry in entries:
            if entry.name[:1].isdecimal() and len(sizes) < _LOGS_MAX:
                sizes[entry.name] = entry.stat().st_size
    return sizes


def collector(program: str) -> Callable[[Path], int] | None:
    """`collect` of the program at that path."""
    import importlib.util

    specification = importlib.util.spec_from_file_location("event_files", program) if program else None
    if specification is None or specification.loader is None:
        return None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    collect: Callable[[Path], int] = module.collect
    return collect


def sample(directory: Path, program: str = "") -> None:
    """Sample until the script that started us has ended; in long runs a line for each 1/200 of the run's age."""
    seconds = os.environ.get("SPRITZ_SAMPLE_SECONDS", "")
    parent = os.getppid()
    # The script may have ended before we began: then our parent never changes. Elsewhere the step ends with the job.
    script = os.environ.get("SPRITZ_SAMPLER", "") if os.environ.get("SLURM_NNODES") == "1" else ""
    restart, node = os.environ.get("SLURM_RESTART_COUNT") or "0", os.environ.get("SLURM_NODEID") or "0"
    host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    folder = directory / "usage"
    folder.mkdir(exist_ok=True)
    processes = Processes(os.environ["SLURM_JOB_ID"], node)
    processes.look()  # ignore usage from before the first sample
    begun_at = time.monotonic()
    collect = collector(program) if node == "0" else None
    collect_at = begun_at
    with open(folder / f"{restart}-{node}.jsonl", "a", encoding="utf-8") as file:
        while True:
            pause = float(seconds) if seconds else min(30.0, max(1.0, (time.monotonic() - begun_at) / 200))
            time.sleep(pause)
            if os.getppid() != parent or (script and not os.path.exists(f"/proc/{script}")):
                return
            line: dict[str, Any] = {"at": round(time.time(), 2), "node": host}
            ranks = processes.look()
            line["ranks"] = {rank: [round(row[0], 3), *map(round, row[1:])] for rank, row in sorted(ranks.items())}
            cards = gpus()
            if cards:
                line["gpus"] = cards
            if node == "0":
                line["log"] = log_sizes(directory)
            if collect is not None and time.monotonic() >= collect_at:
                begin = time.monotonic()
                with contextlib.suppress(OSError, ValueError):
                    collect(directory)
                # At most a fiftieth of the time goes into walking the run's directory.
                collect_at = time.monotonic() + max(_COLLECT_SECONDS, 50 * (time.monotonic() - begin))
            if ranks or cards:
                file.write(json.dumps(line) + "\n")
                file.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
