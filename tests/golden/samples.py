"""One value of every stored record with every field other than its default: what `history` does not reach.

The values mean nothing. They show that today's code reads each field of what was written, under its name.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
from msgspec import inspect

from spritz.core.image import Image
from spritz.model import stored
from spritz.model.events import ALL_EVENTS
from spritz.model.job.record import Job
from spritz.model.node_daemon.reports import StepFinished
from spritz.stepd.spec import SupervisorSpec


def events() -> list[Any]:
    """One event of each kind."""
    return [_sample(kind) for _, kind in sorted(ALL_EVENTS.items())]


def image() -> Any:
    """An image with one record of each kind."""
    return _sample(Image)


def step() -> tuple[Any, tuple[int, ...], Any]:
    """Spec, process ids and result of a step in slurmd's spool."""
    spec = _sample(SupervisorSpec)
    return msgspec.structs.replace(spec, job=zlib.compress(stored.encode(_sample(Job)))), (1, 2), _sample(StepFinished)


def _sample(kind: Any) -> Any:
    return msgspec.convert(_of(inspect.type_info(kind), "", None), kind)


def _of(info: inspect.Type, name: str, default: object) -> Any:
    """Plain data of a type. `name` and `default` are those of the field."""
    match info:
        case inspect.StructType():
            values = {field.encode_name: _of(field.type, field.name, field.default) for field in info.fields}
            if info.array_like:
                return list(values.values())
            return {**({info.tag_field: info.tag} if info.tag_field else {}), **values}
        case inspect.UnionType():
            return _of(next(one for one in info.types if not isinstance(one, inspect.NoneType)), name, default)
        case inspect.ListType() | inspect.VarTupleType():
            return [_of(info.item_type, name, None)]
        case inspect.TupleType():
            return [_of(item, f"{name}-{number}", None) for number, item in enumerate(info.item_types)]
        case inspect.DictType():
            return {_of(info.key_type, f"{name}-key", None): _of(info.value_type, name, None)}
        case inspect.EnumType():
            return next(member.value for member in reversed(info.cls) if member is not default)
        case inspect.BoolType():
            return default is not True
        case inspect.IntType():
            return 7 if default != 7 else 8
        case inspect.FloatType():
            return 2.5
        case inspect.StrType():
            return name
        case inspect.BytesType():
            return b"\x00\xff"
    raise AssertionError(f"{name}: no sample of a {type(info).__name__}")
