"""A task in a container of an OCI runtime, as oci.conf says: --container=BUNDLE.

    python -m spritz.stepd.oci run TASK COMMAND…      becomes the runtime, with the task's command in its container
    python -m spritz.stepd.oci end TASK PID           after the step's end: removes the remaining container

TASK is JSON, a `Task`. Both run as the user, with the task's variables, as the runtime does. The bundle stays as it is:
the runtime gets a directory with a config.json made of the bundle's, with the command, the variables (the bundle's
first, as its PATH must win) and the script's mount.

Source: oci.conf(5); Slurm's containers guide; config.md of the OCI runtime specification.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

# Nothing that imports msgspec or ctypes: that would be half of what a container's start costs.

if TYPE_CHECKING:
    from types import FrameType

#: path of a batch script inside, as in Slurm
SCRIPT_INSIDE = "/tmp/slurm/startup"

_CONFIGURATION, _VARIABLES = "config.json", "environment"
#: devices that all users of a driver need, by how those of its GPUs begin
_WITH = {
    "/dev/nvidia": ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"),
    "/dev/dri/": ("/dev/kfd",),
}
#: Seconds for Query, Kill and Delete, and for Create and Start.
_COMMAND_SECONDS = 10.0
_CREATE_SECONDS = 60.0
_LOOK_MIN_SECONDS, _LOOK_MAX_SECONDS = 0.0025, 1.0
#: search path for runtimes, after the job's PATH
_STANDARD_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Task(NamedTuple):
    """Data about the task and oci.conf (the fields of `config.relatives.oci.OciFile`)."""

    bundle: str
    #: made for the step, the user's
    directory: str
    job_id: int
    step_id: int
    task_id: int
    node: str
    user: str = ""
    uid: int = 0
    #: the batch script, "" for a step
    script: str = ""
    #: files of gres.conf that the step has
    devices: tuple[str, ...] = ()
    #: name of the variable that marks the step's processes
    mark: str = ""

    create: str = ""
    start: str = ""
    run: str = ""
    query: str = ""
    kill: str = ""
    delete: str = ""
    container_path: str = ""
    mount_spool_dir: str = ""
    env_file: str = ""
    disabled_hooks: tuple[str, ...] = ()
    env_exclude: str = ""
    runtime_env_exclude: str = ""
    ignore_config: bool = False
    keep_files: bool = False

    def as_text(self) -> str:
        """The fields that are set, as JSON: the argument of `main`."""
        return json.dumps({name: value for name, value in self._asdict().items() if value})


class Refused(Exception):
    """The container cannot run; the text is for the job's standard error."""


def main(words: list[str]) -> int:
    """The exit status; of a task that was run, its own."""
    verb, text, *arguments = words
    try:
        container = Container(Task(**{**_NEEDED, **json.loads(text)}))
        if verb == "end":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # the step ends: that is what this is for
            return container.end(int(arguments[0]))
        return container.begin(arguments)
    except Refused as error:
        _say(str(error))
    except OSError as error:
        _say(f"{error.filename}: {error.strerror}")
    return 1


#: the fields that `as_text` omits if they are 0
_NEEDED = {"job_id": 0, "step_id": 0, "task_id": 0}


def _say(text: str) -> None:
    sys.stderr.write(f"slurmstepd: error: container: {text}\n")
    sys.stderr.flush()


class Container:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._root = task.bundle
        self._bundle = task.bundle
        self._command: list[str] = []
        self._pid = os.getpid()
        self._directory = task.directory
        # %m stands for the step's own directory in the pattern of this one.
        self._directory = self._filled(task.container_path) or f"{task.directory}/task-{task.task_id:05d}"
        if not task.ignore_config:
            self._bundle = self._directory

    # Start

    def begin(self, command: list[str]) -> int:
        """Become the runtime; or create the container, start it, and wait for it. Raises Refused, OSError."""
        task = self._task
        if task.script:
            command = [task.script if task.ignore_config else SCRIPT_INSIDE, *command[1:]]
        self._command = command
        configuration = None if task.ignore_config else self._read()
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        environment = dict(os.environ)
        if configuration is not None:
            environment |= _variables_of(configuration)
        if task.env_exclude:
            excluded = re.compile(task.env_exclude)
            environment = {
                name: value
                for name, value in environment.items()
                if name == task.mark or not excluded.search(f"{name}={value}")
            }
        if configuration is not None:
            self._write(configuration, environment)
        if task.env_file:
            self._write_variables(environment)
        if task.run:
            os.execve("/bin/sh", ["/bin/sh", "-c", self._filled(task.run)], self._environment())
        return self._create_and_start()

    def _read(self) -> dict[str, Any]:
        path = f"{self._task.bundle}/{_CONFIGURATION}"
        try:
            with open(path, "rb") as file:
                content = json.load(file)
            root = content["root"]["path"]
            if not isinstance(root, str):
                raise TypeError
        except OSError as error:
            raise Refused(f"unable to open {path}: {error.strerror}") from error
        except ValueError as error:
            raise Refused(f"unable to parse {path}: {error}") from error
        except (KeyError, TypeError) as error:
            raise Refused(f"{path}: no root.path is in it") from error
        self._root = os.path.join(self._task.bundle, root)
        assert isinstance(content, dict)
        return content

    def _write(self, configuration: dict[str, Any], environment: dict[str, str]) -> None:
        task = self._task
        process = configuration.setdefault("process", {})
        process |= {
            # Of --pty; what creates a container, and ends, has nowhere to keep one.
            "terminal": bool(task.run) and os.isatty(0) and os.isatty(1),
            "args": self._command,
            "env": [f"{name}={value}" for name, value in environment.items()],
        }
        configuration["root"]["path"] = self._root
        mounts = configuration.get("mounts") or []
        if task.mount_spool_dir:
            mounts.append(_bound(self._directory, self._filled(task.mount_spool_dir)))
        if task.script:
            mounts.append(_bound(task.script, SCRIPT_INSIDE, "ro"))
        server = environment.get("PMIX_SERVER_TMPDIR", "")
        if server and os.path.isdir(server):
            mounts.append(_bound(server, server))
        configuration["mounts"] = mounts
        if task.devices:
            _give(configuration, task.devices)
        hooks = configuration.get("hooks") or {}
        for kind in task.disabled_hooks:
            hooks.pop(kind, None)
        with _new(f"{self._directory}/{_CONFIGURATION}") as file:
            file.write(json.dumps(configuration, indent=1).encode())

    def _write_variables(self, environment: dict[str, str]) -> None:
        newline = self._task.env_file == "newline"
        with _new(f"{self._directory}/{_VARIABLES}") as file:
            for name, value in environment.items():
                entry = os.fsencode(f"{name}={value}")
                if newline and b"\n" in entry:
                    continue  # as Slurm: it could not be distinguished from two
                file.write(entry + (b"\n" if newline else b"\0"))

    def _environment(self) -> dict[str, str]:
        """The runtime's own variables."""
        variables = dict(os.environ)
        if self._task.runtime_env_exclude:
            excluded = re.compile(self._task.runtime_env_exclude)
            variables = {name: value for name, value in variables.items() if not excluded.search(f"{name}={value}")}
        places = [place for place in variables.get("PATH", "").split(":") if place]
        variables["PATH"] = ":".join(dict.fromkeys((*places, *_STANDARD_PATH)))
        return variables

    # Without RunTimeRun

    def _create_and_start(self) -> int:
        """The container's exit status where it is a process below this one, else that of RunTimeStart."""
        task = self._task
        from spritz.process_identity import Process, identify, send
        from spritz.stepd import processes

        processes.become_subreaper("slurmstepd-oci")
        self._must("RunTimeCreate", task.create)
        state = self._until_created()
        pid = state.get("pid")
        below = isinstance(pid, int) and pid in processes.descendants(os.getpid())
        container = identify(pid) if isinstance(pid, int) else Process(0, 0)

        def forward(number: int, frame: FrameType | None) -> None:
            if below:
                send(container, number)
            else:
                self._shell("RunTimeKill", task.kill)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, forward)
        self._must("RunTimeStart", task.start)
        if below and isinstance(pid, int):
            with contextlib.suppress(ChildProcessError):
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                return status if status >= 0 else 128 - status
        wait = _LOOK_MIN_SECONDS
        while (self._state() or {}).get("status") == "running":
            time.sleep(wait)
            wait = min(2 * wait, _LOOK_MAX_SECONDS)
        return 0

    def _must(self, name: str, pattern: str) -> None:
        """Run a command whose output is the container's, and so the task's."""
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", self._filled(pattern)], env=self._environment(), timeout=_CREATE_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise Refused(f"{name} has not ended within {_CREATE_SECONDS:g} s") from error
        if done.returncode:
            raise Refused(f"{name} failed with status {done.returncode}")

    def _until_created(self) -> dict[str, Any]:
        wait, until = _LOOK_MIN_SECONDS, time.monotonic() + _COMMAND_SECONDS
        while time.monotonic() < until:
            state = self._state()
            status = (state or {}).get("status")
            if state is not None and status == "created":
                return state
            if status not in (None, "creating"):
                raise Refused(f"unexpected container status: {status}")
            time.sleep(wait)
            wait = min(2 * wait, _LOOK_MAX_SECONDS)
        raise Refused("container never started")

    # End

    def end(self, pid: int) -> int:
        """End and remove the task's remaining container; 1 if that fails."""
        task = self._task
        self._pid = pid
        with contextlib.suppress(Refused):
            if not task.ignore_config:
                self._read()
        state = self._state() if task.query else None
        still_there = False
        if task.query:
            wait = _LOOK_MIN_SECONDS
            for _ in range(10):
                if state is None or state.get("status") not in ("running", "created", "paused"):
                    break
                self._shell("RunTimeKill", task.kill)
                time.sleep(wait)
                wait = min(2 * wait, _LOOK_MAX_SECONDS)
                state = self._state()
            if state is not None:
                self._shell("RunTimeDelete", task.delete)
                still_there = self._state() is not None
        else:
            self._shell("RunTimeKill", task.kill)
            self._shell("RunTimeDelete", task.delete)
        if not task.keep_files:
            shutil.rmtree(self._directory, ignore_errors=True)
        return int(still_there)

    def _state(self) -> dict[str, Any] | None:
        """The answer of RunTimeQuery; None if it knows no such container."""
        answer = self._shell("RunTimeQuery", self._task.query)
        try:
            state = json.loads(answer)
        except ValueError:
            return None
        return state if isinstance(state, dict) and state.get("status") else None

    def _shell(self, name: str, pattern: str) -> bytes:
        """Standard output of a command that may fail; b"" if it does."""
        if "%p" in pattern.replace("%%", ""):
            from spritz.process_identity import status_of

            # The task is this process, or its supervisor's child as this process is: else the number is another's now.
            status = status_of(self._pid)
            if status is None or status.state == "Z" or status.parent != os.getppid():
                return b""
        words = ["/bin/sh", "-c", self._filled(pattern)]
        ran = subprocess.Popen(
            words,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            output, _ = ran.communicate(timeout=_COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(ran.pid, signal.SIGKILL)
            ran.communicate()
            _say(f"{name} has not ended within {_COMMAND_SECONDS:g} s")
            return b""
        return b"" if ran.returncode else output

    def _filled(self, pattern: str) -> str:
        """A pattern with all % letters replaced."""
        task = self._task
        known = {
            "%": "%",
            "@": shlex.join(self._command) or '"/bin/false"',
            "b": self._bundle,
            "e": f"{self._directory}/{_VARIABLES}",
            "j": str(task.job_id),
            "m": self._directory,
            "n": task.node,
            "p": str(self._pid),
            "r": self._root,
            "s": str(task.step_id),
            "t": str(task.task_id),
            "u": task.user,
            "U": str(task.uid),
        }
        return re.sub("%(.)", lambda match: known.get(match[1], match[0]), pattern)


def _variables_of(configuration: dict[str, Any]) -> dict[str, str]:
    lines = (configuration.get("process") or {}).get("env") or []
    pairs = (str(line).partition("=") for line in lines)
    return {name: value for name, sign, value in pairs if sign}


def _give(configuration: dict[str, Any], paths: tuple[str, ...]) -> None:
    """Devices, and those that drivers want with them, exist inside and may be opened."""
    linux = configuration.setdefault("linux", {})
    devices, resources = linux.get("devices") or [], linux.get("resources") or {}
    allowed = resources.get("devices") or []
    known = {device.get("path") for device in devices}
    more = [path for start, others in _WITH.items() if any(path.startswith(start) for path in paths) for path in others]
    for path in (*paths, *more):
        try:
            status = os.stat(path)
        except OSError:
            continue
        if path in known or not stat.S_ISCHR(status.st_mode):
            continue
        numbers = {"major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev)}
        mode = {"fileMode": stat.S_IMODE(status.st_mode), "uid": status.st_uid, "gid": status.st_gid}
        devices.append({"path": path, "type": "c", **numbers, **mode})
        allowed.append({"allow": True, "type": "c", **numbers, "access": "rwm"})
    linux["devices"], linux["resources"] = devices, {**resources, "devices": allowed}


def _bound(source: str, target: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": "none", "source": source, "options": ["bind", *options]}


def _new(path: str) -> Any:
    """A private file of the user, replacing one left by a requeued job."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
