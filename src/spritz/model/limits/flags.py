"""Flags of a QOS that lift or impose rules on its jobs, whichever limits are enforced.

Source: sacctmgr(1) SPECIFICATIONS FOR QOS, Flags.
"""

from __future__ import annotations

#: its jobs get no planned start (backfill reserves nothing for them)
NO_RESERVE = "NoReserve"
#: MaxNodes, MinNodes and MaxTime of the partition do not apply to its jobs
PARTITION_MAX_NODES = "PartitionMaxNodes"
PARTITION_MIN_NODES = "PartitionMinNodes"
PARTITION_TIME_LIMIT = "PartitionTimeLimit"
#: its jobs must name a reservation
REQUIRES_RESERVATION = "RequiresReservation"

NONE: frozenset[str] = frozenset()
#: flags that matter to placement and backfill
PLACING = frozenset((NO_RESERVE, PARTITION_MAX_NODES, PARTITION_MIN_NODES, PARTITION_TIME_LIMIT))
