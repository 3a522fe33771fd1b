"""One line in the log for each peer and minute about what it does wrong, however often it does it.

The first one is written at once and in full. Further ones are counted, and the count is written when the minute is
over, so that a peer can neither fill a disk with lines nor go unnoticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spritz.client.admission import Peer, name_of

if TYPE_CHECKING:
    from spritz.runtime.log import Logger

#: Seconds for which one line of a kind about a peer is enough.
EVERY_SECONDS = 60.0

#: Kinds and peers that are told apart; further ones share a line.
PEERS_MAX = 1000

#: An event and who it is about.
_Key = tuple[str, Peer | None]


class LogThrottle:
    """Writes lines about peers. `now` is in seconds from any moment, and never goes back."""

    def __init__(self, log: Logger, counts: dict[str, int] | None = None) -> None:
        self._log = log
        #: event and peer -> when its line was written, and how many were not since
        self._written: dict[_Key, tuple[float, int]] = {}
        #: how often each event was complained of, with a line or without
        self.counts = {} if counts is None else counts

    def count(self, event: str) -> None:
        """Count something that needs no line."""
        self.counts[event] = self.counts.get(event, 0) + 1

    def write(
        self, event: str, about: Peer | None, now: float, *, exception: Exception | None = None, **fields: Any
    ) -> None:
        """Write an error line about a peer (None: about no one in particular), unless there was one this minute."""
        self.count(event)
        key: _Key = (event, about)
        if key not in self._written and len(self._written) >= PEERS_MAX:
            key = (event, None)
        since, missed = self._written.get(key, (0.0, -1))
        if missed >= 0 and now - since < EVERY_SECONDS:
            self._written[key] = since, missed + 1
            return
        if missed > 0:
            fields["suppressed"] = missed
        self._written[key] = now, 0
        self._log.error(event, exception=exception, **fields)

    def flush(self, now: float) -> None:
        """Write how many lines were left out in minutes that are over. To be called now and then."""
        for (event, about), (since, missed) in list(self._written.items()):
            if now - since < EVERY_SECONDS:
                continue
            if missed:
                self._written[event, about] = now, 0
                self._log.error(event, peer="" if about is None else name_of(about), suppressed=missed)
            else:
                del self._written[event, about]
