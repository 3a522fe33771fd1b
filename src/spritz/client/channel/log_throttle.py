"""Limits log lines about faults of peers to one for each peer, sort of fault and minute.

The first line is written at once and in full. Further ones are counted, and the count is written when the minute is
over: a peer can neither fill the disk with lines nor go unnoticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spritz.client.channel.admission import Peer, name_of

if TYPE_CHECKING:
    from spritz.runtime.log import Logger

#: Seconds covered by one line of a kind about a peer.
EVERY_SECONDS = 60.0

#: Events, peers and sorts that are distinguished; further ones share a line.
PEERS_MAX = 1000

#: an event, its peer and its sort
_Key = tuple[str, Peer | None, str]


class LogThrottle:
    """Writes lines about peers. `now`: seconds of a clock that never goes back."""

    def __init__(self, log: Logger, counts: dict[str, int] | None = None) -> None:
        self._log = log
        #: event, peer and sort -> time of its line, and number of suppressed lines since
        self._written: dict[_Key, tuple[float, int]] = {}
        #: number of occurrences of each event, logged or not
        self.counts = {} if counts is None else counts

    def count(self, event: str) -> None:
        """Count an event without a line."""
        self.counts[event] = self.counts.get(event, 0) + 1

    def write(
        self,
        event: str,
        about: Peer | None,
        now: float,
        *,
        exception: Exception | None = None,
        sort: str = "",
        **fields: Any,
    ) -> None:
        """Write an error line about a peer (None: no particular peer), unless there was one of this sort this minute.

        `sort` is one of a few words, so that a harmless fault does not hide another.
        """
        self.count(event)
        key: _Key = (event, about, sort)
        if key not in self._written and len(self._written) >= PEERS_MAX:
            key = (event, None, sort)
        since, missed = self._written.get(key, (0.0, -1))
        if missed >= 0 and now - since < EVERY_SECONDS:
            self._written[key] = since, missed + 1
            return
        if missed > 0:
            fields["suppressed"] = missed
        self._written[key] = now, 0
        self._log.error(event, exception=exception, **fields)

    def flush(self, now: float) -> None:
        """Write the numbers of suppressed lines of past minutes. Called periodically."""
        for key, (since, missed) in list(self._written.items()):
            if now - since < EVERY_SECONDS:
                continue
            if missed:
                self._written[key] = now, 0
                event, about, sort = key
                fields: dict[str, Any] = {"sort": sort} if sort else {}
                self._log.error(event, peer="" if about is None else name_of(about), suppressed=missed, **fields)
            else:
                del self._written[key]
