"""Admission rules: connections and message memory that a daemon grants to each peer.

Every limit is a share, not a number for each user: a user may hold no more than remains free for all others. So a
single user gets half, two get a third each, and there is always something left for another. A part of each pool is
reserved for trusted users (root, SlurmUser, the daemon's own user), and a part of the connections for daemons, so that
users cannot lock out administrators and nodes. Unidentified peers on other machines share a tenth of the connections,
may have few of them per address, and may send only short messages.

Pure: no clock, no sockets. `client.channel.quota` keeps a server's accounts by these rules.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from spritz.wire.frames import FRAME_BYTES_MAX, HELLO_BYTES_MAX, IDLE_SECONDS

MIB = 1024 * 1024

#: A user by number, or the address of a peer on another machine.
Peer = int | str


class Rank(IntEnum):
    """How far a peer is trusted. `DAEMON`: a trusted user's process that claims to be a daemon of the cluster."""

    REMOTE = 0
    USER = 1
    TRUSTED = 2
    DAEMON = 3


class Limits(Struct, frozen=True, kw_only=True, gc=False):
    """A server's limits. Connections are counted in total; bytes are of messages in the daemon's memory."""

    connections: int = 10_000
    #: connections of one address on another machine
    connections_per_address: int = 32
    #: a connection without a request for this long is closed
    idle_seconds: float = IDLE_SECONDS
    #: a message must be complete this long after its beginning
    frame_seconds: float = 60.0
    #: a peer that has read nothing for this long is disconnected if its user has much unread
    unread_seconds: float = 30.0
    #: longest message
    frame_bytes: int = FRAME_BYTES_MAX
    #: longest message of a peer on another machine
    remote_frame_bytes: int = HELLO_BYTES_MAX
    #: bytes of incomplete messages of each connection that are not counted
    uncounted_bytes: int = 4096
    #: messages being received
    receiving_bytes: int = 320 * MIB
    #: parts of messages that wait for room for the rest
    waiting_bytes: int = 80 * MIB
    #: requests that are not answered yet, such as those that wait for a job's end
    requests: int = 200_000
    #: such requests of each connection that are not counted
    uncounted_requests: int = 16
    #: answers not yet read by their peers
    unread_bytes: int = 320 * MIB


class Pool:
    """Connections or bytes shared by peers, and the amount that each holds.

    `kept` of `total` are reserved for trusted peers, and `kept_for_daemons` of these for daemons.
    """

    def __init__(self, total: int, kept: int, kept_for_daemons: int = 0) -> None:
        self.total = total
        self.used = 0
        self._kept = (kept, kept, kept_for_daemons, 0)
        self._held: dict[Peer, int] = {}

    def held(self, peer: Peer) -> int:
        """The amount that the peer holds."""
        return self._held.get(peer, 0)

    def free(self, rank: Rank) -> int:
        """The amount left for peers of this rank."""
        return max(0, self.total - self._kept[rank] - self.used)

    @property
    def uses_kept_for_daemons(self) -> bool:
        """Whether only the amount reserved for daemons is left."""
        return self.used > self.total - self._kept[Rank.TRUSTED]

    def fits(self, peer: Peer, rank: Rank, amount: int) -> bool:
        """Whether the peer may take `amount` more. A user may hold no more than remains free then."""
        remaining = self.free(rank) - amount
        return remaining >= 0 and (rank >= Rank.TRUSTED or self.held(peer) + amount <= remaining)

    def take(self, peer: Peer, amount: int) -> None:
        """Add to the peer's amount; a negative amount is given back."""
        self.used += amount
        held = self._held.get(peer, 0) + amount
        if held:
            self._held[peer] = held
        else:
            self._held.pop(peer, None)


class Admission:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = Pool(limits.connections, limits.connections // 10, limits.connections // 20)
        self._remote = 0

    def refusal(self, peer: Peer, rank: Rank) -> str:
        """Why a further connection of the peer is refused, naming the limit; "" if it is accepted."""
        pool = self.pool
        if rank >= Rank.TRUSTED and pool.free(rank):
            return ""
        held = pool.held(peer)
        if rank is Rank.REMOTE:
            if held >= self.limits.connections_per_address:
                return f"{name_of(peer)} has {held} connections, the limit for each address on another machine"
            if self._remote >= self.limits.connections // 10:
                return f"other machines have {self._remote} connections, the limit for all of them"
        if pool.fits(peer, rank, 1) or (held == 0 and pool.free(rank)):
            return ""
        if held and (free := pool.free(rank)):
            return f"{name_of(peer)} has {held} connections, and a user may have no more than are free ({free})"
        return f"{pool.used} of {pool.total} connections are open, and the rest is kept for administrators and nodes"

    def enter(self, peer: Peer, rank: Rank) -> None:
        """Count an accepted connection; each call needs one of `leave`."""
        self.pool.take(peer, 1)
        self._remote += rank is Rank.REMOTE

    def leave(self, peer: Peer, rank: Rank) -> None:
        self.pool.take(peer, -1)
        self._remote -= rank is Rank.REMOTE


def name_of(peer: Peer) -> str:
    """A peer in messages: `uid 1000`, `address 10.0.0.7`."""
    return f"uid {peer}" if isinstance(peer, int) else f"address {peer}"
