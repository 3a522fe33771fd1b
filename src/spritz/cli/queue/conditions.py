"""Options and `SQUEUE_*` variables of squeue as one question to the controller.

The command line beats the environment. Source: squeue(1).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.already_reported import AlreadyReported
from spritz.cli.options import Fatal
from spritz.model.commands.job import JobFilter, JobTarget
from spritz.model.errors import SpritzError
from spritz.notation.hostlist import expand
from spritz.presentation.job_states import DEFAULT_STATES, parse_states, unknown_state_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spritz.cli.context import Context
    from spritz.cli.options import Row

    Given = Mapping[str, str]


def merge(found: Sequence[tuple[str, str | None]], rows: Sequence[Row], context: Context) -> dict[str, str]:
    """Options by name, the last one of a kind counting, with the environment's where the command line has none.

    Flags have the value "". `--steps` without a list is "". --yaml is another form of --json.
    """
    given = {row.key: context.environ[row.env] for row in rows if row.env and row.env in context.environ}
    if "Format" in given:
        given.pop("format", None)
    for key, value in found:
        if key in ("format", "Format"):  # the last of the two forms counts
            given.pop("format", None)
            given.pop("Format", None)
        if key == "yaml":
            given["json"] = "yaml=" + (value or "")
            continue
        given[key] = value or ""
    return given


def check_displaced(found: Sequence[tuple[str, str | None]], context: Context) -> None:
    """Slurm reads every list of states and jobs, also those that a later one displaces. Raises as reading them does."""
    given = dict(found)
    for key, value in found:
        if value and value != given[key]:
            if key == "states":
                states({key: value}, context)
            elif key in ("jobs", "steps"):
                targets(value, steps=key == "steps")


def check_form(found: Sequence[tuple[str, str | None]], both: Sequence[str]) -> None:
    """--long has a form of its own, and goes with none of the options in `both`. Raises Fatal."""
    keys = {key for key, _ in found}
    if "long" in keys and keys & set(both):
        text = "Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry."
        raise Fatal(text)


def check_formats(found: Sequence[tuple[str, str | None]]) -> None:
    """-o and -O exclude each other on one command line. Raises SpritzError, with the later one first."""
    spelling = {"format": "-o (--format)", "Format": "-O (--Format)"}
    order = list(dict.fromkeys(key for key, _ in found if key in spelling))
    if len(order) == 2:
        raise SpritzError(f"{spelling[order[1]]} is incompatible with {spelling[order[0]]}")


def words(text: str) -> tuple[str, ...]:
    """Items of a comma list; empty ones do not count."""
    return tuple(item for item in text.split(",") if item)


def users(given: Given, context: Context) -> tuple[tuple[int, ...], bool]:
    """Numbers of the users asked for, and whether jobs of everybody else are meant (--notme).

    Unknown names are reported, and match nothing.
    """
    if "me" in given or "notme" in given:
        return (os.getuid(),), "notme" in given
    if "user" not in given:
        return (), False
    from spritz.presentation.users import name_of, uid_of

    numbers = []
    for name in words(given["user"]):
        uid = uid_of(name)
        if uid is None or (name.isdigit() and name_of(uid) == name):
            context.error(f"Invalid user: {name}\n")
        else:
            numbers.append(uid)
    return tuple(numbers) or (-1,), False


def states(given: Given, context: Context) -> tuple[str, ...]:
    """State and flag names; empty means all. Raises SpritzError after the lines that explain it."""
    if "states" not in given:
        return ("PENDING",) if "start" in given else DEFAULT_STATES
    text = given["states"]
    wanted, unknown = parse_states(text)
    if unknown:
        for line in unknown_state_lines(unknown):
            context.error(line)
        context.err("\n")
        raise AlreadyReported
    return wanted


def targets(text: str, *, steps: bool = False) -> tuple[JobTarget, ...]:
    """`--jobs` or `--steps`. Raises SpritzError in squeue's words."""
    if not text:
        return ()
    from spritz.notation import jobid

    found = []
    for word in split_ids(text):
        try:
            reference = jobid.parse(word)
        except jobid.JobIdError as error:
            raise SpritzError(f"Invalid job_step id: {word}.??" if steps else f"Invalid job id: {word}") from error
        if steps and reference.step is None:
            raise SpritzError(f"Invalid job_step id: {word}.??")
        tasks = "" if reference.task_ids is None else format(reference.task_ids, "x")
        found.append(JobTarget(reference.job_id, tasks, reference.step, reference.component))
    return tuple(found)


def split_ids(text: str) -> list[str]:
    """At commas outside brackets; empty items do not count."""
    items: list[str] = []
    depth, start = 0, 0
    for position, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth <= 0:
            items.append(text[start:position])
            start = position + 1
    items.append(text[start:])
    return [item for item in items if item]


def build_filter(given: Given, context: Context) -> JobFilter:
    """What the controller is asked to look for. Raises SpritzError for what is not understood."""
    numbers, others = users(given, context)
    nodes: tuple[str, ...] = ()
    if given.get("nodelist"):
        nodes = tuple(expand(given["nodelist"]))
    return JobFilter(
        targets=targets(given.get("jobs", "")),
        users=() if others else numbers,
        accounts=words(given.get("account", "")),
        names=words(given.get("name", "")),
        partitions=words(given.get("partition", "")),
        qos=words(given.get("qos", "")),
        states=states(given, context),
        nodes=nodes,
        reservation=given.get("reservation", ""),
        licenses=words(given.get("licenses", "")),
    )


def iterate_seconds(text: str, context: Context) -> int:
    """Seconds between listings. Raises AlreadyReported after squeue's line."""
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0 and len(text) < 9):
        context.error(f"--iterate={text}\n")
        raise AlreadyReported
    return int(text)


#: what --only-job-state goes together with; its answer is ids and states
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


def check_only_state(given: Given) -> None:
    """Raises SpritzError for an option that needs more than ids and states."""
    for key in given:
        if key not in ONLY_STATE_OPTIONS:
            raise SpritzError(f"--only-job-state cannot be used with --{key}")
