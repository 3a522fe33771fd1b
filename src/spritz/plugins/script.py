"""The cluster's data for a site script besides the request, and the interface of scripts.

The script runs in its own process (docs/decisions/0092): partitions come with the request, jobs and reservations only
when the script reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from spritz.model.job.record import Job
from spritz.model.node.partition import Partition
from spritz.model.node.reservation import Reservation
from spritz.plugins.answer import PluginAnswer
from spritz.plugins.description import Description
from spritz.plugins.records import PartitionView, usable


class ScriptContext:
    """Cluster data for one call. `uid` sent the request; `user_id` and `groups` (names) are those of the job's user.

    `job`: the job that an update changes. `cpus`: CPUs of each partition. `jobs()` and `reservations()` ask the
    controller.
    """

    __slots__ = ("_cpus", "_jobs", "_partitions", "_reservations", "groups", "job", "uid", "user_id")

    def __init__(
        self,
        uid: int,
        user_id: int,
        groups: Sequence[str],
        partitions: Sequence[Partition],
        cpus: Sequence[int],
        job: Job | None,
        jobs: Callable[[], Sequence[Job]],
        reservations: Callable[[], Sequence[Reservation]],
    ) -> None:
        self.uid = uid
        self.user_id = user_id
        self.groups = groups
        self.job = job
        self._partitions = partitions
        self._cpus = cpus
        self._jobs = jobs
        self._reservations = reservations

    def usable(self) -> list[PartitionView]:
        """Partitions that the user may use."""
        pairs = zip(self._partitions, self._cpus, strict=True)
        return [
            PartitionView(partition, cpus)
            for partition, cpus in pairs
            if usable(partition, self.user_id, self.uid, self.groups)
        ]

    def jobs(self) -> Sequence[Job]:
        """All jobs in the controller's memory."""
        return self._jobs()

    def reservations(self) -> Sequence[Reservation]:
        return self._reservations()


class Script(Protocol):
    """The interface of job_submit.lua and job_submit.py."""

    def load(self) -> None:
        """Load or reload the script. Raises PluginError if it cannot be used."""
        ...

    def submit(self, job: Description, context: ScriptContext) -> PluginAnswer:
        """Call the script's hook for a new job."""
        ...

    def modify(self, job: Description, context: ScriptContext) -> PluginAnswer:
        """Call the script's hook for an update."""
        ...
