"""Base of the small records of this package.

Not msgspec and not typing.NamedTuple: every command imports these modules, and the two take 20 ms and 7 ms to import,
where a bare interpreter takes 8 (docs/decisions/0168).
"""

from __future__ import annotations


class Value:
    """A record that compares, hashes and prints by its slots.

    Subclasses name their slots, and set each once, in `__init__`.
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
