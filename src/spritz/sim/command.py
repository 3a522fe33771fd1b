"""Replay a trace of jobs on virtual time and say what a policy would have done: waits, slowdown, utilisation.

The command line is a contract that other programs rely on: see docs/simulate.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.sim.processors.policies import POLICIES, RUNTIMES
from spritz.sim.report import show
from spritz.sim.swf_run import run_swf

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from spritz.cli.context import Context

BREAKDOWNS = ("user", "group", "size", "queue", "name")


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `spritz simulate`."""
    parser.add_argument("trace", metavar="TRACE", help="a trace in Standard Workload Format, plain or gzip")
    parser.add_argument("--processors", type=_positive, metavar="N", help="size of the machine (default: MaxProcs)")
    parser.add_argument("--policy", default="easy", metavar="P", help=f"one of: {', '.join(POLICIES)} (default: easy)")
    parser.add_argument("--runtimes", default="requested", choices=RUNTIMES, help="what jobs are planned with")
    parser.add_argument("--bound", type=_bound, default=10.0, metavar="S", help="bound of the slowdown (default: 10 s)")
    parser.add_argument(
        "--by", type=_breakdowns, default=(), metavar="WHAT", help=f"{', '.join(BREAKDOWNS)}: figures by"
    )
    parser.add_argument("--starts", metavar="FILE", help="write job,start_seconds")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: Namespace, context: Context) -> int:
    """0: simulated; 1: a trace that cannot be."""
    show(run_swf(arguments, context), context, as_object=arguments.json)
    return 0


def _positive(text: str) -> int:
    from argparse import ArgumentTypeError

    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 40:
        raise ArgumentTypeError(f"a whole number above 0, not {text!r}")
    return int(text)


def _bound(text: str) -> float:
    from argparse import ArgumentTypeError

    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise ArgumentTypeError(f"seconds above 0, not {text!r}")
    return seconds


def _breakdowns(text: str) -> tuple[str, ...]:
    from argparse import ArgumentTypeError

    words = tuple(text.split(","))
    for word in words:
        if word not in BREAKDOWNS:
            raise ArgumentTypeError(f"{word!r} is none of {', '.join(BREAKDOWNS)}")
    return words
