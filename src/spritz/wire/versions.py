"""Protocol versions: those of this release, and agreement with a peer."""

from __future__ import annotations

from spritz import __version__
from spritz.model.errors import SpritzError
from spritz.wire.envelope import MAGIC, Hello

#: the version that this release prefers
VERSION = 1

#: the oldest version that it still speaks
VERSION_MIN = 1


class IncompatiblePeer(SpritzError):
    """The two sides have no common version, or the peer speaks another protocol."""


def hello(role: str) -> Hello:
    """The first frame of this release. `role`: `command`, or the daemon's name."""
    return Hello(magic=MAGIC, version_min=VERSION_MIN, version_max=VERSION, software=f"spritz {__version__}", role=role)


def negotiate(theirs: Hello) -> int:
    """The highest version that both sides speak. Raises IncompatiblePeer, with a text for users."""
    if theirs.magic != MAGIC:
        raise IncompatiblePeer("Protocol magic of the peer is not Spritz's", code="SLURM_PROTOCOL_VERSION_ERROR")
    best = min(VERSION, theirs.version_max)
    if best < max(VERSION_MIN, theirs.version_min):
        raise IncompatiblePeer(
            "Incompatible versions of client and server code: "
            f"{theirs.software[:60]} ({theirs.role[:30]}) speaks protocol "
            f"{theirs.version_min} to {theirs.version_max}, spritz {__version__} speaks {VERSION_MIN} to {VERSION}",
            code="SLURM_PROTOCOL_VERSION_ERROR",
            hint="install the same release on both sides",
        )
    return best
