"""Reads configuration files into logical lines, following includes.

Knows no key but ClusterName, which the names of included files may contain.

Source: slurm.conf(5) INCLUDE MODIFIERS.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

from spritz.config.grammar import Line, Location, Token, include_target, lines, tokens
from spritz.notation.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.config.diagnostics import Diagnostics

#: a longer chain of includes is taken for a loop
INCLUDE_DEPTH_MAX = 32
#: a larger file is taken for a mistake
FILE_BYTES_MAX = 256 * 1024 * 1024

#: longest path shown whole in messages: Linux accepts no longer one
PATH_CHARACTERS_MAX = 4096


class Files:
    """Reads files into logical lines, following includes; remembers what was read."""

    def __init__(self, directory: str, diagnostics: Diagnostics) -> None:
        self.directory = directory
        self.diagnostics = diagnostics
        self.read: list[str] = []
        self.contents: list[bytes] = []
        self.cluster = ""

    def lines(self, path: str, origin: Location | None = None, chain: tuple[str, ...] = ()) -> Iterator[Line]:
        """Lines of a file, with the lines of included files in place of the includes."""
        real = os.path.realpath(path)
        if real in chain:
            self.diagnostics.error(origin, f"Include {shown(path)}: the file includes itself", key="Include")
            return
        if len(chain) >= INCLUDE_DEPTH_MAX:
            message = f"Include {shown(path)}: more than {INCLUDE_DEPTH_MAX} files deep"
            self.diagnostics.error(origin, message, key="Include")
            return
        text = self._text(path, origin)
        if text is None:
            return
        for line in lines(text, path):
            target = include_target(line)
            if target is None:
                if not self.cluster and "clustername" in line.text.lower():
                    self._note_cluster(line)
                yield line
            elif not target:
                self.diagnostics.error(line.place, "Include names no file", key="Include", hint="write Include FILE")
            else:
                yield from self.lines(self._included(target), line.place, (*chain, real))

    def text(self, path: str) -> str | None:
        """A whole file that has a grammar of its own; None if it does not exist or (with an error) cannot be read."""
        return self._text(path, None) if os.path.lexists(path) else None

    def _included(self, target: str) -> str:
        # The manual: relative names are relative to slurm.conf, also in an included file.
        name = target.replace("%c", self.cluster)
        return os.path.normpath(os.path.join(self.directory, name))

    def _note_cluster(self, line: Line) -> None:
        for token in tokens(line):
            if isinstance(token, Token) and token.key.lower() == "clustername":
                self.cluster = token.value

    def _text(self, path: str, origin: Location | None) -> str | None:
        place = origin or Location(path, 0)
        prefix = f"Include {shown(path, PATH_CHARACTERS_MAX)}: " if origin else ""
        try:
            with open(path, "rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            self.diagnostics.error(
                place, f"{prefix}cannot be read: {error.strerror or error}", key="Include" if origin else ""
            )
            return None
        except ValueError:
            self.diagnostics.error(place, f"{prefix}not the name of a file")
            return None
        self.read.append(path)
        self.contents.append(content)
        if len(content) > FILE_BYTES_MAX:
            self.diagnostics.error(Location(path, 0), f"larger than {FILE_BYTES_MAX >> 20} MiB")
            return None
        if b"\0" in content:
            line = content.count(b"\n", 0, content.index(b"\0")) + 1
            self.diagnostics.error(Location(path, line), "not a text file: it holds a NUL byte")
            return None
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            self.diagnostics.error(Location(path, line), "not UTF-8 text")
            return None

    def digest(self) -> str:
        """Fingerprint of everything that was read, in order."""
        total = sha256()
        for content in self.contents:
            total.update(len(content).to_bytes(8, "big"))
            total.update(content)
        return total.hexdigest()
