"""Stored values of other formats, converted to what this release would have written.

Owns what changed from each format to the next (`CHANGES`), and the walk that applies it. The walk follows the present
types through the decoded, untyped value. It updates each record before it looks at the record's fields, so a change is
written once per record, wherever that is stored, and its function sees inner records in their old form. Fields and
records that are unknown after that are refused.

The walk takes about three times as long as decoding. Only the first start after an upgrade, and readers of events from
before it, pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from msgspec import inspect, msgpack

from spritz.model.errors import UnsupportedFormat

#: Changes an untyped record (a dict; a list if its type is array_like) in place.
Change = Callable[[Any], None]


def _without(*names: str) -> Change:
    """Drop fields that no longer exist and whose values meant nothing."""

    def change(record: dict[str, Any]) -> None:
        for name in names:
            record.pop(name, None)

    return change


def _supervisor_spec_1(spec: dict[str, Any]) -> None:
    if spec.pop("energy_accounting", False):  # only processors' counters were supported then
        spec.setdefault("energy_source", "rapl")


#: Changes from each format to the next, by the record's name (for events the old `kind`). A format that only added
#: fields with defaults has no entry. Entries are never edited: stored values of that format exist.
CHANGES: dict[int, dict[str, Change]] = {
    1: {
        "Image": _without("format"),
        "JobSpec": _without("wait_all_nodes"),
        "NodeSet": _without("nodes"),
        "SupervisorSpec": _supervisor_spec_1,
    },
}


def upcast(data: bytes, kind: Any, to: int) -> bytes:
    """The value in `data`, without envelope, as a release that writes the format `to` encodes a `kind`.

    Raises UnsupportedFormat, or msgspec.DecodeError for damaged data.
    """
    written, value = _opened(msgpack.decode(data), to)
    walk = _walk_from(written, to, kind)
    if walk is not None:
        walk(value)
    return msgpack.encode(value)


def _opened(value: Any, to: int) -> tuple[int, Any]:
    """Format and value. Values of format 1 have no envelope: they are a dict, or a list of dicts."""
    if not (isinstance(value, list) and len(value) == 3 and type(value[0]) is int and value[0] > 1):
        return 1, value
    written = value[0]
    if written > to:
        raise UnsupportedFormat(f"format {written} of a later release; this one reads up to format {to}")
    return written, value[2]


@cache
def _walk_from(written: int, to: int, kind: Any) -> Change | None:
    return _Walks(written, to).of(inspect.type_info(kind))


class _Walks:
    """Makes functions that update untyped values of one format in place, according to the present type.

    None stands for types without records. A value that does not fit its type is left alone: the decoder refuses it.
    """

    def __init__(self, written: int, to: int) -> None:
        self._changes = [CHANGES.get(number, {}) for number in range(written, to)]
        self._fields: dict[type, Change] = {}

    def of(self, info: inspect.Type) -> Change | None:
        """The function for values of a type."""
        if isinstance(info, inspect.StructType):
            return self._records([info])
        if isinstance(info, inspect.UnionType):
            records = [kind for kind in info.types if isinstance(kind, inspect.StructType)]
            others = [self.of(kind) for kind in info.types if not isinstance(kind, inspect.StructType)]
            return _all_of([self._records(records) if records else None, *others])
        if isinstance(info, inspect.ListType | inspect.VarTupleType):
            return _each(list, iter, self.of(info.item_type))
        if isinstance(info, inspect.DictType):
            return _each(dict, dict.values, self.of(info.value_type))
        if isinstance(info, inspect.TupleType):
            return _places([self.of(item) for item in info.item_types])
        return None

    def _records(self, kinds: Sequence[inspect.StructType]) -> Change:
        """The function for records of one type, or of several types distinguished by their tag."""
        tag_field = kinds[0].tag_field
        shape: Any = list if kinds[0].array_like else dict
        by_name = {kind.tag or kind.cls.__name__: kind for kind in kinds}
        only = kinds[0].cls.__name__

        def walk(record: Any) -> None:
            if not isinstance(record, shape):
                return
            name = record.get(tag_field) if tag_field else only
            for changes in self._changes:
                if name in changes:
                    changes[name](record)
                    name = record.get(tag_field) if tag_field else only
            if name not in by_name:
                raise UnsupportedFormat(f"a record {name!r} that this release does not know")
            self._inside(by_name[name])(record)

        return walk

    def _inside(self, kind: inspect.StructType) -> Change:
        """The function for the fields of a record."""
        if kind.cls not in self._fields:
            walks = {field.encode_name: self.of(field.type) for field in kind.fields}
            name = kind.cls.__name__
            inside = _positions(name, [*walks.values()]) if kind.array_like else _names(name, walks, kind.tag_field)
            self._fields[kind.cls] = inside
        return self._fields[kind.cls]


def _names(record_name: str, walks: dict[str, Change | None], tag_field: str | None) -> Change:
    def walk(record: dict[str, Any]) -> None:
        for field, value in record.items():
            if field in walks:
                inside = walks[field]
                if inside is not None:
                    inside(value)
            elif field != tag_field:
                raise UnsupportedFormat(f"a field {field!r} of {record_name} that this release does not know")

    return walk


def _positions(record_name: str, walks: Sequence[Change | None]) -> Change:
    places = _places(walks)

    def walk(record: list[Any]) -> None:
        if len(record) > len(walks):
            raise UnsupportedFormat(f"{len(record)} fields of {record_name}; this release knows {len(walks)}")
        if places is not None:
            places(record)

    return walk


def _places(walks: Sequence[Change | None]) -> Change | None:
    def walk(values: Any) -> None:
        if isinstance(values, list):
            for inside, value in zip(walks, values, strict=False):
                if inside is not None:
                    inside(value)

    return walk if any(walks) else None


def _each(shape: type, items: Callable[[Any], Iterable[Any]], inside: Change | None) -> Change | None:
    def walk(values: Any) -> None:
        if isinstance(values, shape):
            for value in items(values):
                inside(value)  # type: ignore[misc]  # not None: that is asked below

    return walk if inside is not None else None


def _all_of(walks: Iterable[Change | None]) -> Change | None:
    present = [walk for walk in walks if walk is not None]

    def walk(value: Any) -> None:
        for inside in present:
            inside(value)

    return walk if present else None
