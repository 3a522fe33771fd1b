"""The objects of the fake cluster, without the verbs that check and change them.

One store for all resources, one counter of resource versions, a history that watches resume from.

Source: Kubernetes API concepts.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from spritz.runtime.clock import Clock
from spritz.runtime.randomness import SystemRandomness
from spritz_testing.kubernetes import errors, kinds, selectors
from spritz_testing.kubernetes.errors import Object, Refusal
from spritz_testing.kubernetes.kinds import Kind
from spritz_testing.kubernetes.watching import Event, Name, Stored, StoreKey, Watcher

_randomness = SystemRandomness()


class Backup(NamedTuple):
    """The objects of a store at a version."""

    version: int
    stores: dict[StoreKey, dict[Name, Stored]]
    places: dict[str, tuple[StoreKey, Name]]


class Store:
    """Objects of all resources, their history, and what reads them. `history` is how many events a watch may be behind.

    Stored objects are never changed in place: a write stores a new one.
    """

    def __init__(self, *, history: int, clock: Clock) -> None:
        self.clock = clock
        #: seconds that the server's clock is ahead
        self.skew = 0.0
        self.version = 1
        self._stores: dict[StoreKey, dict[Name, Stored]] = {}
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self._history: deque[Event] = deque()
        self._history_max = history
        #: events up to this version are forgotten
        self.compacted = 1
        #: uid -> (kind, name) of its object
        self._places: dict[str, tuple[StoreKey, Name]] = {}
        self._watchers: dict[StoreKey, set[Watcher]] = {}
        #: continued lists: token -> (version, remaining objects)
        self._pages: dict[str, tuple[int, list[Stored]]] = {}
        self.listeners: list[Callable[[Event], None]] = []
        #: version of the last write of a role or a binding
        self._rbac_version = 0
        for kind in kinds.built_in():
            self._kinds[kind.group, kind.version, kind.plural] = kind
            self._stores.setdefault(kind.key, {})

    # Backups

    def backup(self) -> Backup:
        """What `restore` returns to."""
        stores = {key: dict(store) for key, store in self._stores.items()}
        return Backup(self.version, stores, dict(self._places))

    def restore(self, backup: Backup) -> None:
        """The objects, and the version, of the backup: as etcd's snapshot without a bump of the revision."""
        self.version = self.compacted = backup.version
        self._stores = {key: dict(store) for key, store in backup.stores.items()}
        self._places = dict(backup.places)
        self._history.clear()
        self._pages.clear()
        self._rbac_version = backup.version

    # Time and names

    def now(self) -> float:
        return self.clock.now() + self.skew

    def timestamp(self, ahead: float = 0.0) -> str:
        """The time in the form of objects, to the second."""
        moment = datetime.datetime.fromtimestamp(self.now() + ahead, datetime.UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    # Kinds

    def kinds(self) -> Iterable[Kind]:
        return self._kinds.values()

    def kind(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def kind_named(self, api_version: str, kind: str) -> Kind | None:
        return next(
            (known for known in self._kinds.values() if known.api_version == api_version and known.kind == kind), None
        )

    def plural(self, plural: str) -> Kind:
        """The kind of that plural name. Raises KeyError."""
        for kind in self._kinds.values():
            if kind.plural == plural:
                return kind
        raise KeyError(plural)

    def _find(self, plural: str, namespace: str, name: str) -> Object | None:
        stored = self._stores[self.plural(plural).key].get((namespace, name))
        return stored.obj if stored is not None else None

    def by_uid(self, uid: str) -> Object | None:
        place = self._places.get(uid)
        return self._stores[place[0]][place[1]].obj if place is not None else None

    def among(self, plural: str, namespace: str = "") -> Iterable[Object]:
        """The objects of a resource, in a namespace or in all. The caller must not change them."""
        try:
            store = self._stores[self.plural(plural).key]
        except KeyError:
            return []
        return [stored.obj for (where, _name), stored in store.items() if not namespace or where == namespace]

    # Reading

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        return self.stored(kind, namespace, name).obj

    def stored(self, kind: Kind, namespace: str, name: str) -> Stored:
        """The stored object. Raises Refusal with status 404."""
        stored = self._stores[kind.key].get((namespace, name))
        if stored is None:
            raise errors.not_found(kind.plural, kind.group, name)
        return stored

    def matcher(self, kind: Kind, labels: str, fields: str) -> selectors.Matches | None:
        return selectors.both(selectors.labels(labels), selectors.fields(fields, kind.fields))

    def list(
        self, kind: Kind, namespace: str, *, labels: str = "", fields: str = "", limit: int = 0, token: str = ""
    ) -> tuple[int, list[Stored], str, int]:
        """(version, objects, token of the next page, number of objects on later pages). Raises Refusal."""
        matches = self.matcher(kind, labels, fields)
        if token:
            try:
                page = self._pages.pop(json.loads(base64.b64decode(token))["page"])
            except (ValueError, KeyError, TypeError) as error:
                raise self._page_expired() from error
            version, objects = page
            if version < self.compacted:
                raise self._page_expired()
        else:
            version = self.version
            store = self._stores[kind.key]
            objects = [
                stored
                for (where, _name), stored in sorted(store.items())
                if (not namespace or where == namespace) and (matches is None or matches(stored.obj))
            ]
        if not limit or len(objects) <= limit:
            return version, objects, "", 0
        following = _randomness.token(12).hex()
        self._pages[following] = (version, objects[limit:])
        while len(self._pages) > 1000:
            del self._pages[next(iter(self._pages))]
        next_token = base64.b64encode(
            json.dumps({"v": "meta.k8s.io/v1", "rv": version, "page": following}).encode()
        ).decode()
        return version, objects[:limit], next_token, 0 if matches is not None else len(objects) - limit

    def _page_expired(self) -> Refusal:
        return errors.gone(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list "
            "without the continue parameter."
        )

    # Watching

    def watch(
        self,
        kind: Kind,
        namespace: str,
        version: int | None,
        wake: Callable[[], None],
        *,
        labels: str = "",
        fields: str = "",
    ) -> Watcher:
        """A watch after that version; from the present state if it is None or 0. Raises Refusal."""
        watcher = Watcher(kind, namespace, self.matcher(kind, labels, fields), wake)
        watcher.sent = self.version
        if not version:
            for (where, _name), stored in sorted(self._stores[kind.key].items()):
                if (not namespace or where == namespace) and (watcher.matches is None or watcher.matches(stored.obj)):
                    watcher.put("ADDED", stored)
        else:
            if version < self.compacted:
                raise errors.gone(f"too old resource version: {version} ({self.compacted})")
            for event in self._history:
                if event.version > version and event.key == kind.key:
                    watcher.offer(event)
            watcher.sent = max(version, self.version)
        self._watchers.setdefault(kind.key, set()).add(watcher)
        return watcher

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.get(watcher.kind.key, set()).discard(watcher)

    def watchers(self) -> Sequence[Watcher]:
        return [watcher for watchers in self._watchers.values() for watcher in watchers]

    def compact(self, version: int | None = None) -> None:
        """Delete the history up to that version, or all of it: older watches get 410."""
        upto = self.version if version is None else version
        while self._history and self._history[0].version <= upto:
            self._history.popleft()
        self.compacted = max(self.compacted, upto)
        self._pages = {name: page for name, page in self._pages.items() if page[0] >= self.compacted}

    def _commit(
        self, kind: Kind, name: Name, old: Stored | None, new: Object | None, last: Object | None = None
    ) -> Object:
        """Store a write and notify all watches. The store keeps the new object itself."""
        self.version += 1
        obj = new if new is not None else last
        assert obj is not None
        obj["metadata"]["resourceVersion"] = str(self.version)
        stored = Stored(obj)
        store = self._stores[kind.key]
        if old is not None:
            self._places.pop(old.obj["metadata"]["uid"], None)
        if new is None:
            del store[name]
        else:
            store[name] = stored
            self._places[obj["metadata"]["uid"]] = (kind.key, name)
        event = Event(self.version, kind.key, name, old, stored if new is not None else None, stored)
        self._history.append(event)
        if len(self._history) > self._history_max:
            self.compacted = self._history.popleft().version
        if kind.group == "rbac.authorization.k8s.io":
            self._rbac_version = self.version
        elif kind.plural == "customresourcedefinitions":
            self._define(event)
        for watcher in list(self._watchers.get(kind.key, ())):
            watcher.offer(event)
        for listener in self.listeners:
            listener(event)
        return obj

    # Custom resources

    def _define(self, event: Event) -> None:
        """Serve the resources of a definition, from this event on."""
        definition = event.last.obj
        spec = definition["spec"]
        for key in [
            key
            for key, kind in self._kinds.items()
            if kind.custom and kind.key == (spec["group"], spec["names"]["plural"])
        ]:
            del self._kinds[key]
        if event.new is None:
            store = self._stores.get((spec["group"], spec["names"]["plural"]), {})
            for watcher in self._watchers.get((spec["group"], spec["names"]["plural"]), ()):
                watcher.end()
            for stored in store.values():
                self._places.pop(stored.obj["metadata"]["uid"], None)
            store.clear()
            return
        for kind in kinds.of_custom_resource(definition):
            self._kinds[kind.group, kind.version, kind.plural] = kind
            self._stores.setdefault(kind.key, {})
