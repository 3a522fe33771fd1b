"""Other requests of `sacctmgr` to `slurmdbd`: node events, configuration, statistics, runaway jobs, changes of ended
jobs, archives. Source: sacctmgr(1).
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.accounting.records import JobPick, NodeEventRecord


class SelectEvents(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Events of nodes and of clusters. Streamed: `EventRecords`. Empty or None: no condition.

    Without times, those that have not ended. `kind` is "node", "cluster" or "" for both.
    """

    clusters: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    kind: str = ""
    states: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    users: tuple[int, ...] = ()
    starts_at: float | None = None
    ends_at: float | None = None
    #: CPUs of the node, or of the cluster, at least and at most
    cpus_min: int | None = None
    cpus_max: int | None = None


class EventRecords(Struct, frozen=True, kw_only=True):
    """Piece of the answer to `SelectEvents`: events of one cluster, by time."""

    cluster: str
    events: list[NodeEventRecord]


class GetDatabaseConfiguration(Struct, frozen=True, kw_only=True):
    """slurmdbd's configuration as text. Reply: `DatabaseConfiguration`. Passwords are left out."""


class DatabaseConfiguration(Struct, frozen=True, kw_only=True):
    """(key, value) as `sacctmgr show configuration` lists them."""

    now: float
    rows: list[tuple[str, str]]


class ReconfigureDatabase(Struct, frozen=True, kw_only=True):
    """Read slurmdbd.conf again: log level, purging, privacy. Reply: `Done`."""


class ShutdownDatabase(Struct, frozen=True, kw_only=True):
    """Shut slurmdbd down in order. Reply: `Done`."""


class GetCallStatistics(Struct, frozen=True, kw_only=True):
    """Requests that the daemon has answered since its counters began. Reply: `CallCounts`."""


class ClearStatistics(Struct, frozen=True, kw_only=True):
    """Set the counters of `GetCallStatistics` and of roll-ups to 0. Reply: `Done`."""


class CallCount(Struct, frozen=True, gc=False):
    """Requests of one kind, or of one user (`name` is then the uid), and the time they took in microseconds."""

    name: str
    count: int
    microseconds: int


class RollupCount(Struct, frozen=True, gc=False):
    """Rounds of a roll-up: when the last one began, its time, the longest, the sum (microseconds), how many."""

    name: str
    last_at: float
    last: int
    longest: int
    total: int
    count: int


class CallCounts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reply to GetCallStatistics. Times are epoch seconds."""

    now: float
    since: float
    kinds: list[CallCount]
    users: list[CallCount]
    rollups: list[RollupCount] = []
    #: what connections hold now, and how often each limit or fault (by the event's name in the log) has met one
    connections: dict[str, int] = {}


class FixRunaway(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """End these lives of jobs of `cluster` in the database: COMPLETED, when they began. Reply: `Changed`."""

    exact = True

    cluster: str
    numbers: tuple[int, ...]


class ModifyJobs(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Change what is kept of the newest lives of ended jobs. None: unchanged. Reply: `Changed`.

    Owners may change `comment`, `derived_exit_status` and `extra`; operators the other fields.
    """

    exact = True

    cluster: str
    picks: tuple[JobPick, ...]
    derived_exit_status: int | None = None
    comment: str | None = None
    admin_comment: str | None = None
    system_comment: str | None = None
    extra: str | None = None
    wckey: str | None = None


class Changed(Struct, frozen=True, kw_only=True):
    """Job ids, or names, of what was changed."""

    names: tuple[str, ...]


class ArchiveDump(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Purge now, as Purge*After says, and archive what is purged, as Archive* says. Reply: `Changed` with the files.

    `periods` and `kinds` replace slurmdbd.conf's if given: PurgeJobAfter -> `12month`, and ArchiveJobs -> True.
    """

    exact = True

    directory: str = ""
    script: str = ""
    periods: dict[str, str] = {}
    kinds: dict[str, bool] = {}


class ArchiveLoad(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Restore an archive's records. `path` is on slurmdbd's machine. Existing records stay as they are.

    Reply: `Changed` with a word for each kind of record: `jobs: 12`.
    """

    exact = True

    path: str
