"""A step over several components of a heterogeneous job: `srun A a : B b`, and `srun --het-group=0,1 a`.

Each component has its own options, program and streams; task ranks count through all components. The session itself is
the first part, and holds sessions for the others.

Source: srun(1) --het-group; https://slurm.schedmd.com/heterogeneous_jobs.html; texts of Slurm 22.05.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from spritz.cli.call.context import Context
from spritz.cli.jobs.launch.session import Session
from spritz.cli.jobs.submit import components, values, variables
from spritz.cli.jobs.submit.rows import rows_of
from spritz.model.commands.job import SubmitHetJob
from spritz.model.commands.step import CreateHetStep
from spritz.model.errors import SpritzError
from spritz.notation.ranges import RangeError, ids_of, parse_array

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.cli.jobs.launch.listener import Listener
    from spritz.cli.jobs.launch.run import StepRun
    from spritz.cli.jobs.submit.values import Values
    from spritz.model.job.step import Step
    from spritz.model.queries.allocations import AllocationGranted

#: (options, program) of a component.
Program = tuple["Values", list[str]]

_SUFFIX = "_HET_GROUP_"
_FILES = ("output", "error", "open-mode")
_OLD_SUFFIX = "_PACK_GROUP_"


class HetSession(Session):
    """A session whose step has several parts; `groups` are the components in which they run."""

    def __init__(self, parts: list[tuple[int, Values, list[str]]], argv: list[str], context: Context, *, inside: bool):
        group, options, command = parts[0]
        super().__init__(options, command, argv, _seen(context, group) if inside else context, inside=inside)
        self.groups = [group for group, _given, _command in parts]
        self.sessions: list[Session] = [self]
        first = options
        for group, options, command in parts[1:]:
            if not {"output", "error"} & options.keys():
                # As in Slurm: a component without --output and --error writes to the files of the first.
                options = {**{name: first[name] for name in _FILES if name in first}, **options}
            part = Session.__new__(Session)
            part.prepare(options, command, argv, _seen(context, group) if inside else context, inside=inside)
            part.settings = copy(self.settings)
            part.settings.label = "label" in options
            self.sessions.append(part)
        if len({part_options.get("mpi", "").lower() for _group, part_options, _command in parts}) > 1:
            raise SpritzError(
                "option --mpi is not supported by Spritz with a value for each component",
                code="ESLURM_NOT_SUPPORTED",
                hint="the tasks of all components are one MPI_COMM_WORLD",
            )

    def fit_nodes(self) -> None:
        """Fit the nodes of each part."""
        for part in self.sessions:
            Session.fit_nodes(part)

    def submission(self) -> SubmitHetJob:
        """A heterogeneous job with a component for each part."""
        return SubmitHetJob(components=tuple(part.own_submission() for part in self.sessions))

    def granted(self, granted: AllocationGranted) -> None:
        """Give each part all nodes of its component."""
        for part, component in zip(self.sessions, granted.components, strict=True):
            allocation = component.job.allocation
            assert allocation is not None, "a running job has nodes"
            part.fields["nodes_min"] = part.fields["nodes_max"] = len(allocation.nodes)

    def step_request(self, job_id: int, listener: Listener) -> CreateHetStep:
        """A single request for all parts."""
        parts = [(group, part.step_spec(listener)) for group, part in zip(self.groups, self.sessions, strict=True)]
        return CreateHetStep(job_id=job_id, parts=tuple(sorted(parts, key=lambda part: part[0])), wait=True)

    def open_streams(self, run: StepRun, step: Step) -> None:
        """Open the files of each part, in the order of the components."""
        order = sorted(range(len(self.groups)), key=lambda index: self.groups[index])
        for index in order:
            part = self.sessions[index]
            if part is self:
                super().open_streams(run, step)
            else:
                part.open_output_files(run, step)


def _seen(context: Context, group: int) -> Context:
    """The context with the environment of a component."""
    return Context(
        context.program,
        environment_of(context.environ, group),
        context.cwd,
        context.stdin,
        context.stdout,
        context.stderr,
        context.launcher,
    )


def environment_of(environ: Mapping[str, str], group: int) -> dict[str, str]:
    """The environment with the values of component `group`: NAME_HET_GROUP_n replaces NAME."""
    suffix = f"{_SUFFIX}{group}"
    several = {name.partition(_SUFFIX)[0] for name in environ if _SUFFIX in name}
    chosen = {name: value for name, value in environ.items() if name not in several and _OLD_SUFFIX not in name}
    chosen |= {name.removesuffix(suffix): value for name, value in environ.items() if name.endswith(suffix)}
    for name in ("SLURM_JOB_ID", "SLURM_JOBID"):  # the leader's id identifies the whole job
        if name in environ:
            chosen[name] = environ[name]
    for name, same in (("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), ("SLURM_NODELIST", "SLURM_JOB_NODELIST")):
        if same + suffix in environ:
            chosen[name] = chosen[same]
    return chosen


def programs(argv: list[str], context: Context, *, inside: bool) -> list[tuple[int, Values, list[str]]] | int:
    """(component number, options in force, program) of each part; or the exit status. Raises SpritzError."""
    rows = rows_of("s")
    parsed = components.programs(rows, argv, context)
    if isinstance(parsed, int):
        return parsed
    parts: list[tuple[int, Values, list[str]]] = []
    before: Values = {}
    for index, (options, command) in enumerate(parsed):
        options = values.merge(components.carried_over(before), options)
        before = options
        for group in _groups(options, index, context.environ, inside=inside):
            environ = environment_of(context.environ, group) if inside else context.environ
            merged = values.merge(variables.read("srun", rows, environ, inside=inside), options)
            parts.append((group, merged, command or _next(parsed, index)))
    named = [group for group, _given, _command in parts]
    twice = next((group for group in named if named.count(group) > 1), None)
    if twice is not None:
        raise SpritzError(f"--het-group: component {twice} is named twice")
    return parts


def _next(programs: list[Program], index: int) -> list[str]:
    """The program of the next component that has one."""
    return next((command for _options, command in programs[index:] if command), [])


def _groups(options: Values, index: int, environ: Mapping[str, str], *, inside: bool) -> list[int]:
    text = options.get("het-group")
    if text is None:
        groups = [index]
    else:
        try:
            groups = list(ids_of(parse_array(text).ids))
        except RangeError as error:
            raise SpritzError(f"Invalid --het-group value: {text[:80]}") from error
        if not inside and groups != [index]:  # the component that it is anyway is named by some wrappers
            raise SpritzError(
                "option --het-group is not supported by Spritz outside of an allocation",
                code="ESLURM_NOT_SUPPORTED",
                hint="separate the components of a new job by `:`; they are numbered in that order",
            )
    size = environ.get("SLURM_HET_SIZE", "")
    last = int(size) - 1 if size.isdecimal() else 0
    if inside and "jobid" not in options and groups[-1] > last:
        raise SpritzError(
            f"Attempt to run a job step with het group value of {groups[-1]}, but the job allocation has maximum value "
            f"of {last}"
        )
    return groups
