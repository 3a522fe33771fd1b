"""scancel's options and variables as a filter. Source: scancel(1)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.model.errors import SpritzError
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.notation import jobid
from spritz.notation.hostlist import expand
from spritz.notation.signals import SignalError, parse_signal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spritz.cli.call.context import Context
    from spritz.cli.call.options import Row

    Given = Mapping[str, str]

#: options that choose among jobs
FILTERS = ("account", "name", "nodelist", "partition", "qos", "reservation", "state", "user", "me", "wckey")

_STATES = {"PENDING": "PENDING", "PD": "PENDING", "RUNNING": "RUNNING", "R": "RUNNING"}
_STATES |= {"SUSPENDED": "SUSPENDED", "S": "SUSPENDED"}


def merge(parsed: Sequence[tuple[str, str | None]], rows: Sequence[Row], context: Context) -> dict[str, str]:
    """Options by name, the command line beating the environment."""
    options = {row.key: context.environ[row.env] for row in rows if row.env and row.env in context.environ}
    for key, value in parsed:
        if key == "state" and key in options:
            _states(options, context)  # Slurm reads those that give way to another too
        options[key] = value or ""
    return options


def targets(words: Sequence[str]) -> tuple[JobTarget, ...]:
    """Ids, each word one or a comma list. Raises SpritzError: `Invalid job id abc`."""
    job_targets = []
    for word in words:
        try:
            # `12_` is the whole array 12.
            references = jobid.parse_list(word.removesuffix("_") if word[:1].isdecimal() else word)
        except jobid.JobIdError as error:
            raise SpritzError(f"Invalid job id {word}") from error
        for reference in references:
            tasks = "" if reference.task_ids is None else format(reference.task_ids, "x")
            job_targets.append(JobTarget(reference.job_id, tasks, reference.step, reference.component))
    return tuple(job_targets)


def signal_of(options: Given, context: Context) -> int:
    """Number of --signal; 0 when none was given. Raises AlreadyReported."""
    if "signal" not in options:
        return 0

    try:
        return parse_signal(options["signal"])
    except SignalError as error:
        context.err(f"Unknown job signal: {options['signal']}\n")
        raise AlreadyReported from error


def build_filter(options: Given, words: Sequence[str], context: Context) -> JobFilter:
    """The filter by the options. Raises AlreadyReported or SpritzError for invalid ones."""
    nodes: tuple[str, ...] = ()
    if options.get("nodelist"):
        nodes = tuple(expand(options["nodelist"]))
    return JobFilter(
        targets=targets(words),
        users=_users(options),
        accounts=_one(options, "account"),
        names=_one(options, "name"),
        partitions=_one(options, "partition"),
        qos=_one(options, "qos"),
        states=_states(options, context),
        nodes=nodes,
        reservation=options.get("reservation", ""),
        wckeys=_one(options, "wckey"),
    )


def _one(options: Given, option: str) -> tuple[str, ...]:
    return (options[option],) if option in options else ()


def _users(options: Given) -> tuple[int, ...]:
    if "me" in options:
        return (os.getuid(),)
    if "user" not in options:
        return ()
    from spritz.presentation.users import uid_of

    uid = uid_of(options["user"])
    if uid is None:
        raise SpritzError(f"Invalid user name: {options['user']}")
    return (uid,)


def _states(options: Given, context: Context) -> tuple[str, ...]:
    if "state" not in options:
        return ()
    names = []
    for word in options["state"].split(","):
        name = _STATES.get(word.upper())
        if name is None:
            context.err(f"Invalid job state specified: {word}\nValid job states are PENDING, RUNNING, and SUSPENDED\n")
            raise AlreadyReported
        names.append(name)
    return tuple(names)
