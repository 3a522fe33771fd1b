"""The files of a command that say what it reads: its script, modules of the project that this imports, configuration.

They are read in the working tree, within bounds: a submission must not wait for it.
"""

from __future__ import annotations

import ast
import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from spritz.experiments import imports
from spritz.experiments.code import literals
from spritz.experiments.code.literals import Literals

_CONFIG = (".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".sh")
#: A component of a path in a string; and what names configuration.
_COMPONENT = re.compile(r"""["'/]([^"'/\n]+)(?=["'/])""")
_CONFIG_NAME = re.compile(r"""\.(?:ya?ml|json|toml|cfg|ini)["']|config_path""")
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([^)]*|[^\n#]+)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
#: Most files that are read, and bytes; bytes that are parsed, which takes a hundred times as long.
_FILES_MAX, _BYTES_MAX, _PARSED_BYTES_MAX = 40, 400 << 10, 48 << 10
_HYDRA_FILES_MAX = 20


class ProgramFiles:
    """Strings of a command's files. Of Python only lines count that have one of `names`, components of paths."""

    def __init__(self, root: str, directory: str, names: Iterable[str]) -> None:
        self._root, self._directory = root, directory
        self.code, self.config, self.command = Literals(), Literals(), Literals()
        #: directories below the root to which paths may be relative
        self.bases: dict[str, None] = {os.path.normpath(directory): None}
        self._sought = frozenset(names)
        self._seen: set[str] = set()
        self._bytes = 0
        self._parsed = 0

    def read(self, words: Sequence[str]) -> None:
        """Read the files of a command."""
        for text, role in literals.of_command(words[1:]):
            self.command.add(text, role)
        self._follow(words)

    def _follow(self, words: Iterable[str]) -> None:
        """Read the files that words name. The first Python file is the program, further ones are its configuration."""
        into, last = self.code, ""
        for word in words:
            path = self._inside(word.partition("=")[2] if word.startswith("-") else word)
            if last == "-m" and re.fullmatch(r"[\w.]+", word):
                for module in self._modules(word, "", ()):
                    self._read_python(module, into)
                into = self.config
            elif path.endswith(".py"):
                if into is self.code:
                    self.bases[os.path.dirname(path) or "."] = None
                self._read_python(path, into)
                into = self.config
            elif path.endswith(_CONFIG):
                self._read_text(path)
            last = word

    def _inside(self, word: str) -> str:
        """The word as a path of a file below the root; "" if it is none."""
        full = os.path.normpath(os.path.join(self._root, self._directory, word))
        if not word or "\0" in word or not imports.is_below(full, self._root) or not os.path.isfile(full):
            return ""
        return os.path.relpath(full, self._root)

    def _text(self, path: str) -> str:
        """A file's text; "" if it was read before, or is beyond the bounds."""
        if path in self._seen or len(self._seen) >= _FILES_MAX or self._bytes > _BYTES_MAX:
            return ""
        self._seen.add(path)
        try:
            with open(os.path.join(self._root, path), encoding="utf-8", errors="replace") as file:
                text = file.read(_BYTES_MAX)
        except OSError:
            return ""
        self._bytes += len(text)
        return text

    def _read_text(self, path: str) -> None:
        text = self._text(path)
        literals.add_text(text, self.config)
        if path.endswith(".sh"):
            for line in text.splitlines():
                self._follow(line.split())

    def _read_python(self, path: str, into: Literals) -> None:
        """Read a module, and the modules of the project that it imports."""
        text = self._text(path)
        places = [match.start(1) for match in _COMPONENT.finditer(text) if match[1] in self._sought]
        places += [match.start() for match in _CONFIG_NAME.finditer(text)]
        if places and self._parsed + len(text) <= _PARSED_BYTES_MAX:
            self._parsed += len(text)
            strings = Literals()
            try:
                literals.add_python(ast.parse(text), strings, lines=_line_numbers(text, places))
            except (SyntaxError, ValueError, RecursionError):
                return
            into.update(strings)
            self._read_named(path, strings)
        for source, names, modules in (match.groups() for match in _IMPORT.finditer(text)):
            parts = [word.split(" as ")[0].strip("( \t\n") for word in (modules or names).split(",")]
            imported = [(module, parts[:0]) for module in parts] if modules else [(source, parts)]
            for module, inner in imported:
                for other in self._modules(module, path, inner):
                    self._read_python(other, into)

    def _read_named(self, path: str, strings: Literals) -> None:
        """Read the configuration files that a module names."""
        for name in sorted(strings.paths):
            if name.endswith(_CONFIG) and (inside := self._inside(name)):
                self._read_text(inside)
        for name in strings.config_directories:
            folder = os.path.normpath(os.path.join(self._root, os.path.dirname(path), name))
            if imports.is_below(folder, self._root) and folder != self._root:
                for full in sorted(Path(folder).glob("**/*.y*ml"))[:_HYDRA_FILES_MAX]:
                    self._read_text(os.path.relpath(full, self._root))

    def _modules(self, module: str, importer: str, names: Sequence[str]) -> Iterator[str]:
        """Files of the project for `import module`, or for `from module import names` in `importer`."""
        inner = module.lstrip(".")
        places = [*self.bases, ".", "src"]
        if level := len(module) - len(inner):
            parents = [os.path.dirname(importer)]
            for _ in range(level - 1):
                parents.append(os.path.dirname(parents[-1]))
            places = parents[-1:]
        for place in dict.fromkeys(places):
            base = os.path.normpath(os.path.join(place, inner.replace(".", os.sep)))
            for stem in (base, *(os.path.join(base, name) for name in names if name.isidentifier())):
                for path in (f"{stem}.py", os.path.join(stem, "__init__.py")):
                    if path not in self._seen and os.path.isfile(os.path.join(self._root, path)):
                        yield os.path.normpath(path)


def _line_numbers(text: str, places: Iterable[int]) -> list[int]:
    """The numbers of the lines at these places, in order."""
    ends = [match.start() for match in re.finditer("\n", text)]
    return sorted({bisect_left(ends, place) + 1 for place in places})
