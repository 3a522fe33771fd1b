"""Reasons, states, times and amounts as people read them."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime

#: squeue's REASON -> what it means. Source: squeue(1), JOB REASON CODES.
REASONS: dict[str, str] = {
    "None": "has not been looked at yet",
    "Resources": "next in line; waits for resources that other jobs have",
    "Priority": "jobs of higher priority are ahead",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "waits for a job that ended otherwise, so it never starts",
    "JobHeldUser": "held by its user",
    "JobHeldAdmin": "held by an administrator",
    "BeginTime": "must not start before its begin time",
    "ReqNodeNotAvail": "a node that it names is not available",
    "Reservation": "waits for its reservation to begin",
    "ReservationDeleted": "its reservation has been deleted",
    "PartitionDown": "its partition starts no jobs now",
    "PartitionInactive": "its partition takes no jobs now",
    "PartitionNodeLimit": "asks for more nodes than its partition allows",
    "PartitionTimeLimit": "asks for more time than its partition allows",
    "Licenses": "waits for licenses",
    "JobArrayTaskLimit": "so many tasks of its array may run at a time",
    "BadConstraints": "no node can ever meet what it asks for",
    "NodeDown": "a node that it needs is down",
    "InvalidQOS": "its QOS is not valid any more",
    "InvalidAccount": "its account is not valid any more",
    "MaxJobsPerAccount": "its account runs as many jobs as it may",
    "QOSMaxJobsPerUserLimit": "its user runs as many jobs as the QOS allows",
    "QOSMaxGRESPerUser": "its user has as many GPUs as the QOS allows",
    "QOSMaxCpuPerUserLimit": "its user has as many CPUs as the QOS allows",
    "AssocGrpGRES": "its account has as many GPUs as it may",
    "AssocGrpCpuLimit": "its account has as many CPUs as it may",
    "AssocMaxJobsLimit": "its account runs as many jobs as it may",
    "Prolog": "its nodes are being prepared",
    "Cleaning": "its nodes are being cleaned after its last life",
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
    """What a reason means; a limit that is not in the table in general words."""
    text = REASONS.get(reason, "")
    if not text:
        match = _LIMIT.match(reason)
        text = f"a limit of its {'QOS' if match[1] == 'QOS' else 'account'} is reached" if match else reason
    return f"{text}: {detail}" if detail and detail != reason else text


def span(seconds: float) -> str:
    """`3 d 4 h`, `2 h 05 min`, `12 min`, `40 s`."""
    seconds = max(0, int(seconds))
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes = rest // 60
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
    """`2026-11-23 14:05:09`, local time."""
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}" if at else "—"


def ago(at: float, now: float) -> str:
    """`in 12 min`, `3 h 05 min ago`."""
    if not at:
        return "—"
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} ago"


def memory(mib: float | None) -> str:
    """`512 MiB`, `64 GiB`, `1.5 TiB`."""
    if mib is None:
        return "—"
    for unit in ("MiB", "GiB", "TiB"):
        if mib < 1024 or unit == "TiB":
            return f"{mib:.0f} {unit}" if mib >= 10 or mib == int(mib) else f"{mib:.1f} {unit}"
        mib /= 1024
    raise AssertionError


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 node`, `12 nodes`, `10,000 jobs`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def number(value: float | None) -> str:
    """A metric: four digits that count."""
    if value is None:
        return "—"
    if abs(value) < 1e15 and (abs(value) >= 1000 or value == int(value)):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def event(kind: str) -> str:
    """`JobNodeGone` as `Job node gone`."""
    return re.sub(r"(?<!^)([A-Z])", lambda match: " " + match[1].lower(), kind)


def visible(text: str, length: int = 400) -> str:
    """Text from a user, on one line: control and direction characters as `�`, and no longer than `length`.

    So no name reverses the page around it, or is taller or wider than a page can bear.
    """
    shown = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(sign) in _UNSEEN else sign for sign in text[: length + 1]
    )
    return shown if len(shown) <= length else shown[:length] + "…"


#: control, format (direction marks among them), surrogate, private use, and the separators of lines and paragraphs
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})

#: state of a job -> (class of colour, words)
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

#: condition of a node -> words
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
    """Class of colour, words."""
    return STATES.get(name.partition(" ")[0], ("end", name.replace("_", " ").capitalize()))
