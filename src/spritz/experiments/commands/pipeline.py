"""Run steps that use each other's results, as jobs with dependencies; show their state; continue after a failure."""

from __future__ import annotations

import json
import os
import shutil
import time
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spritz.experiments import secrets
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home, need_space
from spritz.experiments.interface import Terminal, reporting, tell_unfrozen
from spritz.experiments.job import settings, submission
from spritz.experiments.pipelines import advance, cache, definition, graph, renewing, state
from spritz.experiments.records.store import Store

if TYPE_CHECKING:
    from spritz.experiments.pipelines.state import Pipeline

_LOOK_SECONDS = 2.0


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    run = actions.add_parser("run", help="start the pipeline in FILE.py or FILE.yaml, from a snapshot of the code")
    run.add_argument("file", metavar="FILE")
    run.add_argument("--set", action="append", default=[], dest="parameters", metavar="NAME=VALUE",
                     help="a parameter of the pipeline")  # fmt: skip
    run.add_argument("--name", default="", help="name of this execution (default: the pipeline's name)")
    run.add_argument("--no-cache", action="store_true", help="run all steps, even if their results are cached")
    run.add_argument("--no-snapshot", action="store_true", help="run in this directory in place of a snapshot of it")
    run.add_argument("--json", action="store_true", help="one JSON object in place of the name")
    run.add_argument("-w", "--wait", action="store_true", help="wait until it has ended; exit with 1 if it failed")
    show = actions.add_parser("show", help="show steps, their inputs and states")
    show.add_argument("name", metavar="NAME", help="name of a pipeline, or its beginning (the newest match)")
    show.add_argument("--json", action="store_true", help="one JSON object")
    retry = actions.add_parser("retry", help="continue from failed steps, with the original code or new code")
    retry.add_argument("name", metavar="NAME", help="name of a pipeline, or its beginning (the newest match)")
    retry.add_argument("--new-code", action="store_true",
                       help="steps without a result use the code that is in this directory now")  # fmt: skip
    retry.add_argument("--json", action="store_true", help="one JSON object in place of the name")
    retry.add_argument("-w", "--wait", action="store_true", help="wait until it has ended; exit with 1 if it failed")
    stop = actions.add_parser("stop", help="cancel pending and running steps; retry continues from there")
    stop.add_argument("name", metavar="NAME", help="name of a pipeline, or its beginning (the newest match)")
    listed = actions.add_parser("list", help="list pipelines, newest first")
    listed.add_argument("--json", action="store_true", help="one JSON object")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """0; with --wait 1 if it did not complete."""
    store = Store(home())
    return _ACTIONS[arguments.action](arguments, store, terminal)


def _run(arguments: Namespace, store: Store, terminal: Terminal) -> int:
    directory = Path.cwd()
    base = home()
    need_space(base)
    parameters = {}
    for item in arguments.parameters:
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise ExperimentError(f"--set {item}: NAME=VALUE is expected", exit_code=2)
        parameters[name] = value
    defined = definition.load(Path(arguments.file), parameters, directory)
    defined.name = arguments.name or defined.name
    project_settings = settings.read(directory)
    defaults, hidden = _defaults(project_settings)
    code = None if arguments.no_snapshot else submission.freeze(directory, project_settings)
    tell_unfrozen(submission.code_mapping(code), terminal)
    digest = definition.digest(defined, f"{code.tree} {code.directory}" if code else str(directory))
    if (interrupted := _left_behind(base, defined.name, digest)) is not None:
        terminal.err(f"spritz: {interrupted.name} was being submitted when that was cut short; going on with it\n")
        pipeline = interrupted
    else:
        files = {} if code is None else cache.file_digests(code, base / "snapshots.git", defined.steps)
        name, place = state.make(base, defined.name)
        pipeline = state.Pipeline(
            directory=place,
            name=name,
            user=submission.user(),
            created_at=time.time(),
            definition=defined,
            code=code,
            work_directory=str(directory),
            defaults=defaults,
            files={} if arguments.no_cache else files,
            digest=digest,
            secret_names=sorted(hidden),
        )
        pipeline.save()
    try:
        advance.advance(pipeline, store, environment={**os.environ, **hidden})
    except ExperimentError as error:
        if not pipeline.batches() or not any(map(pipeline.claimed, (batch.name for batch in pipeline.batches()))):
            _forget(pipeline, store)
            raise
        advance.stop(pipeline)
        raise ExperimentError(
            f"{pipeline.name} was submitted in part, and is stopped: {error.message}",
            hint=f"`spritz pipeline retry {pipeline.name}` continues it",
        ) from error
    (pipeline.directory / "submitted").touch()
    if arguments.wait:
        return _wait(pipeline, store, terminal, as_json=arguments.json)
    _report(pipeline, store, terminal, as_json=arguments.json)
    terminal.err(f"`spritz pipeline show {pipeline.name}` shows how it fares\n")
    return 0


def _defaults(project_settings: settings.Settings) -> tuple[dict[str, Any], dict[str, str]]:
    """(options of spritz.yaml for the record, its secret variables, which the jobs inherit from us)."""
    env: dict[str, str] = project_settings.run.get("env", {})
    masked = secrets.masked_environment(env)
    hidden = {key: text for key, text in env.items() if masked[key] != text}
    return {**project_settings.run, "env": {key: env[key] for key in env if key not in hidden}}, hidden


def _left_behind(base: Path, name: str, digest: str) -> Pipeline | None:
    """The newest pipeline of this name, if it is the same pipeline and its submission was interrupted."""
    for path, _ in state.numbered(base / "pipelines", name)[-1:]:
        if (path / "pipeline.json").exists() and not (path / "submitted").exists():
            pipeline = state.Pipeline.load(path)
            if pipeline.digest == digest and not pipeline.stopped():
                return pipeline
    return None


def _forget(pipeline: Pipeline, store: Store) -> None:
    """Remove a pipeline of which no job was queued."""
    for batch in pipeline.batches():
        for name in batch.runs.values():
            store.remove(name, pipeline.user)
            shutil.rmtree(home() / "runs" / name, ignore_errors=True)
    shutil.rmtree(pipeline.directory, ignore_errors=True)


def _report(pipeline: Pipeline, store: Store, terminal: Terminal, *, as_json: bool) -> None:
    """Print the pipeline's name, or with --json its whole state."""
    if as_json:
        terminal.out(json.dumps(graph.plain(pipeline, *graph.fares(pipeline, store)), indent=1) + "\n")
    else:
        terminal.out(f"{pipeline.name}\n")


def _wait(pipeline: Pipeline, store: Store, terminal: Terminal, *, as_json: bool) -> int:
    if not as_json:
        _report(pipeline, store, terminal, as_json=False)
    while True:
        state, steps = graph.fares(pipeline, store)
        if state not in ("RUNNING", "PENDING"):
            break
        time.sleep(_LOOK_SECONDS)
    if as_json:
        _report(pipeline, store, terminal, as_json=True)
    else:
        terminal.out(graph.drawn(pipeline, state, steps))
    return 0 if state == "COMPLETED" else 1


def _show(arguments: Namespace, store: Store, terminal: Terminal) -> int:
    pipeline = state.find(home(), arguments.name)
    whole, steps = graph.fares(pipeline, store)
    if arguments.json:
        terminal.out(json.dumps(graph.plain(pipeline, whole, steps), indent=1) + "\n")
    else:
        terminal.out(graph.drawn(pipeline, whole, steps))
    return 0


def _retry(arguments: Namespace, store: Store, terminal: Terminal) -> int:
    pipeline = state.find(home(), arguments.name)
    if arguments.new_code:
        fresh, hidden = _fresh(pipeline)
        submitted = advance.retry(pipeline, store, fresh=fresh, environment={**os.environ, **hidden})
        tell_unfrozen(submission.code_mapping(fresh.code), terminal)
        if kept := renewing.changed(pipeline, fresh):
            terminal.err(f"spritz: {', '.join(kept)} changed in {fresh.definition.file}; the results stay\n")
    else:
        submitted = advance.retry(pipeline, store, environment=_with_secrets(pipeline))
    (pipeline.directory / "submitted").touch()
    words = f"submitted {', '.join(submitted)}" if submitted else "nothing to submit"
    terminal.err(f"spritz: {words}\n")
    if arguments.wait:
        return _wait(pipeline, store, terminal, as_json=arguments.json)
    _report(pipeline, store, terminal, as_json=arguments.json)
    return 0


def _fresh(pipeline: Pipeline) -> tuple[Pipeline, dict[str, str]]:
    """The pipeline as it is in this directory now, and secret variables of its spritz.yaml. Raises ExperimentError."""
    if pipeline.code is None:
        raise ExperimentError(f"--new-code: {pipeline.name} runs in place, without a snapshot of its code")
    directory = Path.cwd()
    base = home()
    need_space(base)
    if not Path(pipeline.definition.file).is_file():
        raise ExperimentError(
            f"{pipeline.definition.file}: no such file in {directory}",
            hint=f"--new-code takes the code of the directory that you are in; it was {pipeline.work_directory}",
        )
    parameters = {key: json.dumps(given) for key, given in pipeline.definition.parameters.items()}
    defined = definition.load(Path(pipeline.definition.file), parameters, directory)
    defined.name = pipeline.definition.name
    project_settings = settings.read(directory)
    defaults, hidden = _defaults(project_settings)
    code = submission.freeze(directory, project_settings)
    fresh = replace(
        pipeline,
        definition=defined,
        code=code,
        work_directory=str(directory),
        defaults=defaults,
        # A pipeline without cache stays so.
        files=cache.file_digests(code, base / "snapshots.git", defined.steps) if pipeline.files else {},
        digest=definition.digest(defined, f"{code.tree} {code.directory}"),
        secret_names=sorted(hidden),
    )
    return fresh, hidden


def _with_secrets(pipeline: Pipeline) -> dict[str, str]:
    """Our environment with the pipeline's secret variables, from its spritz.yaml. Raises ExperimentError if one is in
    neither: steps would run without it.
    """
    hidden: dict[str, str] = {}
    if Path(pipeline.work_directory).is_dir():
        hidden = _defaults(settings.read(Path(pipeline.work_directory)))[1]
    environment = {**os.environ, **hidden}
    return environment | secrets.required(pipeline.secret_names, environment, pipeline.name)


def _stop(arguments: Namespace, store: Store, terminal: Terminal) -> int:
    pipeline = state.find(home(), arguments.name)
    advance.stop(pipeline)
    terminal.out(f"{pipeline.name}\n")
    return 0


def _list(arguments: Namespace, store: Store, terminal: Terminal) -> int:
    pipelines = [state.Pipeline.load(path.parent) for path in (home() / "pipelines").glob("*/pipeline.json")]
    pipelines.sort(key=lambda listed: listed.created_at, reverse=True)
    if arguments.json:
        plain = [graph.plain(pipeline, *graph.fares(pipeline, store)) for pipeline in pipelines]
        terminal.out(json.dumps({"pipelines": plain}, indent=1) + "\n")
        return 0
    for pipeline in pipelines:
        whole, steps = graph.fares(pipeline, store)
        done = sum(step.state == "COMPLETED" for step in steps)
        terminal.out(f"{pipeline.name}  {whole}  {done} of {len(steps)} steps  {pipeline.definition.file}\n")
    if not pipelines:
        terminal.out("No pipelines yet: `spritz pipeline run FILE` starts one.\n")
    return 0


_ACTIONS = {"run": _run, "show": _show, "retry": _retry, "stop": _stop, "list": _list}
