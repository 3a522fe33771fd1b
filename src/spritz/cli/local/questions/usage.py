"""Compare the controller's usage with the accounting records of jobs, and adopt the latter if requested."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from spritz.cli.call.context import Context
from spritz.cli.local.paths import ClusterPaths
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.client.locate import locate_controller
from spritz.model.limits.records import CompareUsage, UsageCompared

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


#: Relative difference that counts as none (0.5 always does): events in flight and rounding cause such differences.
_SAME = 1e-6


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", help="directory of the cluster (default: the one that commands find)")
    parser.add_argument("--adopt", action="store_true", help="replace the controller's usage by that of the records")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: Namespace, context: Context) -> int:
    """0; 1 if the controller does not answer."""
    conf = ClusterPaths.of(arguments.dir).slurm_conf if arguments.dir else None
    try:
        with connect_controller(locate_controller(conf)) as controller:
            comparison = controller.call(CompareUsage(adopt=arguments.adopt), UsageCompared, timeout=600.0)
    except ClientError as error:
        context.error(error.message)
        return 1
    if arguments.json:
        context.out(json.dumps(msgspec.to_builtins(comparison), indent=2) + "\n")
    else:
        context.out("".join(line + "\n" for line in text_lines(comparison)))
    return 0


def text_lines(comparison: UsageCompared) -> list[str]:
    """The answer without --json, line by line."""
    lines = [f"{'':40} {'kept':>18} {'by the records':>18}"]
    differ = 0
    for row in comparison.rows:
        same = abs(row.kept - row.recorded) <= max(0.5, _SAME * max(row.kept, row.recorded))
        differ += not same
        lines.append(f"{row.name:40} {row.kept:18.2f} {row.recorded:18.2f}{'' if same else '  differs'}")
    of = f"{comparison.jobs} job{'' if comparison.jobs == 1 else 's'} in the records"
    if comparison.adopted:
        lines.append(f"The usage of the records applies from now on ({of}).")
    elif differ:
        lines.append(f"{differ} of {len(comparison.rows)} differ ({of}); --adopt applies those of the records.")
    else:
        lines.append(f"All figures are the same ({of}).")
    return lines
