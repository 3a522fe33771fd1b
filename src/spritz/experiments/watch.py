"""A program in a job that detects idleness: holds a dev session, or guards a run.

The job starts it with any `python3` that it has, so it imports only the standard library. It is copied into the run's
directory, so that Spritz need not be installed where the job runs.

    session    start JupyterLab if session.json asks for it; end on request, or after a time without activity
    guard      warn about a run whose GPUs (or CPUs) are idle, then end it or only report it, by guard.json
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

#: Load of a CPU, or of a GPU, below which it counts as idle.
BUSY_CPUS = 0.05
BUSY_GPU_PERCENT = 5.0
_STOP_SECONDS = 0.5
#: Seconds between the signal to a guarded run's command and the cancellation of its job.
_GRACE_SECONDS = 60.0


def main(words: list[str]) -> int:
    """The session's exit status; a guard's has no meaning."""
    directory = Path(os.environ["SPRITZ_RUN_DIR"])
    if words == ["session"]:
        return session(directory)
    guard(directory)
    return 0


def say(directory: Path, event: str, **values: Any) -> None:
    """Add a line to the run's events."""
    restart, life = int(os.environ.get("SLURM_RESTART_COUNT") or 0), os.environ.get("SPRITZ_LIFE") or ""
    lives = {"life": int(life)} if life.isdecimal() else {}
    line = json.dumps({"event": event, "at": time.time(), "restart": restart, **lives, **values}) + "\n"
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename  # a file for each machine, as job.sh has it
    descriptor = os.open(str(directory / f"events.{node}.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def is_over(directory: Path) -> bool:
    """Whether a newer start of the run has begun (`records.lives`), which scancel would end: it has the same job."""
    life = os.environ.get("SPRITZ_LIFE") or ""
    return life.isdecimal() and os.path.lexists(directory / "lives" / str(int(life) + 1))


def tell(directory: Path, text: str, last: bool = False) -> None:
    """Write to the log, and send a notification if the run has addresses; log/notify.log has errors.

    Waits for the `last` notification, which would end with the job.
    """
    sys.stderr.write(f"spritz: {text}\n")
    sys.stderr.flush()
    if not os.environ.get("SPRITZ_NOTIFY"):
        return
    with (directory / "log" / "notify.log").open("ab") as log:
        try:
            python = os.environ.get("SPRITZ_PYTHON") or "python3"
            command = [python, "-I", "-m", "spritz.experiments.notify", "idle", text]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            if last:
                process.wait(_GRACE_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            log.write(f"not sent: {error}\n".encode())


def job_id() -> str:
    """The id of this job for commands: the last task of an array has the array's id, which would mean all tasks."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else os.environ["SLURM_JOB_ID"]


def span(seconds: float) -> str:
    """Minutes, or seconds if they are few."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


# --- what processes do ------------------------------------------------------------------------------------------------


class Processes:
    """CPU time and terminals of the job's processes on this node, without the watching processes themselves."""

    def __init__(self, job: str, node: str) -> None:
        self._job, self._node = job.encode(), node.encode()
        self._last: dict[str, float] = {}
        self._at = time.monotonic()
        self.terminals: set[str] = set()
        #: processes that lead a session on a terminal, shells: pid, and when it started, as a pid is given out again
        self.leaders: dict[int, bytes] = {}

    def look(self, but: frozenset[int] = frozenset()) -> float:
        """CPUs in use since the last sample."""
        now, used, last = time.monotonic(), 0.0, {}
        self.terminals, self.leaders = set(), {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.stat(f"/proc/{name}").st_uid != os.getuid() or int(name) == os.getpid():
                    continue
                with open(f"/proc/{name}/stat", "rb") as file:
                    head, _, fields = file.read().rpartition(b")")
                words = fields.split()
                if not self._ours(name, head):
                    continue
            except (OSError, ValueError):
                continue
            terminal = int(words[4])
            if terminal >> 8 & 0xFFF in range(136, 144):
                self.terminals.add(f"/dev/pts/{(terminal & 0xFF) | (terminal >> 12 & 0xFFF00)}")
                if words[3] == name.encode():
                    self.leaders[int(name)] = words[19]
            if int(name) in but:
                continue
            key = f"{name}:{words[19].decode()}"
            last[key] = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
            used += max(0.0, last[key] - self._last.get(key, 0.0))
        share = used / max(now - self._at, 0.001)
        self._last, self._at = last, now
        return share

    def hang_up(self) -> None:
        """End the shells on terminals: they ignore the SIGTERM of Slurm, which would wait half a minute for them."""
        self.look()
        for pid, started in sorted(self.leaders.items()):
            with suppress(OSError):
                with open(f"/proc/{pid}/stat", "rb") as file:
                    same = file.read().rpartition(b")")[2].split()[19] == started
                if same:
                    os.kill(pid, signal.SIGHUP)

    def _ours(self, pid: str, head: bytes) -> bool:
        if head.endswith((b"(sshd", b"(sshd-session")):
            return False  # sshd has overwritten its environment; connections are detected by their files
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = dict(item.partition(b"=")[::2] for item in file.read().split(b"\0"))
        return (
            variables.get(b"SLURM_JOB_ID") == self._job
            and variables.get(b"SLURMD_NODENAME", self._node) == self._node
            and b"SPRITZ_SAMPLER" not in variables
            and b"SLURM_STEP_ID" in variables
        )


def gpu_percent() -> list[float]:
    """Load of each of the job's GPUs in percent; empty without nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    done = subprocess.run(
        [program, "--query-gpu=index,uuid,utilization.gpu", "--format=csv,noheader,nounits"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=False,
    )  # fmt: skip
    visible = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    percents = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 3 and (not visible or words[0] in visible or words[1] in visible):
            try:
                percents.append(float(words[2]))
            except ValueError:
                continue  # [N/A]: the GPU does not report its load
    return percents


# --- dev sessions -----------------------------------------------------------------------------------------------------


class Jupyter:
    """A JupyterLab server of this session, on this node's own address; its token is in a separate file."""

    def __init__(self, directory: Path, command: str) -> None:
        self.runtime = directory / "jupyter"
        self.runtime.mkdir(mode=0o700, exist_ok=True)
        self._token = secrets.token_hex(24)
        environment = {**os.environ, "JUPYTER_TOKEN": self._token, "JUPYTER_RUNTIME_DIR": str(self.runtime)}
        words = [command, "--no-browser", "--ip=127.0.0.1", f"--port={unused_port()}"]
        if os.getuid() == 0:
            words.append("--allow-root")
        self.process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL)

    def url(self) -> str:
        """The server's address; "" while it starts."""
        try:
            with (self.runtime / f"jpserver-{self.process.pid}.json").open(encoding="utf-8") as file:
                return str(json.load(file)["url"])
        except (OSError, ValueError, KeyError):
            return ""

    def active_at(self) -> float:
        """Time of the last activity in seconds since the epoch; now if a kernel is busy."""
        try:
            if any(kernel.get("execution_state") == "busy" for kernel in self._get("api/kernels")):
                return time.time()
            text = str(self._get("api/status")["last_activity"]).replace("Z", "+00:00")
            return datetime.fromisoformat(text).timestamp()
        except (OSError, ValueError, KeyError):
            return 0.0

    def _get(self, path: str) -> Any:
        # `no_track_activity`: this request must not count as activity.
        request = urllib.request.Request(
            f"{self.url()}{path}?no_track_activity=1", headers={"Authorization": f"token {self._token}"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=10) as answer:
            return json.loads(answer.read())


def unused_port() -> int:
    """A free port of this node's own address; Jupyter takes another if it is in use by then."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def connections(directory: Path) -> int:
    """ssh connections that are open: `ssh/serve.sh` keeps a file for each."""
    count = 0
    for path in (directory / "ssh" / "open").glob("*"):
        if os.path.exists(f"/proc/{path.name}"):
            count += 1
        else:
            path.unlink()  # the connection's process was killed
    return count


def session(directory: Path) -> int:
    """Hold the job until it is stopped, its server ends, or there is no activity for the idle time."""
    with (directory / "session.json").open(encoding="utf-8") as file:
        options = json.load(file)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    idle, warning = float(options["idle_seconds"]), float(options["warn_seconds"])
    processes = Processes(os.environ["SLURM_JOB_ID"], os.environ.get("SLURMD_NODENAME", ""))
    server = Jupyter(directory, options["jupyter"]) if options["kind"] == "jupyter" else None
    try:
        processes.look()
        active_at, warned = time.time(), False
        looked_at, ready = time.monotonic(), False
        look_seconds = min(15.0, max(0.5, idle / 20))
        while not (directory / "stop").exists():
            if server is not None and server.process.poll() is not None:
                tell(directory, f"JupyterLab ended with status {server.process.returncode}")
                return 0 if ready and server.process.returncode == 0 else 1
            if not ready and (server is None or server.url()):
                ready = True
                say(directory, "ready")
            time.sleep(_STOP_SECONDS)
            if not idle or time.monotonic() - looked_at < look_seconds:
                continue
            looked_at = time.monotonic()
            active_at = max(active_at, last_activity(directory, processes, server))
            remaining = active_at + idle - time.time()
            if remaining <= 0:
                message = f"nothing has been done here for {span(idle)}: the session ends"
                for terminal in sorted(processes.terminals):
                    write_to(terminal, f"\r\nspritz: {message}\r\n")
                tell(directory, message, last=True)
                say(directory, "idle", action="end")
                return 0
            if remaining <= warning and not warned:
                warned = True
                message = (
                    f"nothing has been done here for {span(idle - remaining)}: this session ends in {span(remaining)}"
                )
                text = f"{message}; `spritz dev extend {directory.name} 0` keeps it"
                tell(directory, text)
                say(directory, "idle", action="warn", left=round(remaining))
                for terminal in sorted(processes.terminals):
                    write_to(terminal, f"\r\nspritz: {text}\r\n")
            elif remaining > warning:
                warned = False
        return 0
    finally:
        processes.hang_up()
        if server is not None and server.process.poll() is None:
            server.process.terminate()
            try:
                server.process.wait(20)
            except subprocess.TimeoutExpired:
                server.process.kill()


def last_activity(directory: Path, processes: Processes, server: Jupyter | None) -> float:
    """Time of the last activity that is visible now."""
    latest = 0.0
    but = frozenset() if server is None else frozenset([server.process.pid])
    if processes.look(but) > BUSY_CPUS or any(use > BUSY_GPU_PERCENT for use in gpu_percent()):
        latest = time.time()
    if connections(directory):
        latest = time.time()
    for terminal in processes.terminals:
        try:
            latest = max(latest, os.stat(terminal).st_atime)  # time of the last input
        except OSError:
            continue
    try:
        latest = max(latest, (directory / "extended").stat().st_mtime)
    except OSError:
        pass
    return max(latest, server.active_at()) if server is not None else latest


def write_to(terminal: str, text: str) -> None:
    """Write a message to the session's terminals, as wall does."""
    try:
        descriptor = os.open(terminal, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return
    try:
        os.write(descriptor, text.encode())
    except OSError:
        pass
    finally:
        os.close(descriptor)


# --- guard ------------------------------------------------------------------------------------------------------------


class Samples:
    """Usage, from the run's sampler (usage/RESTART-NODE.jsonl), or without a sampler from our own samples."""

    def __init__(self, directory: Path, what: str) -> None:
        self._directory, self._what = directory, what
        self._processes = Processes(os.environ["SLURM_JOB_ID"], os.environ.get("SLURMD_NODENAME", ""))
        self._processes.look()
        self._at: dict[Path, int] = {}

    def greatest(self) -> float | None:
        """The highest load since the last check, in percent of a GPU or CPU; None if it is unknown."""
        values = self._written()
        if values:
            return max(values)
        if self._what == "cpu":
            return 100 * self._processes.look()
        return max(gpu_percent(), default=None)

    def _written(self) -> list[float]:
        values: list[float] = []
        restart = os.environ.get("SLURM_RESTART_COUNT") or "0"
        for path in sorted((self._directory / "usage").glob(f"{restart}-*.jsonl")):
            try:
                with path.open("rb") as file:
                    file.seek(self._at.get(path, 0))
                    data = file.read().rpartition(b"\n")[0]
            except OSError:
                continue
            self._at[path] = self._at.get(path, 0) + (len(data) + 1 if data else 0)
            for line in data.splitlines():
                try:
                    values += self._use(json.loads(line))
                except (ValueError, TypeError, IndexError, AttributeError):
                    continue
        return values

    def _use(self, line: Any) -> list[float]:
        """{"ranks": {RANK: [CPUs, …]}, "gpus": {INDEX: [percent, …]}}."""
        if self._what == "cpu":
            return [100.0 * row[0] for row in line.get("ranks", {}).values()]
        return [float(row[0]) for row in line.get("gpus", {}).values()]


def guard(directory: Path) -> None:
    """Watch until the script that started us has ended."""
    with (directory / "guard.json").open(encoding="utf-8") as file:
        options = json.load(file)
    parent, what = os.getppid(), str(options["watch"])
    below, warn, end = float(options["below"]), float(options["warn_after"]), float(options["end_after"])
    samples = Samples(directory, what)
    busy_at, warned, acted = time.monotonic(), False, False
    pause = min(30.0, max(0.2, warn / 10))
    while True:
        time.sleep(pause)
        if os.getppid() != parent:
            return
        use = samples.greatest()
        if use is None or use >= below:
            # None: the load is unknown, so the run does not count as idle.
            busy_at, warned, acted = time.monotonic(), False, False
            continue
        idle = time.monotonic() - busy_at
        name = "GPUs" if what == "gpu" else "CPUs"
        if idle >= warn and not warned:
            warned = True
            then = f"; at {span(end)} its job ends" if options["action"] == "end" else ""
            tell(directory, f"{directory.name}: the {name} have been idle for {span(idle)}{then}")
            say(directory, "idle", action="warn", what=what, seconds=round(idle))
        if idle >= end and not acted:
            acted = True
            say(directory, "idle", action=options["action"], what=what, seconds=round(idle))
            if options["action"] != "end":
                tell(directory, f"{directory.name}: the {name} have been idle for {span(idle)}")
                continue
            # No notification here: that of the run's end has the reason.
            sys.stderr.write(f"spritz: {directory.name}: the {name} have been idle for {span(idle)}: its job ends\n")
            grace = _GRACE_SECONDS
            if is_over(directory):
                return
            if os.environ.get("SPRITZ_SAVED_FILE"):
                # A resumable run would start again from its checkpoint, so it is paused instead.
                (directory / "pause").touch()
                grace = 10 * _GRACE_SECONDS
            if os.getppid() != parent:
                return
            os.kill(parent, signal.SIGTERM)  # the script passes it to the command, which may save its state
            deadline = time.monotonic() + grace
            while os.getppid() == parent and time.monotonic() < deadline:
                time.sleep(0.2)
            if os.getppid() == parent and not is_over(directory):
                subprocess.run(["scancel", job_id()], stdin=subprocess.DEVNULL, check=False)
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
