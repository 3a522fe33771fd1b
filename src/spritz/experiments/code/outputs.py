"""Paths of a project that persist between its runs (`outputs:` in spritz.yaml): checkpoints to continue from, a study.

They stay where they are in the working tree, and each run's checkout has a link there, so that the next run finds what
the last one wrote. A snapshot never has them. Several runs at a time share them, as several programs in one directory.

A program that writes a new file and renames it to the output's name replaces the link. Such a file is moved to the
working tree at the end of the run, or before its next start.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spritz.experiments import imports
from spritz.experiments.errors import ExperimentError


@dataclass(frozen=True)
class Output:
    """`path` is relative to the project's root; `target` is the place in the working tree."""

    path: str
    target: str
    is_directory: bool

    @property
    def mounted(self) -> str:
        """The directory that a container needs: a file may not exist yet, or be replaced."""
        return self.target if self.is_directory else os.path.dirname(self.target)


def resolve(root: str, directory: str, words: Sequence[str]) -> list[Output]:
    """The outputs named by words relative to `directory`, itself relative to `root`.

    What does not exist is a file if its name has a suffix and no slash at its end, else a directory. Raises
    ExperimentError for a path outside the project, and for one that has the run's directory.
    """
    outputs: dict[str, Output] = {}
    here = os.path.normpath(os.path.join(root, directory))
    for word in words:
        target = os.path.normpath(os.path.join(here, word))
        if not imports.is_below(target, root) or target == root:
            raise ExperimentError(
                f"outputs: {word}: not below {root}", hint="an absolute path elsewhere is the same in every run"
            )
        if imports.is_below(here, target):
            raise ExperimentError(f"outputs: {word}: the command runs in it")
        is_new = not os.path.exists(target)
        is_directory = (
            word.endswith("/") or "." not in os.path.basename(target)[1:] if is_new else os.path.isdir(target)
        )
        path = os.path.relpath(target, root)
        outputs[path] = Output(path, target, is_directory)
    return [
        output
        for path, output in outputs.items()
        if not any(path != other and imports.is_below(path, other) for other in outputs)
    ]


def patterns(root: str, directory: Path, words: Sequence[str]) -> list[str]:
    """Lines as in .gitignore that keep the outputs out of a snapshot. Raises ExperimentError."""
    relative = os.path.relpath(directory, root)
    return ["/" + _plain(output.path) for output in resolve(root, relative, words)]


def _plain(path: str) -> str:
    return "".join(f"\\{char}" if char in "\\*?[ " else char for char in path)


def functions(outputs: Sequence[Output], checkout: str) -> str:
    """The shell function `keep_outputs`, which moves files that have replaced their links; "" without outputs.

    `checkout` is quoted. Files of the checkout itself are no newer than its mark. A file is moved beside its target
    first, which may be a copy to another file system: readers of the target see the old file or the whole new one.
    """
    if not outputs:
        return ""
    calls = "".join(
        f"    keep_output {checkout}/{shlex.quote(output.path)} {shlex.quote(output.target)}\n" for output in outputs
    )
    return f"""\
keep_output() {{
    [ ! -L "$1" ] && [ -f "$1" ] && [ "$1" -nt {checkout}/.git-snapshot-done ] || return 0
    mv -fT "$1" "$2.spritz-$$" && mv -fT "$2.spritz-$$" "$2" && ln -sfT "$2" "$1" && return 0
    rm -f "$2.spritz-$$"; echo "spritz: $1 could not be moved to $2" >&2
}}
keep_outputs() {{
{calls}}}
"""


def lines(outputs: Sequence[Output], checkout: str) -> str:
    """Shell commands that link the outputs in a checkout, whose path is quoted."""
    text = "keep_outputs\n" if outputs else ""
    for output in outputs:
        target, link = shlex.quote(output.target), f"{checkout}/{shlex.quote(output.path)}"
        folder = target if output.is_directory else shlex.quote(os.path.dirname(output.target))
        parent = f"{checkout}/{shlex.quote(os.path.dirname(output.path))}"
        text += f"mkdir -p {folder} || finish 66\n"
        text += f"[ -L {link} ] || {{ rm -rf {link}; mkdir -p {parent}; ln -sT {target} {link}; }} || finish 66\n"
    return text
