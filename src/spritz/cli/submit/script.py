"""Reading and judging a batch script: where it comes from, whether sbatch takes it, which options it carries.

Source: sbatch(1) DESCRIPTION; texts as Slurm 22.05 prints them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.options import Fatal
from spritz.model.errors import SpritzError
from spritz.notation import shell

if TYPE_CHECKING:
    from spritz.cli.context import Context
    from spritz.cli.submit.values import Values

#: The controller's max_script_size is smaller; this only keeps a mistaken /dev/zero from filling memory.
_READ_LIMIT = 64 << 20


class BatchScript:
    """A script's bytes, its absolute path as `squeue -o %o` shows it ("" for stdin and --wrap) and the job's default
    name."""

    __slots__ = ("content", "name", "path")

    def __init__(self, content: bytes, path: str, name: str) -> None:
        self.content = content
        self.path = path
        self.name = name


def wrapped(command: str) -> BatchScript:
    """What --wrap runs."""
    text = f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n"
    return BatchScript(os.fsencode(text), "", "wrap")


def read(path: str | None, context: Context) -> BatchScript:
    """The script file, or standard input for None. Raises SpritzError in sbatch's words."""
    if path is None:
        try:
            content = context.stdin.buffer.read(_READ_LIMIT)
        except OSError:
            content = b""  # such as a terminal that may not be read from here: to Slurm that is the end
        return BatchScript(_judged(content), "", "sbatch")
    found = _find(path, context)
    try:
        with open(found, "rb") as file:
            content = file.read(_READ_LIMIT)
    except IsADirectoryError:
        content = b""  # Slurm calls it empty or no script, as the file system tells its size
    except OSError:
        raise SpritzError(f"Unable to open file {found}") from None
    return BatchScript(_judged(content), found, os.path.basename(path))


def _find(path: str, context: Context) -> str:
    """As given from the current directory; a bare name that is not there is looked up on PATH, as sbatch does."""
    absolute = os.path.join(context.cwd, path)
    if os.path.exists(absolute) or "/" in path:
        return absolute if os.path.exists(absolute) else path
    for directory in context.environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = os.path.join(directory, path)
        if os.path.isfile(candidate) and os.access(candidate, os.R_OK):
            return candidate
    return path


def _judged(content: bytes) -> bytes:
    problem = shell.script_problem(content)
    if problem:
        # Every line of the complaint carries the program's name.
        raise SpritzError(problem.replace("\n", "\nsbatch: error: "))
    return content


def option_words(script: BatchScript, magic: str = "#SBATCH") -> list[list[str]]:
    """The words of each option line, in order. Raises SpritzError for a line that cannot be read."""
    text = os.fsdecode(script.content)
    try:
        return [line.words for line in shell.option_lines(text, magic, script.name)]
    except shell.ScriptError as error:
        raise Fatal(str(error)) from error


def foreign_values(script: BatchScript, given: Values) -> Values:
    """Options of #PBS and #BSUB lines, unless they are to be ignored."""
    found: Values = {}
    if "ignore-pbs" in given or not (b"#PBS" in script.content or b"#BSUB" in script.content):
        return found
    from spritz.cli.submit import foreign, values

    for key, value in foreign.pbs_options(option_words(script, "#PBS")):
        values.put(found, key, value)
    for key, value in foreign.bsub_options(option_words(script, "#BSUB")):
        values.put(found, key, value)
    return found
