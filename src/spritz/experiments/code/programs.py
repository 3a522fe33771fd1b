"""Whether a command's program and script will be where the run looks for them; what cannot be is refused before the job
waits in the queue.

Only what is certain is refused. A path outside the project may exist on the nodes alone, and so may the target of a
link; a script's own interpreter is not looked at.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spritz.experiments import imports
from spritz.experiments.code import runners, snapshot
from spritz.experiments.code.interpreters import PYTHON
from spritz.experiments.code.snapshot import Snapshot
from spritz.experiments.errors import ExperimentError
from spritz.notation.names import nearest

#: They come with a driver, which a login node need not have.
_OF_DRIVERS = frozenset({"nvidia-smi", "dcgmi", "rocm-smi", "amd-smi", "hl-smi", "xpu-smi", "neuron-top"})
_SHELLS = frozenset({"bash", "sh", "dash", "zsh"})
_LAUNCHERS = frozenset({"torchrun", "deepspeed"})
_SCRIPT = re.compile(r".+\.(?:py|sh)")
#: Flags of Python with a value in the next word.
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})


@dataclass(frozen=True)
class Place:
    """Where a command runs: in a directory, or in the checkout of its snapshot."""

    directory: Path
    code: Snapshot | None
    store: Path
    #: paths below the code's root to which the checkout has links
    links: Sequence[str]

    def below(self, word: str) -> str | None:
        """The word as a path below the code's root; None for a path that leads elsewhere, or through a link."""
        root = os.path.realpath(self.directory) if self.code is None else self.code.root
        place = root if self.code is None else os.path.join(root, self.code.directory)
        path = os.path.normpath(os.path.join(place, word))
        if not imports.is_below(path, root) or path == root:
            return None
        relative = os.path.relpath(path, root)
        parts = Path(relative).parents
        return None if any(os.path.islink(os.path.join(root, part)) for part in parts) else relative

    def path(self, below: str) -> str:
        """Its path in the working tree."""
        return os.path.join(self.directory if self.code is None else self.code.root, below)

    def mode(self, below: str) -> str:
        """Git's mode of the path in the snapshot; "" if it has none."""
        return "" if self.code is None else snapshot.mode(self.store, self.code.tree, below)

    def is_linked(self, below: str) -> bool:
        """Whether a link in the checkout leads to the path."""
        return any(imports.is_below(below, name) for name in self.links)


def need(command: Sequence[str], place: Place, environment: Mapping[str, str]) -> None:
    """Raises ExperimentError if the program, or the script that an interpreter is given, will not be there."""
    if not command:
        return
    program, path = command[0], environment.get("PATH")
    if "/" in program:
        _need_file(program, place, path)
    elif shutil.which(program, path=path) is None and program not in _OF_DRIVERS:
        raise ExperimentError(f"{program}: command not found", hint=_meant(program, place, path))
    words = command[2:] if runners.runner(command) else command
    if script := _script(words):
        _need_script(script, place)


def _meant(program: str, place: Place, path: str | None) -> str:
    if (below := place.below(program)) and os.path.isfile(place.path(below)):
        first = f"{_python(path)} {program}" if program.endswith(".py") else f"./{program}"
        return f"did you mean: {shlex.join(first.split(' ', 1))}?"
    programs: set[str] = set()
    for folder in (path or os.defpath).split(os.pathsep):
        with suppress(OSError):
            programs.update(os.listdir(folder))
    near = nearest(program, sorted(programs)) if len(program) > 3 else None
    return (f"did you mean {near}? " if near else "") + (
        "setup: lines of spritz.yaml run before the command, in the job; where only nodes have it, give its path"
    )


def _python(path: str | None) -> str:
    """The name under which this machine has Python."""
    return "python" if shutil.which("python", path=path) else "python3"


def _need_file(program: str, place: Place, search: str | None) -> None:
    """Raises ExperimentError for a path of a program that is not there, or cannot be executed."""
    below = place.below(program)
    if below is None:
        return
    path, mode = place.path(below), place.mode(below)
    if mode in ("040000", "160000") or (not mode and os.path.isdir(path)):
        raise ExperimentError(f"{program}: is a directory, not a program")
    if mode == "100755" or mode == "120000":
        return
    if mode or (os.path.isfile(path) and not os.access(path, os.X_OK)):
        runs = _python(search) if program.endswith(".py") else "bash" if program.endswith(".sh") else ""
        other = f", or: {runs} {shlex.quote(program.removeprefix('./'))}" if runs else ""
        raise ExperimentError(f"{program}: not executable", hint=f"chmod +x {shlex.quote(program)}{other}")
    if not os.path.lexists(path):
        raise ExperimentError(f"{program}: no such file")


def _script(words: Sequence[str]) -> str:
    """The script that an interpreter or launcher is given; "" if there is none, or it is not certain."""
    name = os.path.basename(words[0]) if words else ""
    if not (PYTHON.fullmatch(name) or name in _SHELLS or name in _LAUNCHERS):
        return ""
    place = 1
    while place < len(words) and words[place].startswith("-"):
        if words[place] in ("-c", "-m", "-s", "-") or (name in _LAUNCHERS and "=" not in words[place]):
            return ""
        place += 2 if words[place] in _WITH_VALUE else 1
    word = words[place] if place < len(words) else ""
    return word if _SCRIPT.fullmatch(word) and "{" not in word else ""


def outside(command: Sequence[str], code: Snapshot) -> str:
    """The path of the command's script where it is not in the project; "" where it is, or there is none."""
    words = command[2:] if runners.runner(command) else command
    script = _script(words) or (words[0] if words and _SCRIPT.fullmatch(words[0]) and "/" in words[0] else "")
    path = os.path.normpath(os.path.join(code.root, code.directory, script))
    real = os.path.realpath(path)
    if not script or not os.path.isfile(path) or imports.is_installed(real):
        return ""
    return "" if imports.is_below(path, code.root) or imports.is_below(real, code.root) else path


def _need_script(script: str, place: Place) -> None:
    below = place.below(script)
    if below is None:
        return
    path = place.path(below)
    if place.code is None:
        if not os.path.lexists(path):
            raise ExperimentError(f"{script}: no such file in {place.directory}")
        return
    if place.mode(below) or place.is_linked(below):
        return
    if not os.path.lexists(path):
        directory = os.path.normpath(os.path.join(place.code.root, place.code.directory))
        raise ExperimentError(f"{script}: no such file in {directory}")
    if "/" in script and os.access(path, os.X_OK) and os.path.isfile(path):
        return  # as a program, it is run from the working tree (`sources.words`)
    if not snapshot.ignored(Path(place.code.root), [below]):
        raise ExperimentError(f"{script}: it is newer than the snapshot, which does not have it")
    raise ExperimentError(
        f"{script}: it is ignored, so the snapshot does not have it",
        hint=f"--link {shlex.quote(script)} lets the run see it",
    )
