"""The configuration that the controller has in force."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.cluster.settings import ClusterSettings


class ShowConfig(Struct, frozen=True, kw_only=True):
    """`scontrol show config`: the configuration in force. Reply: `ConfigText`."""


class ConfigText(Struct, frozen=True, kw_only=True):
    """Keys and values in Slurm's spelling and order, and the typed settings that clients use."""

    now: float
    pairs: list[tuple[str, str]]
    settings: ClusterSettings
    controllers: tuple[str, ...] = ()
    #: the controller's start; BOOT_TIME among the pairs is empty
    started_at: float = 0.0
    #: fingerprint of the files that it read; HASH_VAL among the pairs is empty
    digest: str = ""
    #: (name@server, count) of licenses that accounting gives this cluster
    remote_licenses: tuple[tuple[str, int], ...] = ()
