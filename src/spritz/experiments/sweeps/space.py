"""Parameters of a sweep: the points of a grid, random draws, and the form of a value in a command."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spritz.experiments import secrets
from spritz.experiments.errors import ExperimentError
from spritz.notation.names import nearest

Value = str | int | float | bool | None

_KEYS = ("values", "min", "max", "log", "step", "count", "distribution", "mean", "sd")
#: Distribution -> its keys.
_DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "uniform": ("min", "max", "step", "count"),
    "log_uniform": ("min", "max", "count"),
    "int": ("min", "max", "step", "count"),
    "log_int": ("min", "max", "count"),
    "normal": ("mean", "sd"),
    "log_normal": ("mean", "sd"),
    "choice": ("values",),
}
#: Names, including Hydra's forms: +model.lr, db@source.
_NAME = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@:-]*\Z")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter. `values` for a choice; else a range, or a normal distribution with mean `low` and deviation `high`.

    `low` and `high` are both inside the range. A range of integers gives integers.
    """

    name: str
    values: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float = 0.0
    #: number of grid points over the range; 0 if not set
    count: int = 0
    integer: bool = False
    normal: bool = False

    def points(self) -> list[Value]:
        """The values that a grid visits. Raises ExperimentError for a range without step or count."""
        if self.values:
            return list(self.values)
        if self.normal:
            raise ExperimentError(f"parameter {self.name}: a grid has no normal distribution; give values or a range")
        if self.step:
            number = math.floor((self.high - self.low) / self.step + 1e-9) + 1
            return [self._number(self.low + place * self.step) for place in range(number)]
        if self.count:
            parts = max(1, self.count - 1)
            if self.log:
                ratio = math.log(self.high / self.low)
                points = [self._number(self.low * math.exp(ratio * place / parts)) for place in range(self.count)]
            else:
                points = [
                    self._number(self.low + (self.high - self.low) * place / parts) for place in range(self.count)
                ]
            return list(dict.fromkeys(points))
        if self.integer and not self.log:
            return list(range(int(self.low), int(self.high) + 1))
        raise ExperimentError(
            f"parameter {self.name}: a grid over a range needs step or count, or give values",
            hint="method: random draws from the range",
        )

    def draw(self, chance: random.Random) -> Value:
        """A random value of the parameter's list or range; `low` and `high` are mean and deviation of a normal one."""
        if self.values:
            return chance.choice(self.values)
        if self.normal:
            drawn = chance.gauss(self.low, self.high)
            return self._number(math.exp(drawn) if self.log else drawn)
        if self.step:
            return self._number(self.low + self.step * chance.randrange(self._steps()))
        if self.log:
            # Half a unit on either side, so that the ends of an integer range are as likely as the other values.
            margin = 0.5 if self.integer else 0.0
            drawn = math.exp(chance.uniform(math.log(self.low - margin), math.log(self.high + margin)))
            return self._number(min(max(drawn, self.low), self.high))
        if self.integer:
            return chance.randint(int(self.low), int(self.high))
        return chance.uniform(self.low, self.high)

    def _steps(self) -> int:
        return math.floor((self.high - self.low) / self.step + 1e-9) + 1

    def _number(self, value: float) -> Value:
        # 15 digits: 0.1 + 2 * 0.1 is 0.3
        return round(value) if self.integer else float(f"{value:.15g}")


def parse(given: Mapping[Any, Any], where: str) -> tuple[Parameter, ...]:
    """The parameters of a sweep. Raises ExperimentError naming parameter and key; `where` leads the message."""
    if not given:
        raise ExperimentError(f"{where}: parameters: nothing to vary", hint="parameters: {lr: [0.1, 0.01]}")
    parameters = [_parameter(str(name), value, f"{where}: parameters: {name}") for name, value in given.items()]
    variables = [variable(parameter.name) for parameter in parameters]
    for place, name in enumerate(variables):
        if name in variables[:place]:
            first = parameters[variables.index(name)].name
            raise ExperimentError(f"{where}: parameters {first} and {parameters[place].name} are one variable, {name}")
    return tuple(parameters)


def _parameter(name: str, given: Any, where: str) -> Parameter:
    if not _NAME.match(name):
        raise ExperimentError(f"{where}: {name!r} is no name for a parameter")
    if isinstance(given, list):
        given = {"values": given}
    elif not isinstance(given, dict):
        given = {"values": [given]}
    for key in given:
        if key not in _KEYS:
            near = nearest(str(key), _KEYS)
            raise ExperimentError(f"{where}: unknown key {key!r}" + (f" (did you mean {near}?)" if near else ""))
    distribution = given.get("distribution")
    if distribution is not None:
        if distribution not in _DISTRIBUTIONS:
            raise ExperimentError(f"{where}: no distribution {distribution!r}; there are {', '.join(_DISTRIBUTIONS)}")
        extra = [key for key in given if key not in ("distribution", *_DISTRIBUTIONS[distribution])]
        if extra:
            raise ExperimentError(f"{where}: {distribution} has no {', '.join(extra)}")
    if "values" in given:
        if extra := [key for key in given if key not in ("values", "distribution")]:
            raise ExperimentError(f"{where}: values exclude {', '.join(extra)}")
        return Parameter(name=name, values=_values(given["values"], where))
    if distribution in ("normal", "log_normal"):
        mean, sd = (_number(given, key, where) for key in ("mean", "sd"))
        if sd <= 0:
            raise ExperimentError(f"{where}: sd must be above 0")
        return Parameter(name=name, low=mean, high=sd, normal=True, log=distribution == "log_normal")
    return _range(name, given, distribution, where)


def _range(name: str, given: Mapping[str, Any], distribution: str | None, where: str) -> Parameter:
    if "min" not in given or "max" not in given:
        raise ExperimentError(f"{where}: values, or min and max, are expected")
    low, high = _number(given, "min", where), _number(given, "max", where)
    log = distribution in ("log_uniform", "log_int") or _truth(given, "log", where)
    step = _number(given, "step", where) if "step" in given else 0.0
    count = given.get("count", 0)
    whole = all(isinstance(given.get(key, 0), int) for key in ("min", "max", "step"))
    integer = distribution in ("int", "log_int") or (distribution is None and whole)
    if low > high:
        raise ExperimentError(f"{where}: min {low:g} is above max {high:g}")
    if log and low <= 0:
        raise ExperimentError(f"{where}: a logarithmic range starts above 0")
    if log and step:
        raise ExperimentError(f"{where}: a logarithmic range has no step; count: 5 gives five points of a grid")
    if step < 0 or ("step" in given and not step):
        raise ExperimentError(f"{where}: step must be above 0")
    if not isinstance(count, int) or isinstance(count, bool) or count < 0 or ("count" in given and count < 1):
        raise ExperimentError(f"{where}: count must be a whole number above 0")
    if integer and not (low.is_integer() and high.is_integer() and step.is_integer()):
        raise ExperimentError(f"{where}: whole numbers are expected")
    return Parameter(name=name, low=low, high=high, log=log, step=step, count=count, integer=integer)


def _values(given: Any, where: str) -> tuple[Value, ...]:
    if not isinstance(given, list) or not given:
        raise ExperimentError(f"{where}: values: a list with at least one value is expected")
    for value in given:
        if not isinstance(value, str | int | float | bool | None):
            raise ExperimentError(f"{where}: values: {value!r} is not a single value")
        if written(value) != secrets.masked_text(written(value)):
            raise ExperimentError(f"{where}: values: a secret would be written down; pass it in a variable")
    texts = [written(value) for value in given]
    for place, text in enumerate(texts):
        if text in texts[:place]:
            raise ExperimentError(f"{where}: values: {text} occurs twice")
    return tuple(given)


def _number(given: Mapping[str, Any], key: str, where: str) -> float:
    # YAML 1.1 reads 1e-3 as a text.
    value = given.get(key)
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ExperimentError(f"{where}: {key}: {value!r} is not a number")
    return number


def _truth(given: Mapping[str, Any], key: str, where: str) -> bool:
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise ExperimentError(f"{where}: {key}: true or false is expected, not {value!r}")
    return value


def grid_size(parameters: Sequence[Parameter]) -> int:
    """Number of points of the grid. Raises ExperimentError like `Parameter.points`."""
    return math.prod(len(parameter.points()) for parameter in parameters)


def grid(parameters: Sequence[Parameter]) -> Iterator[dict[str, Value]]:
    """All points of the grid; the last parameter varies fastest."""
    for values in itertools.product(*(parameter.points() for parameter in parameters)):
        yield {parameter.name: value for parameter, value in zip(parameters, values, strict=True)}


def draw(parameters: Sequence[Parameter], seed: int, index: int) -> dict[str, Value]:
    """Random parameters of trial `index`: the same for the same seed."""
    chance = random.Random(f"{seed}:{index}")
    return {parameter.name: parameter.draw(chance) for parameter in parameters}


def sample_of_grid(parameters: Sequence[Parameter], number: int, seed: int) -> list[dict[str, Value]]:
    """`number` random points of the grid, in its order; all points if the grid has no more."""
    axes = [parameter.points() for parameter in parameters]
    size = math.prod(len(axis) for axis in axes)
    places = range(size) if size <= number else sorted(random.Random(f"{seed}").sample(range(size), number))
    points = []
    for place in places:
        point: dict[str, Value] = {}
        remainder = place
        for parameter, axis in zip(reversed(parameters), reversed(axes), strict=True):
            remainder, at = divmod(remainder, len(axis))
            point[parameter.name] = axis[at]
        points.append({parameter.name: point[parameter.name] for parameter in parameters})
    return points


def written(value: Value) -> str:
    """A value as a word of a command."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def variable(name: str) -> str:
    """The environment variable that carries the parameter in its trial."""
    return "SPRITZ_PARAM_" + re.sub(r"\W", "_", name.lstrip("+~"), flags=re.ASCII)


def as_mapping(parameter: Parameter) -> dict[str, Any]:
    """The parameter for a file; `Parameter(**…)` reads it, with `values` a tuple."""
    return asdict(parameter)
