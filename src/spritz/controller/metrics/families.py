"""Families of samples: Slurm 25.11's under its names, and our own, whose names begin with `spritz_`.

Slurm's are all gauges, there and here. Our own have the types and units that OpenMetrics requires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from spritz import SLURM_VERSION, __version__
from spritz.controller.journal.kept import Journaled
from spritz.controller.metrics import jobs, nodes
from spritz.controller.metrics.jobs import Totals
from spritz.controller.metrics.nodes import NodeRow, NodeTotals
from spritz.controller.metrics.paths import METRICS
from spritz.controller.needs import Clocked, Configured, Counted, Reading
from spritz.controller.writer.durable import Writing

if TYPE_CHECKING:
    from spritz.controller.diagnostics import Counting
    from spritz.controller.nodes.links import NodeLinks
    from spritz.controller.scheduler.forecasts import Forecasts
    from spritz.model.job.record import Job
    from spritz.model.node.record import GpuSample, JobSample
    from spritz.model.queries.diagnostics import Diagnostics

#: None: a slice of the work that a family needs is done.
Families = Iterator[Metric | None]

#: Nodes in a slice, and samples of nodes: a millisecond.
_SLICE, _SAMPLES = 50, 1000


class Measured(Clocked, Configured, Counted, Journaled, Reading, Writing, Protocol):
    """What pages show."""

    @property
    def counting(self) -> Counting: ...

    @property
    def forecasts(self) -> Forecasts: ...

    @property
    def nodes(self) -> NodeLinks: ...

    @property
    def started_at(self) -> float: ...


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _labelled(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values:
        family.add_metric([key], value)
    return family


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


class Pages:
    """The content of each page, in slices between which the controller's memory may change."""

    def __init__(self, context: Measured, tally: jobs.Tally) -> None:
        self._context = context
        self._tally = tally
        self._state = context.machine.state
        self._now = context.clock.now()
        self._jobs = jobs.JobTotals()
        self._nodes: dict[str, NodeRow] = {}

    def of(self, path: str) -> Families:
        """The families of a page. Raises KeyError."""
        for part in PATHS[path]:
            yield from part(self)

    def _count_jobs(self) -> Iterator[None]:
        if not self._jobs.all.jobs:
            yield from self._tally.follow(self._state.jobs)
            yield from self._tally.add_up(self._jobs)

    def _look_at_nodes(self) -> Iterator[None]:
        if self._nodes:
            return
        context = self._context
        planned = context.forecasts.has_planned
        for number, row in enumerate(nodes.rows_of(self._state, context.nodes.samples, self._now, planned), 1):
            self._nodes[row.name] = row
            if number % _SLICE == 0:
                yield

    def jobs(self) -> Families:
        """Jobs of the cluster, by state and with what they hold."""
        yield from self._count_jobs()
        yield from _job_families("slurm_jobs", "", [("", self._jobs.all)])

    def users_and_accounts(self) -> Families:
        """Jobs of each user and each account."""
        yield from self._count_jobs()
        yield from _job_families("slurm_user_jobs", "username", sorted(self._jobs.users.items()))
        yield from _job_families("slurm_account_jobs", "account", sorted(self._jobs.accounts.items()))

    @cached_property
    def _use(self) -> list[tuple[Job, list[float]]]:
        """Running jobs and their figures of `_USE_VALUES`, of all their nodes."""
        sums: dict[int, tuple[Job, list[float]]] = {}
        for sample in self._context.nodes.samples.values():
            for used in sample.jobs:
                job = self._state.jobs.get(used.job_id)
                if job is not None and job.state.active:
                    total = sums.setdefault(used.job_id, (job, [0.0] * len(_USE_VALUES)))[1]
                    for place, (_, _, value) in enumerate(_USE_VALUES):
                        total[place] += value(used)
        return list(sums.values())

    def use_of_jobs(self) -> Families:
        """CPUs, memory and I/O of each running job, as the nodes' daemons measure them."""
        labels = ["job_id", "user", "account"]
        for place, (name, text, _) in enumerate(_USE_VALUES):
            family = GaugeMetricFamily(f"spritz_job_{name}", text, labels=labels)
            for job, total in self._use:
                family.add_metric([str(job.id), job.spec.user, job.spec.account], total[place])
            yield family

    def use_of_users(self) -> Families:
        """The usage of each user's running jobs together."""
        users: dict[str, list[float]] = {}
        for job, total in self._use:
            sums = users.setdefault(job.spec.user, [0.0] * len(_USE_VALUES))
            sums[:] = (before + more for before, more in zip(sums, total, strict=True))
        for place, (name, text, _) in enumerate(_USE_VALUES):
            rows = ((user, total[place]) for user, total in sorted(users.items()))
            yield _labelled(f"spritz_user_{name}", text, "username", rows)

    def nodes(self) -> Families:
        """Each node, and all nodes together."""
        yield from self._look_at_nodes()
        rows = self._nodes.values()
        totals = NodeTotals()
        yield from totals.add(rows)
        yield _gauge("slurm_nodes", "Nodes", totals.nodes)
        for word in nodes.STATES:
            yield _gauge(f"slurm_nodes_{word}", f"Nodes that are {word}", totals.states[word])
        for name, text, value in _NODE_VALUES:
            family = GaugeMetricFamily(name, text, labels=["node"])
            for number, row in enumerate(rows, 1):
                family.add_metric([row.name], value(row))
                if number % _SAMPLES == 0:
                    yield None
            yield family
        yield _labelled("spritz_node_load", "Load average of the last minute", "node", (
            (row.name, row.load) for row in rows if row.sample is not None
        ))  # fmt: skip

        yield from _gpu_families(rows)

    def partitions(self) -> Families:
        """Jobs and nodes of each partition."""
        yield from self._count_jobs()
        yield from self._look_at_nodes()
        state = self._state
        nothing = Totals()
        by_partition = [(name, self._jobs.partitions.get(name, nothing)) for name in state.partitions]
        yield _gauge("slurm_partitions", "Partitions", len(by_partition))
        yield from _job_families("slurm_partition_jobs", "partition", by_partition)
        for name, text, jobs_of in _PENDING_VALUES:
            yield _labelled(
                f"slurm_partition_jobs_{name}",
                text,
                "partition",
                ((key, jobs_of(totals)) for key, totals in by_partition),
            )
        sums: list[tuple[str, NodeTotals]] = []
        for name, partition in list(state.partitions.items()):
            totals = NodeTotals()
            yield from totals.add(self._nodes[node] for node in partition.nodes if node in self._nodes)
            sums.append((name, totals))
        for name, text, sum_of in _PARTITION_VALUES:
            yield _labelled(name, text, "partition", ((key, sum_of(totals)) for key, totals in sums))
        for word in nodes.STATES:
            yield _labelled(
                f"slurm_partition_nodes_{word}",
                f"Nodes of the partition that are {word}",
                "partition",
                ((key, totals.states[word]) for key, totals in sums),
            )

    def scheduler(self) -> Families:
        """sdiag's figures, and those of the journal and the daemon."""
        figures = self._context.counting.figures(self._context)
        for name, text, value_of in _SCHEDULER_VALUES:
            yield _gauge(name, text, value_of(figures))
        for name in _MOOT:
            yield _gauge(name, "Always 0: cycles that ended for a reason that Spritz does not have", 0)
        yield from self._daemon(figures.failures)

    def _daemon(self, failures: dict[str, int]) -> Families:
        context, state = self._context, self._state
        writer, journal = context.writer, context.journal
        info = InfoMetricFamily("spritz", "Software and cluster")
        cluster = context.configuration.settings.cluster_name
        info.add_metric([], {"version": __version__, "slurm": SLURM_VERSION, "cluster": cluster})
        yield info
        yield _gauge("spritz_start_time_seconds", "When slurmctld began to serve", context.started_at)
        yield _gauge("spritz_journal_last_event", "Number of the last event in memory", writer.last_sequence)
        yield _gauge("spritz_journal_durable_event", "Number of the last event on disk", writer.durable_sequence)
        yield _gauge("spritz_journal_oldest_event", "Number of the oldest event kept", journal.oldest_sequence)
        yield _counter("spritz_journal_groups", "Groups of events written", writer.groups)
        yield _counter("spritz_commands", "Commands decided", writer.commands)
        requests = CounterMetricFamily("spritz_requests", "Requests answered", labels=["request"])
        seconds = CounterMetricFamily("spritz_request", "Time spent on them", labels=["request"], unit="seconds")
        for kind, (count, spent) in sorted(context.counting.calls.kinds.items()):
            requests.add_metric([kind], count)
            seconds.add_metric([kind], spent)
        yield requests
        yield seconds
        contained = CounterMetricFamily("spritz_failures", "Failures that were contained", labels=["where"])
        for where, count in sorted(failures.items()):
            contained.add_metric([where], count)
        yield contained
        licenses = sorted(state.licenses_taken.items())
        yield _labelled("spritz_license_used", "Licenses that jobs hold", "license", licenses)
        yield _gauge("spritz_reservations", "Reservations", len(state.reservations))


def _job_families(prefix: str, label: str, totals: list[tuple[str, Totals]]) -> Families:
    def family(name: str, text: str, value: Callable[[Totals], float]) -> Metric:
        if not label:
            return _gauge(name, text, value(totals[0][1]))
        return _labelled(name, text, label, ((key, value(sums)) for key, sums in totals))

    yield family(prefix, "Jobs", lambda sums: sums.jobs)
    for word in jobs.COUNTS:
        yield family(f"{prefix}_{word}", f"Jobs that are {word}", lambda sums, word=word: sums.counts[word])  # type: ignore[misc]  # mypy has no default arguments in lambdas
    for word in jobs.RESOURCES:
        yield family(f"{prefix}_{word}", f"What jobs hold: {word}", lambda sums, word=word: getattr(sums, word))  # type: ignore[misc]  # as above


def _gpu_families(rows: Iterable[NodeRow]) -> Families:
    """GPU figures that nodes' daemons read from drivers; empty if there are none."""
    gpus = [(row.name, gpu) for row in rows if row.sample is not None for gpu in row.sample.gpus]
    for name, text, value in _GPU_VALUES:
        family = GaugeMetricFamily(name, text, labels=["node", "gpu"])
        for node, gpu in gpus:
            if (figure := value(gpu)) >= 0:
                family.add_metric([node, str(gpu.index)], figure)
        yield family


_MIB = 1024 * 1024

_USE_VALUES: tuple[tuple[str, str, Callable[[JobSample], float]], ...] = (
    ("cpus_used", "CPUs that running jobs keep busy", lambda used: used.cpus_used / 100),
    ("memory_used_bytes", "Memory of the processes of running jobs", lambda used: used.memory_used_mib * _MIB),
    ("read_bytes", "What running steps of jobs have read from disks", lambda used: used.disk_read_mib * _MIB),
    ("written_bytes", "What running steps of jobs have written to disks", lambda used: used.disk_written_mib * _MIB),
)

_GPU_VALUES: tuple[tuple[str, str, Callable[[GpuSample], float]], ...] = (
    ("spritz_gpu_utilization_ratio", "How busy the GPU is", lambda gpu: gpu.busy_percent / 100),
    ("spritz_gpu_memory_used_bytes", "Memory of the GPU in use", lambda gpu: gpu.memory_used_mib * 1024 * 1024),
    ("spritz_gpu_memory_bytes", "Memory of the GPU", lambda gpu: gpu.memory_mib * 1024 * 1024),
    ("spritz_gpu_power_watts", "Power that the GPU takes", lambda gpu: gpu.milliwatts / 1000),
    ("spritz_gpu_temperature_celsius", "Temperature of the GPU", lambda gpu: gpu.celsius),
)

_NODE_VALUES: tuple[tuple[str, str, Callable[[NodeRow], float]], ...] = (
    ("slurm_node_cpus", "CPUs", lambda row: row.cpus),
    ("slurm_node_cpus_alloc", "CPUs that jobs hold", lambda row: row.cpus_alloc),
    ("slurm_node_cpus_effective", "CPUs for jobs", lambda row: row.cpus_effective),
    ("slurm_node_cpus_idle", "CPUs that no job holds", lambda row: max(0, row.cpus_effective - row.cpus_alloc)),
    ("slurm_node_gpus", "GPUs", lambda row: row.gpus),
    ("slurm_node_gpus_alloc", "GPUs that jobs hold", lambda row: row.gpus_alloc),
    ("slurm_node_memory_bytes", "Memory", lambda row: row.memory),
    ("slurm_node_memory_alloc_bytes", "Memory that jobs hold", lambda row: row.memory_alloc),
    ("slurm_node_memory_effective_bytes", "Memory for jobs", lambda row: row.memory_effective),
    ("slurm_node_memory_free_bytes", "Memory that is free", lambda row: row.free),
)

_PARTITION_VALUES: tuple[tuple[str, str, Callable[[NodeTotals], float]], ...] = (
    ("slurm_partition_cpus", "CPUs", lambda sums: sums.cpus),
    ("slurm_partition_gpus", "GPUs", lambda sums: sums.gpus),
    ("slurm_partition_nodes", "Nodes", lambda sums: sums.nodes),
    ("slurm_partition_nodes_cpus_alloc", "CPUs that jobs hold", lambda sums: sums.cpus_alloc),
    ("slurm_partition_nodes_cpus_efctv", "CPUs for jobs", lambda sums: sums.cpus_effective),
    ("slurm_partition_nodes_cpus_idle", "CPUs that no job holds", lambda sums: sums.cpus_idle),
    ("slurm_partition_nodes_mem_alloc", "Memory that jobs hold", lambda sums: sums.memory_alloc),
    ("slurm_partition_nodes_mem_avail", "Memory for jobs", lambda sums: sums.memory_effective),
    ("slurm_partition_nodes_mem_free", "Memory that is free", lambda sums: sums.free),
    ("slurm_partition_nodes_mem_tot", "Memory", lambda sums: sums.memory),
    ("spritz_partition_gpus_alloc", "GPUs that jobs hold", lambda sums: sums.gpus_alloc),
)

_PENDING_VALUES: tuple[tuple[str, str, Callable[[Totals], float]], ...] = (
    ("max_job_nodes", "Most nodes that a pending job may take", lambda sums: sums.max_nodes),
    ("max_job_nodes_nohold", "The same without held jobs", lambda sums: sums.max_nodes_nohold),
    ("min_job_nodes", "Most nodes that a pending job needs", lambda sums: sums.min_nodes),
    ("min_job_nodes_nohold", "The same without held jobs", lambda sums: sums.min_nodes_nohold),
    (
        "wait_part_node_limit",
        "Jobs that wait for the partition's limit of nodes",
        lambda sums: sums.wait_node_limit,
    ),
)

#: the figures of `sdiag`, under the names of Slurm's own exporter
_SCHEDULER_VALUES: tuple[tuple[str, str, Callable[[Diagnostics], float]], ...] = (
    ("slurm_agent_cnt", "Agents; there are none in Spritz", lambda _figures: 0),
    ("slurm_agent_queue_size", "Requests to nodes that wait; nodes are connected in Spritz", lambda _figures: 0),
    ("slurm_agent_thread_cnt", "Threads of agents; there are none in Spritz", lambda _figures: 0),
    ("slurm_backfilled_het_jobs", "Components of heterogeneous jobs that backfill has started", lambda _figures: 0),
    ("slurm_backfilled_jobs", "Jobs that backfill has started since the start", lambda figures: figures.backfilled),
    (
        "slurm_last_backfilled_jobs",
        "Jobs that backfill has started since the reset",
        lambda figures: figures.backfilled_since,
    ),
    ("slurm_bf_active", "Whether a backfill cycle is under way", lambda _figures: 0),
    ("slurm_bf_cycle_cnt", "Backfill cycles", lambda figures: figures.full.count),
    ("slurm_bf_cycle_last", "Last backfill cycle, microseconds", lambda figures: figures.full.last),
    ("slurm_bf_cycle_max", "Longest backfill cycle, microseconds", lambda figures: figures.full.longest),
    ("slurm_bf_cycle_tot", "All backfill cycles, microseconds", lambda figures: figures.full.total),
    (
        "slurm_bf_mean_cycle",
        "Mean backfill cycle, microseconds",
        lambda figures: _mean(figures.full.total, figures.full.count),
    ),
    ("slurm_bf_last_depth", "Jobs that the last backfill cycle looked at", lambda figures: figures.full.depth),
    ("slurm_bf_last_depth_try", "Jobs that the last backfill cycle tried", lambda figures: figures.full.tried),
    ("slurm_bf_depth_tot", "Jobs that backfill cycles looked at", lambda figures: figures.full.depth_total),
    ("slurm_bf_depth_try_tot", "Jobs that backfill cycles tried", lambda figures: figures.full.tried_total),
    (
        "slurm_bf_depth_mean",
        "Mean of jobs looked at",
        lambda figures: _mean(figures.full.depth_total, figures.full.count),
    ),
    (
        "slurm_bf_try_depth_mean",
        "Mean of jobs tried",
        lambda figures: _mean(figures.full.tried_total, figures.full.count),
    ),
    ("slurm_bf_queue_len", "Jobs in the queue of the last backfill cycle", lambda figures: figures.full.queue),
    ("slurm_bf_queue_len_tot", "Sum of backfill's queue lengths", lambda figures: figures.full.queue_total),
    (
        "slurm_bf_queue_len_mean",
        "Mean of backfill's queue lengths",
        lambda figures: _mean(figures.full.queue_total, figures.full.count),
    ),
    ("slurm_bf_table_size", "Planned starts", lambda figures: figures.full.tried),
    ("slurm_bf_table_size_tot", "Sum of planned starts", lambda figures: figures.full.tried_total),
    (
        "slurm_bf_mean_table_sz",
        "Mean of planned starts",
        lambda figures: _mean(figures.full.tried_total, figures.full.count),
    ),
    ("slurm_bf_when_last_cycle", "When the last backfill cycle was", lambda figures: figures.full.last_at),
    ("slurm_bf_exit_end", "Backfill cycles that saw the whole queue", lambda figures: figures.full.count),
    ("slurm_schedule_cycle_cnt", "Scheduling cycles", lambda figures: figures.quick.count),
    ("slurm_schedule_cycle_last", "Last scheduling cycle, microseconds", lambda figures: figures.quick.last),
    ("slurm_schedule_cycle_max", "Longest scheduling cycle, microseconds", lambda figures: figures.quick.longest),
    ("slurm_schedule_cycle_tot", "All scheduling cycles, microseconds", lambda figures: figures.quick.total),
    ("slurm_schedule_cycle_depth", "Jobs that scheduling cycles looked at", lambda figures: figures.quick.depth_total),
    ("slurm_schedule_queue_len", "Jobs in the queue of the last cycle", lambda figures: figures.quick.queue),
    (
        "slurm_sched_mean_cycle",
        "Mean scheduling cycle, microseconds",
        lambda figures: _mean(figures.quick.total, figures.quick.count),
    ),
    (
        "slurm_sched_mean_depth_cycle",
        "Mean of jobs looked at",
        lambda figures: _mean(figures.quick.depth_total, figures.quick.count),
    ),
    ("slurm_sched_exit_end", "Scheduling cycles that saw the whole queue", lambda figures: figures.quick.count),
    ("slurm_sdiag_jobs_submitted", "Jobs submitted since the reset", lambda figures: figures.jobs_submitted),
    ("slurm_sdiag_jobs_started", "Jobs started since the reset", lambda figures: figures.jobs_started),
    ("slurm_sdiag_jobs_completed", "Jobs completed since the reset", lambda figures: figures.jobs_completed),
    ("slurm_sdiag_jobs_canceled", "Jobs cancelled since the reset", lambda figures: figures.jobs_cancelled),
    ("slurm_sdiag_jobs_failed", "Jobs failed since the reset", lambda figures: figures.jobs_failed),
    ("slurm_sdiag_jobs_pending", "Jobs pending", lambda figures: figures.jobs_pending),
    ("slurm_sdiag_jobs_running", "Jobs running", lambda figures: figures.jobs_running),
    ("slurm_sdiag_job_states_ts", "When jobs were counted", lambda figures: figures.now),
    ("slurm_sdiag_latency", "1000 readings of the clock, microseconds", lambda figures: figures.clock_latency),
    ("slurm_server_thread_cnt", "Requests under way", lambda figures: sum(figures.pending.values())),
    ("slurm_slurmdbd_queue_size", "Events that slurmdbd does not have yet", lambda figures: figures.unsent_events),
    ("slurm_last_proc_req_start", "When figures were asked for", lambda figures: figures.now),
    ("slurm_sched_stats_timestamp", "When figures were taken", lambda figures: figures.now),
)

_MOOT = (
    *(f"slurm_sched_exit_{word}" for word in ("max_depth", "max_job_start", "lic", "rpc_cnt", "timeout")),
    *(f"slurm_bf_exit_{word}" for word in ("max_job_start", "max_job_test", "state_changed", "table_limit", "timeout")),
)

_Part = Callable[[Pages], Families]

#: Path -> content. /metrics shows everything: in Slurm it only lists the other paths, which scrapers cannot use.
PATHS: dict[str, tuple[_Part, ...]] = {
    "/metrics/jobs": (Pages.jobs,),
    "/metrics/jobs-use": (Pages.use_of_jobs,),
    "/metrics/jobs-users-accts": (Pages.users_and_accounts,),
    "/metrics/nodes": (Pages.nodes,),
    "/metrics/partitions": (Pages.partitions,),
    "/metrics/scheduler": (Pages.scheduler,),
    "/metrics": (
        Pages.jobs,
        Pages.users_and_accounts,
        Pages.use_of_users,
        Pages.nodes,
        Pages.partitions,
        Pages.scheduler,
    ),
}

assert tuple(PATHS) == METRICS
