"""A copy of a state, to decide on without a trace.

Records are frozen, so both states share them; indexes, counts, deadlines and whatever else changes in place are the
copy's own. Two names for one object in the state are two names for one object in the copy.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from spritz.core.state import State

#: Never changed in place, and shared.
_FROZEN = (Struct, int, float, str, bytes, tuple, frozenset, Enum, type(None))


def copied(state: State) -> State:
    """A state of its own, equal to this. Milliseconds for 10,000 jobs, 0.2 s for 100,000 on 1,000 nodes."""
    return _copied(state, {})  # type: ignore[no-any-return]  # what goes in comes out


# Any: of whatever type the state's attributes are, the copy has the same.
def _copied(value: Any, known: dict[int, Any]) -> Any:
    if isinstance(value, _FROZEN):
        return value
    copy = known.get(id(value))
    if copy is None:
        copy = known[id(value)] = _fresh(value, known)
    return copy


def _fresh(value: Any, known: dict[int, Any]) -> Any:
    kind = type(value)
    if kind is dict:
        # Values of one dict are of one kind: the first tells whether all can be shared.
        if isinstance(next(iter(value.values()), None), _FROZEN):
            return value.copy()
        return {key: _copied(item, known) for key, item in value.items()}
    if kind is list:
        return [_copied(item, known) for item in value]
    if kind is set:
        return set(value)
    if kind is deque:
        return deque(value, value.maxlen)
    assert kind.__module__.startswith("spritz."), f"{kind.__name__} in a state: say here how it is copied"
    copy = known[id(value)] = object.__new__(kind)
    for name in _attributes(value):
        setattr(copy, name, _copied(getattr(value, name), known))
    return copy


def _attributes(value: Any) -> list[str]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [name for name in (*slots, *getattr(value, "__dict__", ())) if hasattr(value, name)]
