"""What a script of the site is told of the cluster besides the request, and how it is called.

The script runs in a process of its own (docs/decisions/0092): partitions come with the request, jobs and reservations
only when the script looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from spritz.model.job import Job
from spritz.model.partition import Partition
from spritz.model.reservation import Reservation
from spritz.plugins.answer import Answer
from spritz.plugins.description import Description
from spritz.plugins.records import PartitionView, usable


class Known:
    """`uid` asks; `user_id` and `groups` (names) are of the user whose job it is; `job`: the one that an update is of.

    `cpus`: CPUs of each partition's nodes. `jobs()` and `reservations()` ask the controller.
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
        return [PartitionView(one, cpus) for one, cpus in pairs if usable(one, self.user_id, self.uid, self.groups)]

    def jobs(self) -> Sequence[Job]:
        """All jobs that the controller knows."""
        return self._jobs()

    def reservations(self) -> Sequence[Reservation]:
        """All reservations."""
        return self._reservations()


class Script(Protocol):
    """job_submit.lua or job_submit.py."""

    def load(self) -> None:
        """Raises PluginError if it cannot be used."""
        ...

    def submit(self, job: Description, known: Known) -> Answer:
        """A new job."""
        ...

    def modify(self, job: Description, known: Known) -> Answer:
        """A change of one."""
        ...
