"""Show the limits of your jobs, and how much of them is used."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from spritz.experiments.cluster import quotas
from spritz.experiments.interface import Terminal, reporting
from spritz.experiments.job import submission


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--user", default="", help="limits of another user, if you may see them")
    parser.add_argument("--json", action="store_true", help="one JSON object: the same sentences, grouped")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    user = arguments.user or submission.user()
    lines = quotas.limit_lines(user)
    if arguments.json:
        sections: list[dict[str, object]] = []
        limits: list[str] = []
        for line in lines:
            if line.startswith("  "):
                limits.append(line.strip())
            else:
                limits = []
                sections.append({"of": line, "limits": limits})
        terminal.out(json.dumps({"user": user, "sections": sections}, indent=1) + "\n")
        return 0
    terminal.out("\n".join(lines) + "\n")
    return 0
