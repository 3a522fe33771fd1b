"""What a daemon grants to each peer: connections, and memory for messages. The rules alone, without connections.

Every limit is a share, not a number for each user: a user may hold no more than is left over for everyone else. So one
user alone gets half, two get a third each, and there is always something left for another. A part of each pool is kept
for trusted users (root, SlurmUser, the daemon's own user), and a part of the connections for daemons, so that users
cannot lock out administrators and nodes. Peers on other machines, for which no one vouches, share a tenth of the
connections, may have few of them for each address, and may send short messages only.

Pure: no clock, no sockets. `client.quota` keeps the books of a server by these rules.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from spritz.wire.frames import FRAME_BYTES_MAX, HELLO_BYTES_MAX, IDLE_SECONDS

MIB = 1024 * 1024

#: A user by number, or the address of a peer on another machine.
Peer = int | str


class Rank(IntEnum):
    """How far a peer is trusted. `DAEMON`: a trusted user's process that says it is a daemon of the cluster."""

    REMOTE = 0
    USER = 1
    TRUSTED = 2
    DAEMON = 3


class Limits(Struct, frozen=True, kw_only=True, gc=False):
    """A server's limits. Connections are counted in all; bytes are of messages that are held in the daemon's memory."""

    connections: int = 10_000
    #: connections of one address on another machine
    connections_per_address: int = 32
    #: a connection that is asked nothing for so long is closed
    idle_seconds: float = IDLE_SECONDS
    #: a message must be complete so long after its beginning
    frame_seconds: float = 60.0
    #: a peer that has read nothing for so long loses its connection when its user has much unread
    unread_seconds: float = 30.0
    #: longest message
    frame_bytes: int = FRAME_BYTES_MAX
    #: longest message of a peer on another machine
    remote_frame_bytes: int = HELLO_BYTES_MAX
    #: what each connection may hold of incomplete messages without being counted
    uncounted_bytes: int = 4096
    #: messages that are being received
    receiving_bytes: int = 320 * MIB
    #: pieces of messages that wait until there is room for the rest
    waiting_bytes: int = 80 * MIB
    #: answers that their peers have not read
    unread_bytes: int = 320 * MIB


class Pool:
    """Places or bytes that peers share, and how many of them each holds.

    `kept` of `total` are for trusted peers, and `kept_for_daemons` of these for daemons.
    """

    def __init__(self, total: int, kept: int, kept_for_daemons: int = 0) -> None:
        self.total = total
        self.used = 0
        self._kept = (kept, kept, kept_for_daemons, 0)
        self._held: dict[Peer, int] = {}

    def held(self, peer: Peer) -> int:
        """What the peer holds."""
        return self._held.get(peer, 0)

    def free(self, rank: Rank) -> int:
        """What is left for peers of this rank."""
        return max(0, self.total - self._kept[rank] - self.used)

    @property
    def uses_kept_for_daemons(self) -> bool:
        """Whether more is held than is there for others than daemons."""
        return self.used > self.total - self._kept[Rank.TRUSTED]

    def fits(self, peer: Peer, rank: Rank, amount: int) -> bool:
        """Whether the peer may take `amount` more. A user may hold no more than remains free then."""
        left = self.free(rank) - amount
        return left >= 0 and (rank >= Rank.TRUSTED or self.held(peer) + amount <= left)

    def take(self, peer: Peer, amount: int) -> None:
        """The peer holds `amount` more; a negative amount is given back."""
        self.used += amount
        held = self._held.get(peer, 0) + amount
        if held:
            self._held[peer] = held
        else:
            self._held.pop(peer, None)


class Admission:
    """Which connections are accepted."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = Pool(limits.connections, limits.connections // 10, limits.connections // 20)
        self._remote = 0

    def refusal(self, peer: Peer, rank: Rank) -> str:
        """Why a further connection of the peer is not accepted, naming the limit; "" if it is."""
        pool = self.pool
        if rank >= Rank.TRUSTED and pool.free(rank):
            return ""
        mine = pool.held(peer)
        if rank is Rank.REMOTE:
            if mine >= self.limits.connections_per_address:
                return f"{name_of(peer)} has {mine} connections, the limit for each address on another machine"
            if self._remote >= self.limits.connections // 10:
                return f"other machines have {self._remote} connections, the limit for all of them"
        if pool.fits(peer, rank, 1) or (mine == 0 and pool.free(rank)):
            return ""
        if mine and (free := pool.free(rank)):
            return f"{name_of(peer)} has {mine} connections, and a user may have no more than are free ({free})"
        return f"{pool.used} of {pool.total} connections are open, and the rest is kept for administrators and nodes"

    def enter(self, peer: Peer, rank: Rank) -> None:
        """Count a connection."""
        self.pool.take(peer, 1)
        self._remote += rank is Rank.REMOTE

    def leave(self, peer: Peer, rank: Rank) -> None:
        """The connection has ended."""
        self.pool.take(peer, -1)
        self._remote -= rank is Rank.REMOTE


def name_of(peer: Peer) -> str:
    """A peer in messages: `uid 1000`, `address 10.0.0.7`."""
    return f"uid {peer}" if isinstance(peer, int) else f"address {peer}"
