"""Read and check a batch script, and extract its options.

Source: sbatch(1) DESCRIPTION; texts of Slurm 22.05.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.call.options import Fatal
from spritz.model.errors import SpritzError
from spritz.notation.lines import shell

if TYPE_CHECKING:
    from spritz.cli.call.context import Context
    from spritz.cli.jobs.submit.values import Values

#: Bytes read at most. The controller's max_script_size is smaller; this limit only protects against files like
#: /dev/zero.
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
    """The script of --wrap, which runs `command` in /bin/sh."""
    text = f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n"
    return BatchScript(os.fsencode(text), "", "wrap")


def read(path: str | None, context: Context) -> BatchScript:
    """The script file, or standard input for None. Raises SpritzError in sbatch's words."""
    if path is None:
        try:
            content = context.stdin.buffer.read(_READ_LIMIT)
        except OSError:
            content = b""  # such as a terminal that a background process may not read: Slurm takes it as the end
        return BatchScript(_judged(content), "", "sbatch")
    found_path = _find(path, context)
    try:
        with open(found_path, "rb") as file:
            content = file.read(_READ_LIMIT)
    except IsADirectoryError:
        content = b""  # Slurm reports an empty file here
    except OSError:
        raise SpritzError(f"Unable to open file {found_path}") from None
    return BatchScript(_judged(content), found_path, os.path.basename(path))


def _find(path: str, context: Context) -> str:
    """The path, relative to the current directory; a bare name that does not exist there is searched on PATH."""
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
        # As in Slurm, each line of the message has the program's name.
        raise SpritzError(problem.replace("\n", "\nsbatch: error: "))
    return content


def option_words(script: BatchScript, magic: str = "#SBATCH") -> list[list[str]]:
    """The words of each option line, in order. Raises SpritzError for a line that cannot be parsed."""
    text = os.fsdecode(script.content)
    try:
        return [line.words for line in shell.option_lines(text, magic, script.name)]
    except shell.ScriptError as error:
        raise Fatal(str(error)) from error


def foreign_values(script: BatchScript, options: Values) -> Values:
    """Options of #PBS and #BSUB lines, unless --ignore-pbs is among `options`. Raises SpritzError."""
    foreign_options: Values = {}
    if "ignore-pbs" in options or not (b"#PBS" in script.content or b"#BSUB" in script.content):
        return foreign_options
    from spritz.cli.jobs.submit import foreign, values

    for key, value in foreign.pbs_options(option_words(script, "#PBS")):
        values.put(foreign_options, key, value)
    for key, value in foreign.bsub_options(option_words(script, "#BSUB")):
        values.put(foreign_options, key, value)
    return foreign_options
