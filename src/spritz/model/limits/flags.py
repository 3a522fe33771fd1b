"""Flags of a QOS that free its jobs from something, or bind them, whichever limits are enforced.

Source: sacctmgr(1) SPECIFICATIONS FOR QOS, Flags.
"""

from __future__ import annotations

#: its jobs get no promise of a start (backfill keeps nothing for them)
NO_RESERVE = "NoReserve"
#: MaxNodes, MinNodes and MaxTime of the partition do not hold for its jobs
PARTITION_MAX_NODES = "PartitionMaxNodes"
PARTITION_MIN_NODES = "PartitionMinNodes"
PARTITION_TIME_LIMIT = "PartitionTimeLimit"
#: its jobs must name a reservation
REQUIRES_RESERVATION = "RequiresReservation"

NONE: frozenset[str] = frozenset()
#: those that placing and promising look at
PLACING = frozenset((NO_RESERVE, PARTITION_MAX_NODES, PARTITION_MIN_NODES, PARTITION_TIME_LIMIT))
