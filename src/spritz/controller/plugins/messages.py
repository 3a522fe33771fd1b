"""The protocol between the controller and the process that runs site scripts: msgpack in frames.

The controller sends `Setup` once, then one `Ask` after another; the child answers `Ready` and `Done`, and in between
may request data for the script (`Need`), answered with the records in msgpack.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from spritz.model.job.record import Job
from spritz.model.node.partition import Partition
from spritz.model.node.reservation import Reservation
from spritz.plugins.answer import PluginAnswer


class Setup(Struct, frozen=True, kw_only=True, tag=True):
    """First message to the child: the scripts to load, as (plugin, path)."""

    scripts: tuple[tuple[str, str], ...]
    cluster: str = ""


class Ask(Struct, frozen=True, kw_only=True, tag=True):
    """One request to one plugin. `partitions`, with the CPUs of each; None: unchanged."""

    plugin: str
    fields: dict[str, Any]
    uid: int
    user_id: int
    groups: tuple[str, ...]
    facts: dict[str, Any]
    script: bytes = b""
    environment: tuple[bytes, ...] = ()
    #: for an update
    job: Job | None = None
    partitions: tuple[Partition, ...] | None = None
    cpus: tuple[int, ...] = ()


class Ready(Struct, frozen=True, kw_only=True, tag=True):
    """`problem`: why a script cannot be used; "" if all can."""

    problem: str = ""
    log: tuple[tuple[str, str], ...] = ()


class Need(Struct, frozen=True, kw_only=True, tag=True):
    """A script asks for data of the cluster: `what` is jobs or reservations."""

    what: str


class Done(Struct, frozen=True, kw_only=True, tag=True):
    """The answer, and the description as the script left it."""

    answer: PluginAnswer
    fields: dict[str, Any] = {}
    changed: tuple[str, ...] = ()
    min_cpus: int | None = None
    script: bytes | None = None
    environment: tuple[bytes, ...] | None = None


encode = Encoder().encode
to_child: Decoder[Setup | Ask] = Decoder(Setup | Ask)
from_child: Decoder[Ready | Need | Done] = Decoder(Ready | Need | Done)
jobs_of: Decoder[list[Job]] = Decoder(list[Job])
reservations_of: Decoder[list[Reservation]] = Decoder(list[Reservation])
