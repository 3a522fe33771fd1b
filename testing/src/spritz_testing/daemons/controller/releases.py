"""Two releases of Spritz: this one, and a next one whose stored records have the next format.

A host has one of them installed; a process keeps the one that it was started with. The next release's records have the
fields of this one's, and another number and fingerprint. So it reads what this one wrote by the walk that upgrades
take, and this one must refuse what the next one wrote, and write nothing after that.

Source: docs/stored-formats.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import msgpack

from spritz.model import stored, upcast
from spritz_testing.daemons.system import threads
from spritz_testing.daemons.system.world import EPOCH

if TYPE_CHECKING:
    from msgspec.msgpack import Decoder

    from spritz_testing.daemons.system.world import Process

#: the rule that a process of this release violates if it goes on
OLDER_STOPS = "4: an older release stores nothing once it has met what a later one wrote"

_NEXT_FORMAT, _NEXT_FINGERPRINT = stored.FORMAT + 1, stored.FINGERPRINT ^ 1
_NEXT_HEAD = msgpack.encode((_NEXT_FORMAT, _NEXT_FINGERPRINT, None))[:-1]


def _process() -> Process | None:
    """The process that runs. Checks run outside of any: they read all."""
    return threads.world().current


class Stored:
    """Stands for the module `spritz.model.stored`: each process encodes and decodes as its release does."""

    def __getattr__(self, name: str) -> Any:
        return getattr(stored, name)

    @property
    def FORMAT(self) -> int:
        process = _process()
        return stored.FORMAT if process is not None and not process.is_next_release else _NEXT_FORMAT

    @staticmethod
    def encode(value: object) -> bytes:
        process = _process()
        if process is not None and process.is_next_release:
            return msgpack.encode((_NEXT_FORMAT, _NEXT_FINGERPRINT, value))
        if process is not None and process.met_next_format:
            process.world.violations.append((OLDER_STOPS, process.world.now - EPOCH, f"{process}: {value!r:.120}"))
        return stored.encode(value)

    @staticmethod
    def decode(data: bytes | memoryview, decoder: Decoder[Any]) -> Any:
        process, is_next = _process(), data[: len(_NEXT_HEAD)] == _NEXT_HEAD
        if process is None or process.is_next_release:
            if is_next:
                return decoder.decode(memoryview(data)[len(_NEXT_HEAD) :])
            return decoder.decode(upcast.upcast(bytes(data), decoder.type, _NEXT_FORMAT))
        if is_next:
            process.met_next_format = True
            process.world.count("later format refused")
        return stored.decode(data, decoder)


def table() -> list[tuple[object, object]]:
    """For `seam`."""
    return [(stored, Stored())]
