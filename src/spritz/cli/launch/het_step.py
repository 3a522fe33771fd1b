"""One step over several components of a heterogeneous job: `srun A a : B b`, and `srun --het-group=0,1 a`.

Each component has options, a program and streams of its own; tasks have one numbering over all of them. The first part
is the session's own, the others are kept with it.

Source: srun(1) --het-group; https://slurm.schedmd.com/heterogeneous_jobs.html; texts as Slurm 22.05 prints them.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from spritz.cli.context import Context
from spritz.cli.launch.session import Session
from spritz.cli.submit import components, values, variables
from spritz.cli.submit.rows import rows_of
from spritz.model.commands.job import SubmitHetJob
from spritz.model.commands.step import CreateHetStep
from spritz.model.errors import SpritzError
from spritz.notation.ranges import RangeError, ids_of, parse_array

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.cli.launch.listener import Listener
    from spritz.cli.launch.run import StepRun
    from spritz.cli.submit.values import Values
    from spritz.model.queries.allocations import AllocationGranted
    from spritz.model.step import Step

#: options and program of one component
Program = tuple["Values", list[str]]

_SUFFIX = "_HET_GROUP_"
_FILES = ("output", "error", "open-mode")
_OLD_SUFFIX = "_PACK_GROUP_"


class HetSession(Session):
    """A session whose step has several parts; `groups` are the components in which they run."""

    def __init__(self, parts: list[tuple[int, Values, list[str]]], argv: list[str], context: Context, *, inside: bool):
        group, given, command = parts[0]
        super().__init__(given, command, argv, _seen(context, group) if inside else context, inside=inside)
        self.groups = [group for group, _given, _command in parts]
        self.sessions: list[Session] = [self]
        first = given
        for group, given, command in parts[1:]:
            if not {"output", "error"} & given.keys():
                # As in Slurm: what names no files of its own writes to those of the first.
                given = {**{name: first[name] for name in _FILES if name in first}, **given}
            part = Session.__new__(Session)
            part.prepare(given, command, argv, _seen(context, group) if inside else context, inside=inside)
            part.settings = copy(self.settings)
            part.settings.label = "label" in given
            self.sessions.append(part)
        if len({one.get("mpi", "").lower() for _group, one, _command in parts}) > 1:
            raise SpritzError(
                "option --mpi is not supported by Spritz with a value for each component",
                code="ESLURM_NOT_SUPPORTED",
                hint="the tasks of all components are one MPI_COMM_WORLD",
            )

    def fit_nodes(self) -> None:
        """In every part."""
        for part in self.sessions:
            Session.fit_nodes(part)

    def submission(self) -> SubmitHetJob:
        """One component for each part."""
        return SubmitHetJob(components=tuple(part.own_submission() for part in self.sessions))

    def granted(self, granted: AllocationGranted) -> None:
        """Each part has all nodes of its component."""
        for part, component in zip(self.sessions, granted.components, strict=True):
            allocation = component.job.allocation
            assert allocation is not None, "a job that runs has nodes"
            part.fields["nodes_min"] = part.fields["nodes_max"] = len(allocation.nodes)

    def step_request(self, job_id: int, listener: Listener) -> CreateHetStep:
        """All parts at once."""
        asked = [(group, part.step_spec(listener)) for group, part in zip(self.groups, self.sessions, strict=True)]
        return CreateHetStep(job_id=job_id, parts=tuple(sorted(asked, key=lambda one: one[0])), wait=True)

    def open_streams(self, run: StepRun, step: Step) -> None:
        """Own files of every part, in the order of the components."""
        order = sorted(range(len(self.groups)), key=lambda index: self.groups[index])
        for index in order:
            part = self.sessions[index]
            if part is self:
                super().open_streams(run, step)
            else:
                part.open_output_files(run, step)


def _seen(context: Context, group: int) -> Context:
    """The call as if its environment were that of the component."""
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
    """Variables that there are of each component (NAME_HET_GROUP_n) say what the component of this number has."""
    own = f"{_SUFFIX}{group}"
    several = {name.partition(_SUFFIX)[0] for name in environ if _SUFFIX in name}
    found = {name: value for name, value in environ.items() if name not in several and _OLD_SUFFIX not in name}
    found |= {name.removesuffix(own): value for name, value in environ.items() if name.endswith(own)}
    for name in ("SLURM_JOB_ID", "SLURM_JOBID"):  # the whole goes by the leader's number
        if name in environ:
            found[name] = environ[name]
    for name, same in (("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), ("SLURM_NODELIST", "SLURM_JOB_NODELIST")):
        if same + own in environ:
            found[name] = found[same]
    return found


def programs(argv: list[str], context: Context, *, inside: bool) -> list[tuple[int, Values, list[str]]] | int:
    """(component, options in force, program) of every part; an int is the exit status. Raises SpritzError."""
    rows = rows_of("s")
    found = components.programs(rows, argv, context)
    if isinstance(found, int):
        return found
    parts: list[tuple[int, Values, list[str]]] = []
    before: Values = {}
    for index, (given, command) in enumerate(found):
        given = values.merge(components.carried_over(before), given)
        before = given
        for group in _groups(given, index, context.environ, inside=inside):
            environ = environment_of(context.environ, group) if inside else context.environ
            merged = values.merge(variables.read("srun", rows, environ, inside=inside), given)
            parts.append((group, merged, command or _next(found, index)))
    named = [group for group, _given, _command in parts]
    twice = next((group for group in named if named.count(group) > 1), None)
    if twice is not None:
        raise SpritzError(f"--het-group: component {twice} is named twice")
    return parts


def _next(found: list[Program], index: int) -> list[str]:
    """A component without a program of its own runs that of the one after it."""
    return next((command for _given, command in found[index:] if command), [])


def _groups(given: Values, index: int, environ: Mapping[str, str], *, inside: bool) -> list[int]:
    text = given.get("het-group")
    if text is None:
        groups = [index]
    else:
        try:
            groups = list(ids_of(parse_array(text).ids))
        except RangeError as error:
            raise SpritzError(f"Invalid --het-group value: {text[:80]}") from error
        if not inside:
            raise SpritzError(
                "option --het-group is not supported by Spritz outside of an allocation",
                code="ESLURM_NOT_SUPPORTED",
                hint="the components of a new job are divided by `:`, and numbered in that order",
            )
    size = environ.get("SLURM_HET_SIZE", "")
    last = int(size) - 1 if size.isdigit() else 0
    if inside and "jobid" not in given and groups[-1] > last:
        raise SpritzError(
            f"Attempt to run a job step with het group value of {groups[-1]}, but the job allocation has maximum value "
            f"of {last}"
        )
    return groups
