"""sgather: bring a file from every node of the job here, as DEST.NODE.

Each node's part is a step that writes an archive to its standard output: so it goes the way that all output goes, and
runs as the user. Source: sgather(1).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tarfile
from typing import TYPE_CHECKING

from spritz.cli.call.context import Context
from spritz.cli.call.entry import run
from spritz.cli.call.options import Row, refusal, run_parse
from spritz.cli.jobs.launch import help_text
from spritz.cli.jobs.launch.salloc_session import own_srun
from spritz.cli.jobs.submit import values
from spritz.notation import hostlist

if TYPE_CHECKING:
    from spritz.cli.jobs.submit.values import Values

OPTIONS: tuple[Row, ...] = (
    Row("compress", "C", "", "compress the transfer", env="COMPRESS"),
    Row("fanout", "F", "count", refused="every node is read directly", env="FANOUT"),
    Row("force", "f", "", "skip nodes that do not have the file", env="FORCE"),
    Row("keep", "k", "", "keep the file on the nodes (default: remove it)", env="KEEP"),
    Row("preserve", "p", "", "keep times and mode", env="PRESERVE"),
    Row("recursive", "r", "", "copy a directory recursively"),
    Row("timeout", "t", "seconds", refused="MessageTimeout of slurm.conf counts", env="TIMEOUT"),
    Row("verbose", "v", "", "report progress"),
    Row("help", "", "", "print this help"),
    Row("usage", "", "", "print a short usage"),
    Row("version", "V", "", "print the version"),
)

_SYNOPSIS = "[OPTIONS] SOURCE DEST"


def main(argv: list[str], context: Context) -> int:
    """0 when the file of every node is here; 1 otherwise."""
    parsed = run_parse(OPTIONS, argv, context)
    if isinstance(parsed, int):
        return parsed
    options_given, operands = parsed
    options = values.from_parsed(options_given)
    if options.keys() & {"version", "help", "usage"}:
        return help_text.answer("sgather", _SYNOPSIS, OPTIONS, options, context)
    options = values.merge(_from_environment(context), options)
    if len(operands) != 2:
        context.error(f"Need two file names, have {len(operands)} names")
        context.err('Try "sgather --help" for more information\n')
        return 1
    nodes = context.environ.get("SLURM_JOB_NODELIST", "")
    if not nodes or "SLURM_JOB_ID" not in context.environ:
        context.error("Command only valid from within a Slurm job")
        return 1
    # Go on after a node that failed: files of the other nodes may be all that the user needs.
    return max(_gather(node, options, operands[0], operands[1], context) for node in hostlist.expand(nodes))


def _from_environment(context: Context) -> Values:
    values: Values = {}
    for row in OPTIONS:
        if row.env and context.environ.get("SGATHER_" + row.env) is not None:
            if row.refused:
                raise refusal(row)
            values[row.name] = ""
    return values


def _gather(node: str, options: Values, source: str, destination: str, context: Context) -> int:
    directory, name = os.path.split(os.path.abspath(os.path.join(context.cwd, source)))
    test = "-e" if "recursive" in options else "-f"
    missing = "exit 0" if "force" in options else 'echo "$0/$1: not a file that can be copied" >&2; exit 1'
    # What changes while it is read, and has to be removed, is not: tar says so by its status.
    script = f'test {test} "$0/$1" || {{ {missing}; }}; tar -C "$0" -c{"z" * ("compress" in options)}f - -- "$1"'
    if "keep" not in options:
        script += ' && rm -rf -- "$0/$1"'
    step = (own_srun(), "-Q", "--overlap", "-N1", "-n1", "-w", node, "sh", "-c", script, directory, name)
    path = f"{os.path.join(context.cwd, destination)}.{node}"
    if "verbose" in options:
        context.info(f"{node}: {shlex.quote(source)} to {path}")
    with subprocess.Popen(
        step, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=dict(context.environ), cwd=context.cwd
    ) as running:
        assert running.stdout is not None, "asked for"
        try:
            with tarfile.open(fileobj=running.stdout, mode="r|*") as archive:
                # As it is: the step is the user's own, and its tar wrote it. (Python before 3.11.4 knows no filters.)
                archive.extraction_filter = lambda member, path: member
                for member in archive:
                    _put(archive, member, name, path, preserve="preserve" in options)
        except tarfile.ReadError:
            pass  # nothing came: the step says why
        except (OSError, tarfile.TarError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            context.error(f"{node}: can not write {path}: {why}")
            running.stdout.read()
            running.wait()
            return 1
    return 1 if running.returncode else 0


def _put(archive: tarfile.TarFile, member: tarfile.TarInfo, name: str, path: str, *, preserve: bool) -> None:
    """Under the new name, which takes the place of the old one's first part."""
    directory, base = os.path.split(path)
    member.name = base + member.name.removeprefix(name)
    archive.extract(member, directory)
    if not preserve and not member.issym():
        os.utime(os.path.join(directory, member.name))


def entry() -> None:
    run("sgather", main)
