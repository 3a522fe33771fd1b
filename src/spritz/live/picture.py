"""The present state of the cluster: jobs, nodes, and which job holds which GPU. Updates change it; it sends no queries.

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
    """slurmctld's answer to a query, at the time `now` of its clock.

    `whole`: `jobs` are all jobs. Otherwise they are the jobs of `touched` that still exist. `nodes_whole`: `nodes` are
    all nodes. `problem`: why slurmctld does not answer; the other fields are unset then. `failure`: an error of this
    program, after which no updates come.
    """

    now: float = 0.0
    cluster: str = ""
    whole: bool = False
    jobs: tuple[Job, ...] = ()
    touched: frozenset[int] = frozenset()
    nodes: tuple[Node, ...] = ()
    nodes_whole: bool = False
    problem: str = ""
    failure: BaseException | None = None


class Sums(Struct, frozen=True, kw_only=True):
    """Totals of the whole cluster. `*_closed`: not in use, on nodes that cannot start jobs."""

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
        #: time of the last answer, by slurmctld's clock
        self.now = 0.0
        #: why slurmctld does not answer; "" while it does
        self.problem = ""
        #: whether there was ever an answer
        self.is_known = False
        #: number of changes so far
        self.version = 0

    def apply(self, update: Update) -> None:
        """Change the picture by an update of the feed; each call raises `version`, also if only `problem` changes."""
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
        """The cluster's resources, and how many are in use."""
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
        """The job that holds each GPU, by node and GPU index, without GPUs that are configured as a mere count."""
        by_node: dict[str, dict[int, Job]] = {}
        for job in self.jobs.values():
            for part in job.held:
                for gres in part.get("gres", ()):
                    if gres["name"] != "gpu":
                        continue
                    by_index = by_node.setdefault(part["node"], {})
                    for index in indexes(int(gres.get("indexes", "0"), 16)):
                        by_index[index] = job
        return by_node


def indexes(mask: int) -> Iterable[int]:
    """Positions of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
