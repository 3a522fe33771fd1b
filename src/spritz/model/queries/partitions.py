"""Partitions."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.partition import Partition


class ListPartitions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Partitions. Reply: `Partitions`."""

    names: tuple[str, ...] = ()
    all: bool = False


class Partitions(Struct, frozen=True, kw_only=True):
    """Reply to ListPartitions, in the order of the configuration."""

    now: float
    partitions: list[Partition]
