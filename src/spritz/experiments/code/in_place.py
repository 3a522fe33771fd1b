"""The code of a run without a snapshot (`--no-snapshot`): recorded all the same, for `spritz show`, diff and rerun.

It runs in the working tree, which may change before and while it runs. What is recorded is the state at submission: a
snapshot where one can be taken, else the commit, and the changes of tracked files as a patch.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from spritz.experiments.code.snapshot import Snapshot
from spritz.experiments.errors import ExperimentError

#: The file of a run with the patch, and its most bytes.
PATCH = "code.patch"
_PATCH_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class InPlace:
    """The code that a run uses in place. `code.tree` is "" if no snapshot could be taken."""

    code: Snapshot
    patch: bytes = b""


def describe(directory: Path, take: Callable[[], Snapshot]) -> InPlace:
    """The state of the code around `directory`; `take` takes its snapshot. Nothing of it fails."""
    try:
        return InPlace(replace(take(), in_place=True, unfrozen=()))
    except ExperimentError as error:
        reason = f"the code: {error.message}"
    directory = Path(os.path.realpath(directory))
    unknown = Snapshot("", str(directory), ".", in_place=True, unfrozen=(reason,))
    words = _git(directory, "rev-parse", "--show-toplevel", "HEAD", "--abbrev-ref", "HEAD").splitlines()
    if len(words) != 3:
        return InPlace(unknown)
    root, commit, branch = map(os.fsdecode, words)
    patch = _git(Path(root), "diff", "--no-ext-diff", "--binary", "HEAD", bytes_max=_PATCH_BYTES_MAX)
    code = replace(
        unknown, root=root, directory=os.path.relpath(directory, root), commit=commit,
        branch="" if branch == "HEAD" else branch, dirty=bool(patch),
    )  # fmt: skip
    return InPlace(code, patch)


def _git(directory: Path, *words: str, bytes_max: int = 1 << 16) -> bytes:
    """The beginning of git's output; b"" if it fails."""
    command = ["git", "-C", str(directory), *words]
    with (
        suppress(OSError),
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process,
    ):
        assert process.stdout is not None
        output = process.stdout.read(bytes_max)
        if len(output) == bytes_max:
            process.kill()
            return output
        process.communicate()
        return output if process.returncode == 0 else b""
    return b""
