"""A row of a configuration table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.config.kinds import Kind, Value

if TYPE_CHECKING:
    from collections.abc import Iterable


class Key(Struct, frozen=True):
    """A key of a file: spelling, kind of value, default, meaning.

    `aliases` are older spellings.
    """

    name: str
    kind: Kind
    default: Value
    meaning: str
    aliases: tuple[str, ...] = ()


def table(*groups: Iterable[Key]) -> dict[str, Key]:
    """Keys by lower-case name and alias, in table order. A name must be unique."""
    by_name: dict[str, Key] = {}
    for group in groups:
        for key in group:
            for name in (key.name, *key.aliases):
                assert name.lower() not in by_name, name
                by_name[name.lower()] = key
    return by_name
