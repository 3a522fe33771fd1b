"""Shortages of a machine: processes, memory or descriptors for a while, or a disk that can be written. Which errors
show it, and when to try again.

Source: fork(2), socketpair(2), write(2), mkdir(2) ERRORS.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

#: errors that may not occur at the next attempt
SCARCE = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOBUFS})

#: errors of a disk that cannot be written: full, at a limit, failing, or mounted read-only after a failure
UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})

_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 1.0


def pauses(patience_seconds: float) -> Iterator[float]:
    """Seconds to wait before each further attempt, each twice the last, until all of them are `patience_seconds`."""
    pause = _FIRST_SECONDS
    while patience_seconds > 0:
        yield min(pause, patience_seconds)
        patience_seconds -= pause
        pause = min(2 * pause, _LONGEST_SECONDS)
