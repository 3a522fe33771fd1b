"""Links of a project that lead out of it, as `lib -> ../common/lib` or `data -> /datasets/x`.

What they lead to has no place in the project's snapshot. Code becomes a further source of the run, and in the run's
checkout the link leads to the source's. A relative link to anything else leads to where it does in the working tree: it
would lead nowhere from the checkout.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from spritz.experiments import imports
from spritz.experiments.code import snapshot
from spritz.experiments.code.snapshot import Snapshot, Source


def of_snapshot(code: Snapshot, store: Path) -> dict[str, str]:
    """Path of each such link below the root -> where it leads, resolved; without links that lead nowhere.

    Raises ExperimentError.
    """
    leading_out = {}
    for name in snapshot.links(store, code.tree):
        target = os.path.realpath(os.path.join(code.root, name))
        if os.path.exists(target) and not imports.is_below(target, code.root):
            leading_out[name] = target
    return leading_out


def is_code(target: str) -> bool:
    """Whether Python would find modules there."""
    if os.path.isfile(target):
        return target.endswith(".py")
    if imports.is_installed(os.path.join(target, "")):
        return False
    try:
        with os.scandir(target) as entries:
            return any(
                entry.name.endswith(".py") or os.path.exists(os.path.join(entry.path, "__init__.py"))
                for entry in entries
            )
    except OSError:
        return False


def kept(code: Snapshot, leading_out: Mapping[str, str], sources: tuple[Source, ...]) -> tuple[tuple[str, str], ...]:
    """The links that differ in the checkout: those into sources, and relative ones."""
    return tuple(
        (name, target)
        for name, target in sorted(leading_out.items())
        if any(imports.is_below(target, source.root) for source in sources)
        or not os.path.isabs(os.readlink(os.path.join(code.root, name)))
    )


def lines(links: Sequence[tuple[str, str]], places: Mapping[str, str], checkout: str) -> str:
    """Shell commands that make the links in a checkout. `places`: root of a source -> its checkout; all are quoted."""
    text = ""
    for name, target in links:
        there = shlex.quote(target)
        root = next((root for root in places if imports.is_below(target, root)), None)
        if root is not None:
            inside = os.path.relpath(target, root)
            there = places[root] + ("" if inside == "." else f"/{shlex.quote(inside)}")
        text += f"ln -sfn {there} {checkout}/{shlex.quote(name)}\n"
    return text
