"""A machine that briefly lacks processes, memory or descriptors: which errors show it, and when to try again.

Source: fork(2), socketpair(2) ERRORS.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

#: errors that may not occur at the next attempt
SCARCE = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOBUFS})

_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 1.0


def pauses(patience_seconds: float) -> Iterator[float]:
    """Seconds to wait before each further attempt, each twice the last, until all of them are `patience_seconds`."""
    pause = _FIRST_SECONDS
    while patience_seconds > 0:
        yield min(pause, patience_seconds)
        patience_seconds -= pause
        pause = min(2 * pause, _LONGEST_SECONDS)
