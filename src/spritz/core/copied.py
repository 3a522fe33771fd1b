"""A copy of a state, on which `Machine.check` decides without changing the original.

Records are frozen, so both states share them. Indexes, counts, deadlines and everything else that changes in place are
copied. If the state refers to one object in two places, so does the copy.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from spritz.core.state import State

#: types that never change in place, and are shared
_FROZEN = (Struct, int, float, str, bytes, tuple, frozenset, Enum, type(None))


def copied(state: State) -> State:
    """An independent copy. Takes milliseconds for 10,000 jobs, 0.2 s for 100,000 jobs on 1,000 nodes."""
    return _copied(state, {})  # type: ignore[no-any-return]  # the copy has the type of the original


# Any: the state's attributes have many types, and each copy has the type of its original.
def _copied(value: Any, copies: dict[int, Any]) -> Any:
    if isinstance(value, _FROZEN):
        return value
    copy = copies.get(id(value))
    if copy is None:
        copy = copies[id(value)] = _fresh(value, copies)
    return copy


def _fresh(value: Any, copies: dict[int, Any]) -> Any:
    kind = type(value)
    if kind is dict:
        # The values of one dict have one type: the first tells whether all can be shared.
        if isinstance(next(iter(value.values()), None), _FROZEN):
            return value.copy()
        return {key: _copied(item, copies) for key, item in value.items()}
    if kind is list:
        return [_copied(item, copies) for item in value]
    if kind is set:
        return set(value)
    if kind is deque:
        return deque(value, value.maxlen)
    assert kind.__module__.startswith("spritz."), f"{kind.__name__} in a state: say here how it is copied"
    copy = copies[id(value)] = object.__new__(kind)
    for name in _attributes(value):
        setattr(copy, name, _copied(getattr(value, name), copies))
    return copy


def _attributes(value: Any) -> list[str]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [name for name in (*slots, *getattr(value, "__dict__", ())) if hasattr(value, name)]
