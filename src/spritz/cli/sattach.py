"""sattach: watch (and feed) a running step, in addition to the srun that started it.

Source: sattach(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call import clusters
from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.cli.call.entry import run
from spritz.cli.call.options import AUTOCOMPLETE, Row, run_parse
from spritz.cli.jobs.launch import attaching, help_text
from spritz.cli.jobs.submit import values
from spritz.model.errors import SpritzError
from spritz.model.ids import STEP_INTERACTIVE
from spritz.notation import nodecount
from spritz.notation.errors import NotationError

if TYPE_CHECKING:
    from spritz.cli.jobs.submit.values import Values

OPTIONS: tuple[Row, ...] = (
    AUTOCOMPLETE,
    Row("label", "l", "", "prefix each line of output with the task's number"),
    Row("layout", "", "", "print the nodes of tasks, without attaching"),
    Row("pty", "", "", "connect this terminal to task 0"),
    Row("input-filter", "", "task", "standard input goes to this task only"),
    Row("output-filter", "", "task", "standard output of this task only"),
    Row("error-filter", "", "task", "standard error of this task only"),
    Row("quiet", "Q", "", "print only errors"),
    Row("verbose", "v", "", "print more"),
    Row("help", "h", "", "print this help"),
    Row("debugger-test", "", "", refused="debuggers start their servers with srun"),
    Row("usage", "u", "", "print a short usage"),
    Row("version", "V", "", "print the version"),
)

_SYNOPSIS = "[options] <jobid.stepid>"


def main(argv: list[str], context: Context) -> int:
    """The worst status of the tasks; 1 for a refusal."""
    parsed = run_parse(OPTIONS, argv, context)
    if isinstance(parsed, int):
        return parsed
    options_given, operands = parsed
    options = values.from_parsed(options_given)
    if options.keys() & {"version", "help", "usage"}:
        return help_text.answer("sattach", _SYNOPSIS, OPTIONS, options, context)
    if len(operands) != 1:
        return _usage("too many parameters", context)
    try:
        found_step = _step(operands[0])
        if found_step is None:
            return _usage("Failed to parse stepid from command line options", context)
        job_id, step_id = found_step
        clusters.follow_job(str(job_id))
        filters = {name: _task(options, name) for name in ("input-filter", "output-filter", "error-filter")}

        if "layout" in options:
            return attaching.show_layout(job_id, step_id, context)
        return attaching.attach(job_id, step_id, options, filters, context)
    except NotationError as error:
        raise SpritzError(str(error)) from error
    except AlreadyReported as silent:
        return silent.exit_code


def _usage(problem: str, context: Context) -> int:
    context.error(problem)
    context.out("Usage: sattach [options] <jobid.stepid>\n")
    return 1


def _step(text: str) -> tuple[int, int] | None:
    """`12.0` or `12.interactive`; None for anything else."""
    job, _dot, step = text.partition(".")
    if not (job.isascii() and job.isdigit() and len(job) < 11):
        return None
    if step == "interactive":
        return int(job), STEP_INTERACTIVE
    if not (step.isascii() and step.isdigit() and len(step) < 11):
        return None
    return int(job), int(step)


def _task(options: Values, name: str) -> int | None:
    return nodecount.parse_count(options[name], f"--{name}", minimum=0) if name in options else None


def entry() -> None:
    run("sattach", main)
