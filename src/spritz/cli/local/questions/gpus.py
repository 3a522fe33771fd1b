"""Show free GPUs by type and node, and when more become free.

A GPU is free if no job holds it or a share of it, and its node accepts jobs. The next GPUs become free at the latest
when the first running job reaches its time limit.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from spritz.cli.call.context import Context
from spritz.cli.local.paths import ClusterPaths
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.client.locate import locate_controller
from spritz.model.job.job_filter import JobFilter
from spritz.model.queries.jobs import JobRows, ListJobs
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.notation.times import format_time

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Sequence

    from spritz.model.queries.nodes import NodeView

    #: (end of the job's time limit in seconds since the epoch, 0.0 without limit; the job's allocation as plain values)
    Holding = tuple[float, dict[str, object]]

#: Shares of GPUs; their masks name the GPUs.
_SHARES = ("shard", "mps")
#: Nodes in one of these states start no jobs.
_CLOSED = frozenset({"DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "UNKNOWN", "FUTURE", "MAINT", "REBOOT_REQUESTED"})
_NO_TYPE = "(no type)"


class Pool:
    """GPUs of one type on one node. `mask` and `used` have a bit for each GPU index of the node."""

    def __init__(self, view: NodeView, kind: str, mask: int, used: int) -> None:
        self.node = view.node.name
        self.state = "+".join(view.state_names)
        self.partitions = view.partitions
        self.type = kind
        self.mask = mask
        self.used = mask & used
        self.closed = bool(_CLOSED & set(view.state_names))

    @property
    def free(self) -> int:
        """Number of free GPUs; zero if the node accepts no jobs."""
        return 0 if self.closed else (self.mask & ~self.used).bit_count()


class Release:
    """GPUs of one type that become free at the same time, `at` (seconds since the epoch)."""

    def __init__(self, at: float) -> None:
        self.at = at
        #: GPUs by node.
        self.counts: dict[str, int] = {}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", help="directory of the cluster (default: the one that commands find)")
    parser.add_argument("--type", metavar="TYPE", help="only GPUs of this type")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: Namespace, context: Context) -> int:
    """0; 1 if the controller does not answer, or no GPU has the type."""
    conf = ClusterPaths.of(arguments.dir).slurm_conf if arguments.dir else None
    running = ListJobs(filter=JobFilter(states=("RUNNING", "SUSPENDED")), fields=("ends_at", "allocation"), all=True)
    try:
        with connect_controller(locate_controller(conf)) as controller:
            answer = controller.joined(ListNodes(all=True, pieces=True), Nodes, "nodes")
            holdings = [row for piece in controller.stream(running, JobRows) for row in piece.rows]
    except ClientError as error:
        context.error(error.message)
        return 1
    pools = pools_of(answer.nodes, shared_by(holdings))  # type: ignore[arg-type]  # rows of the fields asked for
    types = list(dict.fromkeys(pool.type for pool in pools))
    if arguments.type is not None:
        pools = [pool for pool in pools if pool.type == arguments.type]
    releases = next_releases(pools, holdings)  # type: ignore[arg-type]  # rows of the fields asked for
    if arguments.json:
        context.out(json.dumps(facts(pools, releases, answer.now), indent=2) + "\n")
    elif pools:
        context.out("".join(line + "\n" for line in text_lines(pools, releases)))
    elif types:
        named = ", ".join(kind or _NO_TYPE for kind in types)
        context.error(f"no GPU of type {arguments.type}; there are: {named}")
    else:
        context.out("No node of this cluster has GPUs.\n")
    return 1 if types and not pools else 0


def shared_by(holdings: Iterable[Holding]) -> dict[str, int]:
    """Bit mask of the GPUs of which jobs hold shares, by node."""
    masks: dict[str, int] = {}
    for _ends_at, allocation in holdings:
        for part in (allocation or {}).get("nodes", ()):  # type: ignore[attr-defined]  # as model.resources has it
            for gres in part.get("gres", ()):
                if gres["name"] in _SHARES:
                    masks[part["node"]] = masks.get(part["node"], 0) | int(gres.get("indexes", "0"), 16)
    return masks


def pools_of(views: Iterable[NodeView], shared: dict[str, int]) -> list[Pool]:
    """Nodes with GPUs, in the cluster's order; the types of a node in the node's order. `shared`: see `shared_by`."""
    pools = []
    for view in views:
        used = shared.get(view.node.name, 0)
        counted: dict[str, int] = {}
        for name, kind, count, mask in view.gres_used:
            if name == "gpu":
                used |= int(mask, 16)
                if not int(mask, 16):
                    counted[kind] = counted.get(kind, 0) + count
        masks = dict[str, int]()
        for line in view.node.config.capacity.gres:
            if line.name == "gpu" and line.count:
                masks[line.type] = masks.get(line.type, 0) | ((1 << line.count) - 1) << line.first_index
        for kind, all_of_type in masks.items():
            # GPUs configured as a mere count have no indexes: the lowest bits stand for the GPUs in use.
            taken = used | _lowest(all_of_type, counted.get(kind, 0))
            pools.append(Pool(view, kind, all_of_type, taken))
    return pools


def _lowest(mask: int, count: int) -> int:
    """The lowest `count` bits of a mask."""
    taken = 0
    for _ in range(min(count, mask.bit_count())):
        taken |= mask & ~taken & -(mask & ~taken)
    return taken


def next_releases(pools: Sequence[Pool], holdings: Iterable[Holding]) -> dict[str, Release]:
    """By type, the next GPUs to become free on nodes that accept jobs. Types without such GPUs are left out."""
    by_node: dict[str, list[Pool]] = {}
    for pool in pools:
        if not pool.closed:
            by_node.setdefault(pool.node, []).append(pool)
    releases: dict[str, Release] = {}
    for ends_at, allocation in holdings:
        if not ends_at or not allocation:
            continue
        for part in allocation["nodes"]:  # type: ignore[attr-defined]  # as model.resources has it
            for gres in part.get("gres", ()):
                if gres["name"] != "gpu":
                    continue
                mask = int(gres.get("indexes", "0"), 16)
                for pool in by_node.get(part["node"], ()):
                    count = (mask & pool.mask).bit_count()
                    if not mask and pool.type == gres.get("type", ""):
                        count = gres["count"]
                    release = releases.get(pool.type)
                    if not count or (release is not None and release.at < ends_at):
                        continue
                    if release is None or ends_at < release.at:
                        release = releases[pool.type] = Release(ends_at)
                    release.counts[pool.node] = release.counts.get(pool.node, 0) + count
    return releases


def facts(pools: Sequence[Pool], releases: dict[str, Release], now: float) -> dict[str, object]:
    """The answer of --json; times are seconds since the epoch."""
    types = []
    for kind in dict.fromkeys(pool.type for pool in pools):
        typed = [pool for pool in pools if pool.type == kind]
        release = releases.get(kind)
        types.append(
            {
                "type": kind,
                **_sums(typed),
                "next_free": None if release is None else {"at": release.at, "nodes": release.counts},
            }
        )
    nodes = [
        {
            "node": pool.node,
            "type": pool.type,
            "state": pool.state,
            "partitions": list(pool.partitions),
            **_sums([pool]),
        }
        for pool in pools
    ]
    return {"now": now, "types": types, "nodes": nodes}


def _sums(pools: Sequence[Pool]) -> dict[str, int]:
    total = sum(pool.mask.bit_count() for pool in pools)
    in_use, free = sum(pool.used.bit_count() for pool in pools), sum(pool.free for pool in pools)
    return {"total": total, "free": free, "in_use": in_use, "unavailable": total - in_use - free}


def text_lines(pools: Sequence[Pool], releases: dict[str, Release]) -> list[str]:
    """The answer without --json, line by line."""
    rows: list[tuple[str, ...]] = [("TYPE", "TOTAL", "FREE", "IN USE", "UNAVAILABLE", "NEXT FREE AT THE LATEST")]
    for kind in dict.fromkeys(pool.type for pool in pools):
        sums = _sums([pool for pool in pools if pool.type == kind])
        release = releases.get(kind)
        when = "-"
        if release is not None:
            where = ", ".join(f"{count} on {node}" for node, count in release.counts.items())
            when = f"{format_time(release.at)}: {where}"
        rows.append((kind or _NO_TYPE, *map(str, sums.values()), when))
    lines = [*_table(rows), ""]
    free = [pool for pool in pools if pool.free]
    if not free:
        return [*lines, "No GPU is free."]
    rows = [("NODE", "TYPE", "FREE", "OF", "STATE", "PARTITIONS")]
    rows += [
        (
            pool.node,
            pool.type or _NO_TYPE,
            str(pool.free),
            str(pool.mask.bit_count()),
            pool.state,
            ",".join(pool.partitions),
        )
        for pool in free
    ]
    return [*lines, *_table(rows)]


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as text, columns of numbers aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = [all(cell.isdecimal() for cell in column[1:]) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]
