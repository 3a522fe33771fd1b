"""job_container.conf: private directories of jobs. Pure.

A line without NodeName applies to all nodes; of several lines for a node, the last one of each key counts. Source:
job_container.conf(5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.config.grammar import Malformed, tokens
from spritz.config.schema import container_keys
from spritz.config.typed import Fields, malformed
from spritz.notation import hostlist
from spritz.notation.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.config.diagnostics import Diagnostics
    from spritz.config.grammar import Line
    from spritz.config.kinds import Value
    from spritz.config.settings import Settings

FILE = "job_container.conf"
PLUGIN = "job_container/tmpfs"


class ContainersFile(Struct, frozen=True, kw_only=True):
    """All of job_container.conf; empty unless JobContainerType asks for it."""

    lines: tuple[tuple[tuple[str, ...], dict[str, Value]], ...] = ()

    def of(self, node: str) -> dict[str, Value]:
        """The values for a node, by the manual's spelling, with defaults; empty without BasePath."""
        merged: dict[str, Value] = {}
        for names, values in self.lines:
            if not names or node in names:
                merged |= values
        if not merged.get("BasePath"):
            return {}
        return {key.name: key.default for key in container_keys().values()} | merged


def is_wanted(settings: Settings) -> bool:
    return settings.text("JobContainerType") == PLUGIN


def read(lines: Iterable[Line], diagnostics: Diagnostics) -> ContainersFile:
    """Parse the file. Never raises for its content."""
    entries: list[tuple[tuple[str, ...], dict[str, Value]]] = []
    for line in lines:
        fields = Fields(FILE, container_keys(), diagnostics)
        for token in tokens(line):
            if isinstance(token, Malformed):
                malformed(token, diagnostics)
            else:
                fields.add(token)
        names: tuple[str, ...] = ()
        text = str(fields.values.pop("NodeName", "") or "")
        try:
            names = tuple(hostlist.expand(text)) if text else ()
        except ValueError as error:
            diagnostics.error(line.place, f"NodeName={shown(text)}: {error}", key="NodeName")
        dirs = fields.values.get("Dirs") or ()
        for place in dirs if isinstance(dirs, tuple) else ():
            if not str(place).startswith("/") or str(place).rstrip("/") == "":
                message = f"Dirs={shown(str(place))}: expected the path of a directory below /"
                diagnostics.error(line.place, message, key="Dirs")
        entries.append((names, fields.values))
    return ContainersFile(lines=tuple(entries))
