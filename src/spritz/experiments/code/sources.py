"""The code of a run beyond its project: what an editable installation, a .pth file, PYTHONPATH or a link brings in.

Each such working tree becomes a source of the run, with a snapshot of its own. In the job `imports` leads the
interpreter to these instead of the working trees. What cannot be frozen is named, at submission and in the record.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spritz.experiments import imports
from spritz.experiments.code import interpreters, outward, snapshot
from spritz.experiments.code.snapshot import Snapshot, Source
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import copied_by_content

#: Takes the snapshot of a directory with these directories of modules.
Take = Callable[[Path, Sequence[str]], Snapshot]

#: The file of a run, or of a sweep, with working trees and the places of their snapshots (`imports`).
FILE = "sources.list"


def freeze(directory: Path, store: Path, places: Sequence[str], take: Take) -> Snapshot:
    """A snapshot of the project around `directory`, and of the working trees with these places or with code to which
    links of the project lead.

    Raises ExperimentError if there is none of the project; what else cannot be frozen is named in `unfrozen`.
    """
    code = take(directory, places)
    leading_out = outward.of_tree(code.root, code.tree, store)
    places = [*places, *filter(outward.is_code, leading_out.values())]
    inside = [place for place in places if imports.is_below(place, code.root)]
    unfrozen = _unfrozen(store, code.root, code.tree, inside)
    sources: list[Source] = []
    for place in places:  # links of sources add more
        if imports.is_below(place, code.root) or imports.is_below(place, _OURS):
            continue
        if any(imports.is_below(place, source.root) for source in sources):
            continue
        try:
            taken = take(Path(place) if os.path.isdir(place) else Path(place).parent, places)
        except ExperimentError as error:
            unfrozen.append(f"{place}: {error.message}")
            continue
        snapshot.keep_with(store, code.tree, taken.tree)
        label = re.sub(r"[^A-Za-z0-9_.-]", "-", os.path.basename(taken.root))
        name = f"{len(sources) + 1}-{label}"
        sources.append(Source(taken.root, taken.tree, name, taken.commit, taken.dirty, taken.submodules))
        links = outward.of_tree(taken.root, taken.tree, store)
        leading_out |= {os.path.join(taken.root, name): target for name, target in links.items()}
        places += filter(outward.is_code, links.values())
        unfrozen += _unfrozen(
            store, taken.root, taken.tree, [other for other in places if imports.is_below(other, taken.root)]
        )
    kept = outward.kept(code.root, leading_out, sources)
    return replace(code, sources=tuple(sources), unfrozen=tuple(unfrozen), outward=kept)


def with_paths(code: Snapshot, facts: Mapping[str, Any], environment: Mapping[str, str]) -> Snapshot:
    """The snapshot with the paths into its trees that the interpreter has, by what is known of it (`interpreters`)."""
    roots = [code.root, *(source.root for source in code.sources)]
    paths = {path: os.path.realpath(path) for path in interpreters.path_of(facts, environment)}
    inside = [(path, real) for path, real in paths.items() if any(imports.is_below(real, root) for root in roots)]
    return replace(code, paths=tuple(inside), prefix=os.path.realpath(facts.get("prefix", ""))) if inside else code


def _ours() -> str:
    """Where Spritz lies, with all of a checkout of it: the tool is not the user's code."""
    installed = Path(__file__).resolve().parents[3]
    if imports.is_installed(f"{installed}{os.sep}"):
        return str(installed)
    return str(next((place for place in installed.parents if (place / ".git").exists()), installed))


_OURS = _ours()


def _unfrozen(store: Path, root: str, tree: str, places: Sequence[str]) -> list[str]:
    """Places below a root that its snapshot does not have."""
    relative = {os.path.relpath(place, root): place for place in places if not imports.is_installed(f"{place}{os.sep}")}
    return [f"{relative[path]}: git ignores it" for path in snapshot.missing(store, tree, list(relative))]


def words(command: Sequence[str], code: Snapshot | None, store: Path) -> list[str]:
    """The command for the snapshot's directory: an absolute path of a file that the snapshot has leads there, and a
    relative one of a program that it has not (`.venv/bin/python`) to the working tree, as does one out of the project.
    """
    if code is None:
        return list(command)
    directory = os.path.join(code.root, code.directory)
    values = {word: word.partition("=")[2] if word.startswith("-") else word for word in command}
    paths = {value: _from_root(value, directory, code.root) for value in values.values() if os.sep in value}
    inside = [path for path in paths.values() if not _leads_out(path)]
    frozen = snapshot.files(store, code.tree, inside)
    new: dict[str, str] = {}
    for value, path in paths.items():
        there = os.path.normpath(os.path.join(code.root, path))
        if path in frozen:
            if os.path.isabs(value):
                # Relative, since each trial of a sweep has a checkout of its own; with a slash: it is not searched for.
                new[value] = os.path.join(".", os.path.relpath(path, code.directory))
        elif os.path.isabs(value):
            continue
        elif _is_program(there) or (value.startswith(os.pardir) and _leads_out(path) and os.path.exists(there)):
            new[value] = there
    return [
        f"{word[: len(word) - len(values[word])]}{new[values[word]]}" if values[word] in new else word
        for word in command
    ]


def _from_root(word: str, directory: str, root: str) -> str:
    """A word of a command as a path relative to the root."""
    path = os.path.normpath(os.path.join(directory, word))
    if os.path.isabs(word) and not imports.is_below(path, root):
        # A link may lead to the project, as from /home to where homes are. The program may itself be a link.
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return os.path.relpath(path, root)


def _leads_out(path: str) -> bool:
    return path.partition(os.sep)[0] in (".", "..")


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def pairs(code: Snapshot | None, shared: Path) -> bytes:
    """The file for `imports`; `shared`: the directory with the checkouts of sources."""
    if code is None:
        return b""
    words = [code.prefix, str(len(code.paths)), *(word for pair in code.paths for word in pair), code.root, "code"]
    for source in code.sources:
        words += [source.root, str(shared / "sources" / source.name)]
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def install(home: Path) -> Path:
    """The directory for PYTHONPATH that holds `imports` as `sitecustomize`."""
    return copied_by_content(Path(imports.__file__), home / "imports", "{digest}/sitecustomize.py").parent
