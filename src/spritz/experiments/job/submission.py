"""Submit a command as a run: snapshot, record, script, and queue."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from spritz.experiments import imports, notify, secrets, tracking
from spritz.experiments.cluster import slurm
from spritz.experiments.code import (
    data_states,
    datasets,
    in_place,
    interpreters,
    linked,
    outputs,
    overlooked,
    programs,
    restoring,
    runners,
    snapshot,
    sources,
)
from spritz.experiments.code.in_place import InPlace
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import copied_by_content, home, need_space
from spritz.experiments.job import containers, resuming, run_environment, script
from spritz.experiments.job.settings import RunOptions, Settings, default_name
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Entry, Query, Store
from spritz.experiments.results import event_files


@dataclass(frozen=True, kw_only=True)
class Request:
    """A run to submit, before its options are checked and its name is chosen."""

    command: tuple[str, ...]
    directory: Path
    options: RunOptions
    settings: Settings = field(default_factory=Settings)
    take_snapshot: bool = True
    #: without a snapshot: record what code there is at submission
    record_code: bool = False
    parent: str = ""
    group: str = ""
    #: code of an earlier run, instead of a new snapshot
    code: snapshot.Snapshot | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    #: a name that the caller has reserved
    reserved: str = ""
    #: as in `script.Job`
    claim: Path | None = None
    #: name -> content, written into the run's directory before the job is queued
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    #: collected already, if many runs are launched together
    surroundings: Mapping[str, Any] | None = None
    #: the file with `shared_values`, if many runs share them; their records are not synced individually
    shared: str = ""
    #: text shown instead of the command (`record.Run`)
    shown: str = ""
    #: the interpreter that will run, where the words of the command do not show it
    python: str = ""
    #: the environment of an earlier run, in place of the present one; `environment` has its variables
    restored: restoring.Restored | None = None
    #: queues a script with an environment; returns the job's id, "" if it is not queued yet
    queue: Callable[[Path, Mapping[str, str]], str] | None = None


def user() -> str:
    """The present user's name, for the index."""
    return getpass.getuser()


def job_number(name: str) -> str:
    """The number of the job of the run of that name; "" if there is none."""
    try:
        return Store(home()).get(name, user()).job_id
    except ExperimentError:
        return ""


def shown_name(entry: Entry) -> str:
    """The run's name as commands take it: RUN, or OWNER/RUN of another user's run."""
    return entry.name if entry.owner == user() else f"{entry.owner}/{entry.name}"


def newest_names(count: int = 100) -> list[str]:
    """Names of the newest runs; none if the index cannot be read."""
    try:
        return [entry.name for entry in Store(home()).find(Query(owner=user(), limit=count))]
    except ExperimentError:
        return []


@dataclass(frozen=True, kw_only=True)
class PreparedRequest:
    """A checked request, and what its record and its script are made of."""

    request: Request
    base: Path
    code: snapshot.Snapshot | None
    #: addresses of notifications
    urls: Sequence[str]
    tracked: tracking.Plan | None
    #: the command, with its secrets masked
    written: list[str]
    #: indexes of the secrets in the command
    hidden: Mapping[int, str]
    #: the environment of sbatch, with the secrets
    environment: dict[str, str]
    #: variables that the script may show
    visible: Mapping[str, str]
    #: paths of the working tree that the checkout links to
    links: Sequence[str]
    #: what persists between runs
    outputs: Sequence[outputs.Output]
    #: absolute paths of data that the run reads
    data: Sequence[str]
    #: the code without a snapshot, if it is recorded
    in_place: InPlace | None

    @property
    def recorded_code(self) -> snapshot.Snapshot | None:
        """The code for the run's record."""
        return self.in_place.code if self.in_place else self.code

    @property
    def _repository(self) -> Path:
        return self.base / "snapshots.git"

    def _environment_lines(self) -> str:
        """Lines for the job's shell that lead to the environment of an earlier run, or of the working tree."""
        request = self.request
        if request.restored is not None:
            return request.restored.lines(request.command)
        if self.code is None or request.options.container_image:
            return ""
        given = {**request.environment, **request.options.env}
        pairs = runners.variables(request.command, request.directory, given).items()
        return "".join(f"export {name}={shlex.quote(text)}\n" for name, text in pairs)

    def _link_lines(self) -> str:
        if self.code is None:
            return ""
        restored = self.request.restored
        elsewhere = {} if restored is None else restored.targets(self.code.root, self.links)
        return linked.lines(self.code, self.links, "{code}", elsewhere)

    def _is_data(self, path: str) -> bool:
        return any(imports.is_below(path, data) for data in self.data)

    def write_files(self, directory: Path, more: Mapping[str, str | bytes] = MappingProxyType({})) -> None:
        """Write what the script reads into its directory."""
        source_files: dict[str, str | bytes] = {sources.FILE: sources.pairs(self.code, directory)}
        if self.request.restored is not None:
            source_files[restoring.FILE] = restoring.written(self.request.restored)
        if self.in_place and self.in_place.patch:
            source_files[in_place.PATCH] = self.in_place.patch
        for name, content in (source_files | guarding(self.request.settings) | dict(more)).items():
            (directory / name).write_bytes(content.encode() if isinstance(content, str) else content)
        if resuming.is_resumable(self.request.options):
            (directory / "resume.sh").write_text(resuming.SCRIPT, encoding="utf-8")

    def script_text(
        self,
        run: Run,
        directory: Path,
        *,
        options: RunOptions,
        command: Sequence[str],
        guarded: bool,
        trials: script.Trials | None = None,
    ) -> str:
        """The batch script of a run, or of a sweep with this record. Raises ExperimentError."""
        request, code = self.request, self.code
        mark = hashlib.sha256(f"{run.user} {run.name} {run.created_at}".encode()).hexdigest()
        first = directory if trials is None else directory.with_name(f"{directory.name}.1")
        resuming.need_own_directory(first, options, mark)
        if request.restored is not None:
            command = request.restored.words(command, request.directory)
        return script.text(
            script.Job(
                name=run.name,
                directory=directory,
                options=replace(options, env=dict(self.visible)),
                command=sources.words(command, code, self._repository),
                hidden=self.hidden,
                tree="" if code is None else code.tree,
                repository=self._repository,
                work_directory=str(request.directory) if code is None else code.directory,
                notifier=run_environment.our_python() if self.urls else "",
                guarded=guarded,
                inside=program(self.base),
                event_files=copied_by_content(Path(event_files.__file__), self.base / "inside", "events-{digest}.py"),
                data_states=copied_by_content(Path(data_states.__file__), self.base / "inside", "data-{digest}.py"),
                tracked=self.tracked is not None,
                mark=mark,
                secret_names=secrets.names(self.environment),
                modules=resuming.install_module(self.base),
                imports=sources.install(self.base),
                links=self._link_lines(),
                environment=self._environment_lines(),
                linked=[]
                if code is None
                else [path for path in linked.mounted(code, self.links) if not self._is_data(path)],
                data=self.data,
                outputs=self.outputs,
                sources=() if code is None else code.sources,
                outward=() if code is None else code.outward,
                handles_signal=resuming.handles_signal(request.command, request.directory, request.options),
                trials=trials,
                claim=request.claim,
            )
        )


def prepare(
    request: Request, *, bytes_needed: int = 0, split: tuple[list[str], dict[int, str]] | None = None
) -> PreparedRequest:
    """Check the request, and take a snapshot of its code. `split` is the command with masked secrets, and its secrets,
    if the caller knows better which words are secret. Raises ExperimentError.
    """
    resuming.check(request.options)
    request = in_container(replace(request, options=resuming.placed(request.options)))
    base = home()
    need_space(base, bytes_needed)
    code = request.code
    store = base / "snapshots.git"
    if code is None and request.take_snapshot:
        code = take_snapshot(request, store)
    unfrozen_code = None
    if code is None and request.record_code:
        unfrozen_code = in_place.describe(request.directory, lambda: take_snapshot(request, store))
    data = datasets.paths(request.directory, request.options.data)
    links = [] if code is None else linked.paths(code, store, request.options.link, data)
    persistent = [] if code is None else outputs.resolve(code.root, code.directory, request.options.outputs)
    if code is not None:
        seen = [*links, *(output.path for output in persistent)]
        unseen = overlooked.lines(code, store, request.command, seen, in_code=request.code is None)
        code = replace(code, unfrozen=tuple(dict.fromkeys((*overlooked.pending(code, seen), *unseen))))
    need_program(request, code, links)
    need_framework(request)
    urls = notify.addresses(request.settings.notify, request.environment)
    written, hidden = split or secrets.split_arguments(request.command, request.environment)
    environment, visible = environment_of(request, hidden)
    if urls:
        environment[notify.VARIABLE] = " ".join(urls)
    return PreparedRequest(
        request=request,
        base=base,
        code=code,
        urls=urls,
        tracked=tracked_by(request, base),
        written=written,
        hidden=hidden,
        environment=environment,
        visible=visible,
        links=links,
        outputs=persistent,
        data=[os.path.normpath(request.directory / os.path.expanduser(path)) for path in data],
        in_place=unfrozen_code,
    )


def launch(request: Request, store: Store) -> Run:
    """Queue the run. Raises ExperimentError, and leaves no files then."""
    if not request.command:
        raise ExperimentError("no command given", hint="spritz run [options] -- python train.py", exit_code=2)
    prepared = prepare(request)
    created_at = time.time()
    name = request.reserved or store.reserve(
        request.options.name or default_name(request.command),
        user(),
        created_at,
        prepared.base / "runs",
        request.shown or shlex.join(prepared.written),
    )
    directory = record.directory_of(prepared.base, name)
    try:
        run = _recorded(prepared, name, created_at, directory)
        run.job_id = _queued(prepared, run, directory)
    except BaseException as error:
        if not isinstance(error, ExperimentError) or isinstance(error, slurm.Unanswered):
            _cancel_left(name, directory)
        store.remove(name, user())
        shutil.rmtree(directory, ignore_errors=True)
        raise
    if run.job_id:
        _write_job(run, directory, store)
    return run


def _recorded(prepared: PreparedRequest, name: str, created_at: float, directory: Path) -> Run:
    """The run's record, written into its new directory."""
    request = prepared.request
    around = request.surroundings
    record.make(prepared.base, name)
    run = Run(
        name=name,
        user=user(),
        created_at=created_at,
        command=prepared.written,
        options=options_mapping(request.options),
        code=code_mapping(prepared.recorded_code),
        surroundings=dict(around) if around is not None else collected(prepared.base, request),
        tags=list(request.options.tags),
        data=[] if request.shared else datasets.versions(request.directory, request.options.data),
        parent=request.parent,
        group=request.group,
        shared=request.shared,
        per_node=script.per_node(request.options),
        shown=request.shown,
    )
    hide(run.surroundings, prepared.urls, request)
    record.write(directory, run, durable=not request.shared)
    return run


def _queued(prepared: PreparedRequest, run: Run, directory: Path) -> str:
    """Write the script with its files, and queue it. Returns the job's id, "" if it is not queued yet."""
    request = prepared.request
    prepared.write_files(directory, request.files)
    if prepared.tracked is not None:
        write_track(directory, run, prepared.tracked, request)
    path = directory / "job.sh"
    # A dev session has a guard of its own.
    guarded = bool(request.settings.guard) and "session.json" not in request.files
    text = prepared.script_text(run, directory, options=request.options, command=request.command, guarded=guarded)
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return (request.queue or _sbatch)(path, prepared.environment)


def _write_job(run: Run, directory: Path, store: Store) -> None:
    """Write the job's id into the record and the index."""
    try:
        record.write(directory, run)
        store.queued(run)
    except (OSError, ExperimentError) as error:
        why = error.message if isinstance(error, ExperimentError) else error.strerror
        raise ExperimentError(
            f"{run.name} is queued as job {run.job_id}, but that could not be written down: {why}",
            hint="`spritz runs` finds the job by its script once it can",
        ) from error


def _cancel_left(name: str, directory: Path) -> None:
    """Cancel the job that sbatch may have queued before it, or this process, was stopped.

    Raises ExperimentError if Slurm does not answer: the run stays then, and `states` finds its job.
    """
    path = directory / "job.sh"
    if path.exists():
        slurm.cancel(*slurm.of_script(name, str(path)))


def shared_values(request: Request) -> dict[str, Any]:
    """The values that records of runs with these options, code and environment share (`record.SHARED`)."""
    around = dict(request.surroundings or collected(home(), request))
    around["variables"] = dict(around.get("variables", {}))
    hide(around, notify.addresses(request.settings.notify, request.environment), request)
    return {
        "options": options_mapping(request.options),
        "code": code_mapping(request.code),
        "surroundings": around,
        "tags": list(request.options.tags),
        "data": datasets.versions(request.directory, request.options.data),
    }


def in_container(request: Request) -> Request:
    """The request with checked options. Raises ExperimentError."""
    options = containers.checked(request.options, request.directory, request.environment)
    return replace(request, options=options)


def collected(base: Path, request: Request) -> dict[str, Any]:
    """The environment part of a run's record."""
    return run_environment.collect(
        base, request.directory, request.environment, request.command,
        image=request.options.container_image, python=request.python,
    )  # fmt: skip


def hide(around: Mapping[str, Any], urls: Sequence[str], request: Request) -> None:
    """Mask addresses of notifications in `run_environment.collect`'s variables, under any variable name."""
    variables = around.get("variables", {})
    for name in notify.names(request.settings.notify):
        if name in variables:
            variables[name] = secrets.MASK
    for name, value in variables.items():
        variables[name] = secrets.without(value, urls)


def guarding(settings: Settings) -> dict[str, str | bytes]:
    """Files that the guard of a run needs in its directory."""
    if not settings.guard:
        return {}
    program = (Path(__file__).parents[1] / "watch.py").read_text(encoding="utf-8")
    return {"guard.json": json.dumps(settings.guard, indent=1) + "\n", "watch.py": program}


def _sbatch(path: Path, environment: Mapping[str, str]) -> str:
    return slurm.submit(str(path), environment=environment)


def freeze(directory: Path, settings: Settings) -> snapshot.Snapshot:
    """A snapshot of the code around `directory`, for several runs by the present interpreter."""
    base = home()
    need_space(base)
    command = (run_environment.our_python(),)
    options = RunOptions(outputs=settings.run.get("outputs", ()))
    request = Request(command=command, directory=directory, options=options, settings=settings)
    return take_snapshot(request, base / "snapshots.git")


def write_track(directory: Path, run: Run, tracked: tracking.Plan, request: Request) -> None:
    """Write the run's data for MLflow, sent by the job's script; the token stays in the server's state file."""
    tags = {
        "spritz.run": run.name,
        "mlflow.runName": run.name,
        "mlflow.user": run.user,
        "mlflow.source.name": run.command_line[:500],
        "mlflow.source.type": "JOB",
        "mlflow.source.git.commit": run.code.get("commit", ""),
        "mlflow.source.git.branch": run.code.get("branch", ""),
        "spritz.tree": run.code.get("tree", ""),
        "spritz.group": run.group,
        **{f"tag.{tag}": "true" for tag in run.tags},
    }
    project = Path(run.code.get("root") or request.directory).name
    (directory / "track.json").write_text(
        json.dumps(
            {
                "run": run.name,
                "state": tracked.state,
                "experiment": request.options.experiment or project or "spritz",
                "tags": {key: value for key, value in tags.items() if value},
                "code": str(request.directory if run.runs_in_place else directory / "code"),
            },
            indent=1,
        ),
        encoding="utf-8",
    )


def program(base: Path) -> Path:
    """A copy of `inside` that compute nodes can read, named by its content, since queued jobs may need an older one."""
    return copied_by_content(Path(__file__).parents[1] / "inside.py", base / "inside", "{digest}.py")


def tracked_by(request: Request, base: Path) -> tracking.Plan | None:
    """How the request's runs are tracked. Raises ExperimentError."""
    return tracking.plan(base, request.options.track, environment_of(request, {})[0])


def environment_of(request: Request, hidden: Mapping[int, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(variables for sbatch with the hidden arguments, variables that the script may show)."""
    # An enclosing allocation must not influence the new job: sbatch reads SBATCH_*, srun in the job SLURM_*.
    environment = {
        key: value
        for key, value in request.environment.items()
        if not key.startswith(("SLURM_", "SPRITZ_RUN")) or key in ("SLURM_CONF", "SPRITZ_RUN_STORE")
    }
    if "SPRITZ_RUN" in request.environment:
        # If a run submits runs, they must not inherit its identity.
        for key in tracking.INJECTED:
            environment.pop(key, None)
    environment |= {script.SECRET_VARIABLE.format(place): value for place, value in hidden.items()}
    masked = secrets.masked_environment(request.options.env)
    visible = {key: value for key, value in request.options.env.items() if masked[key] == value}
    environment |= {key: value for key, value in request.options.env.items() if key not in visible}
    return environment, visible


def options_mapping(options: RunOptions) -> dict[str, Any]:
    """The options for a record: those that differ from the defaults, with masked secrets."""
    mapping = {name: value for name in RunOptions.__dataclass_fields__ if (value := getattr(options, name))}
    if "env" in mapping:
        mapping["env"] = secrets.masked_environment(mapping["env"])
    return mapping


def code_mapping(code: snapshot.Snapshot | None) -> dict[str, Any]:
    """The snapshot as the field `code` of a run's record, without secrets in the remote's URL; {}: no snapshot."""
    return {} if code is None else {**asdict(code), "remote": secrets.masked_text(code.remote)}


def take_snapshot(request: Request, repository: Path) -> snapshot.Snapshot:
    """A snapshot of the code in the request's directory, and of what else it imports. Raises ExperimentError."""
    settings = request.settings

    def take(directory: Path, modules: Sequence[str]) -> snapshot.Snapshot:
        return snapshot.take(
            directory,
            repository,
            file_bytes_max=settings.file_bytes_max or snapshot.FILE_BYTES_MAX,
            tree_bytes_max=settings.tree_bytes_max or snapshot.TREE_BYTES_MAX,
            files_max=settings.files_max or snapshot.FILES_MAX,
            modules=modules,
            outputs=request.options.outputs if directory == request.directory else (),
        )

    facts, environment = _interpreter(request, repository.parent)
    places = interpreters.places(facts, environment, repository.parent) if facts else []
    code = sources.with_paths(sources.freeze(request.directory, repository, places, take), facts, environment)
    if interpreters.ignores_variables(request.command):
        line = "what the command imports by an editable installation: its -I, -E or -S keeps it from the snapshot"
        code = replace(code, unfrozen=(*code.unfrozen, line))
    if script := programs.outside(request.command, code):
        code = replace(code, unfrozen=(*code.unfrozen, f"{script}: it is outside of the project"))
    return code


def _interpreter(request: Request, base: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """What is known of the command's interpreter, and its environment; ({}, {}) of an image, which brings its own."""
    if request.options.container_image:
        return {}, {}
    environment = {**request.environment, **request.options.env}
    python = request.python or interpreters.of_command(request.command, request.directory, environment)
    return (interpreters.examine(base, python, environment) if python else {}), environment


def need_program(request: Request, code: snapshot.Snapshot | None, links: Sequence[str]) -> None:
    """Raises ExperimentError if the command's program, or the script that it names, will certainly not be there.

    Images are not looked into, and lines of `setup` may make programs, load modules or change the directory.
    """
    if request.options.container_image or request.options.setup or request.restored is not None:
        return
    place = programs.Place(request.directory, code, home() / "snapshots.git", links)
    programs.need(request.command, place, {**request.environment, **request.options.env})


def need_framework(request: Request) -> None:
    """Raises ExperimentError if the command's Python lacks what the template starts it with. Images and environments
    that lines of `setup` make are not looked into.
    """
    options = request.options
    modules = script.MODULES.get(options.template, ())
    command = (
        request.command if request.restored is None else request.restored.words(request.command, request.directory)
    )
    python = shutil.which(command[0], path=request.environment.get("PATH"))
    if not modules or options.container_image or options.setup or not python or not script.PYTHON.fullmatch(python):
        return
    program = "import sys; from importlib.util import find_spec; sys.exit(not any(map(find_spec, sys.argv[1:])))"
    environment = {**request.environment, **options.env}
    if subprocess.run([python, "-c", program, *modules], env=environment, capture_output=True).returncode:
        raise ExperimentError(
            f"--template {options.template}: {python} has no {' or '.join(modules)}",
            hint="install it there, or name the interpreter that has it: spritz run … -- ENV/bin/python train.py",
        )


def snapshot_of(run: Run) -> snapshot.Snapshot | None:
    """The snapshot from which the run ran; None if it ran in place."""
    return None if run.runs_in_place else snapshot.Snapshot.of(run.code)
