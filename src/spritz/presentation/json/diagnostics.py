"""`sdiag --json`: figures in the data_parser form. Source: Slurm's OpenAPI specification, v0.0.43 `stats_msg`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation.json.values import number
from spritz.presentation.request_kinds import KINDS, name_of, number_of, sorted_kinds
from spritz.presentation.users import name_of as user_name

if TYPE_CHECKING:
    from typing import Any

    from spritz.model.accounting.accounting_admin import CallCount
    from spritz.model.queries.diagnostics import Diagnostics

    Json = dict[str, Any]


def _call(row: CallCount) -> Json:
    return {
        "count": row.count,
        "queued": 0,
        "dropped": 0,
        "cycle_last": 0,
        "cycle_max": 0,
        "total_time": row.microseconds,
        "average_time": number(row.microseconds // max(1, row.count)),
    }


def _quick_cycles(diagnostics: Diagnostics) -> Json:
    """Slurm's figures of its main cycle: our quick passes. Times are microseconds."""
    quick = diagnostics.quick
    count = max(1, quick.count)
    minutes = max(1, int(diagnostics.now - diagnostics.since) // 60)
    return {
        "schedule_cycle_max": quick.longest,
        "schedule_cycle_last": quick.last,
        "schedule_cycle_sum": quick.total,
        "schedule_cycle_total": quick.count,
        "schedule_cycle_mean": quick.total // count,
        "schedule_cycle_mean_depth": quick.depth_total // count,
        "schedule_cycle_per_minute": quick.count // minutes,
        "schedule_cycle_depth": quick.depth_total,
        "schedule_queue_length": quick.queue,
    }


def _full_cycles(diagnostics: Diagnostics) -> Json:
    """Slurm's figures of backfill: our full passes. Times are microseconds."""
    full = diagnostics.full
    count = max(1, full.count)
    return {
        "bf_backfilled_jobs": diagnostics.backfilled,
        "bf_last_backfilled_jobs": diagnostics.backfilled_since,
        "bf_backfilled_het_jobs": 0,
        "bf_cycle_counter": full.count,
        "bf_cycle_mean": full.total // count,
        "bf_depth_mean": full.depth_total // count,
        "bf_depth_mean_try": full.tried_total // count,
        "bf_cycle_sum": full.total,
        "bf_cycle_last": full.last,
        "bf_cycle_max": full.longest,
        "bf_last_depth": full.depth,
        "bf_last_depth_try": full.tried,
        "bf_depth_sum": full.depth_total,
        "bf_depth_try_sum": full.tried_total,
        "bf_queue_len": full.queue,
        "bf_queue_len_mean": full.queue_total // count,
        "bf_queue_len_sum": full.queue_total,
        "bf_when_last_cycle": number(int(full.last_at)),
        "bf_active": False,
    }


def statistics(diagnostics: Diagnostics) -> Json:
    kinds = [
        {"type_id": number_of(row), "message_type": name_of(row), **_call(row)}
        for row in sorted_kinds(diagnostics.kinds, "")
    ]
    users = [
        {"user_id": int(row.name), "user": user_name(int(row.name)) if int(row.name) >= 0 else "", **_call(row)}
        for row in sorted_kinds(diagnostics.users, "")
    ]
    return {
        "parts_packed": 1,
        "req_time": number(int(diagnostics.now)),
        "req_time_start": number(int(diagnostics.since)),
        "server_thread_count": sum(diagnostics.pending.values()),
        "agent_queue_size": 0,
        "agent_count": 0,
        "agent_thread_count": 0,
        "dbd_agent_queue_size": diagnostics.unsent_events,
        "gettimeofday_latency": diagnostics.clock_latency,
        **_quick_cycles(diagnostics),
        "jobs_submitted": diagnostics.jobs_submitted,
        "jobs_started": diagnostics.jobs_started,
        "jobs_completed": diagnostics.jobs_completed,
        "jobs_canceled": diagnostics.jobs_cancelled,
        "jobs_failed": diagnostics.jobs_failed,
        "jobs_pending": diagnostics.jobs_pending,
        "jobs_running": diagnostics.jobs_running,
        "job_states_ts": number(int(diagnostics.now)),
        **_full_cycles(diagnostics),
        "rpcs_by_message_type": kinds,
        "rpcs_by_user": users,
        "pending_rpcs": [
            {"type_id": KINDS.get(kind, ("", 0))[1], "message_type": KINDS.get(kind, (kind, 0))[0], "count": count}
            for kind, count in sorted(diagnostics.pending.items())
        ],
        "pending_rpcs_by_hostlist": [],
    }
