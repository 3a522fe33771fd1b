"""Functions from a record to a row of attribute values: `("id", "spec.name")` -> `(7, "train")`.

Checks paths against the records' types, so that a caller can read fields and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from spritz.model.errors import SpritzError

Row = tuple[object, ...]

#: Paths of one request; no listing has that many columns.
FIELDS_MAX = 300


@cache
def row_of(record: type[Struct], paths: tuple[str, ...]) -> Callable[[Any], Row]:
    """The function that makes rows. A path through None gives None. Raises SpritzError for an invalid path."""
    if len(paths) > FIELDS_MAX:
        raise SpritzError(f"more than {FIELDS_MAX} fields asked for", code="SLURM_UNEXPECTED_MSG_ERROR")
    getters: list[Callable[[Any], object]] = []
    plain = True
    for path in paths:
        optional = _check(record, path)
        plain = plain and not optional
        getters.append(_tolerant(path.split(".")) if optional else attrgetter(path))
    if plain and len(paths) > 1:
        return attrgetter(*paths)
    return lambda job: tuple(getter(job) for getter in getters)


def _check(record: type[Struct], path: str) -> bool:
    """Whether the path goes through a value that may be None. Raises SpritzError for an invalid path."""
    struct: type[Struct] | None = record
    optional = False
    parts = path.split(".")
    for place, part in enumerate(parts):
        if struct is None or part.startswith("_"):
            raise _unknown(record, path)
        if part in struct.__struct_fields__:
            struct, may_be_none = _struct_in(_hints(struct)[part])
            optional = optional or (may_be_none and place < len(parts) - 1)
        elif isinstance(getattr(struct, part, None), property) and place == len(parts) - 1:
            struct = None
        else:
            raise _unknown(record, path)
    return optional


def _unknown(record: type[Struct], path: str) -> SpritzError:
    return SpritzError(f"{record.__name__} has no field {path[:60]!r}", code="SLURM_UNEXPECTED_MSG_ERROR")


@cache
def _hints(record: type[Struct]) -> dict[str, Any]:
    return get_type_hints(record)


def _struct_in(hint: Any) -> tuple[type[Struct] | None, bool]:
    """The Struct type of a field, if it has one, and whether it may be None."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    structs = [member for member in members if isinstance(member, type) and issubclass(member, Struct)]
    return (structs[0] if structs else None), NoneType in members


def _tolerant(parts: list[str]) -> Callable[[Any], object]:
    def get(record: Any) -> object:
        for part in parts:
            if record is None:
                return None
            record = getattr(record, part)
        return record

    return get
