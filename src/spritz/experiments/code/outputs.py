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
        place = os.path.normpath(os.path.join(here, word))
        if not imports.is_below(place, root) or place == root:
            raise ExperimentError(
                f"outputs: {word}: not below {root}", hint="an absolute path elsewhere is the same in every run"
            )
        # Behind a link in the project the snapshot has other paths. What a link out of it leads to is no copy in a run.
        resolved = os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))
        place = resolved if imports.is_below(resolved, root) else place
        if imports.is_below(here, place):
            raise ExperimentError(f"outputs: {word}: the command runs in it")
        target = os.path.realpath(place)
        is_directory = (
            os.path.isdir(target)
            if os.path.exists(target)
            else word.endswith("/") or "." not in os.path.basename(place)[1:]
        )
        path = os.path.relpath(place, root)
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
    """The shell functions `link_output` and `keep_outputs`, which moves files that have replaced their links; ""
    without outputs.

    `checkout` is quoted, and was made without the outputs, so that what is there and is no link is the program's. A
    file is moved beside its target first, which may be a copy to another file system: readers of the target see the
    old file or the whole new one. What a link of the project or to its data leads to is the output itself.
    """
    if not outputs:
        return ""
    calls = "".join(
        f"    keep_output {checkout}/{shlex.quote(output.path)} {shlex.quote(output.target)}\n" for output in outputs
    )
    return f"""\
link_output() {{ # $1: its place in the checkout, $2: its target, $3: the directory to make for it
    local parent; parent=$(dirname "$1")
    [ -e "$2" ] || mkdir -p "$3" || return 1
    mkdir -p "$parent" || return 1
    [ -e "$1" ] || [ -L "$1" ] || [ "$parent" -ef "$(dirname "$2")" ] || ln -sT "$2" "$1"
}}
keep_output() {{
    [ ! -L "$1" ] && [ -e "$1" ] && [ ! "$1" -ef "$2" ] || return 0
    [ -f "$1" ] || {{ echo "spritz: a directory has replaced the link $1: it stays with the run" >&2; return; }}
    local new=$2.spritz-${{SLURM_JOB_ID:-0}}.$$
    # What had no suffix was taken for a directory.
    [ ! -d "$2" ] || rmdir "$2" 2> /dev/null
    mv -fT "$1" "$new" && mv -fT "$new" "$2" && ln -sfT "$2" "$1" && return 0
    [ ! -e "$1" ] && [ -e "$new" ] && mv -fT "$new" "$1" || rm -f "$new"
    echo "spritz: $1 could not be moved to $2" >&2
}}
keep_outputs() {{
{calls}}}
"""


def lines(outputs: Sequence[Output], checkout: str) -> str:
    """Shell commands that link the outputs in a checkout, whose path is quoted, after its other links."""
    text = "keep_outputs\n" if outputs else ""
    for output in outputs:
        folder = output.target if output.is_directory else os.path.dirname(output.target)
        words = shlex.join([output.target, folder])
        text += f"link_output {checkout}/{shlex.quote(output.path)} {words} || finish 66\n"
    return text
