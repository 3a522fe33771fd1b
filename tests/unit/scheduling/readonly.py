"""Proves that a cycle changes nothing of the snapshot that it reads.

`unchanged` takes a picture of everything that the snapshot reaches, before and after, and names the first attribute
that differs. Left out are values that their owners work out when first asked (`WORKED_OUT`): they say nothing new.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from msgspec import Struct

from spritz.model.limits.rules import Rules
from spritz.scheduling.view.eligibility import Eligibility, WorkloadSample
from spritz.scheduling.view.findings import Memory
from spritz.scheduling.view.nodes import Holder
from spritz.scheduling.view.occupants import Occupants
from spritz.scheduling.view.planned_starts import FutureStarts
from spritz.scheduling.view.profile import Profile
from spritz.scheduling.view.records import Shape
from spritz.scheduling.view.sharing.gpu_parts import GpuParts
from spritz.scheduling.view.sharing.oversubscribed import Oversubscribed
from spritz.scheduling.view.snapshot import Snapshot
from spritz.scheduling.view.table import NodeTable

#: class -> attributes that it fills when first asked
WORKED_OUT: dict[type, frozenset[str]] = {
    Eligibility: frozenset({"_all_nodes", "_capacities", "_choices", "derived"}),
    WorkloadSample: frozenset({"before", "derived"}),
    Memory: frozenset({"_empty", "_ideal"}),
    Rules: frozenset({"_job_limits_cache"}),
    Holder: frozenset({"_taken"}),
    Shape: frozenset({"_fit"}),
    Oversubscribed: frozenset({"_columns", "_own", "_stale", "_wanted"}),
    # Both follow the table, and their holds, when they are asked.
    Profile: frozenset(Profile.__slots__) - {"holds", "table"},
    Occupants: frozenset(Occupants.__slots__) - {"table"},
    NodeTable: frozenset({"changed", "stale"}),
    # numbers that are given out once, so that those of a cycle's forks mean the same in the projection
    FutureStarts: frozenset({"_numbers"}),
    GpuParts: frozenset({"_numbers", "parts"}),
}


@contextmanager
def unchanged(snapshot: Snapshot) -> Iterator[None]:
    """What runs inside must not change the snapshot."""
    before = _picture(snapshot, {}, [])
    yield
    _compare(before, _picture(snapshot, {}, []), "snapshot")


def _attributes(item: object) -> dict[str, Any]:
    names = [name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ()) if name != "__weakref__"]
    names += list(getattr(item, "__struct_fields__", ()))
    found = {name: getattr(item, name) for name in names if hasattr(item, name)}
    return found | getattr(item, "__dict__", {})


def _picture(item: Any, seen: dict[int, int], alive: list[object]) -> Any:
    """Nested tuples of plain values. `seen`: objects on the way, by id; `alive` keeps their ids theirs."""
    if item is None or isinstance(item, str | int | float | bytes | frozenset):
        return item
    if isinstance(item, np.ndarray):
        return ("array", str(item.dtype), item.shape, item.tobytes())
    if id(item) in seen:
        return ("seen", seen[id(item)])
    seen[id(item)] = len(seen)
    alive.append(item)
    if isinstance(item, dict):
        pairs = [(key if isinstance(key, str | int | tuple) else repr(key), value) for key, value in item.items()]
        return ("dict", *((key, _picture(value, seen, alive)) for key, value in pairs))
    if isinstance(item, list | tuple):
        return (type(item).__name__, *((number, _picture(value, seen, alive)) for number, value in enumerate(item)))
    if isinstance(item, set):
        return ("set", *sorted(map(repr, item)))
    if isinstance(item, Struct) and item.__struct_config__.frozen and not isinstance(item, Snapshot):
        return ("value", item)
    skipped = WORKED_OUT.get(type(item), frozenset())
    found = _attributes(item)
    return (
        type(item).__name__,
        *((name, _picture(value, seen, alive)) for name, value in found.items() if name not in skipped),
    )


def _compare(before: Any, after: Any, path: str) -> None:
    if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        if before[:1] == ("array",) or before[:1] == ("value",):
            assert before == after, f"a cycle changed {path}"
            return
        for one, other in zip(before, after, strict=True):
            if isinstance(one, tuple) and len(one) == 2 and isinstance(other, tuple) and len(other) == 2:
                assert one[0] == other[0], f"a cycle changed the keys of {path}: {one[0]!r}, {other[0]!r}"
                _compare(one[1], other[1], f"{path}.{one[0]}")
            else:
                _compare(one, other, path)
        return
    assert before == after, f"a cycle changed {path}: {str(before)[:200]} -> {str(after)[:200]}"
