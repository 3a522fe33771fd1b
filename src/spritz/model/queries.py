"""Requests that only read, and their replies. The controller answers them from state, after the last event they could
have seen is durable.

`fields` are attribute paths of the record (`"id"`, `"spec.name"`, `"allocation"`); the rows of the reply hold just
those values, in that order.
Empty `fields` asks for whole records. `unless_version`: the caller has the answer of that version already; an
unchanged one comes back as `unchanged`.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.cluster import ClusterSettings
from spritz.model.commands.job import JobFilter, JobTarget
from spritz.model.explain import Explanation
from spritz.model.job import Component, Job
from spritz.model.node import Node, NodeSample
from spritz.model.partition import Partition
from spritz.model.priority import PriorityFactors, PriorityWeights
from spritz.model.reports import Usage
from spritz.model.step import Step


class ListJobs(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs that match. Streamed in pieces (`Response.more`). Reply: `JobRows`, or `Jobs` when no fields are named.

    An unknown id in `filter.targets` alone gives ESLURM_INVALID_JOB_ID.
    """

    filter: JobFilter = JobFilter()
    fields: tuple[str, ...] = ()
    #: include what the caller may not normally see (hidden partitions): `-a`
    all: bool = False
    unless_version: int = 0


class JobRows(Struct, frozen=True, kw_only=True):
    """Values of the named fields, a row a job. `now` is the controller's clock; `version` names this state."""

    now: float
    version: int
    rows: list[tuple[object, ...]]


class Jobs(Struct, frozen=True, kw_only=True):
    """Whole records."""

    now: float
    version: int
    jobs: list[Job]


class ListPriorities(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parts of the priorities of waiting jobs that match. Streamed in pieces. Reply: `Priorities`."""

    filter: JobFilter = JobFilter()


class Priorities(Struct, frozen=True, kw_only=True):
    """A row for each job and partition in which it waits."""

    now: float
    weights: PriorityWeights
    rows: list[PriorityFactors]


class ExplainJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`scontrol explain`: why the job waits, and when it starts. Reply: `Explanations`.

    An unknown id gives ESLURM_INVALID_JOB_ID. `others`: try out what other request would start sooner.
    """

    target: JobTarget
    others: bool = True


class Explanations(Struct, frozen=True, kw_only=True):
    """One a record: a job, or what is left of an array and its tasks. All by one plan, made at `now`."""

    now: float
    explanations: list[Explanation]


class ListSteps(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Running steps. Reply: `Steps`."""

    filter: JobFilter = JobFilter()
    step_id: int | None = None


class StepView(Struct, frozen=True, kw_only=True):
    """A step with what listings need of its job."""

    step: Step
    job_name: str
    user: str
    partition: str
    array_job_id: int = 0
    array_task_id: int | None = None
    het_job_id: int = 0


class MeasureSteps(Struct, frozen=True, kw_only=True):
    """`sstat`: what a running step has used so far. Reply: `StepUsage`; ESLURM_INVALID_JOB_ID where it does not run.

    For its owner and for administrators.
    """

    job_id: int
    step_id: int


class NodeUsage(Struct, frozen=True, kw_only=True):
    """On one node; `pids` are processes there."""

    node: str
    usage: Usage
    pids: tuple[int, ...]


class StepUsage(Struct, frozen=True, kw_only=True):
    """Reply to MeasureSteps. `silent`: nodes that did not say."""

    nodes: list[NodeUsage]
    silent: list[str]


class Steps(Struct, frozen=True, kw_only=True):
    """Reply to ListSteps."""

    now: float
    steps: list[StepView]


class ListNodes(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nodes (all when `names` is empty). Reply: `Nodes`. Unknown names give ESLURM_INVALID_NODE_NAME."""

    names: tuple[str, ...] = ()
    all: bool = False


class NodeView(Struct, frozen=True, kw_only=True):
    """A node with what runs on it. `state_names` is Slurm's: base first, then flags (`MIXED`, `DRAIN` …)."""

    node: Node
    state_names: tuple[str, ...]
    cpus_allocated: int = 0
    memory_allocated_mib: int = 0
    #: (name, type, count, mask in hexadecimal) in use
    gres_used: tuple[tuple[str, str, int, str], ...] = ()
    partitions: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()
    sample: NodeSample | None = None


class Nodes(Struct, frozen=True, kw_only=True):
    """Reply to ListNodes."""

    now: float
    nodes: list[NodeView]


class ListPartitions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Partitions. Reply: `Partitions`."""

    names: tuple[str, ...] = ()
    all: bool = False


class Partitions(Struct, frozen=True, kw_only=True):
    """Reply to ListPartitions, in the order of the configuration."""

    now: float
    partitions: list[Partition]


class ShowConfig(Struct, frozen=True, kw_only=True):
    """`scontrol show config`. Reply: `ConfigText`."""


class ConfigText(Struct, frozen=True, kw_only=True):
    """Keys and values in Slurm's spelling and order, and the typed settings that clients use."""

    now: float
    pairs: list[tuple[str, str]]
    settings: ClusterSettings
    controllers: tuple[str, ...] = ()
    #: the controller's start; BOOT_TIME among the pairs is empty
    started_at: float = 0.0
    #: fingerprint of the files that it read; HASH_VAL among the pairs is empty
    digest: str = ""


class GetScript(Struct, frozen=True, kw_only=True):
    """`scontrol write batch_script`. Reply: `Script`."""

    job_id: int


class Script(Struct, frozen=True, kw_only=True):
    """Reply to GetScript."""

    job_id: int
    script: bytes


class AwaitAllocation(Struct, frozen=True, kw_only=True):
    """Held back until the job runs or has ended (srun, salloc, `wait_job`). Reply: `AllocationGranted`.

    A closed connection while an *interactive* job waits cancels it.
    """

    job_id: int
    #: give up after so many seconds (None: never); the reply then has a pending job
    timeout_seconds: float | None = None


class AllocationGranted(Struct, frozen=True, kw_only=True):
    """The job as it is now; running unless it ended or the wait timed out."""

    job: Job
    settings: ClusterSettings
    node_addresses: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    #: of a heterogeneous job, the leader first
    components: tuple[Component, ...] = ()


class AwaitEnd(Struct, frozen=True, kw_only=True):
    """Held back until the job (all tasks of an array) has ended: `sbatch --wait`. Reply: `JobEndedReply`."""

    job_id: int


class JobEndedReply(Struct, frozen=True, kw_only=True):
    """Highest exit status of the job and its array tasks."""

    job_id: int
    state: str
    exit_status: int


class Ping(Struct, frozen=True, kw_only=True):
    """Is the controller there? Reply: `Pong`."""


class Pong(Struct, frozen=True, kw_only=True):
    """Reply to Ping. `version` is Slurm's level, `software` ours; `pid` of the daemon."""

    host: str
    pid: int
    version: str
    software: str
    started_at: float
    now: float
    mode: str = "primary"


class Reconfigure(Struct, frozen=True, kw_only=True):
    """`scontrol reconfigure`: re-read the files. Administrators. Reply: `Done`; a broken file is a Failure with all
    errors and changes nothing."""


class Shutdown(Struct, frozen=True, kw_only=True):
    """`scontrol shutdown`: stop controller (and node daemons unless `controller_only`). Reply `Done` when it stops
    accepting; the connection closes when it has stopped."""

    controller_only: bool = False


class PauseScheduling(Struct, frozen=True, kw_only=True):
    """Start no job until the controller is started again or `paused` is taken back (`spritz down` while jobs end).

    Administrators. Not journaled. Reply: `Done`.
    """

    paused: bool = True


class SetDebug(Struct, frozen=True, kw_only=True):
    """`scontrol setdebug LEVEL`. Reply: `Done`."""

    level: str


class WatchEvents(Struct, frozen=True, kw_only=True):
    """Stream of journaled events after `since` (sequence number). Replies: `EventBatch` with more=True, until the
    client closes."""

    since: int = 0


class EventBatch(Struct, frozen=True, kw_only=True):
    """(sequence, time, kind, plain body) each."""

    events: list[tuple[int, float, str, dict[str, object]]]


class Statistics(Struct, frozen=True, kw_only=True):
    """Counters of the daemon (requests by kind, cycles, journal). Reply: `Counters`."""


class Counters(Struct, frozen=True, kw_only=True):
    """name -> value; names are `noun.measure_unit`."""

    values: dict[str, float]
