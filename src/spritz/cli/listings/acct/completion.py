"""`sacct --completion` and `--file`: jobs of the job completion log, read line by line.

A line has the form of `JobCompType=jobcomp/filetxt`, Slurm's or ours. A value ends where the next key of its line
begins, so names and directories may hold blanks. Fields that the log has nothing of are empty.

Source: sacct(1) --completion, --file; columns as 22.05 has them. Differs: that release heeds --jobs and --partition and
passes over every other condition; here they hold, or are refused by name.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.options import Fatal
from spritz.cli.listings.acct import conditions
from spritz.cli.listings.queue.conditions import words
from spritz.client.locate import read_keys
from spritz.model.accounting.records import JobRecord
from spritz.model.errors import SpritzError
from spritz.model.ids import INFINITE
from spritz.notation.duration import DurationError, parse_minutes
from spritz.notation.times import TimeError, parse_time
from spritz.presentation.accounting.accounting_row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spritz.cli.call.context import Context
    from spritz.cli.listings.acct.listing import RowListing

DEFAULT = "jobid,uid,jobname,partition,nnodes,nodelist,state,end"
LONG = "jobid,uid,jobname,partition,nnodes,nodelist,state,start,end,timelimit"
BRIEF = "jobid,uid,state"

#: slurm.conf(5) JobCompLoc
_DEFAULT_PATH = "/var/log/slurm_jobcomp.log"

#: Keys of a line, in their order; some releases leave some out.
_KEYS = (
    *("JobId", "UserId", "GroupId", "Name", "JobState", "Partition", "TimeLimit", "StartTime", "EndTime", "NodeList"),
    *("NodeCnt", "ProcCnt", "WorkDir", "ReservationName", "Gres", "Tres", "Account", "QOS", "WcKey", "Cluster"),
    *("SubmitTime", "EligibleTime", "ArrayJobId", "ArrayTaskId", "HetJobId", "HetJobOffset"),
    *("DerivedExitCode", "ExitCode"),
)
_KEY = re.compile(rf"(?:^| )({'|'.join(_KEYS)})=")
_PLACES = {key: place for place, key in enumerate(_KEYS)}

#: options that the completion log cannot answer
_REFUSED = (
    *("associations", "batch-script", "constraints", "env-vars", "flags", "json", "ncpus", "nnodes", "reason"),
    *("timelimit-max", "timelimit-min", "truncate", "yaml"),
)


def show(options: Mapping[str, str], listing: RowListing, now: float, context: Context) -> int:
    """Print the requested jobs of the log. Raises SpritzError, or AlreadyReported after an error line."""
    for option in _REFUSED:
        if option in options:
            raise Fatal(f"--{option} is not supported with job completion records")
    chosen = _Chosen(options, now, context)
    path = _path(options, context)
    try:
        stream = open(path, encoding="utf-8", errors="surrogateescape", newline="\n")  # noqa: SIM115 - closed below
    except OSError:
        context.err(f"{path} is not a valid file\n")
        return 1
    code = 0
    with stream:
        if "noheader" not in options:
            listing.header()
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            job = record(line, now)
            if job is None:
                context.error(f"{path}: line {number} is no job completion record")
                code = 1
            elif chosen.holds(job):
                listing.row(Row(job, None, [], now, (0.0, 0.0)))
    return code


def _path(options: Mapping[str, str], context: Context) -> str:
    if "file" in options:
        return os.path.join(context.cwd, options["file"])

    keys = read_keys(frozenset(("jobcomptype", "jobcomploc")))
    kind = keys.get("jobcomptype", "").lower().removeprefix("jobcomp/") or "none"
    if kind == "none":
        context.err("Slurm job completion is disabled\n")
        raise AlreadyReported
    if kind != "filetxt":
        raise SpritzError(f"JobCompType=jobcomp/{kind} keeps no file of records: name one with --file")
    return keys.get("jobcomploc") or _DEFAULT_PATH


def record(line: str, now: float) -> JobRecord | None:
    """The job of a line; None if it is not one, or is cut off."""
    fields = dict(_pairs(line.rstrip("\n").rstrip(" ")))
    number = fields.get("JobId", "")
    if not (number.isascii() and number.isdigit() and {"UserId", "JobState", "EndTime"} <= fields.keys()):
        return None
    user, uid = _named(fields["UserId"])
    group, gid = _named(fields.get("GroupId", ""))
    nodes = fields.get("NodeList", "")
    task = fields.get("ArrayTaskId", "")
    return JobRecord(
        number=0,
        job_id=int(number),
        cluster=fields.get("Cluster", ""),
        array_job_id=_count(fields.get("ArrayJobId", "")),
        array_task_id=int(task) if task.isascii() and task.isdigit() else None,
        het_job_id=_count(fields.get("HetJobId", "")),
        uid=uid,
        gid=gid,
        user=user,
        group=group,
        account=fields.get("Account", ""),
        qos=fields.get("QOS", ""),
        wckey=fields.get("WcKey", ""),
        partition=fields.get("Partition", ""),
        reservation=fields.get("ReservationName", ""),
        name=fields.get("Name", ""),
        state=fields["JobState"],
        submitted_at=_time(fields.get("SubmitTime", ""), now),
        eligible_at=_time(fields.get("EligibleTime", ""), now),
        started_at=_time(fields.get("StartTime", ""), now),
        ended_at=_time(fields["EndTime"], now),
        time_limit_minutes=_minutes(fields.get("TimeLimit", "")),
        exit_status=_status(fields.get("ExitCode", "")),
        derived_exit_status=_status(fields.get("DerivedExitCode", "")),
        tres_allocated=fields.get("Tres", ""),
        nodes="" if nodes == "(null)" else nodes,
        node_count=_count(fields.get("NodeCnt", "")),
        cpus=_count(fields.get("ProcCnt", "")),
        work_dir=fields.get("WorkDir", ""),
    )


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    """Pairs in the order of a line's keys; a key out of order or repeated belongs to a value."""
    last, key, start = -1, "", 0
    for match in _KEY.finditer(line):
        place = _PLACES[match[1]]
        if place <= last:
            continue
        if key:
            yield key, line[start : match.start()]
        last, key, start = place, match[1], match.end()
    if key:
        yield key, line[start:]


def _named(text: str) -> tuple[str, int]:
    """`ann(1001)`."""
    name, _, number = text.removesuffix(")").rpartition("(")
    return (name, int(number)) if number.isascii() and number.isdigit() else (text, -1)


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _time(text: str, now: float) -> float:
    if text.lower() in ("", "unknown", "none"):
        return 0.0
    try:
        return parse_time(text, now, future=False)
    except TimeError:
        return 0.0


def _minutes(text: str) -> int | None:
    if text == "UNLIMITED":
        return INFINITE
    try:
        return parse_minutes(text)
    except DurationError:
        return None


def _status(text: str) -> int:
    code, _, signal = text.partition(":")
    return _count(code) << 8 | _count(signal)


class _Chosen:
    """Conditions on jobs. Raises as `conditions` does."""

    def __init__(self, options: Mapping[str, str], now: float, context: Context) -> None:
        self._picks: dict[int, list[int]] = {}
        for pick in conditions.picks_of(options.get("jobs", "")):
            self._picks.setdefault(pick.job_id, []).append(int(pick.tasks or "0", 16))
        users = words(options.get("uid", "")) if "allusers" not in options else ()
        self._among = (
            ("uid", frozenset(conditions.users_named(users, context))),
            ("gid", frozenset(conditions.groups_named(words(options.get("gid", "")), context))),
            ("account", frozenset(word.lower() for word in words(options.get("accounts", "")))),
            ("partition", frozenset(words(options.get("partition", "")))),
            ("qos", frozenset(words(options.get("qos", "")))),
            ("wckey", frozenset(words(options.get("wckeys", "")))),
            ("name", frozenset(words(options.get("name", "")))),
            ("state", frozenset(conditions.states_named(options.get("state", "")))),
            ("cluster", frozenset(word.lower() for word in words(options.get("clusters", "")) if word != "all")),
        )
        self._nodes = frozenset(conditions.nodes_named(options.get("nodelist", "")))
        times = {key: options[key] for key in ("starttime", "endtime") if key in options}
        # Without times the whole log is meant, not today.
        start, end = conditions.window({"jobs": "", **times}, now, context)
        self._start = start if "starttime" in times else None
        self._end = end if "endtime" in times else None

    def holds(self, job: JobRecord) -> bool:
        """Whether the job meets all conditions."""
        if not all(not values or getattr(job, field) in values for field, values in self._among):
            return False
        if self._start is not None and job.ended_at < self._start:
            return False
        if self._end is not None and (job.started_at or job.ended_at) > self._end:
            return False
        if self._picks and not self._picked(job):
            return False
        return not self._nodes or bool(self._nodes.intersection(conditions.nodes_named(job.nodes)))

    def _picked(self, job: JobRecord) -> bool:
        return any(
            not tasks or (job.array_task_id is not None and tasks >> job.array_task_id & 1)
            for number in {job.job_id, job.array_job_id, job.het_job_id}
            for tasks in self._picks.get(number, ())
        )
