"""Flags of a QOS, which lift or impose rules on its jobs, whichever limits are enforced.

`FLAGS` declares all of them: sacctmgr, JSON and REST take their words from it, placement its part.

Source: sacctmgr(1) SPECIFICATIONS FOR QOS, Flags; Slurm's OpenAPI specification of slurmdbd, v0.0.43.
"""

from __future__ import annotations

from msgspec import Struct

#: a submission that a limit of the QOS would keep from ever starting is refused
DENY_ON_LIMIT = "DenyOnLimit"
#: its jobs wait while the fair-share factor is below UsageThreshold
ENFORCE_USAGE_THRESHOLD = "EnforceUsageThreshold"
#: its jobs get no planned start (backfill reserves nothing for them)
NO_RESERVE = "NoReserve"
#: MaxNodes, MinNodes and MaxTime of the partition do not apply to its jobs
PARTITION_MAX_NODES = "PartitionMaxNodes"
PARTITION_MIN_NODES = "PartitionMinNodes"
PARTITION_TIME_LIMIT = "PartitionTimeLimit"
#: the limits of the job's QOS go before those of the partition's
OVER_PART_QOS = "OverPartQOS"
#: its jobs must name a reservation
REQUIRES_RESERVATION = "RequiresReservation"
#: its usage does not decay
NO_DECAY = "NoDecay"
#: UsageFactor counts in advance, for limits on what a job may use
USAGE_FACTOR_SAFE = "UsageFactorSafe"
#: its group limits are percentages of the cluster
RELATIVE = "Relative"


class QosFlag(Struct, frozen=True, gc=False):
    """`json`: its word in JSON. `placing`: whether placement and backfill ask for it."""

    json: str
    placing: bool = False


#: sacctmgr's word, in its order -> what the flag declares
FLAGS = {
    DENY_ON_LIMIT: QosFlag("DENY_LIMIT"),
    ENFORCE_USAGE_THRESHOLD: QosFlag("ENFORCE_USAGE_THRESHOLD"),
    NO_RESERVE: QosFlag("NO_RESERVE", placing=True),
    PARTITION_MAX_NODES: QosFlag("PARTITION_MAXIMUM_NODE", placing=True),
    PARTITION_MIN_NODES: QosFlag("PARTITION_MINIMUM_NODE", placing=True),
    OVER_PART_QOS: QosFlag("OVERRIDE_PARTITION_QOS"),
    PARTITION_TIME_LIMIT: QosFlag("PARTITION_TIME_LIMIT", placing=True),
    REQUIRES_RESERVATION: QosFlag("REQUIRED_RESERVATION"),
    NO_DECAY: QosFlag("NO_DECAY"),
    USAGE_FACTOR_SAFE: QosFlag("USAGE_FACTOR_SAFE"),
    RELATIVE: QosFlag("RELATIVE"),
}

NONE: frozenset[str] = frozenset()
#: flags that matter to placement and backfill
PLACING = frozenset(name for name, flag in FLAGS.items() if flag.placing)
