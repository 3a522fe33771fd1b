"""Usage of the cluster and its jobs over time, recorded by the dashboard in a bounded SQLite file.

Slurm only keeps sums and peaks, so curves need periodic samples (`recorder`). Rows are thinned out with age and then
deleted: the file stays below about 30 MB. Times are the controller's.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

#: Seconds after which rows are thinned, the interval of the rows kept then, and seconds after which rows are deleted:
#: for the cluster, and for jobs.
CLUSTER_FULL, CLUSTER_EVERY, CLUSTER_KEPT = 86_400.0, 600.0, 31 * 86_400.0
JOB_FULL, JOB_EVERY, JOB_KEPT = 3_600.0, 300.0, 14 * 86_400.0

#: Most rows of jobs; beyond that, the oldest are deleted.
ROWS_MAX = 300_000

#: Most rows in an answer; from more, every n-th is returned.
ANSWER_MAX = 1_500


class ClusterSample(Struct, frozen=True, array_like=True):
    """The cluster's usage at a time. Memory is in MiB. `gpus_busy`, `cpus_busy`: equivalent number of fully loaded
    devices; -1 if unknown.
    """

    at: float
    cpus: int
    cpus_used: int
    cpus_busy: float
    gpus: int
    gpus_used: int
    gpus_busy: float
    memory: int
    memory_used: int
    running: int
    waiting: int


class JobSample(Struct, frozen=True, array_like=True):
    """A job's usage at a time: CPUs kept busy, its tasks' highest memory so far (bytes), read and write rates (bytes
    per second), load of its GPUs (percent) and their memory in use (bytes); None if unknown.
    """

    job: int
    at: float
    cpus: float | None
    memory: float | None
    read: float | None
    written: float | None
    gpu: float | None
    gpu_memory: float | None


_CLUSTER, _JOB = len(ClusterSample.__struct_fields__), len(JobSample.__struct_fields__)


class Samples:
    """The samples in a file. Methods block, so they are called in threads; any thread may call them."""

    def __init__(self, path: Path | str) -> None:
        """Opens the file. Replaces a damaged file or one with another layout: samples are not a primary record."""
        self._lock = threading.Lock()
        try:
            self._database = self._opened(str(path))
        except sqlite3.DatabaseError:
            Path(path).unlink(missing_ok=True)
            self._database = self._opened(str(path))

    def _opened(self, path: str) -> sqlite3.Connection:
        # PrivateData may hide the usage of jobs from other users of this machine. SQLite's journal gets the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        os.chmod(path, 0o600)
        connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=OFF")
            names = ", ".join(ClusterSample.__struct_fields__[1:])
            connection.execute(f"CREATE TABLE IF NOT EXISTS cluster_1 (at REAL PRIMARY KEY, {names})")
            names = ", ".join(JobSample.__struct_fields__[2:])
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS job_1 (job INTEGER, at REAL, {names}, PRIMARY KEY (job, at)) WITHOUT ROWID"
            )
        except sqlite3.DatabaseError:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def add(self, cluster: ClusterSample | None, jobs: Sequence[JobSample]) -> None:
        """Store samples in one transaction. A sample of the same job and time is replaced."""
        with self._lock, self._database as database:
            database.execute("BEGIN")
            if cluster is not None:
                marks = ", ".join("?" * _CLUSTER)
                database.execute(f"INSERT OR REPLACE INTO cluster_1 VALUES ({marks})", _row(cluster))
            marks = ", ".join("?" * _JOB)
            database.executemany(f"INSERT OR REPLACE INTO job_1 VALUES ({marks})", [_row(job) for job in jobs])

    def of_job(self, job: int, since: float) -> list[JobSample]:
        """Samples since `since` (epoch seconds), oldest first; every n-th if there are more than ANSWER_MAX."""
        with self._lock:
            rows = self._database.execute(
                "SELECT * FROM job_1 WHERE job = ? AND at >= ? ORDER BY at", (job, since)
            ).fetchall()
        return [JobSample(*row) for row in _thinned(rows)]

    def of_cluster(self, since: float) -> list[ClusterSample]:
        """As `of_job`, for the whole cluster."""
        with self._lock:
            rows = self._database.execute("SELECT * FROM cluster_1 WHERE at >= ? ORDER BY at", (since,)).fetchall()
        return [ClusterSample(*row) for row in _thinned(rows)]

    def prune(self, now: float) -> None:
        """Thin out and delete old rows. `now`: the controller's time."""
        with self._lock, self._database as database:
            database.execute("BEGIN")
            database.execute("DELETE FROM cluster_1 WHERE at < ?", (now - CLUSTER_KEPT,))
            database.execute("DELETE FROM job_1 WHERE at < ?", (now - JOB_KEPT,))
            database.execute(
                "DELETE FROM cluster_1 WHERE at < :before AND at NOT IN"
                " (SELECT min(at) FROM cluster_1 WHERE at < :before GROUP BY CAST(at / :every AS INTEGER))",
                {"before": now - CLUSTER_FULL, "every": CLUSTER_EVERY},
            )
            database.execute(
                "DELETE FROM job_1 WHERE at < :before AND (job, at) NOT IN"
                " (SELECT job, min(at) FROM job_1 WHERE at < :before GROUP BY job, CAST(at / :every AS INTEGER))",
                {"before": now - JOB_FULL, "every": JOB_EVERY},
            )
            count = database.execute("SELECT count(*) FROM job_1").fetchone()[0]
            if count > ROWS_MAX:
                database.execute(
                    "DELETE FROM job_1 WHERE at <= (SELECT at FROM job_1 ORDER BY at LIMIT 1 OFFSET ?)",
                    (count - ROWS_MAX - 1,),
                )


def _row(sample: Struct) -> tuple[object, ...]:
    return tuple(getattr(sample, name) for name in sample.__struct_fields__)


def _thinned(rows: list[Any]) -> list[Any]:
    step = -(-len(rows) // ANSWER_MAX)
    return rows if step < 2 else rows[::step]
