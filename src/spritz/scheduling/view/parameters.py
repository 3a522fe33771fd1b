"""SchedulerParameters and SchedulerType as the scheduler reads them: one frozen value, made once per configuration.

Bad values are refused when the configuration is read (`config.check`); here they count as not given.

Source: slurm.conf(5) SchedulerParameters, SchedulerType. `bf_policy`, `bf_predict`, `gpu_fragmentation` and
`hetjob_share_nodes` are ours: see docs/decisions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.rules.components import SHARE_NODES

if TYPE_CHECKING:
    from spritz.model.cluster.settings import ClusterSettings


#: an interval that stands for "never": no cycle runs because of elapsed time
SELDOM_SECONDS = 10 * 365 * 86_400.0


class Parameters(Struct, frozen=True, kw_only=True):
    """Times in seconds. Limits on counts are None where there is no limit."""

    #: SchedulerType=sched/builtin: strict order, no backfill within a partition
    builtin: bool = False
    #: bf_policy=easy: only the first blocked job of each partition gets a planned start
    easy: bool = False
    #: bf_predict: as bf_policy=easy, but jobs behind go shortest prediction first, and planned starts are bounds
    predict: bool = False
    #: bf_predict=slowdown: in addition, the planned start goes to the job with the largest expected slowdown
    predict_slowdown: bool = False
    #: how far ahead starts are planned (bf_window)
    window_seconds: float = 1440 * 60.0
    #: an expected start is reported again only if it moved by at least this much (bf_resolution)
    resolution_seconds: float = 60.0
    #: most jobs with planned starts (bf_max_job_test)
    planned_starts_max: int = 500
    planned_per_user: int | None = None
    planned_per_partition: int | None = None
    planned_per_user_partition: int | None = None
    planned_per_account: int | None = None
    #: most planned starts per array (bf_max_job_array_resv)
    planned_per_array: int = 20
    #: most backfilled starts per cycle (bf_max_job_start)
    starts_max: int | None = None
    #: a job gets a planned start only after it has waited this long (bf_min_age_reserve)
    planned_age_seconds_min: float = 0.0
    #: and only with at least this priority (bf_min_prio_reserve)
    planned_priority_min: int = 0
    #: and only in its best partition (bf_one_resv_per_job)
    planned_once: bool = False

    #: how the priorities of a heterogeneous job's components become one: min, avg or max (bf_hetjob_prio)
    gang_priority: str = "min"
    #: no two components share a node, unless hetjob_share_nodes permits it
    components_apart: bool = True

    #: jobs that wait for licenses get planned starts too, which other jobs must not break (bf_licenses)
    licenses_ahead: bool = False

    #: jobs are planned to last as long as their --time-min (time_min_as_soft_limit)
    soft_limits: bool = False

    #: jobs of one CPU go to the last nodes (pack_serial_at_end)
    serial_at_end: bool = False
    #: a job held back by a limit of its association blocks the jobs behind it in its partition (assoc_limit_stop)
    stop_at_limits: bool = False
    #: a job may ask for features that no node has yet (ignore_constraint_validation)
    any_constraint: bool = False
    #: --extra is a condition on the extra data of nodes (extra_constraints)
    extra_constraints: bool = False
    #: while a job is completing (CompleteWait), only partitions that share nodes with its own wait
    #: (reduce_completing_frag)
    waits_apart: bool = False
    #: nodes are chosen by how little their GPUs become fragmented (gpu_fragmentation)
    by_fragment: bool = False

    #: longest time that a job waits for the few leaf switches it asked for (max_switch_wait)
    switch_wait_seconds: float = 300.0

    # -- when cycles run, for the controller
    #: seconds between full cycles while jobs wait, unless a quick one asks for one earlier (bf_interval)
    full_interval_seconds: float = 30.0
    #: most seconds between quick cycles (sched_interval)
    quick_interval_seconds: float = 60.0
    #: least seconds between quick cycles (sched_min_interval)
    quick_pause_seconds: float = 0.0
    #: most starts of one quick cycle (sched_max_job_start)
    quick_starts_max: int | None = None
    #: most placements tried in a quick cycle (default_queue_depth)
    quick_depth: int | None = None
    #: no cycle because of a submission alone (defer), or of a batch submission (defer_batch)
    defer: bool = False
    defer_batch: bool = False
    #: how long a batch submission waits for a quick cycle (batch_sched_delay); without it, how long a burst of them may
    batch_delay_seconds: float = 0.0
    burst_seconds_max: float = 1.0


def parameters_of(settings: ClusterSettings) -> Parameters:
    """The parameters that a configuration sets (cached)."""
    return _policy(settings.scheduler_parameters, settings.scheduler_builtin)


@lru_cache(maxsize=16)
def _policy(parameters: tuple[tuple[str, str], ...], builtin: bool) -> Parameters:
    options = {key.lower(): value for key, value in parameters}

    def number(name: str) -> int | None:
        value = options.get(name, "")
        return int(value) if value.isascii() and value.isdigit() else None

    def limit(name: str) -> int | None:
        """The number given for an option; None if it is 0 or not given: no limit."""
        return number(name) or None

    def interval(name: str, default: int) -> float:
        """-1: only when something has changed."""
        return SELDOM_SECONDS if options.get(name) == "-1" else float(number(name) or default)

    return Parameters(
        builtin=builtin,
        easy=options.get("bf_policy", "").lower() == "easy" or "bf_predict" in options,
        predict="bf_predict" in options,
        predict_slowdown=options.get("bf_predict", "").lower() == "slowdown",
        window_seconds=_or(number("bf_window"), 1440) * 60.0,
        resolution_seconds=float(number("bf_resolution") or 60),
        planned_starts_max=_or(number("bf_max_job_test"), 500),
        planned_per_user=limit("bf_max_job_user"),
        planned_per_partition=_least(limit("bf_max_job_part"), limit("bf_job_part_count_reserve")),
        planned_per_user_partition=limit("bf_max_job_user_part"),
        planned_per_account=limit("bf_max_job_assoc"),
        planned_per_array=_or(number("bf_max_job_array_resv"), 20),
        starts_max=limit("bf_max_job_start"),
        planned_age_seconds_min=float(number("bf_min_age_reserve") or 0),
        planned_priority_min=number("bf_min_prio_reserve") or 0,
        planned_once="bf_one_resv_per_job" in options,
        # A heterogeneous job is considered in order of rank in any case; this is what remains of bf_hetjob_immediate.
        gang_priority="min" if "bf_hetjob_immediate" in options else options.get("bf_hetjob_prio", "").lower() or "min",
        components_apart=SHARE_NODES not in options,
        licenses_ahead="bf_licenses" in options and not builtin,
        soft_limits="time_min_as_soft_limit" in options and not builtin,
        serial_at_end="pack_serial_at_end" in options,
        stop_at_limits="assoc_limit_stop" in options,
        extra_constraints="extra_constraints" in options,
        any_constraint="ignore_constraint_validation" in options,
        waits_apart="reduce_completing_frag" in options,
        by_fragment="gpu_fragmentation" in options,
        switch_wait_seconds=float(_or(number("max_switch_wait"), 300)),
        full_interval_seconds=interval("bf_interval", 30),
        quick_interval_seconds=interval("sched_interval", 60),
        quick_pause_seconds=(number("sched_min_interval") or 0) / 1e6,
        quick_starts_max=limit("sched_max_job_start"),
        quick_depth=limit("default_queue_depth"),
        defer="defer" in options,
        defer_batch="defer_batch" in options,
        batch_delay_seconds=float(number("batch_sched_delay") or 0),
        burst_seconds_max=1.0 if number("batch_sched_delay") is None else 0.0,
    )


def _least(first: int | None, other: int | None) -> int | None:
    return min((value for value in (first, other) if value is not None), default=None)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
