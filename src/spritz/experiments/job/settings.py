"""Options of a run: from the command line, else `spritz.yaml` of the directory or a parent, else defaults.

run:                      # options of `spritz run`, with underscores
  partition: gpu
  gpus: 4
  time: 2:00:00
  template: torchrun
  container_image: /images/pytorch.sqsh
  setup: [module load cuda]
  env: {OMP_NUM_THREADS: 8}
  slurm: ["--mem-per-gpu=64G"]
  link: [data]            # paths that git ignores, and that the run sees in its checkout
  outputs: [out, study.db]  # paths that persist between runs of the project
  resumable: true
  max_time: 7d
snapshot:
  max_file: 200M
  max_total: 2G
  max_files: 50000          # of changed and untracked ones (default 20,000)
notify: [$MY_WEBHOOK]     # addresses of Apprise; variables keep secrets out of the file
guard:
  watch: gpu              # or cpu
  below: 5                # percent of one GPU or CPU
  warn_after: 15m
  end_after: 60m
  action: report          # or end
track: mlflow             # auto (where a server has been started), mlflow, off; or a mapping:
                          # {server: mlflow, experiment: NAME}
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from spritz.experiments.errors import ExperimentError
from spritz.notation import duration
from spritz.notation.names import nearest

FILE = "spritz.yaml"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run. Options of Slurm are passed to it unchanged."""

    name: str = ""
    template: str = ""
    #: image in which the command runs, a path or a name; and additional mounts SRC:DST[:ro],… (`containers`)
    container_image: str = ""
    container_mounts: str = ""
    nodes: str = ""
    tasks_per_node: str = ""
    gpus: str = ""
    gpus_per_node: str = ""
    cpus_per_task: str = ""
    mem: str = ""
    time: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    reservation: str = ""
    #: further options for sbatch, each a string
    slurm: tuple[str, ...] = ()
    #: shell lines before the command, on the first node
    setup: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    #: names of data versions that the run reads, as given by the user
    data: tuple[str, ...] = ()
    #: paths that git ignores and that the run sees all the same (`linked`)
    link: tuple[str, ...] = ()
    #: paths of the working tree that persist between runs (`outputs`)
    outputs: tuple[str, ...] = ()
    #: auto, mlflow or off (`tracking`), and MLflow's experiment; "" is auto, and the project's name
    track: str = ""
    experiment: str = ""
    #: the command saves its state on request, and can restart from it (`resuming`)
    resumable: bool = False
    #: limit over all starts together, such as `7d`; "" for none
    max_time: str = ""
    #: seconds between the signal and the end: before the time limit, and for `spritz pause`
    grace: str = ""
    #: USR1 or USR2
    stop_signal: str = ""
    #: restarts in a row without a new checkpoint
    max_stalls: str = ""
    checkpoint: str = ""
    #: parent directory of the run's checkpoints (DIR/RUN); "" means the run's own directory
    checkpoint_dir: str = ""


#: Our option -> option of sbatch.
SLURM_OPTIONS = {
    "nodes": "--nodes",
    "gpus": "--gpus",
    "gpus_per_node": "--gpus-per-node",
    "cpus_per_task": "--cpus-per-task",
    "mem": "--mem",
    "time": "--time",
    "partition": "--partition",
    "account": "--account",
    "qos": "--qos",
    "constraint": "--constraint",
    "reservation": "--reservation",
}
_NAMES = tuple(item.name for item in fields(RunOptions))
TRACK_MODES = ("auto", "mlflow", "off")
_LISTS = frozenset({"slurm", "setup", "tags", "data", "link", "outputs"})
_FLAGS = frozenset({"resumable"})


@dataclass(frozen=True)
class Settings:
    """The checked contents of `spritz.yaml`; all empty if there is no such file (`path` is None)."""

    path: Path | None = None
    run: dict[str, Any] = field(default_factory=dict)
    file_bytes_max: int | None = None
    tree_bytes_max: int | None = None
    files_max: int | None = None
    notify: tuple[str, ...] = ()
    #: guard.json of the run; empty without `guard:`
    guard: dict[str, Any] = field(default_factory=dict)


def read(directory: Path) -> Settings:
    """The nearest spritz.yaml from `directory` upwards. Raises ExperimentError naming file and key."""
    for place in (directory, *directory.parents):
        path = place / FILE
        if path.is_file():
            return _read(path)
        if (place / ".git").exists():
            break
    return Settings()


def _read(path: Path) -> Settings:
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ExperimentError(f"{path}: {error}") from error
    if not isinstance(data, dict):
        raise ExperimentError(f"{path}: a mapping is expected")
    _need_known(path, "", data, ("run", "snapshot", "track", "guard", "notify"))
    snapshot = data.get("snapshot") or {}
    _need_known(path, "snapshot: ", snapshot, ("max_file", "max_total", "max_files"))
    files_max = snapshot.get("max_files")
    if files_max is not None and (not isinstance(files_max, int) or isinstance(files_max, bool) or files_max < 1):
        raise ExperimentError(f"{path}: snapshot: max_files: a whole number from 1 is expected")
    return Settings(
        path,
        _track(path, data.get("track")) | run_options(data.get("run") or {}, path),
        _bytes(path, snapshot, "max_file"),
        _bytes(path, snapshot, "max_total"),
        files_max,
        _notify(path, data.get("notify")),
        _guard(path, data["guard"]) if data.get("guard") else {},
    )


def _notify(path: Path, value: Any) -> tuple[str, ...]:
    items = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in items):
        raise ExperimentError(f"{path}: notify: a list of addresses is expected")
    return tuple(items)


def _guard(path: Path, value: Any) -> dict[str, Any]:
    """`guard:` with its defaults. Raises ExperimentError."""
    mapping = {"action": "report"} if value is True else value
    if not isinstance(mapping, dict):
        raise ExperimentError(f"{path}: guard: a mapping is expected")
    _need_known(path, "guard: ", mapping, ("watch", "below", "warn_after", "end_after", "action"))
    for key, allowed in (("watch", ("gpu", "cpu")), ("action", ("report", "end"))):
        if mapping.get(key, allowed[0]) not in allowed:
            raise ExperimentError(f"{path}: guard: {key}: {' or '.join(allowed)} is expected")
    try:
        below = float(mapping.get("below", 5))
    except (TypeError, ValueError):
        raise ExperimentError(f"{path}: guard: below: a number of percent is expected") from None
    warn = _duration(path, "warn_after", mapping.get("warn_after", "15m"))
    end = _duration(path, "end_after", mapping.get("end_after", "60m"))
    if end < warn:
        raise ExperimentError(f"{path}: guard: end_after is less than warn_after")
    return {
        "watch": mapping.get("watch", "gpu"), "below": below, "warn_after": warn, "end_after": end,
        "action": mapping.get("action", "report"),
    }  # fmt: skip


def _duration(path: Path, key: str, value: Any) -> float:
    """Parse 90s, 15m or 2h into seconds; a plain number is minutes, as in Slurm. Raises ExperimentError."""
    try:
        # A number in YAML may have a fraction, of a minute.
        seconds = duration.parse_span(f"{value}m" if isinstance(value, float) else str(value))
    except duration.DurationError:
        seconds = 0
    if not 0 < seconds < duration.INFINITE:
        raise ExperimentError(f"{path}: guard: {key}: a time as 15m is expected")
    return float(seconds)


def time_limit(text: str) -> str:
    """Convert `90m`, `2h` and `3d` to minutes for Slurm; Slurm's own forms stay unchanged. Raises ExperimentError."""
    try:
        seconds = duration.parse_span(text) if text else 0
    except duration.DurationError as error:
        raise ExperimentError(
            f"--time={text}: {error}", hint="90s, 30m, 2h, 3d and 1w are understood as well", exit_code=2
        ) from None
    return str(max(1, -(-seconds // 60))) if text[-1:] in ("s", "m", "h", "d", "w") else text


def _track(path: Path, value: Any) -> dict[str, str]:
    """`track:` as options of a run."""
    mapping = value if isinstance(value, dict) else {} if value is None else {"server": value}
    _need_known(path, "track: ", mapping, ("server", "experiment"))
    options = {}
    if "server" in mapping:
        options["track"] = _track_mode(path, mapping["server"])
    if mapping.get("experiment"):
        options["experiment"] = str(mapping["experiment"])
    return options


def _track_mode(path: Path | str, value: Any) -> str:
    # YAML reads `off` as false.
    mode = "off" if value is False else "mlflow" if value is True else value
    if mode not in TRACK_MODES:
        raise ExperimentError(f"{path}: track: {mode!r}: auto, mlflow or off is expected")
    return str(mode)


def run_options(given: Any, path: Path | str) -> dict[str, Any]:
    """Values of `run:` in the file `path`, checked. Raises ExperimentError naming file and key."""
    if not isinstance(given, dict):
        raise ExperimentError(f"{path}: run: a mapping is expected")
    _need_known(path, "run: ", given, _NAMES)
    return {name: _value(path, name, value) for name, value in given.items()}


def _need_known(path: Path | str, where: str, given: dict[Any, Any], names: tuple[str, ...]) -> None:
    for key in given:
        if key not in names:
            near = nearest(str(key), names)
            raise ExperimentError(f"{path}: {where}unknown key {key!r}" + (f" (did you mean {near}?)" if near else ""))


def _value(path: Path | str, name: str, value: Any) -> Any:
    if name in _LISTS:
        items = value if isinstance(value, list) else [value]
        return tuple(str(item) for item in items)
    if name == "env":
        if not isinstance(value, dict):
            raise ExperimentError(f"{path}: run: env: a mapping is expected")
        return {str(key): str(item) for key, item in value.items()}
    if name == "track":
        return _track_mode(path, value)
    if isinstance(value, list | dict):
        raise ExperimentError(f"{path}: run: {name}: a single value is expected")
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise ExperimentError(f"{path}: run: {name}: true or false is expected")
        return value
    if name == "time" and isinstance(value, int):
        return _clock(value)
    return str(value)


def _clock(value: int) -> str:
    """YAML reads 2:00:00 as 7200, in base sixty; a plain number means minutes, as in Slurm."""
    return str(value) if value < 3600 else f"{value // 3600}:{value // 60 % 60:02}:{value % 60:02}"


def _bytes(path: Path, snapshot: dict[str, Any], key: str) -> int | None:
    if key not in snapshot:
        return None
    return parse_bytes(str(snapshot[key]), f"{path}: snapshot: {key}")


def parse_bytes(text: str, what: str) -> int:
    """Parse a size such as `200M` into bytes. Raises ExperimentError."""
    number, unit = text.strip().upper().removesuffix("B"), 1
    for letter, factor in (("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)):
        if number.endswith(letter):
            number, unit = number[:-1], factor
    try:
        return int(float(number) * unit)
    except ValueError:
        raise ExperimentError(f"{what}: {text!r} is not a size such as 200M or 2G") from None


def merged(settings: Settings, given: dict[str, Any]) -> RunOptions:
    """The file's options, overridden by those of the command line; lists are joined. Raises ExperimentError."""
    values = dict(settings.run)
    for name, value in given.items():
        if value in (None, "", (), {}, False):
            continue
        if name in _FLAGS:
            values[name] = True
        elif name in _LISTS:
            values[name] = (*values.get(name, ()), *value)
        elif name == "env":
            values[name] = {**values.get(name, {}), **value}
        else:
            values[name] = str(value)
    if "time" in values:
        values["time"] = time_limit(values["time"])
    return replace(RunOptions(), **values)


def sbatch_options(options: RunOptions) -> list[str]:
    """Arguments for sbatch from the options that Slurm has."""
    words = [f"{word}={getattr(options, name)}" for name, word in SLURM_OPTIONS.items() if getattr(options, name)]
    return [*words, *options.slurm]


def per_node_gpus(options: RunOptions) -> str:
    """GPUs of each node as the template needs them: a number, "" without a request. Raises ExperimentError."""
    if options.gpus_per_node:
        return options.gpus_per_node.rpartition(":")[2]
    if not options.gpus:
        return ""
    count = options.gpus.rpartition(":")[2]
    nodes = options.nodes or "1"
    if not count.isdecimal() or not nodes.isdecimal():
        raise ExperimentError(f"--gpus={options.gpus} --nodes={nodes}: this template needs --gpus-per-node")
    if int(count) % int(nodes):
        raise ExperimentError(f"--gpus={count} cannot be divided over {nodes} nodes; use --gpus-per-node")
    return str(int(count) // int(nodes))


#: Programs that run another program, whose name says more.
_RUNNERS = re.compile(
    r"(?:python[0-9.]*|bash|sh|uv|poetry|pixi|pdm|conda|run|torchrun|accelerate|launch|deepspeed|env|nice|time|stdbuf)\Z"
)
_SCRIPT = re.compile(r".*\.(?:py|sh|bash|ipynb|R|jl|pl|lua)\Z")


def default_name(command: tuple[str, ...]) -> str:
    """A name from the command: the stem of its first script, of the module after -m, or of its program."""
    words = command[: command.index("-c")] if "-c" in command else command
    if words and _RUNNERS.match(os.path.basename(words[0])):
        for place, word in enumerate(words):
            if word in ("-m", "--module") and place + 1 < len(words):
                module = words[place + 1]
                if not module.startswith(("torch.distributed", "accelerate.", "deepspeed.")):
                    return module.rpartition(".")[2] or "run"
            elif _SCRIPT.match(word) and not word.startswith("-"):
                return os.path.basename(word).rsplit(".", 1)[0] or "run"
    for word in words:
        stem = os.path.basename(word)
        if not word.startswith("-") and not _RUNNERS.match(stem) and "=" not in word:
            return stem.rsplit(".", 1)[0] or "run"
    return os.path.basename(command[0]) if command else "run"
