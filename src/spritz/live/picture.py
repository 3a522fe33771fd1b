"""The cluster as it is now: jobs, nodes, and which job holds which GPU. Updates change it; nothing here asks for any.

Source: docs/decisions/0191.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.live.jobs import Job

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.live.nodes import Node


class Update(Struct, frozen=True, kw_only=True):
    """What was asked of slurmctld, and the answer. `now` is its clock.

    `whole`: `jobs` are all that there are; else only those of `touched`, of which the missing ones have gone.
    `nodes`: all of them if `nodes_whole`. `problem`: slurmctld does not answer, and why; nothing else is told then.
    """

    now: float = 0.0
    cluster: str = ""
    whole: bool = False
    jobs: tuple[Job, ...] = ()
    touched: frozenset[int] = frozenset()
    nodes: tuple[Node, ...] = ()
    nodes_whole: bool = False
    problem: str = ""


class Sums(Struct, frozen=True, kw_only=True):
    """Of the whole cluster. `*_closed`: on nodes that start no jobs, and not in use."""

    nodes: int
    nodes_closed: int
    nodes_idle: int
    cpus: int
    cpus_used: int
    cpus_closed: int
    gpus: int
    gpus_used: int
    gpus_closed: int
    jobs: dict[str, int]


class Picture:
    """Jobs by id and nodes by name, in the order of the cluster."""

    def __init__(self) -> None:
        self.cluster = ""
        self.jobs: dict[int, Job] = {}
        self.nodes: dict[str, Node] = {}
        #: of slurmctld's clock, when the last answer came
        self.now = 0.0
        #: why slurmctld cannot be asked; "" while it can
        self.problem = ""
        #: whether it was ever asked
        self.is_known = False
        #: counts changes
        self.version = 0

    def apply(self, update: Update) -> None:
        """Take an update in."""
        self.version += 1
        self.problem = update.problem
        if update.problem:
            return
        self.is_known = True
        self.now = update.now
        self.cluster = update.cluster or self.cluster
        if update.whole:
            self.jobs = {job.id: job for job in update.jobs}
        else:
            came = {job.id for job in update.jobs}
            for number in update.touched - came:
                self.jobs.pop(number, None)
            self.jobs.update((job.id, job) for job in update.jobs)
        if update.nodes_whole:
            self.nodes = {node.name: node for node in update.nodes}
        else:
            self.nodes.update((node.name, node) for node in update.nodes)

    def sums(self) -> Sums:
        """What the cluster has, and what of it is used."""
        nodes = list(self.nodes.values())
        closed = [node for node in nodes if node.is_closed]
        counts: dict[str, int] = {}
        for job in self.jobs.values():
            count = 1 if not job.array else max(1, int(str(job.array["pending"]), 16).bit_count())
            counts[job.state_name] = counts.get(job.state_name, 0) + count
        return Sums(
            nodes=len(nodes),
            nodes_closed=len(closed),
            nodes_idle=sum(not node.cpus_used and not node.is_closed for node in nodes),
            cpus=sum(node.cpus for node in nodes),
            cpus_used=sum(node.cpus_used for node in nodes),
            cpus_closed=sum(node.cpus - node.cpus_used for node in closed),
            gpus=sum(node.gpu_count for node in nodes),
            gpus_used=sum(node.gpus_used_count for node in nodes),
            gpus_closed=sum(node.gpu_count - node.gpus_used_count for node in closed),
            jobs=counts,
        )

    def holders(self) -> dict[str, dict[int, Job]]:
        """By node, the job that holds each GPU, by the GPU's index. GPUs that are counted only have none."""
        found: dict[str, dict[int, Job]] = {}
        for job in self.jobs.values():
            for part in job.held:
                for gres in part.get("gres", ()):
                    if gres["name"] != "gpu":
                        continue
                    mine = found.setdefault(part["node"], {})
                    for index in indexes(int(gres.get("indexes", "0"), 16)):
                        mine[index] = job
        return found


def indexes(mask: int) -> Iterable[int]:
    """Set bits in ascending order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
