"""The paths of pages."""

from __future__ import annotations

#: Paths of `families.PATHS`.
METRICS = (
    "/metrics/jobs",
    "/metrics/jobs-use",
    "/metrics/jobs-users-accts",
    "/metrics/nodes",
    "/metrics/partitions",
    "/metrics/scheduler",
    "/metrics",
)
