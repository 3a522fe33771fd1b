"""sacct's options as one question. Source: sacct(1), DEFAULT TIME WINDOW."""

from __future__ import annotations

import grp
import os
from typing import TYPE_CHECKING

from spritz.cli.already_reported import AlreadyReported
from spritz.cli.options import Fatal
from spritz.cli.queue.conditions import split_ids, words
from spritz.model.accounting import JobPick, SelectJobs
from spritz.model.errors import SpritzError
from spritz.notation import jobid
from spritz.notation.duration import DurationError, parse_minutes
from spritz.notation.hostlist import expand
from spritz.presentation.job_states import state_named
from spritz.presentation.users import uid_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spritz.cli.context import Context

    Given = Mapping[str, str]


class Question:
    """The query, the window for --truncate, and steps requested by number."""

    def __init__(self, query: SelectJobs, window: tuple[float, float], steps: dict[int, set[int]]) -> None:
        self.query = query
        self.window = window
        #: job id -> the steps that are wanted of it; a job that is not in it has all of them shown
        self.steps = steps


#: what every further -s and the like adds to, where squeue's takes the place of the one before
_LISTS = frozenset(
    {"accounts", "associations", "constraints", "flags", "format", "gid", "jobs", "name", "partition", "qos", "reason"}
    | {"state", "uid", "wckeys"}
)


def gathered(found: Sequence[tuple[str, str | None]], context: Context) -> list[tuple[str, str | None]]:
    """Merges list options given in several parts. Raises AlreadyReported for nodes that are given twice."""
    lists: dict[str, str] = {}
    for key, value in found:
        if key in _LISTS and value:
            lists[key] = f"{lists[key]},{value}" if key in lists else value
    nodes = [value for key, value in found if key == "nodelist"]
    if len(nodes) > 1:
        context.error(f"Already asked for nodes '{nodes[0]}'")
        raise AlreadyReported
    return [(key, lists.get(key, value)) for key, value in found]


def build(given: Given, cluster: str, now: float, context: Context) -> Question:
    """The complete query. Raises SpritzError, or AlreadyReported after an error line."""
    picks = picks_of(given.get("jobs", ""))
    states = states_named(given.get("state", ""))
    start, end = window(given, now, context)
    steps: dict[int, set[int]] = {}
    for pick in picks:
        if pick.step_id is not None:
            steps.setdefault(pick.job_id + (pick.het_offset or 0), set()).add(pick.step_id)
    for pick in picks:  # `-j 12,12.0`, or -X: the whole job is wanted too
        if pick.step_id is None or "allocations" in given:
            steps.pop(pick.job_id + (pick.het_offset or 0), None)
    cpus, nodes = _range(given, "ncpus", "cpu"), _range(given, "nnodes", "node")
    low, high = _limit(given, "timelimit-min"), _limit(given, "timelimit-max")
    query = SelectJobs(
        clusters=_clusters(given, cluster),
        picks=picks,
        users=_users(given, context, picked=bool(picks)),
        groups=groups_named(words(given.get("gid", "")), context),
        accounts=tuple(word.lower() for word in words(given.get("accounts", ""))),
        partitions=words(given.get("partition", "")),
        qos=words(given.get("qos", "")),
        wckeys=words(given.get("wckeys", "")),
        names=words(given.get("name", "")),
        states=states,
        nodes=nodes_named(given.get("nodelist", "")),
        reasons=words(given.get("reason", "")),
        constraints=words(given.get("constraints", "")),
        associations=_numbers(given.get("associations", "")),
        schedulers=_schedulers(given.get("flags", "")),
        starts_at=start,
        ends_at=end,
        cpus_min=cpus[0],
        cpus_max=cpus[1],
        nodes_min=nodes[0],
        nodes_max=nodes[1],
        # Only a lower bound: exactly this limit.
        time_limit_min=low,
        time_limit_max=high if low is not None and high is not None else low,
        duplicates="duplicates" in given,
        # What waits has no steps, and 22.05 lists none of a job that has waited.
        steps=("allocations" not in given or "json" in given) and states != ("PENDING",),
        not_eligible=bool(picks) and not states,
    )
    cut = (start or 0.0, end or 0.0) if "truncate" in given else (0.0, 0.0)
    return Question(query, cut, steps)


def window(given: Given, now: float, context: Context) -> tuple[float | None, float | None]:
    """--starttime and --endtime, or their defaults. Raises AlreadyReported after an error about a wrong one."""
    # An empty one, as of an empty variable, is none.
    start = _time(given["starttime"], now, context) if given.get("starttime") else None
    end = _time(given["endtime"], now, context) if given.get("endtime") else None
    picked, by_state = "jobs" in given, bool(words(given.get("state", "")))
    if start is None and not picked:
        if not by_state:
            start = _midnight(now)
        else:
            start = now
    if end is None:
        end = start if by_state and given.get("starttime") else now
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
    found = []
    for word in split_ids(text):
        try:
            reference = jobid.parse(word)
        except jobid.JobIdError as error:
            raise Fatal(f"Bad job/step specified: {word}") from error
        tasks = "" if reference.task_ids is None else format(reference.task_ids, "x")
        found.append(JobPick(reference.job_id, tasks, reference.step, reference.component))
    return tuple(found)


def _numbers(text: str) -> tuple[int, ...]:
    """Association ids; -1, which matches none, for anything that is not a 32-bit number."""
    return tuple(int(word) if word.isascii() and word.isdigit() and len(word) <= 10 else -1 for word in words(text))


#: sacct's --flags -> what started the jobs; "" is all of them
_FLAGS = {"schedsubmit": "Submit", "schedmain": "Main", "schedbackfill": "Backfill", "startrecieved": ""}


def _schedulers(text: str) -> tuple[str, ...]:
    found = []
    for word in words(text):
        if word.lower() not in _FLAGS:
            raise SpritzError(f"str_2_job_flags: Invalid job flag {word}")
        found.append(_FLAGS[word.lower()])
    return () if "" in found else tuple(found)


def states_named(text: str) -> tuple[str, ...]:
    """A list of states, by their names or letters. Raises Fatal."""
    found = []
    for word in words(text):
        name = state_named(word)
        if name is None:
            raise Fatal(f"unrecognized job state value '{word}'")
        found.append(name)
    return tuple(found)


def _clusters(given: Given, cluster: str) -> tuple[str, ...]:
    if "allclusters" in given or given.get("clusters") in ("all", "-1"):
        return ()
    if "clusters" in given:
        return tuple(word.lower() for word in words(given["clusters"]))
    return (cluster,)


def _users(given: Given, context: Context, *, picked: bool) -> tuple[int, ...]:
    if "allusers" in given:
        return ()
    if "uid" in given:
        return users_named(words(given["uid"]), context)
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
    """As `users_named`."""
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


def _range(given: Given, option: str, what: str) -> tuple[int | None, int | None]:
    """`4` or `2-8`; 0 is no condition."""
    if given.get(option, "0") == "0":
        return None, None
    low, dash, high = given[option].partition("-")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in ((low, high) if dash else (low,))):
        raise SpritzError(f'Invalid numeric value "{given[option]}" for requested {what} range.')
    return int(low), int(high) if dash else int(low)


def _limit(given: Given, option: str) -> int | None:
    if option not in given:
        return None

    try:
        return parse_minutes(given[option])
    except DurationError as error:
        raise Fatal("Invalid time limit specification") from error
