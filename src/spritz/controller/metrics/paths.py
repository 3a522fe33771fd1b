"""The paths of pages, and the detection of HTTP on a new connection."""

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

_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC")


def is_http(data: bytes) -> bool:
    """Whether the connection's first bytes are HTTP: as a message length they would be far too large."""
    return data[:4] in _METHODS
