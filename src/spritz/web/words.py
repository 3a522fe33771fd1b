"""Reasons, states, times and amounts as text for pages."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime

#: squeue's REASON -> explanation. Source: squeue(1), JOB REASON CODES.
REASONS: dict[str, str] = {
    "None": "not considered by the scheduler yet",
    "Resources": "next in line; waits for resources that other jobs hold",
    "Priority": "jobs of higher priority are ahead",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "its dependency can never be satisfied, so it never starts",
    "JobHeldUser": "held by its user",
    "JobHeldAdmin": "held by an administrator",
    "BeginTime": "must not start before its begin time",
    "ReqNodeNotAvail": "a node that it names is not available",
    "Reservation": "waits for its reservation to begin",
    "ReservationDeleted": "its reservation has been deleted",
    "PartitionDown": "its partition starts no jobs now",
    "PartitionInactive": "its partition takes no jobs now",
    "PartitionNodeLimit": "requests more nodes than its partition allows",
    "PartitionTimeLimit": "requests more time than its partition allows",
    "Licenses": "waits for licenses",
    "JobArrayTaskLimit": "the maximum number of its array's tasks is running",
    "BadConstraints": "no node can ever satisfy the request",
    "NodeDown": "a node that it needs is down",
    "InvalidQOS": "its QOS is not valid any more",
    "InvalidAccount": "its account is not valid any more",
    "MaxJobsPerAccount": "its account is at its limit of running jobs",
    "QOSMaxJobsPerUserLimit": "its user is at the QOS's limit of running jobs",
    "QOSMaxGRESPerUser": "its user is at the QOS's limit of GPUs",
    "QOSMaxCpuPerUserLimit": "its user is at the QOS's limit of CPUs",
    "AssocGrpGRES": "its account is at its limit of GPUs",
    "AssocGrpCpuLimit": "its account is at its limit of CPUs",
    "AssocMaxJobsLimit": "its account is at its limit of running jobs",
    "Prolog": "its nodes are being prepared",
    "Cleaning": "its nodes are being cleaned up after its previous run",
    "FailedLaunch": "could not be launched",
    "JobLaunchFailure": "could not be launched",
    "NonZeroExitCode": "ended with an error",
    "TimeLimit": "reached its time limit",
    "NodeFailure": "its node failed",
    "OutOfMemory": "ran out of memory",
    "SystemFailure": "the system failed",
}

_LIMIT = re.compile(r"(QOS|Assoc)(Grp|Max|Min)?(.*?)(Limit)?\Z")


def reason_text(reason: str, detail: str = "") -> str:
    """The explanation of a reason; a general text for limits that are not in the table."""
    text = REASONS.get(reason, "")
    if not text:
        match = _LIMIT.match(reason)
        text = f"a limit of its {'QOS' if match[1] == 'QOS' else 'account'} is reached" if match else reason
    return f"{text}: {detail}" if detail and detail != reason else text


def span(seconds: float) -> str:
    """A duration: `3 d 4 h`, `2 h 05 min`, `12 min`, `40 s`."""
    seconds = max(0, int(seconds))
    days, remainder = divmod(seconds, 86_400)
    hours, remainder = divmod(remainder, 3600)
    minutes = remainder // 60
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min" if minutes else f"{seconds} s"


def limit(minutes: int | None) -> str:
    """A time limit; Slurm's INFINITE is `no limit`."""
    if minutes is None:
        return "—"
    return "no limit" if minutes >= 0xFFFFFFFE else span(minutes * 60)


def clock(at: float, now: float) -> str:
    """`14:05` today, `Mon 14:05` within a week, else the date; local time."""
    if not at:
        return "—"
    moment, today = datetime.fromtimestamp(at), datetime.fromtimestamp(now)
    if moment.date() == today.date():
        return f"{moment:%H:%M}"
    return f"{moment:%a %H:%M}" if abs(at - now) < 6 * 86_400 else f"{moment:%Y-%m-%d %H:%M}"


def whole(at: float) -> str:
    """Local date and time, `2026-11-23 14:05:09`; a dash for 0."""
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}" if at else "—"


def ago(at: float, now: float) -> str:
    """A time relative to `now`: `in 12 min`, `3 h 05 min ago`."""
    if not at:
        return "—"
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} ago"


def memory(mib: float | None) -> str:
    """An amount of memory: `512 MiB`, `64 GiB`, `1.5 TiB`."""
    if mib is None:
        return "—"
    for unit in ("MiB", "GiB", "TiB"):
        if mib < 1024 or unit == "TiB":
            return f"{mib:.0f} {unit}" if mib >= 10 or mib == int(mib) else f"{mib:.1f} {unit}"
        mib /= 1024
    raise AssertionError


def size(count: int) -> str:
    """The size of a file: `9 B`, `12 KiB`, `1.5 GiB`."""
    return f"{count} B" if count < 1024 else f"{count / 1024:.0f} KiB" if count < 1 << 20 else memory(count / (1 << 20))


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 node`, `12 nodes`, `10,000 jobs`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def number(value: float | None) -> str:
    """A metric with four significant digits."""
    if value is None:
        return "—"
    if abs(value) < 1e15 and (abs(value) >= 1000 or value == int(value)):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def event(kind: str) -> str:
    """An event's name as text: `JobNodeGone` becomes `Job node gone`."""
    return re.sub(r"(?<!^)([A-Z])", lambda match: " " + match[1].lower(), kind)


def visible(text: str, length: int = 400) -> str:
    """Text from a user on a single line, cut to `length`, with `�` for control and direction characters.

    So a name can neither reverse the text around it nor break the page's layout.
    """
    shown = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(sign) in _UNSEEN else sign for sign in text[: length + 1]
    )
    return shown if len(shown) <= length else shown[:length] + "…"


#: Unicode categories: control, format (with direction marks), surrogate, private use, line and paragraph separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})

#: State of a job -> (class of colour, text).
STATES: dict[str, tuple[str, str]] = {
    "PENDING": ("wait", "Pending"),
    "RUNNING": ("run", "Running"),
    "SUSPENDED": ("pause", "Suspended"),
    "COMPLETING": ("run", "Completing"),
    "CONFIGURING": ("run", "Configuring"),
    "COMPLETED": ("good", "Completed"),
    "CANCELLED": ("end", "Cancelled"),
    "FAILED": ("bad", "Failed"),
    "TIMEOUT": ("bad", "Time limit"),
    "NODE_FAIL": ("bad", "Node failed"),
    "OUT_OF_MEMORY": ("bad", "Out of memory"),
    "BOOT_FAIL": ("bad", "Boot failed"),
    "DEADLINE": ("bad", "Deadline"),
    "PREEMPTED": ("pause", "Preempted"),
    "PAUSED": ("pause", "Paused"),
    "CREATED": ("wait", "Created"),
    "REQUEUED": ("wait", "Requeued"),
}

#: Condition of a node -> text.
CONDITIONS: dict[str, str] = {
    "idle": "Idle",
    "mixed": "Partly in use",
    "alloc": "Fully in use",
    "reserved": "Reserved",
    "power": "Powered down",
    "maint": "Maintenance",
    "drain": "Draining",
    "down": "Down",
}


def state(name: str) -> tuple[str, str]:
    """(class of colour, text) of a job's state."""
    return STATES.get(name.partition(" ")[0], ("end", name.replace("_", " ").capitalize()))
