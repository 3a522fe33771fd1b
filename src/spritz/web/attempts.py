"""Rate limits of requests and of log-ins.

Wrong passwords are counted for each pair of user and address, so that one who guesses locks out neither other users
behind the same proxy nor the user elsewhere. The limit of an address is high, and does not hold for pairs that have
logged in before.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Token bucket of a session (or, without session, of an address): its size, and requests added per second.
BURST, RATE = 240.0, 40.0

#: Most failed log-ins per minute of a user from an address, and of all users from an address.
PAIR_MAX, ADDRESS_MAX = 10, 100

#: Most counters of each kind that are kept.
COUNTERS_MAX = 10_000


class Rates:
    """Token buckets of callers."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}

    def allow(self, caller: str) -> bool:
        """Count a request; False if the caller exceeds the rate."""
        now = time.monotonic()
        if len(self._buckets) > COUNTERS_MAX:
            self._buckets = {name: bucket for name, bucket in self._buckets.items() if bucket[1] > now - BURST / RATE}
        left, at = self._buckets.get(caller, (BURST, now))
        left = min(BURST, left + (now - at) * RATE)
        self._buckets[caller] = (max(0.0, left - 1), now)
        return left >= 1


class _Failures:
    """Times of failures in the last minute, by name. If there are too many names, the oldest is forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()

    def is_full(self, name: tuple[str, ...]) -> bool:
        times, now = self._times.get(name), time.monotonic()
        while times and times[0] <= now - 60:
            times.popleft()
        return times is not None and len(times) >= self._most

    def add(self, name: tuple[str, ...]) -> None:
        times = self._times.setdefault(name, deque(maxlen=self._most))
        times.append(time.monotonic())
        self._times.move_to_end(name)
        while len(self._times) > COUNTERS_MAX:
            self._times.popitem(last=False)

    def take_back(self, name: tuple[str, ...], *, all_of_them: bool) -> None:
        times = self._times.get(name)
        if times:
            times.pop()
        if times is not None and (all_of_them or not times):
            del self._times[name]


class Attempts:
    """Counts log-ins. An attempt under way counts as failed, so that many at once are no way round the limits."""

    def __init__(self) -> None:
        self._pairs, self._addresses = _Failures(PAIR_MAX), _Failures(ADDRESS_MAX)
        #: pairs that have logged in, the latest last
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def begin(self, user: str, address: str) -> bool:
        """Count an attempt; False if it exceeds the limits, and must not be made."""
        pair = user, address
        if self._pairs.is_full(pair) or (self._addresses.is_full((address,)) and pair not in self._known):
            return False
        self._pairs.add(pair)
        self._addresses.add((address,))
        return True

    def succeeded(self, user: str, address: str) -> None:
        """The attempt was good: the failures of this pair are forgotten."""
        pair = user, address
        self._pairs.take_back(pair, all_of_them=True)
        self._addresses.take_back((address,), all_of_them=False)
        self._known[pair] = None
        self._known.move_to_end(pair)
        while len(self._known) > COUNTERS_MAX:
            self._known.popitem(last=False)


def address_of(request: Request, proxies: Sequence[Network]) -> str:
    """The client's address. Behind one of `proxies` it is the last address of X-Forwarded-For that is not a proxy's:
    clients choose what stands before it.

    Of IPv6 it is the network of 64 bits, of which a client has all addresses.
    """
    address = _parsed(request.client.host if request.client is not None else "")
    words = [word for line in request.headers.getlist("x-forwarded-for") for word in line.split(",")]
    while address is not None and words and any(address in network for network in proxies):
        following = _parsed(words.pop().strip())
        if following is None:
            break
        address = following
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address or "")


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
