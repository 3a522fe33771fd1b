"""The plan of a sweep: sweep.yaml, checked.

command: python train.py --lr {lr}    # a parameter without a place is added as --NAME=VALUE
parameters:
  lr: {min: 1e-5, max: 1e-1, log: true}
  depth: [2, 4, 8]
method: tpe                 # grid, random, tpe
metric: loss
direction: minimize
trials: 50
concurrency: 8
early_stopping: asha        # or a mapping: {method: asha, min_steps: 1, reduction: 4}
retries: 1
run:                        # options of `spritz run`, over those of spritz.yaml
  gpus: 1
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import settings
from spritz.experiments.sweeps import space
from spritz.experiments.sweeps.space import Parameter, Value
from spritz.experiments.sweeps.stopping import Policy
from spritz.notation.names import nearest

METHODS = ("grid", "random", "tpe")
#: Form in which parameters without a place in the command are added to it.
STYLES = {"flags": "--{name}={value}", "hydra": "{name}={value}", "none": ""}
#: A larger grid needs confirmation (--yes).
POINTS_MAX = 1000
_KEYS = (
    *("command", "parameters", "method", "metric", "direction", "trials", "concurrency", "early_stopping", "retries"),
    *("seed", "name", "arguments", "python", "run"),
)
_PLACE = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The checked contents of sweep.yaml or of the options: parameters, method and number of trials."""

    command: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    method: str = "grid"
    metric: str = ""
    maximize: bool = False
    #: 0: all points of the grid
    trials: int = 0
    #: maximum number of concurrent trials; 0: no limit
    concurrency: int = 0
    early_stopping: Policy = field(default_factory=Policy)
    #: how many times a trial's command is started again after a failure
    retries: int = 0
    seed: int = 0
    name: str = ""
    arguments: str = "flags"
    #: the interpreter that draws parameters and stops trials in the job; "" is that of the submitting process
    python: str = ""
    #: options of `spritz run`, as in spritz.yaml
    run: dict[str, Any] = field(default_factory=dict)

    @property
    def watched(self) -> bool:
        """Whether a process in parallel to each trial may stop it."""
        return bool(self.early_stopping.method)

    def words(self) -> tuple[str, ...]:
        """The command with a place for each parameter."""
        named = {name for word in self.command for name in _PLACE.findall(word)}
        form = STYLES[self.arguments]
        added = [
            form.format(name=parameter.name, value="{" + parameter.name + "}")
            for parameter in self.parameters
            if form and parameter.name not in named
        ]
        return (*self.command, *added)

    def command_of(self, point: Mapping[str, Value]) -> list[str]:
        """The command of a trial: the plan's words with the values of `point` filled in."""
        return [filled(word, {name: space.written(value) for name, value in point.items()}) for word in self.words()]

    def points(self) -> list[dict[str, Value]] | None:
        """The parameters of all trials; None if they depend on earlier trials. Raises ExperimentError."""
        if self.method == "tpe":
            return None
        if self.method == "random":
            return [space.draw(self.parameters, self.seed, index) for index in range(1, self.trials + 1)]
        return space.sample_of_grid(self.parameters, self.trials or space.grid_size(self.parameters), self.seed)


def filled(word: str, values: Mapping[str, str]) -> str:
    """The word with {NAME} replaced if NAME is a parameter; other braces stay."""
    return _PLACE.sub(lambda match: values.get(match[1], match[0]), word)


def read(path: Path) -> Plan:
    """The sweep that the file describes. Raises ExperimentError naming file and key."""
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        raise ExperimentError(f"{path}: no such file", hint="`spritz sweep --help` shows one") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ExperimentError(f"{path}: {error}") from error
    return parse(data, str(path))


def parse(data: Any, where: str) -> Plan:
    """The sweep that a mapping describes. `where`: start of error messages. Raises ExperimentError."""
    if not isinstance(data, dict):
        raise ExperimentError(f"{where}: a mapping is expected")
    need_known(data, _KEYS, where)
    command = data.get("command")
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ExperimentError(f"{where}: command: {error}") from error
    elif isinstance(command, list):
        words = [str(word) for word in command]
    else:
        words = []
    if not words:
        raise ExperimentError(f"{where}: command: what to run is missing", hint="command: python train.py")
    parameters = data.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise ExperimentError(f"{where}: parameters: a mapping of names is expected")
    plan = Plan(
        command=tuple(words),
        parameters=space.parse(parameters, where),
        method=_one_of(data, "method", METHODS, "grid", where),
        metric=str(data.get("metric") or ""),
        maximize=_one_of(data, "direction", ("minimize", "maximize"), "minimize", where) == "maximize",
        trials=_count(data, "trials", where),
        concurrency=_count(data, "concurrency", where),
        early_stopping=_early_stopping(data.get("early_stopping"), where),
        retries=_count(data, "retries", where),
        seed=_count(data, "seed", where),
        name=str(data.get("name") or ""),
        arguments=_one_of(data, "arguments", tuple(STYLES), "flags", where),
        python=str(data.get("python") or ""),
        run=settings.run_options(data.get("run") or {}, where),
    )
    need_complete(plan, where)
    return plan


def need_complete(plan: Plan, where: str) -> None:
    """Raises ExperimentError if the number of trials is missing, or a parameter's space does not suit the method."""
    if plan.method == "grid":
        space.grid_size(plan.parameters)
    elif not plan.trials:
        raise ExperimentError(f"{where}: trials: how many is missing; only a grid has an end", hint="trials: 50")
    if plan.method == "tpe" and any(parameter.normal for parameter in plan.parameters):
        names = ", ".join(parameter.name for parameter in plan.parameters if parameter.normal)
        raise ExperimentError(f"{where}: parameters: {names}: tpe has no normal distribution; use min and max")
    if not plan.metric and (plan.method == "tpe" or plan.watched):
        what = "method: tpe" if plan.method == "tpe" else "early_stopping"
        raise ExperimentError(
            f"{where}: metric: {what} needs the name of what trials report",
            hint='trials append lines as {"step": 1, "loss": 0.5} to $SPRITZ_RUN_DIR/metrics.jsonl',
        )
    if plan.metric == "step":
        raise ExperimentError(f"{where}: metric: `step` counts the reports; it is no metric")


def need_reasonable(plan: Plan, *, confirmed: bool) -> None:
    """Raises ExperimentError for a grid so large that it is probably a mistake."""
    if plan.method != "grid" or confirmed or plan.trials:
        return
    size = space.grid_size(plan.parameters)
    if size > POINTS_MAX:
        raise ExperimentError(
            f"the grid has {size} points",
            hint=f"--trials {POINTS_MAX // 10} runs a random selection of this size; --yes runs all of them",
        )


def need_known(data: Mapping[Any, Any], names: tuple[str, ...], where: str) -> None:
    """Raises ExperimentError for the first unknown key."""
    for key in data:
        if key not in names:
            near = nearest(str(key), names)
            raise ExperimentError(f"{where}: unknown key {key!r}" + (f" (did you mean {near}?)" if near else ""))


def _one_of(data: Mapping[str, Any], key: str, names: tuple[str, ...], default: str, where: str) -> str:
    value = data.get(key, default)
    if value not in names:
        near = nearest(str(value), names)
        raise ExperimentError(
            f"{where}: {key}: {value!r} is none of {', '.join(names)}" + (f" (did you mean {near}?)" if near else "")
        )
    return str(value)


def _count(data: Mapping[str, Any], key: str, where: str) -> int:
    value = data.get(key, 0)
    least = 0 if key in ("retries", "seed") else 1
    if not isinstance(value, int) or isinstance(value, bool) or (key in data and value < least):
        raise ExperimentError(f"{where}: {key}: a whole number from {least} is expected, not {value!r}")
    return value


def _early_stopping(given: Any, where: str) -> Policy:
    if given in (None, False, "none"):
        return Policy()
    data = {"method": given} if isinstance(given, str) else given
    place = f"{where}: early_stopping"
    if not isinstance(data, dict):
        raise ExperimentError(f"{place}: asha or median is expected, not {given!r}")
    method = _one_of(data, "method", ("asha", "median"), "asha", place)
    keys = ("min_steps", "reduction") if method == "asha" else ("startup_trials", "warmup_steps")
    need_known(data, ("method", *keys), place)
    counts: dict[str, Any] = {key: _count(data, key, place) for key in keys if key in data}
    if counts.get("reduction", 2) < 2:
        raise ExperimentError(f"{place}: reduction: from 2 on")
    return replace(Policy(method=method), **counts)


def as_mapping(plan: Plan) -> dict[str, Any]:
    """The plan for a file; `from_mapping` reads it."""
    return asdict(plan)


def from_mapping(data: Mapping[str, Any]) -> Plan:
    """The plan of a sweep's file. Raises KeyError, TypeError or ValueError if it is damaged."""
    known = {key: value for key, value in data.items() if key in Plan.__dataclass_fields__}
    known["command"] = tuple(known["command"])
    known["parameters"] = tuple(Parameter(**{**item, "values": tuple(item["values"])}) for item in known["parameters"])
    known["early_stopping"] = Policy(**known["early_stopping"])
    return Plan(**known)
