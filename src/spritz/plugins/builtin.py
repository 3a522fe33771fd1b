"""The plugins of Slurm's that need no script: all_partitions, defaults, logging, partition, pbs, require_timelimit,
throttle.

Each is given the description, which it may change, and `World`, what the controller knows; an `Answer` says what became
of it. They run in the controller between two requests, so none may take long.

Source: slurm.conf(5) JobSubmitPlugins, SchedulerParameters=jobs_per_user_per_hour; what Slurm's plugins of these names
do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from spritz.model.errors import ESLURM
from spritz.model.ids import INFINITE, NO_VAL
from spritz.model.partition import Partition
from spritz.model.rules.availability import queues_jobs
from spritz.plugins.answer import Answer
from spritz.plugins.description import Description
from spritz.plugins.records import usable

OK = Answer()
#: throttle: its counts are of tenths of an hour
_TENTH_SECONDS = 360.0


class World(Struct, frozen=True, kw_only=True):
    """What a plugin is told besides the request. `uid` asks; `groups` are those of the job's user.

    `next_job_id`: the number that the job will have; 0 if that is not sure.
    """

    uid: int
    now: float
    groups: Collection[str]
    partitions: Sequence[Partition]
    next_job_id: int = 0
    jobs_per_user_per_hour: int = 0


class Plugin(Protocol):
    """One that runs here."""

    def submit(self, job: Description, world: World) -> Answer:
        """A new job."""
        ...

    def modify(self, job: Description, world: World) -> Answer:
        """A change of one."""
        ...


class Nothing:
    """defaults: an example in C that a site changes; as it comes, it does nothing."""

    def submit(self, job: Description, world: World) -> Answer:
        """Nothing."""
        return OK

    def modify(self, job: Description, world: World) -> Answer:
        """Nothing."""
        return OK


class AllPartitions(Nothing):
    """A job that names no partition may run in any of them."""

    def submit(self, job: Description, world: World) -> Answer:
        """Name those that take jobs."""
        names = [partition.name for partition in world.partitions if queues_jobs(partition)]
        if job.read("partition") is None and names:
            job.write("partition", ",".join(names))
        return OK


class BestPartition(Nothing):
    """partition: a job that names none goes to the one of the highest priority that its user may use."""

    def submit(self, job: Description, world: World) -> Answer:
        """Name it."""
        if job.read("partition") is not None:
            return OK
        uid = int(job.read("user_id"))
        open_ones = [
            partition
            for partition in world.partitions
            if queues_jobs(partition) and usable(partition, uid, world.uid, world.groups)
        ]
        # The first of several of the same priority, as in Slurm.
        best = max((one for one in open_ones if _holds(one, job)), key=lambda one: one.priority_tier, default=None)
        if best is None:
            return OK
        job.write("partition", best.name)
        return Answer(log=(("info", f"Setting partition of submitted job to {best.name}"),))


def _holds(partition: Partition, job: Description) -> bool:
    """Its limit of memory is not exceeded, as far as both are of the same kind."""
    per_cpu, per_node = job.read("min_mem_per_cpu"), job.read("min_mem_per_node")
    most_per_cpu, most_per_node = partition.max_memory_mib_per_cpu, partition.max_memory_mib_per_node
    if per_cpu is not None and most_per_cpu:
        return int(per_cpu) <= most_per_cpu
    return per_node is None or not most_per_node or int(per_node) <= most_per_node


class RequireTimeLimit:
    """Jobs must say how long they take."""

    def submit(self, job: Description, world: World) -> Answer:
        """Neither none, nor one without end."""
        limit = job.read("time_limit")
        if limit == NO_VAL:
            return _refused("ESLURM_MISSING_TIME_LIMIT", f"Missing time limit for job by uid:{world.uid}")
        if limit == INFINITE:
            return _refused("ESLURM_INVALID_TIME_LIMIT", f"Bad time limit for job by uid:{world.uid}")
        return OK

    def modify(self, job: Description, world: World) -> Answer:
        """Not to one without end."""
        if job.read("time_limit") == INFINITE:
            return _refused("ESLURM_INVALID_TIME_LIMIT", f"Bad replacement time limit for {job.job_id}")
        return OK


def _refused(name: str, why: str) -> Answer:
    return Answer(number=ESLURM[name][0], log=(("info", why),))


class Logging:
    """Every request leaves a line in the log."""

    def submit(self, job: Description, world: World) -> Answer:
        """The fields that Slurm logs."""
        names = "account begin_time dependency name partition qos submit_uid time_limit user_id"
        return Answer(log=(("info", f"Job submit request: {_told(job, names.split(), world)}"),))

    def modify(self, job: Description, world: World) -> Answer:
        """The fields that Slurm logs."""
        names = "account begin_time dependency job_id name partition qos submit_uid time_limit"
        return Answer(log=(("info", f"Job modify request: {_told(job, names.split(), world)}"),))


def _told(job: Description, names: Iterable[str], world: World) -> str:
    assigned = {"submit_uid": world.uid, "job_id": job.job_id}
    values = ((name, assigned.get(name, job.read(name))) for name in names)
    return " ".join(f"{name}:{'(null)' if value is None else value}" for name, value in values)


class Pbs:
    """Variables and a comment that programs made for PBS look for.

    Differs: the dependencies `before` and `on` are not known to the commands, so there are none to translate.
    """

    def submit(self, job: Description, world: World) -> Answer:
        """PBS_ACCOUNT, PBS_QUEUE, and where the output goes, in the comment."""
        for variable, field in (("PBS_ACCOUNT", "account"), ("PBS_QUEUE", "partition")):
            value = job.read(field)
            if value is not None:
                job.set_variable(variable, value)
        self._note(job, str(job.read("std_out") or "slurm-%j.out"), world.next_job_id)
        return OK

    def modify(self, job: Description, world: World) -> Answer:
        """A new output file is only noted, as in Slurm: the file of the job stays."""
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
    """No user submits more than SchedulerParameters=jobs_per_user_per_hour jobs an hour.

    As in Slurm: counts fade every six minutes, and are forgotten with the controller.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._faded_at = 0.0

    def submit(self, job: Description, world: World) -> Answer:
        """Count it, unless there are too many."""
        most = world.jobs_per_user_per_hour
        if not most:
            return OK
        self._fade(world.now)
        uid = int(job.read("user_id"))
        count = self._counts.get(uid, 0)
        if count >= most:
            return Answer(number=ESLURM["ESLURM_ACCOUNTING_POLICY"][0], lines=("Reached jobs per hour limit",))
        self._counts[uid] = count + 1
        return OK

    def _fade(self, now: float) -> None:
        """A tenth of what each count was is forgotten in each tenth of an hour, one job at least."""
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
#: those that run a script of the site
SCRIPTS = {"lua": "job_submit.lua", "python": "job_submit.py"}
