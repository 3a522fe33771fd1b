"""Keys of `update JobId=`: what each changes, or why it is refused.

A parser takes the text and returns the changes of `model.commands.UpdateJob`. Source: scontrol(1) JOBS -
SPECIFICATIONS FOR UPDATE COMMAND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError
from spritz.notation.duration import DurationError, parse_minutes, parse_seconds
from spritz.notation.errors import unsigned
from spritz.notation.hostlist import HostlistError, expand
from spritz.notation.mail_types import parse
from spritz.notation.memory import SizeError, parse_mib
from spritz.notation.times import TimeError, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.notation.gres import GresRequest

    Changes = dict[str, object]


class NoChange(SpritzError):
    """As Slurm's scontrol prints it: the error, and that there is nothing to change."""


class NotABoolean(SpritzError):
    """Neither yes nor no; the message is the word."""


class Plain(SpritzError):
    """An error printed without the program's name."""


class Key:
    """`changes` converts the text; `refused`: why the key is not supported. `bare`: a word without a value."""

    __slots__ = ("bare", "changes", "refused")

    def __init__(
        self, changes: Callable[[str], Changes] | None = None, refused: str = "", *, bare: bool = False
    ) -> None:
        self.bare = bare
        self.changes = changes
        self.refused = refused


def number(text: str, what: str, *, low: int = 0) -> int:
    """Raises SpritzError: `Invalid numeric value "abc" for requested node count.`"""
    value = unsigned(text, 0xFFFFFFFD)
    if value is None or value < low:
        raise SpritzError(f'Invalid numeric value "{text}" for {what}.')
    return value


def _text(field: str) -> Key:
    return Key(lambda text: {field: text})


def _count(field: str, what: str, *, low: int = 0, and_given: str = "") -> Key:
    def changes(text: str) -> Changes:
        made: Changes = {field: number(text, what, low=low)}
        if and_given:
            made[and_given] = True
        return made

    return Key(changes)


def _switches(text: str) -> Changes:
    """`COUNT[@TIME]`, as of --switches."""
    count, at, wait = text.partition("@")
    changes: Changes = {"switches": number(count, "Switches") or None}
    if at:
        try:
            changes["switch_wait_seconds"] = parse_seconds(wait)
        except DurationError as error:
            raise SpritzError(str(error)) from error
    return changes


def _yes(text: str) -> bool:
    if text.lower() in ("yes", "y", "1", "true"):
        return True
    if text.lower() in ("no", "n", "0", "false"):
        return False
    raise NotABoolean(text)


def _flag(field: str) -> Key:
    return Key(lambda text: {field: _yes(text)})


def _memory(field: str, others: tuple[str, ...]) -> Key:
    def changes(text: str) -> Changes:
        try:
            value = parse_mib(text)
        except SizeError as error:
            raise SpritzError(f'Invalid memory specification "{text}"') from error
        return {field: value, **dict.fromkeys(others)}

    return Key(changes)


def _disk(text: str) -> Changes:
    try:
        return {"tmp_mib": parse_mib(text)}
    except SizeError as error:
        raise SpritzError(f'Invalid size "{text}"') from error


def _moment(field: str) -> Key:
    def changes(text: str) -> Changes:
        from spritz.runtime.clock import SystemClock

        try:
            return {field: parse_time(text, SystemClock().now())}
        except TimeError as error:
            raise NoChange(str(error)) from error

    return Key(changes)


def _delay_boot(text: str) -> Changes:
    try:
        return {"delay_boot_seconds": parse_seconds(text)}
    except DurationError as error:
        raise SpritzError("Invalid DelayBoot value") from error


def _minutes(field: str, name: str) -> Key:
    def changes(text: str) -> Changes:
        return {field: minutes(text, name)}

    return Key(changes)


def minutes(text: str, name: str) -> int:
    """A time limit. Raises SpritzError: `Invalid TimeLimit value`."""
    try:
        return parse_minutes(text)
    except DurationError as error:
        raise SpritzError(f"Invalid {name} value") from error


def _hosts(field: str) -> Key:
    def changes(text: str) -> Changes:
        try:
            return {field: expand(text)}
        except HostlistError as error:
            raise SpritzError(str(error)) from error

    return Key(changes)


def _names(field: str) -> Key:
    return Key(lambda text: {field: [name for name in text.split(",") if name]})


def _mail_types(text: str) -> Changes:
    words = parse(text)
    if words is None:
        raise Plain(f"Invalid MailType: {text}")
    return {"mail_types": list(words)}


def _records(requests: Iterable[GresRequest]) -> list[dict[str, object]]:
    return [{"name": request.name, "type": request.type, "count": request.count} for request in requests]


def _gres(text: str) -> Changes:
    from spritz.notation.gres import GresError, parse

    try:
        requests = parse(text)
    except GresError as error:
        raise SpritzError(str(error)) from error
    return {"gres_per_node": _records(requests), "gpus_per_node": []}


def _tres(field: str) -> Key:
    """`gres/gpu:2` or `gres:gpu:2`."""

    def changes(text: str) -> Changes:
        from spritz.notation.gres import GresError, parse

        try:
            requests = parse(text)
        except GresError as error:
            raise SpritzError(str(error)) from error
        if any(request.name != "gpu" for request in requests):
            raise SpritzError(f"only gres/gpu is supported by Spritz here, not {text}")
        return {field: _records(requests)}

    return Key(changes)


def _tres_per_task(text: str) -> Changes:
    """Changes by a text such as `cpu=2,gres/gpu:2,gres/shard:1`."""
    from spritz.notation.gres import GresError, parse

    words = [word for word in text.split(",") if word]
    cpus = [word for word in words if word.lower().startswith(("cpu=", "cpu:"))]
    others = [word for word in words if word not in cpus]
    try:
        requests = parse(",".join(others)) if others else ()
    except GresError as error:
        raise SpritzError(str(error)) from error
    changes: Changes = {"gpus_per_task": _records(request for request in requests if request.name == "gpu")}
    changes["gres_per_task"] = _records(request for request in requests if request.name != "gpu")
    if cpus:
        changes["cpus_per_task"] = number(cpus[-1][4:], "TresPerTask", low=1)
    return changes


def _per_gpu(field: str, key: str, others: tuple[str, ...] = ()) -> Key:
    """`gres/gpu:4` or `gres:gpu:4`; of no other GRES."""

    def changes(text: str) -> Changes:
        from spritz.notation.gres import GresError, parse

        if not text:
            return {field: None}
        try:
            (request,) = parse(text)
        except (GresError, ValueError) as error:
            raise SpritzError(f"Invalid {key} value: {text}") from error
        if request.name != "gpu" or request.type or not request.count:
            raise SpritzError(f"Invalid {key} value: {text}", hint="gres/gpu:COUNT is accepted")
        return {field: request.count, **dict.fromkeys(others)}

    return Key(changes)


def _tres_bind(text: str) -> Changes:
    """`gres/gpu:single:2`, as of --tres-bind."""
    if not text:
        return {"gpu_bind": None}
    from spritz.cli.jobs.submit.binding import SETTERS
    from spritz.cli.jobs.submit.refusals import Source

    changes: Changes = {}
    SETTERS["tres-bind"](changes, text, Source(None, "/", {}, lambda _message: None))
    return changes


def _nodes(text: str) -> Changes:
    from spritz.notation.nodecount import CountError, parse_node_count

    try:
        low, high = parse_node_count(text)
    except CountError as error:
        raise SpritzError(f'Invalid numeric value "{text}" for requested node count.') from error
    changes: Changes = {"nodes_min": low, "nodes_given": True, "node_counts": None}
    # One number is the least; the most stays, as in Slurm.
    return {**changes, "nodes_max": max(high, 0)} if "-" in text else changes


def _cpus(text: str) -> Changes:
    """NumCPUs, `MIN[-MAX]`: as many tasks of one CPU."""
    least, dash, most = text.partition("-")
    low, high = unsigned(least, 0xFFFFFFFD), unsigned(most if dash else least, 0xFFFFFFFD)
    if low is None or high is None:
        raise SpritzError(f'Invalid numeric value "{text}" for NumCPUs.')
    if not 0 < low <= high:
        raise SpritzError(f"Invalid NumCPUs value: {text}")
    return {"tasks": low, "tasks_given": True, "cpus_per_task": None}


def _dependencies(text: str) -> Changes:
    if text in ("", "0"):
        return {"dependencies": [], "dependency_mode": "all"}
    from spritz.notation.dependency import DependencyError, parse

    try:
        conditions, mode = parse(text)
    except DependencyError as error:
        raise SpritzError(str(error)) from error
    records = [{"kind": c.kind, "job_id": c.job_id, "task_id": c.task_id, "minutes": c.minutes} for c in conditions]
    return {"dependencies": records, "dependency_mode": mode}


def _nice(text: str) -> Changes:
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    return {"nice": sign * number(digits or "100", "Nice")}


def _priority(text: str) -> Changes:
    if text.upper() == "INFINITE":
        return {"priority": None}
    value = unsigned(text, 0xFFFFFFFD)
    if value is None:
        raise SpritzError(f"Invalid Priority value: {text}")
    return {"priority": value}


def _sharing(text: str) -> Changes:
    words = {"YES": "oversubscribe", "OK": "", "NO": "exclusive", "USER": "user"}
    jobs = unsigned(text, 0xFFFD)
    if jobs is not None:
        return {"sharing": words["YES" if jobs else "NO"]}
    if text.upper() not in words:
        raise SpritzError(f"Invalid OverSubscribe value: {text}", hint="YES, NO, OK, USER or a number")
    return {"sharing": words[text.upper()]}


def _clusters(text: str) -> Changes:
    return {"clusters": [name for name in text.lower().split(",") if name]}


_NO_BB = Key(refused="burst buffers are not built")

#: in the order in which shortened keys are tried
KEYS: dict[str, Key] = {
    "Account": _text("account"),
    "AdminComment": _text("admin_comment"),
    "ArrayTaskThrottle": _count("array_limit", "ArrayTaskThrottle"),
    "BurstBuffer": _NO_BB,
    "Clusters": Key(_clusters),
    "ClusterFeatures": _text("cluster_features"),
    "Comment": _text("comment"),
    "Container": Key(refused="a job's container is chosen when it is submitted"),
    "ContainerId": Key(refused="only scrun names containers, which is not built"),
    "Contiguous": _flag("contiguous"),
    "CoreSpec": _count("core_spec", "CoreSpec"),
    "CPUsPerTask": _count("cpus_per_task", "CPUsPerTask", low=1),
    "CpusPerTres": _per_gpu("cpus_per_gpu", "CpusPerTres"),
    "CronJob": Key(refused="`scrontab -e` changes jobs of crontabs"),
    "Deadline": _moment("deadline_at"),
    "DelayBoot": Key(_delay_boot),
    "Dependency": Key(_dependencies),
    "EligibleTime": _moment("begin_at"),
    "EndTime": _moment("end_at"),
    "ExcNodeList": _hosts("exclude"),
    "Extra": _text("extra"),
    "Features": _text("features"),
    "Gres": Key(_gres),
    "GresList": Key(_gres),
    "JobName": _text("name"),
    "Licenses": _text("licenses"),
    "MailType": Key(_mail_types),
    "MailUser": _text("mail_user"),
    "McsLabel": Key(refused="a job keeps the label that it was submitted with"),
    "MemPerTres": _per_gpu("memory_mib_per_gpu", "MemPerTres", ("memory_mib_per_node", "memory_mib_per_cpu")),
    "MinCPUsNode": _count("cpus_per_node_min", "MinCPUsNode"),
    "MinMemoryCPU": _memory("memory_mib_per_cpu", ("memory_mib_per_node", "memory_mib_per_gpu")),
    "MinMemoryNode": _memory("memory_mib_per_node", ("memory_mib_per_cpu", "memory_mib_per_gpu")),
    "MinTmpDiskNode": Key(_disk),
    "Name": _text("name"),
    "Network": Key(refused="there is no switch plugin"),
    "Nice": Key(_nice),
    "NodeList": _hosts("node_list"),
    "NtasksPerCore": _count("tasks_per_core", "NtasksPerCore"),
    "NtasksPerNode": _count("tasks_per_node", "NtasksPerNode"),
    "NtasksPerSocket": _count("tasks_per_socket", "NtasksPerSocket"),
    "NumCPUs": Key(_cpus),
    "NumNodes": Key(_nodes),
    "NumTasks": _count("tasks", "NumTasks", low=1, and_given="tasks_given"),
    "OverSubscribe": Key(_sharing),
    "Partition": _names("partitions"),
    "Prefer": _text("prefer"),
    "Priority": Key(_priority),
    "QOS": _text("qos"),
    "Reboot": Key(refused="a job says so when it is submitted"),
    "ReqCores": _count("cores_per_socket", "ReqCores"),
    "ReqNodeList": _hosts("node_list"),
    "ReqNodes": Key(_nodes),
    "ReqProcs": Key(_cpus),
    "ReqSockets": _count("sockets_per_node", "ReqSockets"),
    "ReqThreads": _count("threads_per_core", "ReqThreads"),
    "Requeue": _flag("requeue"),
    "ReservationName": _text("reservation"),
    "ResetAccrueTime": Key(lambda _: {"reset_accrue": True}, bare=True),
    "Shared": Key(_sharing),
    "SiteFactor": Key(refused="there is no site factor plugin"),
    "StartTime": _moment("begin_at"),
    "StdErr": _text("stderr"),
    "StdIn": _text("stdin"),
    "StdOut": _text("stdout"),
    "Switches": Key(_switches),
    "SystemComment": _text("system_comment"),
    "TasksPerNode": _count("tasks_per_node", "TasksPerNode"),
    "ThreadSpec": Key(refused="use CoreSpec"),
    "TimeMin": _minutes("time_min_minutes", "TimeMin"),
    "TresBind": Key(_tres_bind),
    "TresFreq": Key(refused="GPU frequencies are not set"),
    "TresPerJob": _tres("gpus"),
    "TresPerNode": Key(_gres),
    "TresPerSocket": _tres("gpus_per_socket"),
    "TresPerTask": Key(_tres_per_task),
    "UserID": Key(refused="a job stays its submitter's"),
    "wait-for-switch": _count("switch_wait_seconds", "wait-for-switch"),
    "WCKey": _text("wckey"),
    "WorkDir": _text("work_dir"),
}
