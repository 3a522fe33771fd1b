"""Turn options and `SQUEUE_*` variables of squeue into a query to the controller.

The command line overrides the environment. Source: squeue(1).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.options import Fatal, split_ids
from spritz.model.errors import SpritzError
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.notation.hostlist import expand
from spritz.presentation.job.job_states import DEFAULT_STATES, parse_states, unknown_state_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spritz.cli.call.context import Context
    from spritz.cli.call.options import Row

    Given = Mapping[str, str]


def merge(parsed: Sequence[tuple[str, str | None]], rows: Sequence[Row], context: Context) -> dict[str, str]:
    """Option values by name: the last on the command line, else the environment's.

    Flags and `--steps` without a list have the value "". --yaml is a form of --json.
    """
    options = {row.key: context.environ[row.env] for row in rows if row.env and row.env in context.environ}
    if "Format" in options:
        options.pop("format", None)
    for key, value in parsed:
        if key in ("format", "Format"):  # the last of the two forms wins
            options.pop("format", None)
            options.pop("Format", None)
        if key == "yaml":
            options["json"] = "yaml=" + (value or "")
            continue
        options[key] = value or ""
    return options


def check_displaced(parsed: Sequence[tuple[str, str | None]], context: Context) -> None:
    """Parse lists of states and jobs that later ones displace, as Slurm does. Raises like `states` and `targets`."""
    options = dict(parsed)
    for key, value in parsed:
        if value and value != options[key]:
            if key == "states":
                states({key: value}, context)
            elif key in ("jobs", "steps"):
                targets(value, steps=key == "steps")


def check_form(parsed: Sequence[tuple[str, str | None]], both: Sequence[str]) -> None:
    """Raises Fatal if --long is combined with -o or with one of the options in `both`."""
    keys = {key for key, _ in parsed}
    if "long" in keys and keys & set(both):
        text = "Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry."
        raise Fatal(text)


def check_formats(parsed: Sequence[tuple[str, str | None]]) -> None:
    """Raises SpritzError if the command line has both -o and -O; the message names the later one first."""
    spelling = {"format": "-o (--format)", "Format": "-O (--Format)"}
    order = list(dict.fromkeys(key for key, _ in parsed if key in spelling))
    if len(order) == 2:
        raise SpritzError(f"{spelling[order[1]]} is incompatible with {spelling[order[0]]}")


def words(text: str) -> tuple[str, ...]:
    """The items of a comma-separated list, without empty ones."""
    return tuple(item for item in text.split(",") if item)


def users(options: Given, context: Context) -> tuple[tuple[int, ...], bool]:
    """(uids, whether the query means all other users: --notme). Reports unknown names, which match no job."""
    if "me" in options or "notme" in options:
        return (os.getuid(),), "notme" in options
    if "user" not in options:
        return (), False
    from spritz.presentation.users import name_of, uid_of

    numbers = []
    for name in words(options["user"]):
        uid = uid_of(name)
        if uid is None or (name.isdecimal() and name_of(uid) == name):
            context.error(f"Invalid user: {name}\n")
        else:
            numbers.append(uid)
    return tuple(numbers) or (-1,), False


def states(options: Given, context: Context) -> tuple[str, ...]:
    """State and flag names; empty means all. Raises SpritzError after squeue's message about an unknown state."""
    if "states" not in options:
        return ("PENDING",) if "start" in options else DEFAULT_STATES
    text = options["states"]
    known, unknown = parse_states(text)
    if unknown:
        for line in unknown_state_lines(unknown):
            context.error(line)
        context.err("\n")
        raise AlreadyReported
    return known


def targets(text: str, *, steps: bool = False) -> tuple[JobTarget, ...]:
    """Parse the list of `--jobs` or `--steps`. Raises SpritzError in squeue's words."""
    if not text:
        return ()
    from spritz.notation import jobid

    job_targets = []
    for word in split_ids(text):
        try:
            reference = jobid.parse(word)
        except jobid.JobIdError as error:
            raise SpritzError(f"Invalid job_step id: {word}.??" if steps else f"Invalid job id: {word}") from error
        if steps and reference.step is None:
            raise SpritzError(f"Invalid job_step id: {word}.??")
        tasks = "" if reference.task_ids is None else format(reference.task_ids, "x")
        job_targets.append(JobTarget(reference.job_id, tasks, reference.step, reference.component))
    return tuple(job_targets)


def build_filter(options: Given, context: Context) -> JobFilter:
    """The filter of the query. Raises SpritzError for a bad value."""
    numbers, others = users(options, context)
    nodes: tuple[str, ...] = ()
    if options.get("nodelist"):
        nodes = tuple(expand(options["nodelist"]))
    return JobFilter(
        targets=targets(options.get("jobs", "")),
        users=() if others else numbers,
        accounts=words(options.get("account", "")),
        names=words(options.get("name", "")),
        partitions=words(options.get("partition", "")),
        qos=words(options.get("qos", "")),
        states=states(options, context),
        nodes=nodes,
        reservation=options.get("reservation", ""),
        licenses=words(options.get("licenses", "")),
    )


def iterate_seconds(text: str, context: Context) -> int:
    """Parse --iterate: seconds between listings. Raises AlreadyReported after squeue's message."""
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0 and len(text) < 9):
        context.error(f"--iterate={text}\n")
        raise AlreadyReported
    return int(text)


#: Options allowed with --only-job-state, whose answer has only ids and states.
ONLY_STATE_OPTIONS = frozenset(
    {
        "only-job-state",
        "jobs",
        "states",
        "format",
        "Format",
        "noheader",
        "json",
        "array",
        "array-unique",
        "iterate",
        "sort",
        "verbose",
    }
)


def check_only_state(options: Given) -> None:
    """Raises SpritzError for an option that needs more than ids and states."""
    for key in options:
        if key not in ONLY_STATE_OPTIONS:
            raise SpritzError(f"--only-job-state cannot be used with --{key}")
