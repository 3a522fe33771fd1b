"""Checks that all values in a request's body are within their ranges.

Turns `model.bounds` into decoders: for each request a Struct of the same shape, whose fields have ranges and are all
optional. The body is decoded into it first, and the result is dropped. The request's own types have no ranges because
stored records share them, and these must stay readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any

from msgspec import Meta, Raw, Struct, defstruct, inspect
from msgspec.msgpack import Decoder

from spritz.model.bounds import AMOUNT, CHANGES, ITEMS, LISTS, LONG, NUMBERS, RECORDS, TEXT, TEXTS

#: marks a part without a range: it is left out of the shape
_ANYTHING = Raw


@cache  # each makes types, and a client gives the same table for every connection
def checker(kind: type[Struct]) -> Decoder[Any] | None:
    """A decoder whose `decode(body)` raises ValidationError if a value is out of range. None: no part has a range."""
    shape = _Shapes().of_struct(inspect.type_info(kind))
    return None if shape is _ANYTHING else Decoder(shape)


class _Shapes:
    """Shapes of one request's types. They are `Any`: msgspec annotations made at run time."""

    def __init__(self) -> None:
        self._made: dict[type, Any] = {}

    def of_struct(self, info: inspect.Type) -> Any:
        """The shape of a Struct; `_ANYTHING` if no field has a range."""
        assert isinstance(info, inspect.StructType), f"{info} is not a Struct"
        if info.cls not in self._made:
            if info.cls.__name__ in RECORDS:
                self._made[info.cls] = _ANYTHING
            else:
                self._made[info.cls] = self._new(info)
        return self._made[info.cls]

    def _new(self, info: inspect.StructType) -> Any:
        fields = {}
        for field in info.fields:
            changed = CHANGES.get(f"{info.cls.__name__}.{field.name}")
            if changed is None:
                shape = self._of(field.type, info.cls.__name__, field.name)
            else:
                shape = self._of_changes(*changed)
            fields[field.encode_name] = shape
        if not info.array_like:  # there every position counts
            fields = {name: shape for name, shape in fields.items() if shape is not _ANYTHING}
        if not fields and info.tag is None:
            return _ANYTHING
        return defstruct(
            info.cls.__name__,
            [(name, *_optional(shape)) for name, shape in fields.items()],
            tag=info.tag,
            tag_field=info.tag_field,
            array_like=info.array_like,
        )

    def _of_changes(self, kind: type[Struct], more: Mapping[str, Any]) -> Any:
        """The shape of a dict from names to values: those of the fields of `kind`, and some more."""
        info = inspect.type_info(kind)
        assert isinstance(info, inspect.StructType), f"{kind} is not a Struct"
        fields = {field.name: self._of(field.type, kind.__name__, field.name) for field in info.fields}
        shapes = {name: shape for name, shape in fields.items() if shape is not _ANYTHING} | dict(more)
        return defstruct(kind.__name__, [(name, *_optional(shape)) for name, shape in shapes.items()])

    def _of(self, info: inspect.Type, owner: str, field: str) -> Any:
        """The shape of a field's type."""
        match info:
            case inspect.IntType():
                return Annotated[int, _bounds(NUMBERS, owner, field, LONG)]
            case inspect.FloatType():
                return Annotated[float, _bounds(NUMBERS, owner, field, AMOUNT)]
            case inspect.StrType():
                return Annotated[str, _bounds(TEXTS, owner, field, TEXT)]
            case inspect.StructType():
                return self.of_struct(info)
            case inspect.UnionType():
                return self._of_union(info, owner, field)
            case inspect.VarTupleType() | inspect.ListType() | inspect.SetType() | inspect.FrozenSetType():
                return Annotated[list[self._of(info.item_type, owner, field)], _bounds(LISTS, owner, field, ITEMS)]  # type: ignore[misc]  # made at run time
            case inspect.TupleType():
                return tuple[*(self._of(item, owner, field) for item in info.item_types)]  # type: ignore[misc]  # likewise
            case inspect.DictType():
                key, value = (self._of(part, owner, field) for part in (info.key_type, info.value_type))
                return Annotated[dict[key, value], _bounds(LISTS, owner, field, ITEMS)]  # type: ignore[valid-type]  # likewise
        return _ANYTHING

    def _of_union(self, info: inspect.UnionType, owner: str, field: str) -> Any:
        shapes = [self._of(part, owner, field) for part in info.types if not isinstance(part, inspect.NoneType)]
        if _ANYTHING in shapes:
            return _ANYTHING  # it cannot be part of a union; no number in a request is in a union with such a part
        return reduce(or_, shapes) | (None if len(shapes) < len(info.types) else shapes[0])


def _optional(shape: Any) -> tuple[Any, Any]:
    """Type and default of a field that may be missing: the request's own type says whether it is required."""
    return (_ANYTHING, Raw(b"\xc0")) if shape is _ANYTHING else (shape | None, None)


def _bounds(table: Mapping[str, Meta], owner: str, field: str, default: Meta) -> Meta:
    return table.get(f"{owner}.{field}") or table.get(field) or default
