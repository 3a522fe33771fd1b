"""Scripts and environments: stored once per content, on disk before any event names them, forgotten when no job does.

Owns which keys the journal has and what is on its way there. The single writer takes `take_unsent()` along with each
group, so that a blob and the event that names it become durable together.
"""

from __future__ import annotations

from collections import OrderedDict

from spritz.controller.journal import Journal, JournalCorrupt, content_key

#: Bytes of recently used blobs that are kept in memory: a burst of submissions launches without reading them back.
CACHE_BYTES_MAX = 8 * 1024 * 1024


class BlobStore:
    """Blobs by content. `put` before handing the command over; `get` when launching."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known = journal.blob_keys()
        self._unsent: dict[str, bytes] = {}
        self._committing: dict[str, bytes] = {}
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cache_bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def put(self, body: bytes) -> str:
        """Key of the blob; it will be durable with the next group. Empty content has the empty key."""
        if not body:
            return ""
        key = content_key(body)
        if key not in self._known:
            self._known.add(key)
            self._unsent[key] = body
        self._remember(key, body)
        return key

    def get(self, key: str) -> bytes:
        """The blob of a key that some job names. Raises JournalCorrupt if the journal does not have it."""
        if not key:
            return b""
        body = self._cache.get(key)
        if body is None:
            body = self._unsent.get(key) or self._committing.get(key) or self._journal.blob(key)
            if body is None:
                raise JournalCorrupt(f"script or environment {key} is missing from the journal")
            self._remember(key, body)
        else:
            self._cache.move_to_end(key)
        return body

    def take_unsent(self) -> dict[str, bytes]:
        """What the next group must carry. Readable here until `committed`."""
        self._committing, self._unsent = self._unsent, {}
        return self._committing

    def committed(self) -> None:
        """The group that took the last blobs is durable."""
        self._committing = {}

    @property
    def known(self) -> set[str]:
        """Keys of everything that is stored, or will be with the next group."""
        return self._known

    def collect(self, live: set[str]) -> set[str]:
        """Keys that the journal may remove, because no job names them; from now on they count as unknown."""
        garbage = self._known - live - self._unsent.keys() - self._committing.keys()
        self._known -= garbage
        for key in garbage:
            body = self._cache.pop(key, None)
            if body is not None:
                self._cache_bytes -= len(body)
        return garbage

    def _remember(self, key: str, body: bytes) -> None:
        if len(body) > CACHE_BYTES_MAX // 4:
            return
        if key not in self._cache:
            self._cache_bytes += len(body)
            self._cache[key] = body
        self._cache.move_to_end(key)
        while self._cache_bytes > CACHE_BYTES_MAX:
            _, dropped = self._cache.popitem(last=False)
            self._cache_bytes -= len(dropped)
