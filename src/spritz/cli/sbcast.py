"""sbcast: copy a file to every node of a job.

Source: sbcast(1).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.cli.call.entry import run
from spritz.cli.call.options import AUTOCOMPLETE, Row, refusal, run_parse
from spritz.cli.jobs.launch import help_text
from spritz.cli.jobs.launch.bcast import Copy, broadcast, packs
from spritz.cli.jobs.launch.controller import Controller
from spritz.cli.jobs.launch.interrupts import Interrupts
from spritz.cli.jobs.launch.settings import tree_width
from spritz.cli.jobs.submit import values
from spritz.model.errors import ESLURM, SpritzError
from spritz.notation import nodecount
from spritz.notation.errors import NotationError
from spritz.stepd.reactor import Reactor

if TYPE_CHECKING:
    from spritz.cli.jobs.submit.values import Values
    from spritz.client.errors import RemoteError

_LIBRARIES = "shared libraries are not copied"

OPTIONS: tuple[Row, ...] = (
    AUTOCOMPLETE,
    Row("force", "f", "", "replace an existing file", env="FORCE"),
    Row("preserve", "p", "", "keep times and mode", env="PRESERVE"),
    Row("jobid", "j", "id[.step]", "the job whose nodes get the file (default: SLURM_JOB_ID)"),
    Row("size", "s", "bytes", "block size, with suffix k or m", env="SIZE"),
    Row("timeout", "t", "seconds", "time for the controller to answer", env="TIMEOUT"),
    Row(
        "compress",
        "C",
        "[=library]",
        "compress the transfer: zlib or none (default)",
        env="COMPRESS",
    ),
    Row(
        "fanout",
        "F",
        "count",
        "number of nodes to which each node forwards the file (default: TreeWidth)",
        env="FANOUT",
    ),
    Row("send-libs", "", "[=yes|no]", refused=_LIBRARIES, env="SEND_LIBS"),
    Row("exclude", "", "paths", refused=_LIBRARIES, env="EXCLUDE"),
    Row("treewidth", "", "width", "as --fanout"),
    Row("nodelist", "", "hosts", refused="the file goes to all nodes of the job"),
    Row("verbose", "v", "", "report progress"),
    Row("quiet", "Q", "", "print only errors"),
    Row("help", "", "", "print this help"),
    Row("no-allocation", "Z", "[=PATH]", refused="files are copied to the nodes of a job"),
    Row("usage", "", "", "print a short usage"),
    Row("version", "V", "", "print the version"),
)

_SYNOPSIS = "[OPTIONS] SOURCE DEST"


def main(argv: list[str], context: Context) -> int:
    """0 when every node has the file; 1 otherwise."""
    parsed = run_parse(OPTIONS, argv, context)
    if isinstance(parsed, int):
        return parsed
    options_given, operands = parsed
    options = values.from_parsed(options_given)
    if options.keys() & {"version", "help", "usage"}:
        return help_text.answer("sbcast", _SYNOPSIS, OPTIONS, options, context)
    options = values.merge(_from_environment(context), options)
    if len(operands) != 2:
        context.err(f"Need two file names, have {len(operands)} names\n")
        context.err('Try "sbcast --help" for more information\n')
        return 1
    try:
        return _copy(options, operands[0], operands[1], context)
    except NotationError as error:
        raise SpritzError(str(error)) from error
    except AlreadyReported as silent:
        return silent.exit_code


def _from_environment(context: Context) -> Values:
    values: Values = {}
    for row in OPTIONS:
        value = context.environ.get("SBCAST_" + row.env) if row.env else None
        if value is not None:
            if row.refused:
                raise refusal(row)
            values[row.name] = value
    return values


def _copy(options: Values, source: str, destination: str, context: Context) -> int:
    packed = packs(options.get("compress"))
    job_id = _job_id(options, context)
    block = nodecount.parse_count(options["size"], "--size", suffix=True) if "size" in options else 0
    copy = Copy(
        os.path.join(context.cwd, source),
        destination if destination.startswith("/") else os.path.join(context.cwd, destination),
        force="force" in options,
        preserve="preserve" in options,
        block_bytes=block,
        packed=packed,
    )
    if "verbose" in options:
        _tell(copy, job_id, options, context)
    reactor = Reactor()
    width = "treewidth" if "treewidth" in options else "fanout"
    seconds = nodecount.parse_count(options["timeout"], "--timeout") if "timeout" in options else None
    controller = Controller(reactor, timeout_seconds=seconds)
    interrupts = Interrupts(reactor, controller.interrupt)
    quiet = "quiet" in options
    progress = context.stderr.isatty() and not quiet and not copy.packed
    status = broadcast(
        controller,
        reactor,
        interrupts,
        context,
        job_id,
        copy,
        tree_width=tree_width(options, width),
        progress=progress,
        wording=_worded,
    )
    if "verbose" in options and not status:
        context.info(f"{copy.size} bytes of {source} are {destination} on every node of job {job_id}")
    return status


def _tell(copy: Copy, job_id: int, options: Values, context: Context) -> None:
    """-v: what is asked for, as Slurm words it."""
    rule = "-----------------------------"
    lines = (
        ("block_size", str(copy.block_bytes)),
        ("force", str("force" in options).lower()),
        ("preserve", str("preserve" in options).lower()),
        ("timeout", options.get("timeout", "0")),
        ("verbose", str(len(options["verbose"]))),
        ("source", copy.source),
        ("dest", copy.destination),
        ("size", str(copy.size)),
        ("modes", f"{copy.mode | 0o100000:o}"),
        ("jobid", str(job_id)),
    )
    context.info(rule)
    for name, value in lines:
        context.info(f"{name:<10} = {value}")
    context.info(rule)


def _worded(error: RemoteError, job_id: int, context: Context) -> SpritzError:
    denied = error.code == "ESLURM_ACCESS_DENIED"
    why = ESLURM["ESLURM_USER_ID_MISSING"][1] if denied else error.message
    return SpritzError(f"Slurm job {job_id} lookup error: {why}", code=error.code, exit_code=255)


def _job_id(options: Values, context: Context) -> int:
    text = options.get("jobid", context.environ.get("SLURM_JOB_ID", "")).partition(".")[0]
    if not text:
        raise SpritzError("Need a job id to run this command.  Run from within a Slurm job or use the --jobid option.")
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise SpritzError(f"Invalid job id: {text[:80]}")
    return int(text)


def entry() -> None:
    run("sbcast", main)
