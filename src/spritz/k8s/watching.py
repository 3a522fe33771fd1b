"""The reflector: a cache of one resource that follows the API server, and reports every change.

List, then watch from the list's resource version, with bookmarks. A watch that ends, which is normal, goes on from the
last version seen. Where the server has forgotten that version (410), or was set back to an earlier one (its etcd was
restored), everything is listed again and compared with the cache, so that a deletion during the gap is reported like
any other. An object that was deleted and made again under the
same name (another uid) is reported as deleted, then added.

Every path that does not advance waits: failures double the time between attempts, up to a bound, with jitter; a watch
that ends at once counts as a failure; the server's Retry-After is kept to. A connection that has gone silent is given
up after `silence` seconds.

Source: client-go `tools/cache` (the protocol; the code is our own), Kubernetes API concepts, "Efficient detection of
changes".
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Generic, TypeVar

import msgspec

from spritz.k8s.api import Api, ApiFailure, Resource, decoder_of, failure_of
from spritz.timeouts import within

T = TypeVar("T")

#: a watch that ends sooner than this many seconds, with nothing seen, has failed
_TOO_SHORT = 1.0


#: Seconds without a word of the server after which its etcd may have been restored from a backup meanwhile.
_TRUSTED_SECONDS = 45.0


class ChangeKind(str, Enum):
    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


class Change(msgspec.Struct, Generic[T], frozen=True):
    """A change of an object. `key` is `namespace/name`, or `name` for cluster-scoped objects.

    `old` is None when added. `new` is None when deleted; `old` is then the last state that was seen.
    """

    kind: ChangeKind
    key: str
    old: T | None
    new: T | None


class Counters(msgspec.Struct):
    """Counts since the reflector was created."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    failures: int = 0
    #: how often the server had dropped the version that the watch asked for
    expired: int = 0
    #: how often all was listed again because the server had gone back to an earlier version, or was long away
    restored: int = 0
    #: deletions that no watch reported, and a list did
    missed_deletions: int = 0
    #: states of objects that `decode` could not hold, which are left out of the cache
    undecodable: int = 0


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """Waits of a reflector, in seconds."""

    first: float = 0.5
    longest: float = 30.0
    #: a watch is asked for between this and twice this
    watch: float = 300.0
    #: a connection without events and bookmarks for this long is closed
    silence: float = 150.0

    def delay(self, failures: int, chance: float) -> float:
        """Seconds to wait after `failures` consecutive failures (1 or more): between half and the whole of a doubling
        time.
        """
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 60)) * (0.5 + chance / 2)


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Identity(msgspec.Struct):
    metadata: _Metadata = _Metadata()


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Code(msgspec.Struct):
    code: int = 500


class _Kept(msgspec.Struct, Generic[T]):
    uid: str
    version: str
    value: T


_identity = msgspec.json.Decoder(_Identity)
_event: msgspec.json.Decoder[_Event] = msgspec.json.Decoder(_Event)


class Reflector(Generic[T]):
    """Follows one resource. `run` never returns; `synced` is set when the first list is in the cache.

    `decode` makes what is kept of an object from its JSON: by default the whole object of lightkube's type. A small
    msgspec Struct's decoder keeps a few fields only, and the rest of a large cluster out of memory.

    `on_change` is called in order, once per change, after the cache has it. It must not raise or block.
    """

    def __init__(
        self,
        api: Api,
        resource: type[Resource],
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        decode: Callable[[bytes], T] | None = None,
        on_change: Callable[[Change[T]], None] | None = None,
        on_failure: Callable[[ApiFailure, float], None] | None = None,
        patience: Patience | None = None,
        page: int = 500,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.api = api
        self.resource = resource
        self.counters = Counters()
        self.synced = asyncio.Event()
        #: the resource version that the cache shows
        self.version = ""
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._decode: Callable[[bytes], T] = decode if decode is not None else decoder_of(resource)  # type: ignore[assignment]
        self._on_change = on_change
        self._on_failure = on_failure
        self._patience = patience or Patience()
        self._page = page
        self._chance = chance
        self._sleep = sleep
        self._kept: dict[str, _Kept[T]] = {}
        self._failures = 0
        #: when the server was last heard, on the loop's clock
        self._heard_at = 0.0
        self._advanced = asyncio.Event()

    def follow(self, on_change: Callable[[Change[T]], None]) -> None:
        """Set `on_change`, before `run`."""
        self._on_change = on_change

    # The cache

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def get(self, key: str) -> T | None:
        """The object as last seen, or None. The cache owns it: do not change it."""
        entry = self._kept.get(key)
        return entry.value if entry is not None else None

    def keys(self) -> list[str]:
        return list(self._kept)

    def values(self) -> list[T]:
        return [entry.value for entry in self._kept.values()]

    def uid(self, key: str) -> str | None:
        entry = self._kept.get(key)
        return entry.uid if entry is not None else None

    def object_version(self, key: str) -> str | None:
        """The resource version of the object as last seen."""
        entry = self._kept.get(key)
        return entry.version if entry is not None else None

    async def until(self, condition: Callable[[], bool], timeout: float = 30.0) -> None:
        """Return when `condition` holds; it is checked after every change. Raises TimeoutError."""
        async with within(timeout):
            while not condition():
                self._advanced.clear()
                await self._advanced.wait()

    # Following

    async def run(self) -> None:
        """Follow the server until cancelled."""
        listed = False
        clock = asyncio.get_running_loop().time
        while True:
            try:
                if listed and (clock() - self._heard_at > _TRUSTED_SECONDS or await self._went_back()):
                    self.counters.restored += 1
                    listed = False
                if not listed:
                    await self._list()
                    listed = True
                    self._failures = 0
                self._heard_at = clock()
                await self._watch()
                self._heard_at = clock()
            except ApiFailure as failure:
                self.counters.failures += 1
                if failure.expired:
                    self.counters.expired += 1
                    listed = False
                self._failures += 1
                delay = max(self._patience.delay(self._failures, self._chance()), failure.retry_after or 0.0)
                if self._on_failure is not None:
                    self._on_failure(failure, delay)
                await self._sleep(delay)

    async def _list(self) -> None:
        self.counters.lists += 1
        page = await self.api.list_as(
            bytes, self.resource, self._namespace, labels=self._labels, fields=self._fields, page=self._page
        )
        present: set[str] = set()
        for data in page.items:
            metadata = _identity.decode(data).metadata
            present.add(metadata.key)
            self._take(metadata, data)
        for key in [key for key in self._kept if key not in present]:
            self.counters.missed_deletions += 1
            self._drop(key)
        self.version = page.version
        self.synced.set()
        self._advanced.set()

    async def _went_back(self) -> bool:
        """Whether the server is at an earlier version than the cache, as after its etcd was restored from a backup.

        A watch from a version that the server has yet to reach tells nothing until then, and what it skips is lost. A
        server that has passed the version meanwhile does not show it: after a longer interruption all is listed again.
        """
        version = await self.api.version_of(self.resource, self._namespace)
        return version.isdecimal() and self.version.isdecimal() and int(version) < int(self.version)

    async def _watch(self) -> None:
        """Follow one watch request. Returns when the server ends it regularly. Raises ApiFailure."""
        self.counters.watches += 1
        loop = asyncio.get_running_loop()
        began = loop.time()
        seconds = int(self._patience.watch * (1 + self._chance()))
        parameters = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.version,
            "timeoutSeconds": str(max(1, seconds)),
            "labelSelector": self._labels,
            "fieldSelector": self._fields,
        }
        advanced = False
        path = self.api.path(self.resource, self._namespace)
        async with self.api.stream(path, parameters, silence=self._patience.silence) as stream:
            async for line in stream.lines():
                self._event(line)
                self._heard_at = loop.time()
                if not advanced:
                    advanced = True
                    self._failures = 0
        if not advanced and loop.time() - began < min(_TOO_SHORT, self._patience.watch):
            raise ApiFailure(0, "WatchEnded", "the watch ended at once")

    def _event(self, line: bytes) -> None:
        try:
            event = _event.decode(line)
            if event.type == "ERROR":
                code = msgspec.json.decode(event.object, type=_Code).code
                raise failure_of(code, bytes(event.object), {})
            data = bytes(event.object)
            metadata = _identity.decode(data).metadata
        except msgspec.DecodeError as error:  # a line that was cut short when the connection failed
            raise ApiFailure(0, "BadEvent", f"an event of the watch is not valid JSON: {error}") from error
        if event.type == "BOOKMARK":
            self.counters.bookmarks += 1
        elif event.type in ("ADDED", "MODIFIED"):
            self.counters.events += 1
            self._take(metadata, data)
        elif event.type == "DELETED":
            self.counters.events += 1
            if metadata.key in self._kept:
                self._drop(metadata.key)
        else:
            raise ApiFailure(0, "BadEvent", f"an event of the watch has the unknown type {event.type!r}")
        self.version = metadata.resourceVersion
        self._advanced.set()

    def _take(self, metadata: _Metadata, data: bytes) -> None:
        key = metadata.key
        entry = self._kept.get(key)
        if entry is not None and entry.uid == metadata.uid and entry.version == metadata.resourceVersion:
            return  # a list after a gap finds it as it was
        if entry is not None and entry.uid != metadata.uid:
            self._drop(key)
            entry = None
        try:
            value = self._decode(data)
        except msgspec.ValidationError as error:
            # An object that cannot be decoded must not stop the watch of all others.
            self.counters.undecodable += 1
            if entry is not None:
                self._drop(key)
            if self._on_failure is not None:
                self._on_failure(ApiFailure(0, "Undecodable", f"{key}: {error}"), 0.0)
            return
        self._kept[key] = _Kept(metadata.uid, metadata.resourceVersion, value)
        if entry is None:
            self._tell(Change(ChangeKind.ADDED, key, None, value))
        else:
            self._tell(Change(ChangeKind.MODIFIED, key, entry.value, value))

    def _drop(self, key: str) -> None:
        entry = self._kept.pop(key)
        self._tell(Change(ChangeKind.DELETED, key, entry.value, None))

    def _tell(self, change: Change[T]) -> None:
        if self._on_change is not None:
            self._on_change(change)
