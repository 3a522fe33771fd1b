"""Private directories of a job in place of /tmp and /dev/shm: JobContainerType=job_container/tmpfs.

Each job has a directory below BasePath, and one in /dev/shm, that only its user may enter. Each task gets a mount
namespace in which they lie over the directories of `Dirs` (`stepd.tasks.namespaces`); all steps of the job see the same
ones. They are removed with the job.

Differs: Slurm keeps one namespace for each job and mounts a fresh file system on /dev/shm; here /dev/shm is a directory
of the machine's, so that a slurmd without root can do it as well. Source: job_container.conf(5).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Where POSIX shared memory lives: private whatever Dirs says.
SHARED_MEMORY = "/dev/shm"  # the place that shm_open(3) names


class Container(Struct, frozen=True, kw_only=True):
    """job_container.conf for one node. `base` belongs to this slurmd and node alone."""

    base: str
    #: created by slurmd if missing
    auto_base: bool = False
    dirs: tuple[str, ...] = ("/tmp",)  # what is to be made private
    init_script: str = ""
    shared: bool = False
    #: the directory in /dev/shm that holds those of jobs
    mark: str = ""

    def directories(self, job_id: int, restart_count: int) -> tuple[tuple[str, str], ...]:
        """(private directory, its place for tasks), /dev/shm last."""
        home = self.home(job_id, restart_count)
        mounted = [
            (f"{home}/{place.strip('/').replace('/', '_')}", place) for place in self.dirs if place != SHARED_MEMORY
        ]
        return (*mounted, (self._memory(job_id, restart_count), SHARED_MEMORY))

    def home(self, job_id: int, restart_count: int) -> str:
        """The directory that holds a job's."""
        return f"{self.base}/{job_id}.{restart_count}"

    def _memory(self, job_id: int, restart_count: int) -> str:
        return f"{SHARED_MEMORY}/{self.mark}/{job_id}.{restart_count}"

    def prepare(self) -> None:
        """Called before the first job. Raises OSError if BasePath is missing and may not be created, or is not
        writable.
        """
        memory = f"{SHARED_MEMORY}/{self.mark}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(memory, 0o711)
        if os.lstat(memory).st_uid != os.geteuid():
            raise FileExistsError(errno.EEXIST, "it belongs to another user", memory)
        if self.auto_base:
            os.makedirs(self.base, mode=0o755, exist_ok=True)
        probe = f"{self.base}/.probe_{os.getpid()}"
        os.mkdir(probe, 0o700)
        os.rmdir(probe)

    def make(self, job_id: int, restart_count: int, uid: int, gid: int) -> None:
        """Create the directories of a job, if missing. Raises OSError."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.home(job_id, restart_count), 0o711)
        for path, _ in self.directories(job_id, restart_count):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
                if os.geteuid() == 0:
                    os.chown(path, uid, gid)

    def remove(self, job_id: int, restart_count: int) -> None:
        """Remove the directories of a job that is gone. Does nothing if there are none."""
        shutil.rmtree(self.home(job_id, restart_count), ignore_errors=True)
        shutil.rmtree(self._memory(job_id, restart_count), ignore_errors=True)

    def sweep(self, kept: Iterable[tuple[int, int]]) -> None:
        """Remove the directories of all jobs except these (job id, restart count), which may have ended while slurmd
        was away.
        """
        names = {f"{job_id}.{restart}" for job_id, restart in kept}
        for parent in (self.base, f"{SHARED_MEMORY}/{self.mark}"):
            with contextlib.suppress(OSError):
                for entry in os.listdir(parent):
                    job, _, restart = entry.partition(".")
                    if job.isdecimal() and restart.isdecimal() and entry not in names:
                        shutil.rmtree(f"{parent}/{entry}", ignore_errors=True)
