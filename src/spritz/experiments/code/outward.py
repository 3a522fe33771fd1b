"""Links of a project that lead out of it, as `lib -> ../common/lib` or `data -> /datasets/x`, and of its sources.

What they lead to has no place in the project's snapshot. Code becomes a further source of the run, and in the run's
checkout the link leads to the source's. A relative link to anything else, also to what git ignores in the project,
leads to where it does in the working tree: it would lead nowhere from the checkout. A link that says where it leads
from outside, as `lib -> /home/me/project/lib`, leads to the same file of the checkout.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from spritz.experiments import imports
from spritz.experiments.code import linked, snapshot
from spritz.experiments.code.snapshot import Source

#: Entries of a directory that are looked at.
_ENTRIES_MAX = 10_000


def of_tree(root: str, tree: str, store: Path) -> dict[str, str]:
    """Path of each link below the root that would lead elsewhere from a checkout -> where it leads: resolved, or
    relative to the root if the tree has it. Links that lead nowhere are left out.

    Raises ExperimentError.
    """
    links: dict[str, str] = {}
    inside: dict[str, str] = {}
    for name in snapshot.links(store, tree):
        target = os.path.realpath(os.path.join(root, name))
        if not os.path.exists(target):
            continue
        if imports.is_below(target, root):
            inside[name] = os.path.relpath(target, root)
        else:
            links[name] = target
    lacking = set(snapshot.missing(store, tree, list(dict.fromkeys(inside.values()))))
    for name, target in inside.items():
        # An environment of the project may be another one in the run, where the checkout has a link to it (`linked`).
        if target in lacking and not set(linked.ENVIRONMENTS) & set(target.split(os.sep)):
            links[name] = os.path.join(root, target)
        elif target not in lacking and _passes_outside(name, _text(root, name)):
            links[name] = target
    return links


def _text(root: str, name: str) -> str:
    """The link's text; "" if it is none any more."""
    try:
        return os.readlink(os.path.join(root, name))
    except OSError:
        return ""


def _passes_outside(name: str, text: str) -> bool:
    """Whether the text of a link is absolute, or leads above the root."""
    return os.path.isabs(text) or os.path.normpath(os.path.join(os.path.dirname(name), text)).split(os.sep)[0] == ".."


def is_code(target: str) -> bool:
    """Whether Python would find modules there, among the first entries of a large directory."""
    if not os.path.isabs(target):
        return False
    if os.path.isfile(target):
        return target.endswith(".py")
    if imports.is_installed(os.path.join(target, "")):
        return False
    try:
        with os.scandir(target) as entries:
            return any(
                entry.name.endswith(".py")
                or (
                    (entry.is_dir(follow_symlinks=False) or entry.is_symlink())
                    and os.path.exists(os.path.join(entry.path, "__init__.py"))
                )
                for entry, _ in zip(entries, range(_ENTRIES_MAX), strict=False)
            )
    except OSError:
        return False


def kept(root: str, leading_out: Mapping[str, str], sources: Sequence[Source]) -> tuple[tuple[str, str], ...]:
    """The links that differ in the checkout: those into sources and into the checkout itself, and relative ones. Those
    of sources have absolute paths.
    """
    return tuple(
        (name, target)
        for name, target in sorted(leading_out.items())
        if not os.path.isabs(target)
        or any(imports.is_below(target, source.root) for source in sources)
        or not os.path.isabs(_text(root, name))
    )


def lines(links: Sequence[tuple[str, str]], places: Mapping[str, str], checkout: str) -> str:
    """Shell commands that make the links in a checkout. `places`: root of a source -> its checkout; all are quoted."""
    text = ""
    for name, target in links:
        base, inner = _placed(name, places) if os.path.isabs(name) else (checkout, name)
        if os.path.isabs(target):
            place, inside = _placed(target, places)
            there = "/".join(filter(None, [place, "" if inside == "." else shlex.quote(inside)]))
        else:
            there = shlex.quote(os.path.relpath(target, os.path.dirname(inner)))
        link = f"{base}/{shlex.quote(inner)}"
        # Trials share the checkouts of sources: a link that is right is not made again while another one uses it.
        text += f"""[ "$(readlink {link})" = {there} ] || ln -sfn {there} {link}\n"""
    return text


def _placed(path: str, places: Mapping[str, str]) -> tuple[str, str]:
    """(checkout of the innermost source that has the path, quoted, the path in it); ("", path) if none has."""
    roots = [root for root in places if imports.is_below(path, root)]
    root = max(roots, key=len, default="")
    return (places[root], os.path.relpath(path, root)) if root else ("", path)
