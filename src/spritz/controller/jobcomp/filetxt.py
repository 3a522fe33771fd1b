"""The job completion log: one line for each end of a job, as `JobCompType=jobcomp/filetxt` writes it to JobCompLoc.

A line is written after its event's commit, and not written again if the daemon dies: the accounting database is the
complete record; this file is for scripts that read Slurm's.

Source: slurm.conf(5) JobCompType, JobCompLoc; the format is that of 22.05.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from spritz.controller.jobcomp.record_fields import partitions_of, reservation_of, tres_asked
from spritz.controller.needs import Configured, Logged
from spritz.model.ids import INFINITE
from spritz.notation import hostlist
from spritz.notation.times import format_time
from spritz.runtime.disk import append

if TYPE_CHECKING:
    from spritz.controller.jobcomp.ended import EndedJob
    from spritz.runtime.worker import Worker

#: the path without JobCompLoc, by slurm.conf(5)
DEFAULT_PATH = "/var/log/slurm_jobcomp.log"


class FileWriting(Configured, Logged, Protocol):
    """Where lines go."""

    @property
    def log_files(self) -> Worker: ...


class FileLog:
    """Writes lines to the file at `path`, or at Slurm's default path."""

    def __init__(self, context: FileWriting, path: str) -> None:
        self._context = context
        self._path = path or DEFAULT_PATH
        self._failed = False

    def take(self, ended: list[EndedJob]) -> None:
        cluster = self._context.configuration.settings.cluster_name
        text = "".join(line(ended_job, cluster) for ended_job in ended)
        data = text.encode("utf-8", "surrogateescape")
        self._context.log_files.put(partial(self._append, data), units=len(ended))

    def _append(self, data: bytes) -> None:
        """Runs in the writing thread."""
        try:
            append(self._path, data)
        except OSError as error:
            if not self._failed:
                self._context.log.error("completion.failed", path=self._path, error=error.strerror)
            self._failed = True
        else:
            self._failed = False


def line(ended: EndedJob, cluster: str) -> str:
    """The line for an ended job. `Tres` has the requested amounts, as in Slurm."""
    job, event, started, allocation = ended.job, ended.event, ended.started, ended.allocation
    spec = job.spec
    minutes = spec.time_limit_minutes if job.time_limit_minutes is None else job.time_limit_minutes
    limit = "Partition_Limit" if minutes is None else "UNLIMITED" if minutes >= INFINITE else str(minutes)
    words = [
        f"JobId={job.id} UserId={spec.user}({spec.uid}) GroupId={spec.group}({spec.gid}) Name={spec.name}",
        f"JobState={event.state.value} Partition={partitions_of(ended)} TimeLimit={limit}",
        f"StartTime={format_time(started)} EndTime={format_time(event.at)}",
        f"NodeList={hostlist.compress(allocation.names) if allocation else '(null)'}",
        f"NodeCnt={len(allocation.nodes) if allocation else 0} ProcCnt={allocation.cpu_count if allocation else 0}",
        f"WorkDir={spec.work_dir} ReservationName={reservation_of(ended)} Tres={tres_asked(ended)}",
        f"Account={spec.account} QOS={spec.qos} WcKey={spec.wckey} Cluster={cluster}",
        f"SubmitTime={format_time(job.submitted_at)}",
        f"EligibleTime={format_time(job.eligible_at) if job.eligible_at else 'unknown'}",
    ]
    if job.array_job_id and job.array_task_id is not None:
        words.append(f"ArrayJobId={job.array_job_id} ArrayTaskId={job.array_task_id}")
    derived, status = event.derived_exit_status, event.exit_status
    words.append(f"DerivedExitCode={derived >> 8}:{derived & 0x7F} ExitCode={status >> 8}:{status & 0x7F}")
    # A line break in a name would split the record.
    return " ".join(words).replace("\n", " ").replace("\r", " ") + " \n"
