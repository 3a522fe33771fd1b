"""sacct's options as one question. Source: sacct(1), DEFAULT TIME WINDOW."""

from __future__ import annotations

import grp
import os
from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.options import Fatal, split_ids
from spritz.cli.listings.queue.conditions import words
from spritz.model.accounting.records import JobPick, SelectJobs
from spritz.model.errors import SpritzError
from spritz.notation import jobid
from spritz.notation.duration import DurationError, parse_minutes
from spritz.notation.hostlist import expand
from spritz.presentation.job.job_states import state_named
from spritz.presentation.users import uid_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spritz.cli.call.context import Context

    Given = Mapping[str, str]


class Question:
    """The query, the window for --truncate, and steps requested by number."""

    def __init__(self, query: SelectJobs, window: tuple[float, float], steps: dict[int, set[int]]) -> None:
        self.query = query
        self.window = window
        #: job id -> the steps that are wanted of it; a job that is not in it has all of them shown
        self.steps = steps


#: options whose lists add up if they are repeated; those of squeue replace the earlier ones
_LISTS = frozenset(
    {"accounts", "associations", "constraints", "flags", "format", "gid", "jobs", "name", "partition", "qos", "reason"}
    | {"state", "uid", "wckeys"}
)


def gathered(parsed: Sequence[tuple[str, str | None]], context: Context) -> list[tuple[str, str | None]]:
    """Merges list options given in several parts. Raises AlreadyReported for nodes that are given twice."""
    lists: dict[str, str] = {}
    for key, value in parsed:
        if key in _LISTS and value:
            lists[key] = f"{lists[key]},{value}" if key in lists else value
    nodes = [value for key, value in parsed if key == "nodelist"]
    if len(nodes) > 1:
        context.error(f"Already asked for nodes '{nodes[0]}'")
        raise AlreadyReported
    return [(key, lists.get(key, value)) for key, value in parsed]


def build(options: Given, cluster: str, now: float, context: Context) -> Question:
    """The complete query. Raises SpritzError, or AlreadyReported after an error line."""
    picks = picks_of(options.get("jobs", ""))
    states = states_named(options.get("state", ""))
    start, end = window(options, now, context)
    steps: dict[int, set[int]] = {}
    for pick in picks:
        if pick.step_id is not None:
            steps.setdefault(pick.job_id + (pick.het_offset or 0), set()).add(pick.step_id)
    for pick in picks:  # `-j 12,12.0`, or -X: the whole job is wanted too
        if pick.step_id is None or "allocations" in options:
            steps.pop(pick.job_id + (pick.het_offset or 0), None)
    cpus, nodes = _range(options, "ncpus", "cpu"), _range(options, "nnodes", "node")
    low, high = _limit(options, "timelimit-min"), _limit(options, "timelimit-max")
    query = SelectJobs(
        clusters=_clusters(options, cluster),
        picks=picks,
        users=_users(options, context, picked=bool(picks)),
        groups=groups_named(words(options.get("gid", "")), context),
        accounts=tuple(word.lower() for word in words(options.get("accounts", ""))),
        partitions=words(options.get("partition", "")),
        qos=words(options.get("qos", "")),
        wckeys=words(options.get("wckeys", "")),
        names=words(options.get("name", "")),
        states=states,
        nodes=nodes_named(options.get("nodelist", "")),
        reasons=words(options.get("reason", "")),
        constraints=words(options.get("constraints", "")),
        associations=_numbers(options.get("associations", "")),
        schedulers=_schedulers(options.get("flags", "")),
        starts_at=start,
        ends_at=end,
        cpus_min=cpus[0],
        cpus_max=cpus[1],
        nodes_min=nodes[0],
        nodes_max=nodes[1],
        # Only a lower bound: exactly this limit.
        time_limit_min=low,
        time_limit_max=high if low is not None and high is not None else low,
        duplicates="duplicates" in options,
        # What waits has no steps, and 22.05 lists none of a job that has waited.
        steps=("allocations" not in options or "json" in options) and states != ("PENDING",),
        not_eligible=bool(picks) and not states,
    )
    cut = (start or 0.0, end or 0.0) if "truncate" in options else (0.0, 0.0)
    return Question(query, cut, steps)


def window(options: Given, now: float, context: Context) -> tuple[float | None, float | None]:
    """--starttime and --endtime, or their defaults. Raises AlreadyReported after an error about a wrong one."""
    # An empty one, as of an empty variable, is none.
    start = _time(options["starttime"], now, context) if options.get("starttime") else None
    end = _time(options["endtime"], now, context) if options.get("endtime") else None
    picked, by_state = "jobs" in options, bool(words(options.get("state", "")))
    if start is None and not picked:
        if not by_state:
            start = _midnight(now)
        else:
            start = now
    if end is None:
        end = start if by_state and options.get("starttime") else now
    if start is not None and end is not None and start > end:
        context.error("Start time (%s) requested is after end time (%s)." % _shown(start, end))  # noqa: UP031
        raise AlreadyReported
    return start, end


def _shown(start: float, end: float) -> tuple[str, str]:
    from spritz.notation.times import format_time

    return format_time(start), format_time(end)


def _time(text: str, now: float, context: Context) -> float:
    from spritz.notation.times import TimeError, parse_time

    try:
        return parse_time(text, now, future=False)
    except TimeError as error:
        context.err(f"{error}\n")
        raise AlreadyReported from error


def _midnight(now: float) -> float:
    from spritz.notation.times import parse_time

    return parse_time("today", now, future=False)


def picks_of(text: str) -> tuple[JobPick, ...]:
    """A list of jobs, array tasks and steps. Raises SpritzError."""
    picks = []
    for word in split_ids(text):
        try:
            reference = jobid.parse(word)
        except jobid.JobIdError as error:
            raise Fatal(f"Bad job/step specified: {word}") from error
        tasks = "" if reference.task_ids is None else format(reference.task_ids, "x")
        picks.append(JobPick(reference.job_id, tasks, reference.step, reference.component))
    return tuple(picks)


def _numbers(text: str) -> tuple[int, ...]:
    """Association ids; -1, which matches none, for anything that is not a 32-bit number."""
    return tuple(int(word) if word.isascii() and word.isdigit() and len(word) <= 10 else -1 for word in words(text))


#: sacct's --flags -> what started the jobs; "" is all of them
_FLAGS = {"schedsubmit": "Submit", "schedmain": "Main", "schedbackfill": "Backfill", "startrecieved": ""}


def _schedulers(text: str) -> tuple[str, ...]:
    schedulers = []
    for word in words(text):
        if word.lower() not in _FLAGS:
            raise SpritzError(f"str_2_job_flags: Invalid job flag {word}")
        schedulers.append(_FLAGS[word.lower()])
    return () if "" in schedulers else tuple(schedulers)


def states_named(text: str) -> tuple[str, ...]:
    """A list of states, by their names or letters. Raises Fatal."""
    states = []
    for word in words(text):
        name = state_named(word)
        if name is None:
            raise Fatal(f"unrecognized job state value '{word}'")
        states.append(name)
    return tuple(states)


def _clusters(options: Given, cluster: str) -> tuple[str, ...]:
    if "allclusters" in options or options.get("clusters") in ("all", "-1"):
        return ()
    if "clusters" in options:
        return tuple(word.lower() for word in words(options["clusters"]))
    return (cluster,)


def _users(options: Given, context: Context, *, picked: bool) -> tuple[int, ...]:
    if "allusers" in options:
        return ()
    if "uid" in options:
        return users_named(words(options["uid"]), context)
    uid = os.getuid()
    return () if picked or uid == 0 else (uid,)


def users_named(names: Sequence[str], context: Context) -> tuple[int, ...]:
    """Their uids. Raises AlreadyReported after an error about an unknown name."""
    numbers = []
    for word in names:
        number = uid_of(word)
        if number is None:
            context.error(f"Invalid user id: {word}")
            raise AlreadyReported
        numbers.append(number)
    return tuple(numbers)


def groups_named(names: Sequence[str], context: Context) -> tuple[int, ...]:
    """Group ids of names and numbers. Raises AlreadyReported after an error about an unknown name."""
    numbers = []
    for word in names:
        try:
            is_number = word.isascii() and word.isdigit() and len(word) <= 10
            numbers.append(int(word) if is_number else grp.getgrnam(word).gr_gid)
        except (KeyError, ValueError) as error:
            context.error(f"Invalid group id: {word}")
            raise AlreadyReported from error
    return tuple(numbers)


def nodes_named(text: str) -> tuple[str, ...]:
    """The nodes of a host list. Raises NotationError."""
    if not text:
        return ()

    return tuple(expand(text))


def _range(options: Given, option: str, what: str) -> tuple[int | None, int | None]:
    """`4` or `2-8`; 0 is no condition."""
    if options.get(option, "0") == "0":
        return None, None
    low, dash, high = options[option].partition("-")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in ((low, high) if dash else (low,))):
        raise SpritzError(f'Invalid numeric value "{options[option]}" for requested {what} range.')
    return int(low), int(high) if dash else int(low)


def _limit(options: Given, option: str) -> int | None:
    if option not in options:
        return None

    try:
        return parse_minutes(options[option])
    except DurationError as error:
        raise Fatal("Invalid time limit specification") from error
