"""Base of the small records of this room.

Not msgspec and not typing.NamedTuple: commands import these modules before they do anything, and those two cost 28 ms
and 10 ms to import where a bare interpreter takes 11 ms.
"""

from __future__ import annotations


class Value:
    """Compares, hashes and prints by its slots.

    Subclasses name their slots and set each in `__init__`; nobody sets them later.
    """

    __slots__: tuple[str, ...] = ()

    def _fields(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and type(other) is type(self) and other._fields() == self._fields()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._fields()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"
