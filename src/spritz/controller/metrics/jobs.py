"""Jobs by state, and their resources: in total, and by partition, user and account. Pure.

Records are counted as Slurm counts them: the pending part of an array is one record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from spritz.model.reasons import Reason
from spritz.model.states import JOB_FLAGS, JOB_STATES, JobState

if TYPE_CHECKING:
    from spritz.model.job.record import Job

_MIB = 1024 * 1024

#: state or flag -> suffix of Slurm's names
STATES = {state: metric for state, (_code, metric) in JOB_STATES.items()}
FLAGS = {flag: metric for flag, (_code, metric) in JOB_FLAGS.items() if metric}
#: All suffixes, sorted; fed_requeued has no meaning here and is always 0.
COUNTS = tuple(sorted({*STATES.values(), *FLAGS.values(), "fed_requeued", "finished", "hold", "started"}))
RESOURCES = ("cpus_alloc", "gpus_alloc", "memory_alloc", "nodes_alloc")

#: reason of a pending job that waits for a limit of its partition's nodes
_NODE_LIMIT = Reason.PARTITION_NODE_LIMIT

#: Jobs, or sums of jobs, in a slice: a millisecond if all jobs have changed.
_SLICE = 250

_STATE_OF = {id(state): state for state in JobState}
_PENDING = id(JobState.PENDING)


class Totals:
    """Counts of a set of jobs. Memory in bytes. The last five are of a partition's pending jobs."""

    __slots__ = (
        "counts",
        "cpus_alloc",
        "gpus_alloc",
        "jobs",
        "max_nodes",
        "max_nodes_nohold",
        "memory_alloc",
        "min_nodes",
        "min_nodes_nohold",
        "nodes_alloc",
        "wait_node_limit",
    )

    def __init__(self) -> None:
        self.jobs = 0
        self.counts = dict.fromkeys(COUNTS, 0)
        self.cpus_alloc = self.gpus_alloc = self.memory_alloc = self.nodes_alloc = 0
        self.max_nodes = self.max_nodes_nohold = self.min_nodes = self.min_nodes_nohold = self.wait_node_limit = 0

    def add(self, words: tuple[str, ...], held: _Sum) -> None:
        """Add jobs with all of these states and flags."""
        self.jobs += held.jobs
        for word in words:
            self.counts[word] += held.jobs
        self.cpus_alloc += held.cpus
        self.gpus_alloc += held.gpus
        self.memory_alloc += held.memory
        self.nodes_alloc += held.nodes
        if "pending" in words and held.jobs:
            self.max_nodes = max(self.max_nodes, held.max_nodes)
            self.min_nodes = max(self.min_nodes, held.min_nodes)
            if "hold" not in words:
                self.max_nodes_nohold = max(self.max_nodes_nohold, held.max_nodes)
                self.min_nodes_nohold = max(self.min_nodes_nohold, held.min_nodes)
        self.wait_node_limit += held.wait_node_limit


#: The key of jobs that are counted together: id() of the state (an Enum's own hash is a Python function, and
#: takes half of the time), flags, whether held, partition or partitions, user, account, least and most nodes of a
#: pending job, whether it waits for a limit of its partition's nodes.
_Key = tuple[int, int, bool, object, str, str, int, int, bool]


class _Sum:
    """Jobs of one key, and what they hold."""

    __slots__ = ("cpus", "gpus", "jobs", "max_nodes", "memory", "min_nodes", "nodes", "wait_node_limit")

    def __init__(self) -> None:
        self.jobs = self.cpus = self.gpus = self.memory = self.nodes = 0
        self.max_nodes = self.min_nodes = self.wait_node_limit = 0

    def add(self, job: Job, sign: int) -> None:
        self.jobs += sign
        if job.allocation is not None and (job.state is JobState.RUNNING or job.state is JobState.SUSPENDED):
            for share in job.allocation.nodes:
                self.cpus += sign * share.cpu_count
                self.memory += sign * share.memory_mib * _MIB
                for gres in share.gres:
                    if gres.name == "gpu":
                        self.gpus += sign * gres.count
            self.nodes += sign * len(job.allocation.nodes)


class JobTotals:
    """Jobs and what they hold: of the cluster, by partition, by user, by account."""

    def __init__(self) -> None:
        self.all = Totals()
        self.partitions: dict[str, Totals] = {}
        self.users: dict[str, Totals] = {}
        self.accounts: dict[str, Totals] = {}


class Tally:
    """Counts of jobs, kept from one page to the next: only jobs whose records have changed are looked at.

    It holds the records that it has counted, so those of jobs that have gone too, until the next `follow`.
    """

    def __init__(self) -> None:
        self._counted: dict[int, Job] = {}
        self._sums: dict[_Key, _Sum] = {}

    def follow(self, jobs: Mapping[int, Job]) -> Iterator[None]:
        """Count all jobs as they are, in slices between which they may change."""
        for job_ids in (list(jobs), [job_id for job_id in self._counted if job_id not in jobs]):
            for first in range(0, len(job_ids), _SLICE):
                self._update(jobs, job_ids[first : first + _SLICE])
                yield

    def _update(self, jobs: Mapping[int, Job], job_ids: Iterable[int]) -> None:
        """Count these jobs as they are now. A record that has changed is another object."""
        counted = self._counted
        for job_id in job_ids:
            job, before = jobs.get(job_id), counted.get(job_id)
            if job is before:
                continue
            if before is not None:
                key = _key(before)
                self._sums[key].add(before, -1)
                if not self._sums[key].jobs:
                    del self._sums[key]
            if job is None:
                del counted[job_id]
                continue
            counted[job_id] = job
            self._sums.setdefault(_key(job), _Sum()).add(job, 1)

    def add_up(self, totals: JobTotals) -> Iterator[None]:
        """Add what is counted, in slices. A pending job of several partitions is counted in each of them."""
        for number, (key, held) in enumerate(list(self._sums.items()), 1):
            state, flags, is_held, place, user, account, nodes_min, nodes_max, limited = key
            if number % _SLICE == 0:
                yield
            words = _words(_STATE_OF[state], flags, is_held)
            places = place if isinstance(place, tuple) else (str(place),)
            held.min_nodes, held.max_nodes = nodes_min, max(nodes_min, nodes_max)
            held.wait_node_limit = held.jobs if limited else 0
            totals.all.add(words, held)
            for groups, names in ((totals.partitions, places), (totals.users, (user,)), (totals.accounts, (account,))):
                for name in names:
                    if name:
                        groups.setdefault(name, Totals()).add(words, held)


def _key(job: Job) -> _Key:
    spec, state = job.spec, id(job.state)
    if state != _PENDING:
        return state, job.flags, False, job.partition, spec.user, spec.account, 0, 0, False
    place = spec.partitions or job.partition
    limited = job.reason is _NODE_LIMIT
    return state, job.flags, not job.priority, place, spec.user, spec.account, spec.nodes_min, spec.nodes_max, limited


@cache  # the operators of flags are Python functions
def _words(state: JobState, flags: int, held: bool) -> tuple[str, ...]:
    words = [STATES[state], *(word for flag, word in FLAGS.items() if flags & flag)]
    if held:
        words.append("hold")
    if state is not JobState.PENDING:
        words.append("started")
    if state.ended:
        words.append("finished")
    return tuple(words)
