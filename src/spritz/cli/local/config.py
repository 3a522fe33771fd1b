"""Check a configuration file (slurm.conf with the files next to it): report all mistakes at once, each with file, line,
accepted form and the closest known word."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import to_builtins

from spritz.cli.call.context import Context
from spritz.config.alone import examine, kind_of
from spritz.config.diagnostics import ERROR, report

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=["check"], help="what to do with the file")
    parser.add_argument("file", metavar="FILE", help="a slurm.conf, slurmdbd.conf, gres.conf, topology.yaml, ...")
    parser.add_argument(
        "--kind", metavar="NAME", default="", help="kind of file, if its name does not show it: gres.conf"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: Namespace, context: Context) -> int:
    """0: usable (warnings may be printed); 1: errors."""
    words, diagnostics = examine(arguments.file, kind_of(arguments.file, arguments.kind))
    usable = all(diagnostic.severity != ERROR for diagnostic in diagnostics)
    if arguments.json:
        answer = {"file": arguments.file, "usable": usable, "is": words, "diagnostics": to_builtins(diagnostics)}
        context.out(json.dumps(answer, indent=1) + "\n")
        return 0 if usable else 1
    if diagnostics:
        context.out(report(diagnostics, color=context.terminal))
    if not usable:
        return 1
    context.out(f"{arguments.file}: usable: {words}\n")
    return 0
