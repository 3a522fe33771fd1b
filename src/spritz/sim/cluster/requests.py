"""A workload's rows as submissions to a cluster.

A row asks for a number of tasks of one CPU each, on as many nodes as needed; its time limit is rounded up to whole
minutes. Its queue is the partition if the configuration has one of that name. Users get uids in order of appearance.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from spritz.model.cluster.settings import Caller
from spritz.model.commands.job import SubmitJob
from spritz.model.job.record import JobSpec
from spritz.sim.cluster.world import Arrival

if TYPE_CHECKING:
    from spritz.config.loaded import LoadedConfig
    from spritz.sim.trace.workload import Workload

FIRST_UID = 100_000


def arrivals(workload: Workload, config: LoadedConfig) -> list[Arrival]:
    """One submission for each job, in order."""
    partitions = {partition.name for partition in config.partitions}
    callers: dict[str, Caller] = {}
    coming = []
    for index in range(len(workload)):
        user = workload.user[index]
        caller = callers.get(user)
        if caller is None:
            uid = FIRST_UID + len(callers)
            name = f"u{user}" if user.lstrip("-").isdecimal() else user
            caller = callers[user] = Caller(uid=uid, gid=uid, user=name, group=name, groups=(uid,))
        queue = workload.queue[index]
        spec = JobSpec(
            name=workload.name[index] if workload.name[index] != "-1" else f"job{workload.job[index]}",
            account=workload.group[index] if not workload.group[index].lstrip("-").isdecimal() else "",
            partitions=(queue,) if queue in partitions else (),
            tasks=workload.processors[index],
            tasks_given=True,
            time_limit_minutes=ceil(workload.limit[index] / 60),
            batch=True,
            command="trace",
            work_dir="/",
        )
        command = SubmitJob(spec=spec, script=b"#!/bin/sh\n")
        coming.append(Arrival(at=workload.submit[index], caller=caller, command=command, run=workload.run[index]))
    return coming
