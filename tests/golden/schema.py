"""The schema of all stored records as text, its fingerprint, and what differs between two of them.

Owns the list of what is stored (`ROOTS`). The text has what a reader of old bytes depends on: names, types, bounds,
defaults (a default is not written), tags, values of enums, and the order of fields where that is the encoding.
"""

from __future__ import annotations

import json
from ast import literal_eval
from functools import reduce
from hashlib import blake2b
from operator import or_
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from spritz.core.image import Image
from spritz.model.events import ALL_EVENTS
from spritz.model.job.record import Job
from spritz.model.node_daemon.reports import StepFinished
from spritz.model.states import JobFlag, NodeFlag
from spritz.stepd.spec import SupervisorSpec

HERE = Path(__file__).parent

#: An event of the journal, and what slurmdbd is sent of it.
EVENT: Any = reduce(or_, ALL_EVENTS.values())
#: Whatever is encoded with `model.stored.encode`.
ROOTS: tuple[Any, ...] = (list[EVENT], Image, SupervisorSpec, StepFinished, Job)
#: Bits of integers in records.
FLAGS = (JobFlag, NodeFlag)

#: First line of a record whose fields are told apart by their places.
IN_ORDER = "(fields in order)"

#: Lines by record: fields of a struct, or values of an enum.
Schema = dict[str, list[str]]


def present() -> Schema:
    """The schema of this working tree."""
    found: dict[str, tuple[type, list[str]]] = {}
    for root in inspect.multi_type_info(ROOTS):
        _visit(root, found)
    for flags in FLAGS:
        found[flags.__name__] = (flags, [f"value {flag.value:#x} ({flag.name})" for flag in flags])
    return {name: found[name][1] for name in sorted(found)}


def text_of(schema: Schema) -> str:
    """As `schema.txt` has it."""
    return "".join(f"{name}\n" + "".join(f"    {line}\n" for line in lines) for name, lines in schema.items())


def parsed(text: str) -> Schema:
    """Inverse of `text_of`."""
    schema: Schema = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("    "):
            lines.append(line[4:])
        else:
            lines = schema[line] = []
    return schema


def fingerprint(schema: Schema) -> int:
    """32 bits with the top bit set, so that it always takes as many bytes."""
    return int.from_bytes(blake2b(text_of(schema).encode(), digest_size=4).digest(), "big") | 0x80000000


def difference(before: Schema, after: Schema) -> str:
    """A line for each field or value that is gone (`-`) or new (`+`)."""
    lines = []
    for name in sorted({*before, *after}):
        then, now = before.get(name, []), after.get(name, [])
        lines += [f"- {name}: {line}" for line in then if line not in now]
        lines += [f"+ {name}: {line}" for line in now if line not in then]
    return "\n".join(lines) or "the order of fields in a record that is an array"


def changed_records(before: Schema, after: Schema) -> set[str]:
    """Records of which stored values must be changed to be read: all that is not an added field with a default, an
    added value of an enum, or an added record."""
    changed = set()
    for name, lines in before.items():
        # A default that is a record has that record's new fields, too: they have their defaults there, and so here.
        then = {line.partition(" = ")[0]: line for line in lines}
        now = [_as_before(line, then.get(line.partition(" = ")[0], ""), after) for line in after.get(name, [])]
        added = [line for line in now if line not in lines]
        # A field of an array has its place: it may only be added at the end.
        moved = lines and lines[0] == IN_ORDER and now[: len(lines)] != lines
        if moved or set(lines) - set(now) or any(not _optional(line) for line in added):
            changed.add(name)
    return changed


def _as_before(line: str, then: str, schema: Schema) -> str:
    """The line of then, if this one's default is a record that differs from it by added fields with their defaults."""
    field, _, default = line.partition(" = ")
    _name, _, kind = field.partition(": ")
    if not default.startswith("{") or line == then or " = " not in then:
        return line
    grown = _has_grown(literal_eval(then.partition(" = ")[2]), literal_eval(default), kind, schema)
    return then if grown else line


def _has_grown(then: Any, now: Any, kind: str, schema: Schema) -> bool:
    """Whether a default of this type is what it was, apart from added fields that have their defaults."""
    if not (isinstance(then, dict) and isinstance(now, dict) and then.keys() <= now.keys()):
        return bool(then == now)
    fields = {line.partition(":")[0]: line.partition(": ")[2] for line in schema.get(kind, [])}
    kinds = {name: text.partition(" = ")[0] for name, text in fields.items()}
    if not all(_has_grown(value, now[name], kinds.get(name, ""), schema) for name, value in then.items()):
        return False
    defaults = {name: text.partition(" = ")[2] for name, text in fields.items()}
    return all(defaults.get(name) == repr(now[name]) for name in now.keys() - then.keys())


def misread(expected: Any, found: Any, then: Schema, now: Schema, place: str = "") -> list[str]:
    """Where a value of a former schema is read otherwise than expected. Fields that are new since then (a record that
    writes its defaults has them) may have their defaults.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        known = [key for key in expected if key in found]
        wrong = [f"{place}.{key} is missing" for key in expected if key not in found]
        wrong += [
            f"{place}.{key} is new"
            for key in found
            if key not in expected and not _is_new_default(key, found, then, now)
        ]
        return wrong + [
            text for key in known for text in misread(expected[key], found[key], then, now, f"{place}.{key}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [text for at, (old, new) in pairs for text in misread(old, new, then, now, f"{place}[{at}]")]
    return [] if expected == found else [f"{place} is {found!r}, not {expected!r}"]


def _is_new_default(name: str, found: dict[str, Any], then: Schema, now: Schema) -> bool:
    """Whether some record has such a field since then, with this default."""
    new = {line for record, lines in now.items() for line in lines if line not in then.get(record, ())}
    defaults = [line.partition(" = ")[2] for line in new if line.startswith(f"{name}: ") and " = " in line]
    return any(json.loads(json.dumps(literal_eval(default))) == found[name] for default in defaults)


def _optional(line: str) -> bool:
    return " = " in line or line.startswith("value ")


def _visit(info: inspect.Type, found: dict[str, tuple[type, list[str]]]) -> None:
    if isinstance(info, inspect.StructType):
        if _is_new(info.cls, found):
            lines = [_field(field) for field in info.fields]
            tag = [f"{info.tag_field}: {info.tag!r}"] if info.tag else []
            found[info.cls.__name__][1].extend([IN_ORDER, *lines] if info.array_like else [*tag, *sorted(lines)])
            for field in info.fields:
                _visit(field.type, found)
    elif isinstance(info, inspect.EnumType):
        if _is_new(info.cls, found):
            found[info.cls.__name__][1].extend(sorted(f"value {member.value!r}" for member in info.cls))
    else:
        for name in ("types", "item_types"):
            for inner in getattr(info, name, ()):
                _visit(inner, found)
        for name in ("item_type", "key_type", "value_type"):
            if hasattr(info, name):
                _visit(getattr(info, name), found)


def _is_new(kind: type, found: dict[str, tuple[type, list[str]]]) -> bool:
    known = found.setdefault(kind.__name__, (kind, []))
    assert known[0] is kind, f"two stored records are called {kind.__name__}: model.upcast knows records by their names"
    return not known[1]


def _field(field: inspect.Field) -> str:
    default = ""
    if field.default is not msgspec.NODEFAULT:
        default = f" = {msgspec.to_builtins(field.default)!r}"
    elif field.default_factory is not msgspec.NODEFAULT:
        default = f" = {msgspec.to_builtins(field.default_factory())!r}"
    return f"{field.encode_name}: {_type(field.type)}{default}"


def _type(info: inspect.Type) -> str:
    if isinstance(info, inspect.StructType | inspect.EnumType):
        return info.cls.__name__
    if isinstance(info, inspect.UnionType):
        return " | ".join(sorted(map(_type, info.types)))
    if isinstance(info, inspect.TupleType):
        return f"tuple[{', '.join(map(_type, info.item_types))}]"
    if isinstance(info, inspect.DictType):
        return f"dict[{_type(info.key_type)}, {_type(info.value_type)}]"
    # Lists and tuples of any length are the same bytes. `ge=` and the like refuse old values: they are the schema, too.
    name = "list" if isinstance(info, inspect.ListType | inspect.VarTupleType) else type(info).__name__[:-4].lower()
    inside = f"[{_type(info.item_type)}]" if isinstance(info, inspect.CollectionType) else ""
    settings = msgspec.structs.asdict(info).items()
    bounds = [f"{key}={value}" for key, value in settings if key != "item_type" and value is not None]
    return name + inside + (f"({', '.join(bounds)})" if bounds else "")
