"""Data of the working tree that a run would miss: git ignores it, and the command, its configuration or code names it.

A guess from strings at submission, for advice, which never stops a run. It prefers silence to false alarms: what the
program writes, by its name or by the use of the string, is not advised. A path may be composed: for `os.path.join(
"data", dataset)` and `"train.bin"` it is data/NAME/train.bin, with a NAME of the command or the configuration if one
has it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from spritz.experiments import imports
from spritz.experiments.code import literals, snapshot
from spritz.experiments.code.literals import Role
from spritz.experiments.code.program_files import ProgramFiles
from spritz.experiments.code.snapshot import Snapshot

#: Files and directories that programs write, by their names.
_WRITTEN = re.compile(
    r"\.|(?:out|output|result|log|run|checkpoint|ckpt|wandb|mlruns|mlartifacts|lightning_logs|tensorboard|tb|tmp|temp"
    r"|cache|build|dist|site|multirun|htmlcov|env|venv|node_modules|__pycache__|__pypackages__)s?(?:[-_.]|\Z)"
    r"|.*\.(?:egg-info|pyc|so|o|a|log|tmp|lock|pid)\Z|.*[-_](?:output|result|log|checkpoint|ckpt)s?\Z",
    re.IGNORECASE,
)
#: Bounds of the search: ignored paths, entries of an ignored directory, and its depth.
_PATHS_MAX, _ENTRIES_MAX, _DEPTH_MAX = 2000, 1000, 3
#: Most lines of advice.
_LINES_MAX = 3
_ADVICE = re.compile(r"(.*?)(?: and \d+ more)?: git ignores (?:it|them); --link ")
#: How sure a match is: a string is the path, or a directory with such data. In between: what composes the path.
_NAMED, _BELOW_PLACE = 9, -1


def lines(code: Snapshot, store: Path, command: Sequence[str], seen: Sequence[str], *, in_code: bool) -> list[str]:
    """Advice for `unfrozen`. `seen`: paths below the root with links. `in_code`: read the command's files too."""
    paths = _in_command(code, store, command, seen)
    if in_code:
        paths += [path for path in _in_files(code, command, seen) if not _is_in(path, paths)]
    groups: dict[str, list[str]] = {}
    for path in paths:
        here = os.path.relpath(path, code.directory)
        folder = os.path.dirname(here)
        is_alone = os.path.isdir(os.path.join(code.root, path)) or folder.startswith("..") or not folder
        groups.setdefault(here if is_alone else folder, []).append(here)
    text = []
    for link, names in list(groups.items())[:_LINES_MAX]:
        more, pronoun = (f" and {len(names) - 1} more", "them") if len(names) > 1 else ("", "it")
        advice = f"--link {shlex.quote(link)} lets the run see {pronoun}"
        text.append(f"{names[0]}{more}: git ignores {pronoun}; {advice}")
    return text


def pending(code: Snapshot, seen: Sequence[str]) -> list[str]:
    """`unfrozen` of an earlier submission of the code, without the advice that was followed."""
    kept = []
    for line in code.unfrozen:
        advice = _ADVICE.match(line)
        path = os.path.normpath(os.path.join(code.directory, advice[1])) if advice else ""
        if not (advice and _is_in(path, seen)):
            kept.append(line)
    return kept


def _is_in(path: str, directories: Sequence[str]) -> bool:
    return any(imports.is_below(path, directory) for directory in directories)


def _in_command(code: Snapshot, store: Path, command: Sequence[str], seen: Sequence[str]) -> list[str]:
    """Paths that words of the command name, relative to the root."""
    paths = []
    for word, role in literals.of_command(command[1:]):
        path = os.path.normpath(os.path.join(code.root, code.directory, word))
        if not word or role is Role.OUTPUT or word.startswith("/") or not imports.is_below(path, code.root):
            continue
        relative = os.path.relpath(path, code.root)
        if os.path.exists(path) and not _is_in(relative, seen):
            paths += snapshot.missing(store, code.tree, [relative])
    return list(dict.fromkeys(paths))


def _in_files(code: Snapshot, command: Sequence[str], seen: Sequence[str]) -> list[str]:
    """Paths that the command's configuration and code name, relative to the root."""
    ignored = [path for path in snapshot.ignored(Path(code.root), [])[:_PATHS_MAX] if not _is_written(path)]
    if all(_is_in(path, seen) for path in ignored):
        return []
    files = ProgramFiles(code.root, code.directory, (part for path in ignored for part in path.split(os.sep)))
    files.read(command)
    # What is linked counts: it is surer than another data set beside it.
    return [path for path in _Matcher(code.root, ignored, files).paths() if not _is_in(path, seen)]


def _is_written(path: str) -> bool:
    return any(_WRITTEN.match(part) for part in path.split(os.sep))


def _below(path: str, base: str) -> str:
    """The path relative to a directory; "" if it is not below it. Quicker than os.path.relpath."""
    if base == ".":
        return path
    return path[len(base) + 1 :] if path.startswith(base + os.sep) else ""


class _Matcher:
    """Compares ignored paths with the strings of a command's files."""

    def __init__(self, root: str, ignored: Sequence[str], files: ProgramFiles) -> None:
        self._root, self._ignored, self._bases = root, ignored, list(files.bases)
        sources = (files.code, files.config, files.command)
        self._strings = {text for source in sources for text in source.paths}
        self._places = {text for source in sources for text in source.places}
        self._outputs = {text for source in sources for text in source.outputs}
        #: word -> by how sure a source it is used: a command's word replaces a default of the code
        self._rank = {word: rank for rank, source in enumerate(sources, 1) for word in source.words}

    def paths(self) -> list[str]:
        """Ignored paths that the strings name; of those below the same directory of the project the surest."""
        best: dict[str, tuple[int, list[str]]] = {}
        for base in self._bases:
            for path, rank in self._matches(base):
                relative = _below(path, base)
                if not relative or self._is_output(relative) or _is_written(path):
                    continue
                top = os.path.normpath(os.path.join(base, relative.partition(os.sep)[0]))
                surest = best.get(top, (rank - 1, []))
                if rank > surest[0]:
                    best[top] = rank, [path]
                elif rank == surest[0]:
                    surest[1].append(path)
        chosen = list(dict.fromkeys(path for _, paths in best.values() for path in paths))
        return sorted(path for path in chosen if not _is_in(path, [other for other in chosen if other != path]))

    def _matches(self, base: str) -> Iterator[tuple[str, int]]:
        """Ignored paths, and how sure it is that a string relative to `base` means them."""
        ignored = set(self._ignored)
        for text in self._strings:
            literal = os.path.dirname(text.partition("*")[0]) if "*" in text else text
            path = os.path.normpath(os.path.join(base, literal))
            if not literal or literal.startswith("/") or path in (".", base) or path.startswith(".."):
                continue
            if path in ignored or (_is_in(path, self._ignored) and os.path.exists(os.path.join(self._root, path))):
                yield path, _NAMED
            elif "/" in text or text in self._places:
                rank = _NAMED if "/" in text else _BELOW_PLACE
                yield from ((name, rank) for name in self._ignored if imports.is_below(name, path))
        for name in self._ignored:
            for path in self._files(base, name):
                if (composed := self._composed(base, path)) is not None:
                    yield path, composed

    def _is_output(self, relative: str) -> bool:
        parts = relative.split(os.sep)
        prefixes = {os.sep.join(parts[:count]) for count in range(1, len(parts) + 1)}
        return bool(prefixes & self._outputs) or parts[-1] in self._outputs

    def _files(self, base: str, name: str) -> Iterator[str]:
        """The ignored path; of a directory whose top a string names, the files in it, within bounds."""
        full = os.path.join(self._root, name)
        if _below(name, base).partition(os.sep)[0] not in self._strings:
            return
        if not os.path.isdir(full):
            yield name
            return
        count = 0
        for place, folders, files in os.walk(full):
            count += len(folders) + len(files)
            if count > _ENTRIES_MAX:
                return
            if place.count(os.sep) - full.count(os.sep) >= _DEPTH_MAX:
                folders.clear()
            inner = name + place[len(full) :]
            yield from (f"{inner}{os.sep}{file}" for file in files if file in self._strings)

    def _composed(self, base: str, path: str) -> int | None:
        """How sure it is that strings compose the path, by the source of its middle parts; None if they do not."""
        parts = _below(path, base).split(os.sep)
        if len(parts) < 2 or parts[-1] not in self._strings:
            return None
        return min((self._rank.get(part, 0) for part in parts[1:-1]), default=4)
