"""Explain why a job waits and when it starts, as `scontrol explain` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.cli.local.questions.runs import job_numbers
from spritz.cli.scontrol import main

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="ids as squeue prints them: 7, 12_3; or names of runs")
    parser.add_argument("--json", action="store_true", help="all details as JSON")


def run(arguments: Namespace, context: Context) -> int:
    """Run `scontrol explain`; the messages are scontrol's. Returns its exit code."""
    try:
        jobs = job_numbers(arguments.jobs, context)
    except AlreadyReported as silent:
        return silent.exit_code
    return main([*(["--json"] if arguments.json else []), "explain", *jobs], context)
