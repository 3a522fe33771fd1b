"""Compare what jobs used with what they requested, and suggest better requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.cli.local.questions.efficiency.advice import advise
from spritz.cli.local.questions.efficiency.fetch import jobs
from spritz.cli.local.questions.efficiency.measure import measure
from spritz.cli.local.questions.efficiency.text import text_lines
from spritz.cli.local.questions.runs import job_numbers

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "jobs", nargs="+", metavar="JOB", help="ids as squeue prints them: 7, 12_3, 9+1; or names of runs"
    )
    parser.add_argument("--json", action="store_true", help="all details as JSON")


def run(arguments: Namespace, context: Context) -> int:
    """0; 1 if accounting knows no such job, or no daemon answers."""
    try:
        text = ",".join(job_numbers(arguments.jobs, context))
        records, now = jobs(text, context)
    except AlreadyReported as silent:
        return silent.exit_code
    if not records:
        context.error(f"accounting knows no job {text}")
        return 1
    records.sort(key=lambda row: (row.job.array_job_id or row.job.job_id, row.job.array_task_id or 0, row.job.job_id))
    measured = [measure(record, now) for record in records]
    if arguments.json:
        reports = [
            msgspec.to_builtins(job) | {"advice": msgspec.to_builtins(advise([job])), "cpus_busy": job.cpus_busy}
            for job in measured
        ]
        together = msgspec.to_builtins(advise(measured))
        context.out(json.dumps({"jobs": reports, "advice": together}, indent=2) + "\n")
        return 0
    context.out("".join(line + "\n" for line in text_lines(measured)))
    return 0
