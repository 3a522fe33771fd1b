"""Queries about partitions (`scontrol show partition`, sinfo)."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.node.partition import Partition


class ListPartitions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """List partitions by name (none: every one that the caller may see). Reply: `Partitions`."""

    names: tuple[str, ...] = ()
    all: bool = False


class Partitions(Struct, frozen=True, kw_only=True):
    """Reply to ListPartitions, in the order of the configuration."""

    now: float
    partitions: list[Partition]
