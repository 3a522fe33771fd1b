"""Slurm's plugins that need no script: all_partitions, defaults, logging, partition, pbs, require_timelimit, throttle.

Each call gets the description, which it may change, and a `BuiltinContext` with what the controller knows. It returns a
`PluginAnswer`. They run in the controller between two requests, so none may take long.

Source: slurm.conf(5) JobSubmitPlugins, SchedulerParameters=jobs_per_user_per_hour; the behaviour of Slurm's plugins of
these names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from spritz.model.errors import ESLURM
from spritz.model.ids import INFINITE, NO_VAL
from spritz.model.node.partition import Partition
from spritz.model.rules.availability import queues_jobs
from spritz.plugins.answer import PluginAnswer
from spritz.plugins.description import Description
from spritz.plugins.records import usable

OK = PluginAnswer()
#: throttle: seconds after which its counts fade, a tenth of an hour
_TENTH_SECONDS = 360.0


class BuiltinContext(Struct, frozen=True, kw_only=True):
    """The facts that a plugin knows besides the request. `uid` sent it; `groups` are those of the job's user.

    `next_job_id`: the id that the job will get; 0 if unknown.
    """

    uid: int
    now: float
    groups: Collection[str]
    partitions: Sequence[Partition]
    next_job_id: int = 0
    jobs_per_user_per_hour: int = 0


class Plugin(Protocol):
    """A plugin that runs in the controller."""

    def submit(self, job: Description, context: BuiltinContext) -> PluginAnswer:
        """Check a submission and change `job` in place. An answer with a code refuses it."""
        ...

    def modify(self, job: Description, context: BuiltinContext) -> PluginAnswer:
        """Check an update and change `job` in place; fields that the update does not name read as not given."""
        ...


class Nothing:
    """defaults: in Slurm an example in C for sites to change; unchanged, it does nothing."""

    def submit(self, job: Description, context: BuiltinContext) -> PluginAnswer:
        return OK

    def modify(self, job: Description, context: BuiltinContext) -> PluginAnswer:
        return OK


class AllPartitions(Nothing):
    """all_partitions: a job that names no partition may run in any."""

    def submit(self, job: Description, context: BuiltinContext) -> PluginAnswer:
        """Name all partitions that accept jobs."""
        names = [partition.name for partition in context.partitions if queues_jobs(partition)]
        if job.read("partition") is None and names:
            job.write("partition", ",".join(names))
        return OK


class BestPartition(Nothing):
    """partition: a job that names none goes to the highest-priority partition that its user may use."""

    def submit(self, job: Description, context: BuiltinContext) -> PluginAnswer:
        """Choose the partition of a job that names none."""
        if job.read("partition") is not None:
            return OK
        uid = int(job.read("user_id"))
        usable_partitions = [
            partition
            for partition in context.partitions
            if queues_jobs(partition) and usable(partition, uid, context.uid, context.groups)
        ]
        # The first of several of equal priority, as in Slurm.
        best = max(
            (candidate for candidate in usable_partitions if _holds(candidate, job)),
            key=lambda candidate: candidate.priority_tier,
            default=None,
        )
        if best is None:
            return OK
        job.write("partition", best.name)
        return PluginAnswer(log=(("info", f"Setting partition of submitted job to {best.name}"),))


def _holds(partition: Partition, job: Description) -> bool:
    """Whether the job's memory is within the partition's limit; only limits of the same kind are compared."""
    per_cpu, per_node = job.read("min_mem_per_cpu"), job.read("min_mem_per_node")
    most_per_cpu, most_per_node = partition.max_memory_mib_per_cpu, partition.max_memory_mib_per_node
    if per_cpu is not None and most_per_cpu:
        return int(per_cpu) <= most_per_cpu
    return per_node is None or not most_per_node or int(per_node) <= most_per_node


class RequireTimeLimit:
    """require_timelimit: jobs must have a finite time limit."""

    def submit(self, job: Description, context: BuiltinContext) -> PluginAnswer:
        """Refuse a missing or infinite limit."""
        limit = job.read("time_limit")
        if limit == NO_VAL:
            return _refused("ESLURM_MISSING_TIME_LIMIT", f"Missing time limit for job by uid:{context.uid}")
        if limit == INFINITE:
            return _refused("ESLURM_INVALID_TIME_LIMIT", f"Bad time limit for job by uid:{context.uid}")
        return OK

    def modify(self, job: Description, context: BuiltinContext) -> PluginAnswer:
        if job.read("time_limit") == INFINITE:
            return _refused("ESLURM_INVALID_TIME_LIMIT", f"Bad replacement time limit for {job.job_id}")
        return OK


def _refused(name: str, why: str) -> PluginAnswer:
    return PluginAnswer(number=ESLURM[name][0], log=(("info", why),))


class Logging:
    """logging: every request writes a line to the log."""

    def submit(self, job: Description, context: BuiltinContext) -> PluginAnswer:
        """Log the fields that Slurm logs."""
        names = "account begin_time dependency name partition qos submit_uid time_limit user_id"
        return PluginAnswer(log=(("info", f"Job submit request: {_fields_text(job, names.split(), context)}"),))

    def modify(self, job: Description, context: BuiltinContext) -> PluginAnswer:
        """Log the fields that Slurm logs."""
        names = "account begin_time dependency job_id name partition qos submit_uid time_limit"
        return PluginAnswer(log=(("info", f"Job modify request: {_fields_text(job, names.split(), context)}"),))


def _fields_text(job: Description, names: Iterable[str], context: BuiltinContext) -> str:
    assigned = {"submit_uid": context.uid, "job_id": job.job_id}
    values = ((name, assigned.get(name, job.read(name))) for name in names)
    return " ".join(f"{name}:{'(null)' if value is None else value}" for name, value in values)


class Pbs:
    """pbs: sets variables and a comment that programs written for PBS expect.

    Differs: the commands do not accept the dependencies `before` and `on`, so there are none to translate.
    """

    def submit(self, job: Description, context: BuiltinContext) -> PluginAnswer:
        """Set PBS_ACCOUNT, PBS_QUEUE, and the output path in the comment."""
        for variable, field in (("PBS_ACCOUNT", "account"), ("PBS_QUEUE", "partition")):
            value = job.read(field)
            if value is not None:
                job.set_variable(variable, value)
        self._note(job, str(job.read("std_out") or "slurm-%j.out"), context.next_job_id)
        return OK

    def modify(self, job: Description, context: BuiltinContext) -> PluginAnswer:
        """Write a new output path to the comment only: as in Slurm, the job's file stays."""
        path = job.fields.pop("stdout", None)
        if path:
            self._note(job, str(path), job.job_id)
        return OK

    def _note(self, job: Description, path: str, number: int) -> None:
        directory = job.read("work_dir") or job.facts.get("work_dir")
        if not path.startswith("/") and directory:
            path = f"{directory}/{path}"
        if number:
            path = path.replace("%j", str(number), 1)
        before = job.read("comment") or job.facts.get("comment")
        job.write("comment", f"{before},stdout={path}" if before else f"stdout={path}")


class Throttle(Nothing):
    """throttle: a user may submit at most SchedulerParameters=jobs_per_user_per_hour jobs an hour.

    As in Slurm, counts fade every six minutes and do not survive a restart of the controller.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._faded_at = 0.0

    def submit(self, job: Description, context: BuiltinContext) -> PluginAnswer:
        """Count the submission, or refuse it above the limit."""
        most = context.jobs_per_user_per_hour
        if not most:
            return OK
        self._fade(context.now)
        uid = int(job.read("user_id"))
        count = self._counts.get(uid, 0)
        if count >= most:
            return PluginAnswer(number=ESLURM["ESLURM_ACCOUNTING_POLICY"][0], lines=("Reached jobs per hour limit",))
        self._counts[uid] = count + 1
        return OK

    def _fade(self, now: float) -> None:
        """For each tenth of an hour, reduce every count by a tenth, at least by one."""
        if not self._faded_at:
            self._faded_at = now
        tenths = int((now - self._faded_at) // _TENTH_SECONDS)
        if tenths <= 0:
            return
        self._faded_at += tenths * _TENTH_SECONDS
        if tenths >= 10:
            self._counts.clear()
        for _ in range(tenths):
            self._counts = {uid: count - max(1, count // 10) for uid, count in self._counts.items() if count > 1}


BUILTIN: dict[str, type[Plugin]] = {
    "all_partitions": AllPartitions,
    "defaults": Nothing,
    "logging": Logging,
    "partition": BestPartition,
    "pbs": Pbs,
    "require_timelimit": RequireTimeLimit,
    "throttle": Throttle,
}
#: plugins that run a script of the site
SCRIPTS = {"lua": "job_submit.lua", "python": "job_submit.py"}
