"""Resource limits of a daemon: a controller holds a connection for every waiting command."""

from __future__ import annotations

import resource


def allow_many_files() -> int:
    """Raise the soft limit of open files to the hard limit, and return it.

    For slurmctld. Not for daemons that start users' processes: these must get the submitter's limits, and some programs
    loop over every descriptor that the limit allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
