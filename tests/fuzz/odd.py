"""Requests with odd fields, made from the types of the messages: typed as a daemon expects, and otherwise anything.

`Odd` draws from a `random.Random`, so that a seed (or hypothesis) decides all of it. What is made is plain: dicts and
lists as msgpack carries them, since a peer is not bound to the classes of Spritz.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from random import Random

from msgspec import Meta, Struct, inspect

from spritz.model import bounds

#: numbers at which fields, columns and loops end
_EDGES = (0, 1, 2, 3, 7, 8, 63, 64, 65, 255, 256, 1023, 2**15, 2**16 - 3, 2**16, 10**6, 10**8, 2**29, 2**31, 2**32 - 3)
_WILD_NUMBERS = (-(2**63), -(2**31) - 1, -2, -1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)
_WILD_FLOATS = (float("nan"), float("inf"), -float("inf"), -1.0, 1e300, 2.0**63, 5e-324, 253_402_300_800.0)
_WILD_TEXTS = (
    "",
    " ",
    "\0",
    "\n",
    "x" * 5000,
    "é\u202e",
    "%s%n",
    "../../etc",
    "-1",
    "0",
    "9" * 40,
    "null",
    "'; --",
    "[",
    "*",
)

#: texts that mean something, by field
_TEXTS: dict[str, tuple[str, ...]] = {
    "accounts": ("root", "chem", "nope"),
    "array": ("0-3", "1-10:3%2", "0-4294967295", "5-1", "0,0,0", "1-3%99999999999", "0-19999"),
    "cluster": ("fuzz", "nope"),
    "clusters": ("fuzz", "nope"),
    "cpu_bind": ("cores", "map_cpu:0,99999", "mask_cpu:0xff", "mask_cpu:" + "f" * 300, "rank_ldom", "nope", "map_cpu:"),
    "dependency_mode": ("all", "any", "none"),
    "distribution": ("block", "cyclic", "plane=0", "plane=4", "arbitrary", "block:cyclic:fcyclic", "*:*"),
    "exclude": ("n1", "n2", "n9"),
    "extra": ("a=1", "(a<1&b=2)|c!=3", "((((", "a"),
    "features": ("a", "a&b", "[a|b]", "[a*2&b*4]", "(a|b)&c", "((((a))))", "a*99999999999", "a|" * 40 + "a", "[" * 50),
    "fields": ("id", "spec.name", "allocation", "spec.limits", "nope", "id.id", "__class__", "spec.__init__"),
    "gpu_bind": ("closest", "single:0", "per_task:99999999999", "map_gpu:7", "mask_gpu:0x3,0xc*9", "nope"),
    "gres_flags": ("enforce-binding", "one-task-per-sharing", "nope"),
    "keys": ("user", "account", "nope"),
    "kind": ("after", "afterany", "afterok", "afternotok", "aftercorr", "singleton", "nope", "node", "cluster"),
    "level": ("Operator", "Administrator", "None", "nope"),
    "licenses": ("a", "a:2", "a|b", "a:99999999999999999999", "a:-1", ",,", "a:" + "9" * 900),
    "line": ("NodeName=x1 CPUs=4", "NodeName=x[1-99999]", "x", "NodeName=x1 CPUs=99999999999"),
    "memory_bind": ("local", "none", "map_mem:9", "nope"),
    "mail_types": ("ALL", "END", "nope"),
    "names": ("n1", "n2", "job", "nope"),
    "name": ("gpu", "n1", "main", "job", "nope"),
    "node": ("n1", "nope"),
    "node_list": ("n1", "n2", "n3", "n9"),
    "nodes": ("n1", "n2", "ALL", "nope"),
    "open_mode": ("a", "t", "x"),
    "partition": ("main", "other", "nope"),
    "partitions": ("main", "other", "main", "nope"),
    "periods": ("12month", "-1hour", "99999999999month", "x"),
    "prefer": ("a", "b", "a&b", "nope"),
    "qos": ("normal", "nope"),
    "reservation": ("", "nope", "a,b"),
    "schedule": ("* * * * *", "0 0 29 2 *", "@daily", "x", "0 0 31 2 *", "60 * * * *"),
    "state": ("DRAIN", "RESUME", "DOWN", "POWER_UP", "CANCEL_REBOOT", "nope"),
    "states": ("PENDING", "RUNNING", "COMPLETED", "COMPLETING", "nope"),
    "tasks": ("1", "f", "ff00", "0", "f" * 1000),
    "tres": ("cpu", "cpu=4,mem=2", "gres/gpu=1", "cpu=99999999999999999999", "="),
    "type": ("", "a100", "nope"),
    "users": ("root", "nope", "0"),
}

#: as many items as a list usually has, and as few lists have
_SIZES = (0, 1, 1, 1, 2, 3, 5)
_LARGE_SIZES = (50, 300, 2000)


class Odd:
    """Draws values. `wildness`: how often one is of no range or meaning at all; `density`: how many of the fields that
    may be left out are there; `jobs`: the largest number of a job that may be there.
    """

    def __init__(self, random: Random, *, wildness: float, density: float = 0.1, jobs: int = 8) -> None:
        self._random = random
        self._wildness = wildness
        self._density = density
        self._jobs = jobs

    def body(self, kind: type[Struct]) -> dict[str, object]:
        """A request's body."""
        made = self._struct(_info(kind))
        assert isinstance(made, dict), f"{kind} is no map"
        return made

    def fields(self, kind: type[Struct], names: Collection[str]) -> dict[str, object]:
        """Values of these fields of a Struct."""
        return {
            field.encode_name: self._value(field.type, kind.__name__, field.name)
            for field in _info(kind).fields
            if field.name in names
        }

    def changes(self, kind: type[Struct]) -> dict[str, object]:
        """What an update of such a record may name."""
        chosen = self._random.sample(kind.__struct_fields__, self._random.choice((1, 1, 2, 5)))
        special = self._random.choice(
            ({}, {}, {"array_limit": self._random.choice(_EDGES)}, {"hold": True}, {"end_at": 1e9})
        )
        return {**self.fields(kind, chosen), **special}

    def _is_wild(self) -> bool:
        return self._random.random() < self._wildness

    def _struct(self, info: inspect.StructType) -> object:
        changed = {
            name.partition(".")[2]: kind
            for name, (kind, _more) in bounds.CHANGES.items()
            if name.partition(".")[0] == info.cls.__name__
        }
        made: dict[str, object] = {} if info.tag is None else {info.tag_field or "type": info.tag}
        for field in info.fields:
            if field.name in changed:
                made[field.encode_name] = self.changes(changed[field.name])
            elif info.array_like or field.required or self._random.random() < self._density:
                made[field.encode_name] = self._value(field.type, info.cls.__name__, field.name)
        if self._is_wild() and made:
            made.pop(self._random.choice(list(made)))
        return list(made.values()) if info.array_like else made

    def _value(self, info: inspect.Type, owner: str, field: str) -> object:
        if self._is_wild() and self._random.random() < 0.1:
            return self._random.choice((None, "text", 1, -1, 1.5, [], {}, [[]], True, b"\xff"))
        match info:
            case inspect.StructType():
                return self._struct(info)
            case inspect.UnionType():
                return self._value(self._random.choice(info.types), owner, field)
            case inspect.VarTupleType() | inspect.ListType():
                return [self._value(info.item_type, owner, field) for _ in range(self._size())]
            case inspect.TupleType():
                return [self._value(item, owner, field) for item in info.item_types]
            case inspect.DictType():
                return {
                    str(self._value(info.key_type, owner, field)): self._value(info.value_type, owner, field)
                    for _ in range(self._size())
                }
            case inspect.EnumType():
                return self._random.choice([member.value for member in info.cls])
        return self._leaf(info, owner, field)

    def _leaf(self, info: inspect.Type, owner: str, field: str) -> object:
        match info:
            case inspect.IntType():
                return self._number(owner, field)
            case inspect.FloatType():
                return self._random.choice(_WILD_FLOATS) if self._is_wild() else float(self._number(owner, field))
            case inspect.StrType():
                return self._text(field)
            case inspect.BytesType():
                return self._random.choice((b"", b"#!/bin/sh\ntrue\n", b"A=1", b"\xff\x00", b"x" * 2000))
            case inspect.BoolType():
                return self._random.random() < 0.5
        return None

    def _size(self) -> int:
        return self._random.choice(_LARGE_SIZES if self._random.random() < 0.01 else _SIZES)

    def _number(self, owner: str, field: str) -> int:
        if self._is_wild():
            return self._random.choice(_WILD_NUMBERS)
        if field == "job_id" and self._random.random() < 0.8:
            return self._random.randint(1, self._jobs)
        allowed = bounds.NUMBERS.get(f"{owner}.{field}") or bounds.NUMBERS.get(field) or bounds.LONG
        low, high = _ends(allowed)
        kind = self._random.random()
        if kind < 0.5:
            return min(max(self._random.choice((0, 1, 1, 1, 2, 2, 3, 4, 8)), low), high)
        if kind < 0.8:
            return min(max(self._random.choice(_EDGES), low), high)
        return self._random.choice((low, low + 1, high - 1, high, self._random.randint(low, high)))

    def _text(self, field: str) -> str:
        known: Sequence[str] = _TEXTS.get(field, ())
        if not known or self._is_wild():
            known = _WILD_TEXTS
        return self._random.choice(known)


@cache
def _info(kind: type[Struct]) -> inspect.StructType:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType), f"{kind} is a Struct"
    return info


def _ends(allowed: Meta) -> tuple[int, int]:
    assert allowed.ge is not None, f"{allowed} has a beginning"
    assert allowed.le is not None, f"{allowed} has an end"
    return int(allowed.ge), int(allowed.le)
