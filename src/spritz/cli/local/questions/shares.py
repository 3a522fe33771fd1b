"""Show guarantees of accounts, what they use, borrow and lend, and their order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from spritz.cli.call.context import Context
from spritz.cli.local.paths import ClusterPaths
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.client.locate import locate_controller
from spritz.model.accounting.shares import ListShares, Shares
from spritz.notation.times import format_time

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from spritz.model.accounting.shares import ShareJob, ShareRow, ShareTotal


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", help="directory of the cluster (default: the one that commands find)")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: Namespace, context: Context) -> int:
    """0; 1 if the controller does not answer."""
    conf = ClusterPaths.of(arguments.dir).slurm_conf if arguments.dir else None
    try:
        with connect_controller(locate_controller(conf)) as controller:
            shares = controller.call(ListShares(), Shares)
    except ClientError as error:
        context.error(error.message)
        return 1
    if arguments.json:
        context.out(json.dumps(msgspec.to_builtins(shares), indent=2) + "\n")
    else:
        context.out("".join(line + "\n" for line in text_lines(shares)))
    return 0


def text_lines(shares: Shares) -> list[str]:
    """The answer without --json, line by line."""
    if not shares.totals:
        return [
            "No account is guaranteed anything.",
            "Set it with `sacctmgr modify account NAME set Guarantee=gres/gpu=8 ReclaimAfter=30`.",
        ]
    lines = []
    for total in shares.totals:
        lines += _about(total)
        lines += _table([row for row in shares.rows if row.tres == total.tres])
        lines.append("")
    lines += _order(shares)
    return lines


def _about(total: ShareTotal) -> list[str]:
    open_to_all = total.total - total.guaranteed
    lines = [
        f"{total.tres}: {total.total} in the cluster, {total.used} in use; {total.guaranteed} guaranteed to accounts, "
        f"{max(0, open_to_all)} open to all; {total.lent} lent"
    ]
    if open_to_all < 0:
        lines.append(f"  Guarantees exceed the cluster by {-open_to_all}: the first request gets them.")
    return lines


def _table(rows: list[ShareRow]) -> list[str]:
    titles = ("ACCOUNT", "GUARANTEED", "USED", "BORROWED", "LENT", "WAITING", "WITHIN", "RECLAIM AFTER")
    cells = [
        (
            "  " * row.depth + row.account,
            "-" if row.guaranteed is None else str(row.guaranteed),
            *map(str, (row.used, row.borrowed, row.lent, row.waiting)),
            "-" if row.guaranteed is None else str(row.waiting_within),
            "-" if row.guaranteed is None else f"{row.reclaim_seconds // 60} min",
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in (titles, *cells)) for column in range(len(titles))]
    return [
        "  " + "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in (titles, *cells)
    ]


def _order(shares: Shares) -> list[str]:
    lines = []
    if shares.first:
        lines.append("Waiting jobs within a guarantee, which start before jobs that would borrow:")
        lines += [
            f"  {job.job} of {job.account}, {_count(job)}, in the share of {job.guarantee}" for job in shares.first
        ]
    else:
        lines.append("No job waits within a guarantee.")
    if shares.givers:
        lines.append("Running jobs outside guarantees, in the order in which they give resources back if necessary:")
        lines += [
            f"  {giver.job} of {giver.account}, {_count(giver)}, {_when(giver, shares.now)}" for giver in shares.givers
        ]
    return lines


def _count(job: ShareJob) -> str:
    return " ".join(f"{name}={count}" for name, count in job.tres)


def _when(job: ShareJob, now: float) -> str:
    return "from now on" if job.at <= now else f"from {format_time(job.at)} on"
