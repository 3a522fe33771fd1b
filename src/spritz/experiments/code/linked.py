"""Paths of the working tree that a run sees although git ignores them: environments of the project, data, outputs.

A snapshot is for code. What it lacks stays where it is, and the run's checkout gets a link to it: of itself to the
project's own environments, and to what `--link` names.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from spritz.experiments import imports
from spritz.experiments.code import snapshot
from spritz.experiments.code.snapshot import Snapshot
from spritz.experiments.errors import ExperimentError

#: Directories with programs and packages of a project: uv, venv, poetry, pdm; pixi; npm.
ENVIRONMENTS = (".venv", "venv", ".pixi", "node_modules", "__pypackages__")


def paths(code: Snapshot, store: Path, wanted: Sequence[str], data: Sequence[str] = ()) -> list[str]:
    """Paths below the project's root for links: its environments, and the ignored parts of what is wanted and of data.

    Raises ExperimentError for a wanted path that does not exist, is in the snapshot or is outside the project.
    """
    root, places = Path(code.root), dict.fromkeys((code.directory, "."))
    linked_paths = [
        os.path.normpath(os.path.join(place, name))
        for place in places
        for name in ENVIRONMENTS
        if (root / place / name).is_dir()
    ]
    linked_paths = snapshot.missing(store, code.tree, linked_paths)
    for word in wanted:
        linked_paths += _parts(code, word)
    return list(dict.fromkeys((*linked_paths, *ignored_parts(code, data))))


def ignored_parts(code: Snapshot, words: Sequence[str]) -> list[str]:
    """What the snapshot lacks of paths, relative to the project's root; nothing of paths elsewhere."""
    absolute = [os.path.normpath(os.path.join(code.root, code.directory, os.path.expanduser(word))) for word in words]
    inside = [os.path.relpath(path, code.root) for path in absolute if imports.is_below(path, code.root)]
    return snapshot.ignored(Path(code.root), inside) if inside else []


def _parts(code: Snapshot, word: str) -> list[str]:
    path = os.path.normpath(os.path.join(code.root, code.directory, word))
    if not imports.is_below(path, code.root) or path == code.root:
        raise ExperimentError(
            f"--link {word}: not below {code.root}", hint="an absolute path elsewhere is the same in the job: no link"
        )
    if not os.path.lexists(path):
        raise ExperimentError(f"--link {word}: no such file or directory", hint=f"mkdir -p {shlex.quote(word)}")
    parts = snapshot.ignored(Path(code.root), [os.path.relpath(path, code.root)])
    if not parts:
        raise ExperimentError(f"--link {word}: nothing of it is ignored by git, so the snapshot has it")
    return parts


def mounted(code: Snapshot, names: Sequence[str]) -> list[str]:
    """Targets of links for a container, which brings environments of its own."""
    return [os.path.join(code.root, name) for name in names if os.path.basename(name) not in ENVIRONMENTS]


def lines(
    code: Snapshot, names: Sequence[str], checkout: str, elsewhere: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Shell commands that make the links in a checkout, whose path is quoted. `elsewhere`: path -> target, if it is not
    the same path in the working tree.
    """
    text = ""
    for name in names:
        target = shlex.quote(elsewhere.get(name) or os.path.join(code.root, name))
        link = f"{checkout}/{shlex.quote(name)}"
        folder = f"mkdir -p {checkout}/{shlex.quote(os.path.dirname(name))}; " if "/" in name else ""
        text += f"[ -e {link} ] || {{ {folder}ln -s {target} {link}; }}\n"
    if any(os.path.basename(name) in ENVIRONMENTS for name in names):
        # A project's runner must not install the snapshot into the environment that the working tree has too.
        text += "export UV_NO_SYNC=1\n"
    return text
