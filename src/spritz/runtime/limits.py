"""What the system allows a process: a controller holds a connection for every waiting command."""

from __future__ import annotations

import resource


def allow_many_files() -> int:
    """Raise the soft limit of open files to the hard one; the limit then in force.

    For slurmctld. Not for what starts users' processes: those must get the limits of whoever submitted them, and some
    programs walk over every descriptor that the limit allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
