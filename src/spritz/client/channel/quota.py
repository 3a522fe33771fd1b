"""A server's accounts of connections and message memory, by the rules of `admission`.

A connection asks for room before it reads the rest of a message. Without room it stops reading, which slows its peer;
it is refused only if too much waits already. Answers cannot wait, so new requests do: while its user has much unread, a
connection accepts none, and the connection with most unread is cut off when the user's share is full.

No I/O: connections get callbacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from spritz.client.channel.admission import Admission, Limits, Peer, Pool, Rank, name_of

_T = TypeVar("_T")


class OverQuota(Exception):
    """The connection must end; the text names the limit."""


class Quotas:
    """All connections of one server. Released memory lets waiting connections continue.

    Releasing checks one waiting connection of each user, however many wait.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.admission = Admission(limits)
        self.receiving = Pool(limits.receiving_bytes, limits.receiving_bytes // 5)
        self.waiting = Pool(limits.waiting_bytes, limits.waiting_bytes // 5)
        self.unread = Pool(limits.unread_bytes, limits.unread_bytes // 5)
        self.requests = Pool(limits.requests, limits.requests // 5)
        #: connections that wait for room -> additional bytes wanted
        self._short: dict[Peer, dict[Quota, int]] = {}
        #: connections that wait until their user has less unread
        self._congested: dict[Peer, dict[Quota, None]] = {}
        #: connections with unread answers
        self._senders: dict[Quota, None] = {}

    def open(self, peer: Peer, rank: Rank) -> Quota:
        """The quota of a new connection. Raises OverQuota."""
        reason = self.admission.refusal(peer, rank)
        if reason:
            raise OverQuota(reason)
        self.admission.enter(peer, rank)
        return Quota(self, peer, rank)

    def wait_for_room(self, quota: Quota, more: int) -> None:
        """Call `quota.resume` when there may be room for `more` bytes."""
        self._short.setdefault(quota.peer, {})[quota] = more

    def wait_for_readers(self, quota: Quota) -> None:
        """Call `quota.resume` when its user has much less unread."""
        self._congested.setdefault(quota.peer, {})[quota] = None

    def is_waited_for(self, peer: Peer) -> bool:
        """Whether connections wait until the user has less unread."""
        return peer in self._congested

    def stop_waiting(self, quota: Quota) -> bool:
        """Stop waiting for room. Returns whether it waited."""
        return _remove(self._short, quota)

    def give_room(self) -> None:
        """Messages were released: the first waiting connection of each user continues if there is room."""
        for queue in list(self._short.values()):
            quota, more = next(iter(queue.items()))
            if self.receiving.fits(quota.peer, quota.rank, more):
                quota.resume()

    def give_way(self) -> None:
        """Answers were read: connections continue whose users have much less unread than made them wait."""
        for peer, queue in list(self._congested.items()):
            if self.unread.fits(peer, next(iter(queue)).rank, 2 * self.unread.held(peer)):
                del self._congested[peer]
                for quota in queue:
                    quota.resume()

    def count_unread(self, quota: Quota, amount: int) -> None:
        """Record a connection's unread bytes. Cuts off the user's slowest reader if the user's share is exceeded."""
        more = amount - quota.unread
        if more == 0:
            return
        fits = more < 0 or quota.rank is Rank.DAEMON or self.unread.fits(quota.peer, quota.rank, more)
        self.unread.take(quota.peer, more)
        quota.unread = amount
        if amount:
            self._senders[quota] = None
        else:
            self._senders.pop(quota, None)
        if more < 0:
            self.give_way()
        elif not fits:
            unread = self.unread.held(quota.peer)
            reason = f"{name_of(quota.peer)} has {unread} bytes of answers unread; its share is full"
            of_this_peer = (
                other for other in self._senders if other.peer == quota.peer and other.rank is not Rank.DAEMON
            )
            worst = max(of_this_peer, key=lambda other: other.unread)
            self.count_unread(worst, 0)
            worst.cut(reason)

    def forget(self, quota: Quota) -> None:
        """Remove a connection from all queues after its end."""
        _remove(self._short, quota)
        _remove(self._congested, quota)
        self._senders.pop(quota, None)


class Quota:
    """One connection's part. `resume` and `cut` are set by the connection.

    `resume()`: retry the waiting work; `cut(reason)`: end now.
    """

    __slots__ = ("_quotas", "_received", "_requests", "_waits", "cut", "peer", "rank", "resume", "unread")

    def __init__(self, quotas: Quotas, peer: Peer, rank: Rank) -> None:
        self._quotas = quotas
        self.peer = peer
        self.rank = rank
        #: bytes of answers that the peer has not read
        self.unread = 0
        self._received = 0
        self._requests = 0
        self._waits = 0
        self.resume: Callable[[], None] = _nothing
        self.cut: Callable[[str], None] = _ignored

    @property
    def frame_bytes_max(self) -> int:
        """The longest message that the peer may send."""
        limits = self._quotas.limits
        return limits.remote_frame_bytes if self.rank is Rank.REMOTE else limits.frame_bytes

    def introduce(self, *, daemon: bool) -> None:
        """The peer has identified itself: places reserved for daemons are for daemons. Raises OverQuota."""
        if self.rank is not Rank.DAEMON or daemon:
            return
        self.rank = Rank.TRUSTED
        admission = self._quotas.admission
        if admission.pool.uses_kept_for_daemons:
            raise OverQuota(admission.refusal(self.peer, self.rank))

    def receive(self, held: int, wanted: int) -> bool:
        """Request room for `wanted` bytes of messages, `held` of which are in memory.

        False: no room, and the connection must not read until `resume`. Raises OverQuota if too much waits.
        """
        quotas = self._quotas
        if wanted <= quotas.limits.uncounted_bytes:
            wanted = 0
        more = wanted - self._received
        if more > 0 and not quotas.receiving.fits(self.peer, self.rank, more):
            self._count_waiting(max(0, held - self._received))
            quotas.wait_for_room(self, more)
            return False
        waited, self._waits = self._waits, 0
        quotas.waiting.take(self.peer, -waited)
        quotas.receiving.take(self.peer, more)
        self._received = wanted
        if quotas.stop_waiting(self) or more < 0:
            quotas.give_room()
        return True

    @property
    def is_free(self) -> bool:
        """Whether no memory of messages is accounted to it."""
        return self._received == 0 and self._waits == 0

    def send(self, unread: int) -> None:
        """Record the peer's unread bytes of answers."""
        self._quotas.count_unread(self, unread)

    def must_wait_for_readers(self) -> bool:
        """Whether the user has too many unread answers for more requests. If so, `resume` is called later."""
        if self.rank is Rank.DAEMON:
            return False
        pool = self._quotas.unread
        held = pool.held(self.peer)
        if held == 0 or pool.fits(self.peer, self.rank, held):
            return False
        self._quotas.wait_for_readers(self)
        return True

    def is_waited_for(self) -> bool:
        """Whether connections of its user wait until less is unread."""
        return self._quotas.is_waited_for(self.peer)

    def begin_request(self, in_progress: int) -> str:
        """Count a further request of a connection with this many in progress. Returns why it is refused; "" if it is
        not.
        """
        quotas = self._quotas
        if in_progress < quotas.limits.uncounted_requests:
            return ""
        pool = quotas.requests
        if self.rank is not Rank.DAEMON and not pool.fits(self.peer, self.rank, 1):
            return f"{name_of(self.peer)} has {pool.held(self.peer)} requests in progress; its share is full"
        pool.take(self.peer, 1)
        self._requests += 1
        return ""

    def end_request(self, in_progress: int) -> None:
        """A request was answered, or given up; `in_progress` are left."""
        if in_progress >= self._quotas.limits.uncounted_requests:
            self._quotas.requests.take(self.peer, -1)
            self._requests -= 1

    def close(self) -> None:
        """The connection has ended: release everything."""
        quotas = self._quotas
        quotas.requests.take(self.peer, -self._requests)
        self._requests = 0
        quotas.forget(self)
        self.resume, self.cut = _nothing, _ignored
        quotas.admission.leave(self.peer, self.rank)
        if self._received or self._waits:
            quotas.receiving.take(self.peer, -self._received)
            quotas.waiting.take(self.peer, -self._waits)
            self._received = self._waits = 0
            quotas.give_room()
        if self.unread:
            quotas.unread.take(self.peer, -self.unread)
            self.unread = 0
            quotas.give_way()

    def _count_waiting(self, amount: int) -> None:
        pool = self._quotas.waiting
        more = amount - self._waits
        if more > 0 and not pool.fits(self.peer, self.rank, more):
            raise OverQuota(
                f"{name_of(self.peer)} has {self._quotas.receiving.held(self.peer)} bytes of messages in memory and "
                f"{pool.held(self.peer)} more that wait for room; its share is full"
            )
        pool.take(self.peer, more)
        self._waits = amount


def _remove(queues: dict[Peer, dict[Quota, _T]], quota: Quota) -> bool:
    """Remove the quota from its peer's queue. Returns whether it was there."""
    queue = queues.get(quota.peer)
    if queue is None or quota not in queue:
        return False
    del queue[quota]
    if not queue:
        del queues[quota.peer]
    return True


def _nothing() -> None:
    """Used while no work waits for memory."""


def _ignored(reason: str) -> None:
    """Used after the connection has ended."""
