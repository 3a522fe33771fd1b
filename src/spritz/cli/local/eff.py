"""Say compare what jobs used with what they requested, and suggest better requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from spritz.cli.already_reported import AlreadyReported
from spritz.cli.context import Context
from spritz.cli.efficiency.advice import advise
from spritz.cli.efficiency.fetch import jobs
from spritz.cli.efficiency.measure import measure
from spritz.cli.efficiency.text import text_lines

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    """`spritz eff [--json] JOB…`."""
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="ids as squeue and sacct print them: 7, 12_3, 12, 9+1")
    parser.add_argument("--json", action="store_true", help="all details as JSON")


def run(arguments: Namespace, context: Context) -> int:
    """0; 1 where there is no such job, or no daemon answers."""
    text = ",".join(arguments.jobs)
    try:
        found, now = jobs(text, context)
    except AlreadyReported as silent:
        return silent.exit_code
    if not found:
        context.error(f"accounting knows no job {text}")
        return 1
    found.sort(key=lambda one: (one.job.array_job_id or one.job.job_id, one.job.array_task_id or 0, one.job.job_id))
    measured = [measure(one, now) for one in found]
    if arguments.json:
        each = [
            msgspec.to_builtins(one) | {"advice": msgspec.to_builtins(advise([one])), "cpus_busy": one.cpus_busy}
            for one in measured
        ]
        together = msgspec.to_builtins(advise(measured))
        context.out(json.dumps({"jobs": each, "advice": together}, indent=2) + "\n")
        return 0
    context.out("".join(line + "\n" for line in text_lines(measured)))
    return 0
