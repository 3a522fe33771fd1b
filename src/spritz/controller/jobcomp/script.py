"""JobCompType=jobcomp/script: runs a site program for each ended job, described in its environment.

Programs run one at a time, in the order of the ends. A failure is logged; the program is not run again.

Source: slurm.conf(5) JobCompType; the variables are those of 22.05. Differs: which scheduler started the job is not
known, and DB_FLAGS is always `None`; the pending reason of a job that ran is only in the accounting database.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from spritz.controller.jobcomp.queue import EndQueue
from spritz.controller.jobcomp.record_fields import (
    dependency_of,
    exit_text,
    minutes_of,
    partitions_of,
    reservation_of,
    waited_for,
)
from spritz.controller.needs import Clocked, Configured, Counted, Logged, Spawning
from spritz.model.ids import INFINITE
from spritz.notation import hostlist
from spritz.notation.duration import format_minutes
from spritz.runtime.programs import run_programs

if TYPE_CHECKING:
    from spritz.controller.jobcomp.ended import EndedJob

#: Seconds after which a program is killed: later ends wait for it.
PROGRAM_SECONDS = 60.0

#: Slurm's array task id of a job that is no array task
_NO_TASK = 4294967294
_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"


class Running(Clocked, Configured, Counted, Logged, Spawning, Protocol):
    """What the program gets."""


class Script:
    def __init__(self, context: Running, program: str) -> None:
        self._context = context
        self._program = program
        if not os.access(program, os.X_OK):
            context.log.error("completion.failed", path=program, error="JobCompLoc is no program that can be run")
        self.take = EndQueue(context, "completion-script", program, self._start).take

    async def _start(self, ended: EndedJob) -> None:
        cluster = self._context.configuration.settings.cluster_name
        failure = await run_programs((self._program,), variables(ended, cluster), PROGRAM_SECONDS)
        if failure is not None:
            self._context.log.error("completion.failed", job_id=ended.job.id, **failure._asdict())


def variables(ended: EndedJob, cluster: str) -> dict[str, str]:
    """The program's environment: Slurm's names of jobcomp/script."""
    job, event, allocation = ended.job, ended.event, ended.allocation
    spec = job.spec
    limit = minutes_of(job)
    task = job.array_task_id
    variables = {
        "ACCOUNT": spec.account,
        "ARRAYJOBID": str(job.array_job_id if task is not None else 0),
        "ARRAYTASKID": str(_NO_TASK if task is None else task),
        "BATCH": "yes" if spec.batch else "no",
        "CLUSTER": cluster,
        "CONSTRAINTS": spec.features,
        "DB_FLAGS": "None",
        "DEPENDENCY": dependency_of(job),
        "DERIVED_EC": exit_text(event.derived_exit_status),
        "END": str(int(event.at)),
        "EXITCODE": exit_text(event.exit_status),
        "GID": str(spec.gid),
        "GROUPNAME": spec.group,
        "JOBID": str(job.id),
        "JOBNAME": spec.name,
        "JOBSTATE": event.state.value,
        "LIMIT": "UNLIMITED" if limit is None or limit >= INFINITE else format_minutes(limit),
        "NODECNT": str(len(allocation.nodes) if allocation is not None else 0),
        "NODES": hostlist.compress(allocation.names) if allocation is not None else "",
        "PARTITION": partitions_of(ended),
        "PATH": _PATH,
        "PROCS": str(allocation.cpu_count if allocation is not None else 0),
        "QOS": spec.qos,
        "RESERVATION": reservation_of(ended),
        "START": str(int(ended.started)),
        "STATEREASONPREV": waited_for(job, ran=allocation is not None),
        "SUBMIT": str(int(job.submitted_at)),
        "UID": str(spec.uid),
        "USERNAME": spec.user,
        "WORK_DIR": spec.work_dir,
    }
    if job.het_job_id:
        # 22.05 sets both names
        for name in ("HET", "PACK"):
            variables |= {f"{name}JOBID": str(job.het_job_id), f"{name}JOBOFFSET": str(job.het_offset)}
    if spec.batch:
        variables["STDIN"] = spec.stdin or "/dev/null"
        variables |= {name: path for name, path in (("STDERR", spec.stderr), ("STDOUT", spec.stdout)) if path}
    return {name: value.replace("\0", "") for name, value in variables.items()}
