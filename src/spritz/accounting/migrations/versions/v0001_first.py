"""The first tables: jobs, steps, pending reasons, suspensions, node events, documents."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None

_OPTIONS: Any = {
    f"{kind}_{name}": value
    for kind in ("mysql", "mariadb")
    for name, value in (("charset", "utf8mb4"), ("collate", "utf8mb4_bin"), ("engine", "InnoDB"))
}

#: MariaDB's TEXT ends at 64 KiB.
_LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "clusters",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("base", sa.BigInteger(), nullable=False),
        sa.Column("journal", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(length=255), nullable=False),
        sa.Column("store", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("registered_at", sa.Double(), nullable=False),
        sa.Column("lost", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        **_OPTIONS,
    )
    op.create_table(
        "documents",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column(
            "body",
            sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mariadb").with_variant(mysql.LONGBLOB(), "mysql"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("key"),
        **_OPTIONS,
    )
    op.create_table(
        "jobs",
        sa.Column("cluster_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("restart_count", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("array_job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("array_task_id", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("array_tasks", _LONG_TEXT, nullable=False),
        sa.Column("array_limit", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("aside", sa.Boolean(), nullable=False),
        sa.Column("het_job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("het_offset", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("uid", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("gid", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("group", sa.String(length=255), nullable=False),
        sa.Column("account", sa.String(length=255), nullable=False),
        sa.Column("qos", sa.String(length=255), nullable=False),
        sa.Column("wckey", sa.String(length=255), nullable=False),
        sa.Column("partition", sa.String(length=255), nullable=False),
        sa.Column("reservation", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=255), nullable=False),
        sa.Column("flags", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("reason", sa.String(length=255), nullable=False),
        sa.Column("reason_detail", _LONG_TEXT, nullable=False),
        sa.Column("submitted_at", sa.Double(), nullable=False),
        sa.Column("eligible_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("suspended_at", sa.Double(), nullable=False),
        sa.Column("suspended_seconds", sa.Double(), nullable=False),
        sa.Column("time_limit_minutes", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("priority", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("exit_status", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("derived_exit_status", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cancelled_by", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("requested_cpus", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("requested_nodes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("tres_requested", _LONG_TEXT, nullable=False),
        sa.Column("tres_allocated", _LONG_TEXT, nullable=False),
        sa.Column("nodes", _LONG_TEXT, nullable=False),
        sa.Column("node_count", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cpus", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("failed_node", sa.String(length=255), nullable=False),
        sa.Column("licenses", _LONG_TEXT, nullable=False),
        sa.Column("constraints", _LONG_TEXT, nullable=False),
        sa.Column("sharing", sa.String(length=255), nullable=False),
        sa.Column("batch", sa.Boolean(), nullable=False),
        sa.Column("work_dir", _LONG_TEXT, nullable=False),
        sa.Column("command", _LONG_TEXT, nullable=False),
        sa.Column("submit_line", _LONG_TEXT, nullable=False),
        sa.Column("stdin", _LONG_TEXT, nullable=False),
        sa.Column("stdout", _LONG_TEXT, nullable=False),
        sa.Column("stderr", _LONG_TEXT, nullable=False),
        sa.Column("comment", _LONG_TEXT, nullable=False),
        sa.Column("admin_comment", _LONG_TEXT, nullable=False),
        sa.Column("system_comment", _LONG_TEXT, nullable=False),
        sa.Column("extra", _LONG_TEXT, nullable=False),
        sa.Column("script_key", sa.String(length=255), nullable=False),
        sa.Column("environment_key", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "number"),
        **_OPTIONS,
    )
    op.create_index("jobs_by_account", "jobs", ["cluster_id", "account", "ended_at"], unique=False)
    op.create_index("jobs_by_array", "jobs", ["cluster_id", "array_job_id"], unique=False)
    op.create_index("jobs_by_end", "jobs", ["cluster_id", "ended_at"], unique=False)
    op.create_index("jobs_by_environment", "jobs", ["environment_key"], unique=False)
    op.create_index("jobs_by_het", "jobs", ["cluster_id", "het_job_id"], unique=False)
    op.create_index("jobs_by_id", "jobs", ["cluster_id", "job_id", "number"], unique=False)
    op.create_index("jobs_by_script", "jobs", ["script_key"], unique=False)
    op.create_index("jobs_by_user", "jobs", ["cluster_id", "uid", "ended_at"], unique=False)
    op.create_table(
        "node_events",
        sa.Column("cluster_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("place", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("nodes", _LONG_TEXT, nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("state", sa.String(length=255), nullable=False),
        sa.Column("flags", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("reason", sa.String(length=255), nullable=False),
        sa.Column("reason_uid", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("tres", _LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "place"),
        **_OPTIONS,
    )
    op.create_index("node_events_open", "node_events", ["cluster_id", "ended_at"], unique=False)
    op.create_table(
        "pending_reasons",
        sa.Column("cluster_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("place", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("reason", sa.String(length=255), nullable=False),
        sa.Column("detail", _LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "number", "place"),
        **_OPTIONS,
    )
    op.create_table(
        "steps",
        sa.Column("cluster_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("step_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=255), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("suspended_seconds", sa.Double(), nullable=False),
        sa.Column("exit_status", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cancelled_by", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("oom", sa.Boolean(), nullable=False),
        sa.Column("tasks", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cpus", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("nodes", _LONG_TEXT, nullable=False),
        sa.Column("node_count", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("tres_allocated", _LONG_TEXT, nullable=False),
        sa.Column("layout", sa.String(length=255), nullable=False),
        sa.Column("submit_line", _LONG_TEXT, nullable=False),
        sa.Column("work_dir", _LONG_TEXT, nullable=False),
        sa.Column("stdin", _LONG_TEXT, nullable=False),
        sa.Column("stdout", _LONG_TEXT, nullable=False),
        sa.Column("stderr", _LONG_TEXT, nullable=False),
        sa.Column("user_cpu_seconds", sa.Double(), nullable=False),
        sa.Column("system_cpu_seconds", sa.Double(), nullable=False),
        sa.Column("usage_in_max", _LONG_TEXT, nullable=False),
        sa.Column("usage_in_max_node", _LONG_TEXT, nullable=False),
        sa.Column("usage_in_max_task", _LONG_TEXT, nullable=False),
        sa.Column("usage_in_min", _LONG_TEXT, nullable=False),
        sa.Column("usage_in_min_node", _LONG_TEXT, nullable=False),
        sa.Column("usage_in_min_task", _LONG_TEXT, nullable=False),
        sa.Column("usage_in_ave", _LONG_TEXT, nullable=False),
        sa.Column("usage_in_tot", _LONG_TEXT, nullable=False),
        sa.Column("usage_out_max", _LONG_TEXT, nullable=False),
        sa.Column("usage_out_max_node", _LONG_TEXT, nullable=False),
        sa.Column("usage_out_max_task", _LONG_TEXT, nullable=False),
        sa.Column("usage_out_min", _LONG_TEXT, nullable=False),
        sa.Column("usage_out_min_node", _LONG_TEXT, nullable=False),
        sa.Column("usage_out_min_task", _LONG_TEXT, nullable=False),
        sa.Column("usage_out_ave", _LONG_TEXT, nullable=False),
        sa.Column("usage_out_tot", _LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "number", "step_id"),
        **_OPTIONS,
    )
    op.create_index("steps_open", "steps", ["cluster_id", "job_id", "ended_at"], unique=False)
    op.create_table(
        "suspensions",
        sa.Column("cluster_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "number", "started_at"),
        **_OPTIONS,
    )
