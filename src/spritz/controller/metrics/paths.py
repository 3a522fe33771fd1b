"""Which pages there are, and how a connection of HTTP is told from one of our messages."""

from __future__ import annotations

#: Paths of `families.PATHS`.
METRICS = (
    "/metrics/jobs", "/metrics/jobs-users-accts", "/metrics/nodes", "/metrics/partitions", "/metrics/scheduler",
    "/metrics",
)  # fmt: skip

_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC")


def is_http(data: bytes) -> bool:
    """Whether a connection that begins so is HTTP's: as the length of a message it would be too long by far."""
    return data[:4] in _METHODS
