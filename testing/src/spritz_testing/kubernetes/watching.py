"""Stored objects, writes, and watches of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from spritz_testing.kubernetes import selectors
from spritz_testing.kubernetes.errors import Object
from spritz_testing.kubernetes.kinds import Kind

#: (group, plural)
StoreKey = tuple[str, str]
#: (namespace, name)
Name = tuple[str, str]

#: Most events by which a slow watcher may lag.
_BACKLOG_MAX: Final = 100_000


class Stored:
    """An object as stored, and its JSON."""

    __slots__ = ("_data", "obj")

    def __init__(self, obj: Object) -> None:
        self.obj = obj
        self._data: bytes | None = None

    @property
    def data(self) -> bytes:
        if self._data is None:
            self._data = msgspec.json.encode(self.obj)
        return self._data


class Event:
    """A write: `new` is None for a deletion, `old` for a creation. `last` is a deletion's object."""

    __slots__ = ("key", "last", "name", "new", "old", "version")

    def __init__(
        self, version: int, key: StoreKey, name: Name, old: Stored | None, new: Stored | None, last: Stored
    ) -> None:
        self.version = version
        self.key = key
        self.name = name
        self.old = old
        self.new = new
        self.last = last


class Watcher:
    """A watch, with the events that its client has not received yet."""

    __slots__ = ("bookmarks", "closed", "kind", "matches", "name", "namespace", "pending", "sent", "wake")

    def __init__(self, kind: Kind, namespace: str, matches: selectors.Matches | None, wake: Callable[[], None]) -> None:
        self.kind = kind
        self.namespace = namespace
        self.matches = matches
        self.wake = wake
        self.pending: deque[bytes] = deque()
        self.closed = False
        #: version up to which the client has received all events
        self.sent = 0

    def offer(self, event: Event) -> None:
        self.sent = event.version
        if self.namespace and event.name[0] != self.namespace:
            return
        matches = self.matches
        was = event.old is not None and (matches is None or matches(event.old.obj))
        is_ = event.new is not None and (matches is None or matches(event.new.obj))
        if is_:
            assert event.new is not None
            self.put("MODIFIED" if was else "ADDED", event.new)
        elif was:
            if event.new is None:
                self.put("DELETED", event.last)
            else:  # it exists but no longer matches: send its last matching state with this version
                assert event.old is not None
                metadata = event.old.obj["metadata"] | {"resourceVersion": str(event.version)}
                self.put("DELETED", Stored(event.old.obj | {"metadata": metadata}))

    def put(self, kind: str, stored: Stored) -> None:
        self.pending.append(b'{"type":"%s","object":%s}\n' % (kind.encode(), self.data(stored)))
        if len(self.pending) > _BACKLOG_MAX:
            self.closed = True
        self.wake()

    def data(self, stored: Stored) -> bytes:
        if stored.obj.get("apiVersion") == self.kind.api_version:
            return stored.data
        return msgspec.json.encode(stored.obj | {"apiVersion": self.kind.api_version})

    def bookmark(self, *, initial: bool = False) -> None:
        metadata: Object = {"resourceVersion": str(self.sent), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": metadata}
        self.pending.append(b'{"type":"BOOKMARK","object":%s}\n' % msgspec.json.encode(obj))
        self.wake()

    def end(self) -> None:
        self.closed = True
        self.wake()
