"""Steps and pipelines in Python, or in YAML, traced into a plain record.

    from spritz.experiments.pipelines.definition import command, pipeline, step

    @step(cpus_per_task=2, files=["prepare.py", "data/*.csv"])
    def shards(seed): ...

    @step(gpus=1, time="2h")
    def train(shard): ...

    @pipeline
    def nightly(seed=1):
        models = train.map(shards(seed))
        return command("report", ["python", "report.py", models])

Outside a pipeline a step is the function that it was made from. A record is what is written: JSON, so arguments that
are no results of steps are texts, numbers, truth values, none, lists and mappings of these.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import json
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, overload

from spritz.experiments import secrets
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import script
from spritz.experiments.job.settings import RunOptions
from spritz.notation.names import nearest

#: {prepare} in a command of YAML: the value of a step, a parameter, or `item`
_PLACE = re.compile(r"\{([A-Za-z_][\w-]*)\}")
_NAME = re.compile(r"[A-Za-z_][\w-]*\Z")
_OPTIONS = tuple(item.name for item in fields(RunOptions) if item.name != "name")
_YAML_STEP = ("command", "needs", "map", "files", "cache")


@dataclass
class StepRecord:
    """One step. References to values of steps stand as {"$step": NAME}, the item of a map as {"$item": true}."""

    name: str
    #: the function's name in FILE.py; "" for a command
    function: str = ""
    #: the source text of the function; "" for a command
    source: str = ""
    #: words; or the arguments of the function
    arguments: list[Any] = field(default_factory=list)
    named: dict[str, Any] = field(default_factory=dict)
    #: the input to map over: a reference or a list; None for a step of one task
    over: Any = None
    after: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    #: paths in the snapshot that the result depends on; empty for all of it
    files: list[str] = field(default_factory=list)
    cache: bool = True

    @property
    def sources(self) -> list[str]:
        """Steps that must end before, each once."""
        names = [*references(self.arguments), *references(self.named), *references(self.over), *self.after]
        return list(dict.fromkeys(names))


@dataclass
class Definition:
    """A pipeline. Steps stand after those that they depend on."""

    name: str
    #: FILE.py or FILE.yaml, as given, relative to the working directory if it is inside
    file: str
    parameters: dict[str, Any] = field(default_factory=dict)
    steps: list[StepRecord] = field(default_factory=list)

    def step(self, name: str) -> StepRecord:
        """The step of this name. Raises StopIteration if there is none."""
        return next(step for step in self.steps if step.name == name)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Definition:
        return Definition(
            data["name"], data["file"], data["parameters"], [StepRecord(**step) for step in data["steps"]]
        )


def references(value: Any) -> Iterator[str]:
    """Names of the steps whose values are in `value`."""
    if isinstance(value, dict):
        if isinstance(value.get("$step"), str):
            yield value["$step"]
        else:
            for part in value.values():
                yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


def filled(value: Any, step_value: Callable[[str], Any], item: Any = None) -> Any:
    """`value` with values in the place of references."""
    if isinstance(value, dict):
        if "$step" in value:
            return step_value(value["$step"])
        if "$item" in value:
            return item
        if "$quoted" in value:
            return shlex.quote(word(filled(value["$quoted"], step_value, item)))
        if "$text" in value:
            return "".join(
                part if isinstance(part, str) else word(filled(part, step_value, item)) for part in value["$text"]
            )
        return {key: filled(item_value, step_value, item) for key, item_value in value.items()}
    if isinstance(value, list):
        return [filled(item_value, step_value, item) for item_value in value]
    return value


def word(value: Any) -> str:
    """A value as a word of a command: texts as they are, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


class Ref:
    """The future result of a step, inside a pipeline."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __iter__(self) -> Iterator[Any]:
        raise ExperimentError(
            f"{self.name} has not run while the pipeline is put together", hint="STEP.map(it) runs STEP for each item"
        )

    def __bool__(self) -> bool:
        raise ExperimentError(f"{self.name} has not run while the pipeline is put together: decide inside a step")


class Step:
    """A function that is a step."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self.function = function
        self.options = dict(options)
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if _tracing is None:
            return self.function(*arguments, **named)
        after = named.pop("after", ())
        return _tracing.add(self, arguments, named, None, after)

    def map(self, over: Any, *arguments: Any, **named: Any) -> Any:
        """The function for each item of `over`, with it as the first argument; its value is the list of values."""
        if _tracing is None:
            return [self.function(item, *arguments, **named) for item in over]
        after = named.pop("after", ())
        return _tracing.add(self, ({"$item": True}, *arguments), named, over, after)


@overload
def step(function: Callable[..., Any], /) -> Step: ...


@overload
def step(**options: Any) -> Callable[[Callable[..., Any]], Step]: ...


def step(function: Callable[..., Any] | None = None, /, **options: Any) -> Step | Callable[[Callable[..., Any]], Step]:
    """A decorator: the function is a step. Options of `spritz run`, and `files` and `cache` (see StepRecord)."""
    if function is not None:
        return Step(function, options)
    return lambda inner: Step(inner, options)


def command(
    name: str, words: str | Sequence[Any], *, over: Any = None, after: Sequence[Any] = (), **options: Any
) -> Any:
    """A step that is a command; results of steps may be among its words. A text is a line of bash.

    Its value is the JSON that it writes to the file $SPRITZ_OUTPUT; none if it writes none. With `over` it runs for
    each item, which is in $SPRITZ_ITEM.
    """
    if _tracing is None:
        raise ExperimentError(f"command {name}: outside a pipeline")
    argv = ["bash", "-c", words] if isinstance(words, str) else list(words)
    return _tracing.add_command(name, argv, over, after, options)


def pipeline(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: the function puts a pipeline together; its parameters are the pipeline's."""
    function.__dict__["spritz_pipeline"] = True
    return function


class _Trace:
    def __init__(self, file: str) -> None:
        self.file = file
        self.steps: list[StepRecord] = []

    def add(self, called: Step, arguments: Sequence[Any], named: Mapping[str, Any], over: Any, after: Any) -> Ref:
        function = called.function
        record = StepRecord(
            name=self.free_name(function.__name__),
            function=function.__name__,
            source=textwrap.dedent(inspect.getsource(function)),
            arguments=[
                _plain(argument, f"{function.__name__}: argument {at + 1}") for at, argument in enumerate(arguments)
            ],
            named={key: _plain(argument, f"{function.__name__}: argument {key}") for key, argument in named.items()},
            over=None if over is None else _plain(over, f"{function.__name__}: what is mapped over"),
        )
        return self.complete(record, called.options, after)

    def add_command(self, name: str, words: Sequence[Any], over: Any, after: Any, options: Mapping[str, Any]) -> Ref:
        if not _NAME.match(name):
            raise ExperimentError(f"step {name!r}: a name has letters, digits, _ and -")
        record = StepRecord(
            name=self.free_name(name),
            arguments=[_plain(word, f"{name}: command") for word in words],
            over=None if over is None else _plain(over, f"{name}: what is mapped over"),
        )
        return self.complete(record, options, after)

    def complete(self, record: StepRecord, options: Mapping[str, Any], after: Any) -> Ref:
        record.after = [dependency.name for dependency in (after if isinstance(after, list | tuple) else [after])]
        set_options(record, options, f"{self.file}: step {record.name}")
        words = [argument for argument in record.arguments if isinstance(argument, str)]
        if not record.function and secrets.split_arguments(words)[1]:
            need_open("", f"{self.file}: step {record.name}: command", "secret")
        self.steps.append(record)
        return Ref(record.name)

    def free_name(self, base: str) -> str:
        taken = {record.name for record in self.steps}
        return next(name for name in (base, *(f"{base}-{number}" for number in range(2, 10_000))) if name not in taken)


_tracing: _Trace | None = None


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, Ref):
        return {"$step": value.name}
    if isinstance(value, Mapping):
        return {str(key): _plain(part, where) for key, part in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(part, where) for part in value]
    if isinstance(value, Path):
        return str(value)
    if value is not None and not isinstance(value, str | int | float | bool):
        raise ExperimentError(
            f"{where}: {type(value).__qualname__} cannot be written down; texts, numbers, lists and mappings can",
            hint="make it inside the step",
        )
    if isinstance(value, str):
        need_open(value, where)
    return value


def need_open(text: str, where: str, name: str = "") -> None:
    """Raises ExperimentError if the text, or a value of this name, is a secret: the record is a file."""
    known = secrets.secret_values(os.environ)
    if secrets.is_secret_name(name) or secrets.masked_text(text) != text or any(secret in text for secret in known):
        raise ExperimentError(
            f"{where}: a secret would be written down",
            hint="the steps have your environment variables: read it from there, inside the step",
        )


def set_options(record: StepRecord, options: Mapping[str, Any], where: str) -> None:
    """Options of a step, checked. Raises ExperimentError."""
    for key, value in options.items():
        if key == "files":
            record.files = [str(path) for path in ([value] if isinstance(value, str) else value)]
        elif key == "cache":
            record.cache = bool(value)
        elif key == "template" and (why := _unfit(record, str(value))):
            raise ExperimentError(f"{where}: template: {value}: {why}")
        elif key in _OPTIONS:
            for name, text in value.items() if key == "env" else ():
                need_open(str(text), f"{where}: env: {name}", str(name))
            record.options[key] = list(value) if isinstance(value, tuple) else value
        else:
            near = nearest(key, (*_OPTIONS, "files", "cache"))
            raise ExperimentError(f"{where}: unknown option {key}" + (f" (did you mean {near}?)" if near else ""))


def _unfit(record: StepRecord, template: str) -> str:
    """Why the step cannot have the template; "" if it can."""
    if template not in script.TEMPLATES:
        near = nearest(template, script.TEMPLATES)
        return "no such template" + (f" (did you mean {near}?)" if near else "")
    if record.function and template in script.LAUNCHERS:
        return "it starts a program, and this step is a function: tasks, lightning and mpi call it once a task"
    return ""


def load(file: Path, parameters: Mapping[str, str], directory: Path) -> Definition:
    """The pipeline in FILE.py or FILE.yaml with these parameters. Raises ExperimentError naming file and step."""
    for key, text in parameters.items():
        need_open(text, f"--set {key}", key)
    if not file.is_file():
        raise ExperimentError(f"{file}: no such file")
    shown = str(file.resolve().relative_to(directory.resolve())) if _inside(file, directory) else str(file.resolve())
    definition = (
        _load_yaml(file, shown, parameters)
        if file.suffix in (".yaml", ".yml")
        else _load_python(file, shown, parameters)
    )
    if not definition.steps:
        raise ExperimentError(f"{file}: the pipeline has no steps")
    return definition


def _inside(file: Path, directory: Path) -> bool:
    return file.resolve().is_relative_to(directory.resolve())


def import_file(file: Path) -> Any:
    """FILE.py as a module of its own name, so that what it defines can be pickled."""
    name = re.sub(r"\W", "_", file.stem)
    sys.path.insert(0, str(file.resolve().parent))
    specification = importlib.util.spec_from_file_location(name, file)
    if specification is None or specification.loader is None:
        raise ExperimentError(f"{file}: neither Python nor YAML", hint="FILE.py or FILE.yaml is expected")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    # A directory of bytecode that is not ignored would make the next snapshot another one.
    sys.dont_write_bytecode = True
    specification.loader.exec_module(module)
    return module


def _load_python(file: Path, shown: str, parameters: Mapping[str, str]) -> Definition:
    global _tracing
    try:
        module = import_file(file)
    except ExperimentError:
        raise
    except BaseException as error:
        raise ExperimentError(f"{file}: {type(error).__name__}: {error}") from error
    pipelines = [var for var in vars(module).values() if getattr(var, "spritz_pipeline", False)]
    if len(pipelines) != 1:
        raise ExperimentError(f"{file}: one function with @pipeline is expected, and there are {len(pipelines)}")
    values = {key: _parameter(value) for key, value in parameters.items()}
    signature = inspect.signature(pipelines[0])
    for key in values:
        if key not in signature.parameters:
            near = nearest(key, tuple(signature.parameters))
            raise ExperimentError(
                f"--set {key}: the pipeline has no such parameter" + (f" (did you mean {near}?)" if near else "")
            )
    _tracing = _Trace(shown)
    try:
        pipelines[0](**values)
        steps = _tracing.steps
    except ExperimentError:
        raise
    except Exception as error:
        raise ExperimentError(f"{file}: {type(error).__name__}: {error}") from error
    finally:
        _tracing = None
    return Definition(pipelines[0].__name__, shown, values, steps)


def _parameter(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _load_yaml(file: Path, shown: str, parameters: Mapping[str, str]) -> Definition:
    import yaml

    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ExperimentError(f"{file}: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("steps"), dict):
        raise ExperimentError(f"{file}: a mapping with steps: is expected")
    _need_keys(data, ("name", "parameters", "steps"), str(file))
    values = dict(data.get("parameters") or {})
    for key, text in parameters.items():
        if key not in values:
            near = nearest(key, tuple(values))
            raise ExperimentError(f"--set {key}: no such parameter" + (f" (did you mean {near}?)" if near else ""))
        values[key] = _parameter(text)
    steps = [_yaml_step(str(name), given, data["steps"], values, f"{file}: step {name}")
             for name, given in data["steps"].items()]  # fmt: skip
    return Definition(str(data.get("name") or file.stem), shown, values, _ordered(steps, str(file)))


def _need_keys(data: Mapping[Any, Any], names: Sequence[str], where: str) -> None:
    for key in data:
        if key not in names:
            near = nearest(str(key), tuple(names))
            raise ExperimentError(f"{where}: unknown key {key}" + (f" (did you mean {near}?)" if near else ""))


def _yaml_step(name: str, given: Any, names: Mapping[str, Any], values: Mapping[str, Any], where: str) -> StepRecord:
    if not _NAME.match(name):
        raise ExperimentError(f"{where}: a name has letters, digits, _ and -")
    if not isinstance(given, dict) or not given.get("command"):
        raise ExperimentError(f"{where}: command: is missing")
    _need_keys(given, (*_YAML_STEP, *_OPTIONS), where)
    words = given["command"]
    record = StepRecord(name=name)
    over, needs = given.get("map"), given.get("needs") or []
    record.after = [str(step_name) for step_name in (needs if isinstance(needs, list) else [needs])]
    if isinstance(over, str):
        record.over = {"$step": over}
    elif over is not None:
        record.over = _plain(over, f"{where}: map")
    for step_name in [*record.after, *references(record.over)]:
        if step_name not in names:
            near = nearest(step_name, tuple(map(str, names)))
            raise ExperimentError(f"{where}: no step {step_name}" + (f" (did you mean {near}?)" if near else ""))
    line = isinstance(words, str)
    given_words = [words] if line else [str(word) for word in words]
    record.arguments = [_template(word, names, values, quote=line) for word in given_words]
    if line:
        record.arguments = ["bash", "-c", *record.arguments]
    for argument in record.arguments:
        _plain(argument, f"{where}: command")
    if secrets.split_arguments(given_words)[1]:
        need_open("", f"{where}: command", "secret")
    set_options(
        record,
        {key: value for key, value in given.items() if key in _OPTIONS or key in ("files", "cache")},
        where,
    )
    return record


def _template(text: str, names: Mapping[str, Any], values: Mapping[str, Any], *, quote: bool) -> Any:
    """Braces with the name of a step, a parameter or `item` become references; others, as ${HOME}, stay."""
    parts: list[Any] = []
    at = 0
    for match in _PLACE.finditer(text):
        name = match[1]
        if match.start() and text[match.start() - 1] == "$":
            continue
        part: Any
        if name == "item":
            part = {"$item": True}
        elif name in values:
            part = shlex.quote(word(values[name])) if quote else word(values[name])
        elif name in names:
            part = {"$step": name}
        else:
            continue
        if quote and isinstance(part, dict):
            part = {"$quoted": part}
        parts += [text[at : match.start()], part]
        at = match.end()
    if not parts:
        return text
    parts.append(text[at:])
    return {"$text": [part for part in parts if part != ""]}


def _ordered(steps: list[StepRecord], where: str) -> list[StepRecord]:
    """Each after its sources. Raises ExperimentError naming a circle."""
    unordered, done = list(steps), list[StepRecord]()
    while unordered:
        ready = [step for step in unordered if all(source in {d.name for d in done} for source in step.sources)]
        if not ready:
            raise ExperimentError(f"{where}: steps depend on one another: {', '.join(step.name for step in unordered)}")
        done += ready
        unordered = [step for step in unordered if step not in ready]
    return done


def digest(definition: Definition, tree: str) -> str:
    """A digest of a pipeline and its code: two submissions with the same digest are one."""
    text = json.dumps([definition.to_json(), tree], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
