"""How many gangs a second does a full cycle place on 640 nodes with topology/tree? No daemons: projection and cycle.

Run with `python -m benchmarks.scheduling_topology`. Forty racks of sixteen nodes with eight GPUs each, four racks to a
block, ten blocks to the top. Jobs take whole nodes: 2 to 64. Each round fills the cluster, ends half of the jobs at
random (fixed seed) and fills it again. One JSON object a line: gangs placed, placements a second of processor time, and
leaf switches used over the fewest that could hold each job.
"""

from __future__ import annotations

import json
import random
import time

from msgspec.structs import replace

from benchmarks.scheduling import SETTINGS, Bench
from spritz.model.cluster.topology import Switch, Topology
from spritz.model.job.record import JobSpec
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.resources import GresCapacity, GresRequest, NodeCapacity
from spritz.scheduling.view.projection import Projection

NODES, LEAF, PODS = 640, 16, 10
ROUNDS = 8


def tree(count: int = NODES) -> Topology:
    """Racks under pods under one switch."""

    def nodes(first: int, last: int) -> str:
        return f"n[{first:05}-{last - 1:05}]"

    racks = -(-count // LEAF)
    each = -(-racks // PODS)
    switches = [
        Switch(name=f"rack{rack}", nodes=nodes(rack * LEAF, min(count, (rack + 1) * LEAF))) for rack in range(racks)
    ]
    pods = -(-racks // each)
    for pod in range(pods):
        below = f"rack[{pod * each}-{min(racks, (pod + 1) * each) - 1}]"
        first, last = pod * each * LEAF, min(count, (pod + 1) * each * LEAF)
        switches.append(Switch(name=f"pod{pod}", level=1, nodes=nodes(first, last), switches=below))
    switches.append(Switch(name="top", level=2, nodes=nodes(0, count), switches=f"pod[0-{pods - 1}]"))
    return Topology(kind="tree", name="default", switches=tuple(switches))


class Racks(Bench):
    """A projection of nodes in racks."""

    def __init__(self, topologies: tuple[Topology, ...], count: int = NODES) -> None:
        gres = (GresCapacity(name="gpu", count=8, files=tuple(f"/dev/g{i}" for i in range(8))),)
        capacity = NodeCapacity(cpus=64, cores_per_socket=64, memory_mib=64 * 200, gres=gres)
        configs = tuple(NodeConfig(name=f"n{number:05}", capacity=capacity) for number in range(count))
        home = Partition(name="batch", nodes=tuple(config.name for config in configs), default=True)
        self.projection = Projection()
        self.now, self.next_id, self.running = 1e9, 1, []
        settings = replace(SETTINGS, topologies=topologies)
        self.configure(settings, configs, (home,))

    def rack(self, node: str) -> int:
        """The number of its rack."""
        return int(node[1:]) // LEAF


def gang(nodes: int, minutes: int) -> JobSpec:
    """A job of whole nodes."""
    return JobSpec(
        nodes_min=nodes,
        nodes_max=nodes,
        nodes_given=True,
        tasks=nodes * 8,
        tasks_given=True,
        tasks_per_node=8,
        cpus_per_task=8,
        gpus_per_node=(GresRequest("gpu", "", 8),),
        time_limit_minutes=minutes,
    )


def measure(name: str, topologies: tuple[Topology, ...]) -> None:
    """One line."""
    bench, rng = Racks(topologies), random.Random(7)
    placed = leaves = fewest = 0
    seconds = 0.0
    for _ in range(ROUNDS):
        for number in range(400):
            bench.submit(gang(rng.choice((2, 2, 2, 4, 4, 8, 16, 32, 64)), 60 + number % 20))
        started = time.process_time()
        plan = bench.cycle(2000)
        seconds += time.process_time() - started
        for start in plan.starts:
            placed += 1
            used = {bench.rack(node.node) for node in start.allocation.nodes}
            leaves += len(used)
            fewest += -(-len(start.allocation.nodes) // LEAF)
        rng.shuffle(bench.running)
        for job_id in bench.running[: len(bench.running) // 2]:
            bench.end(job_id)
        bench.running = bench.running[len(bench.running) // 2 :]
    values = {"gangs": placed, "placements_per_second": placed / seconds, "leaves_over_fewest": leaves / fewest}
    print(json.dumps({"question": name, **{key: round(value, 3) for key, value in values.items()}}), flush=True)


if __name__ == "__main__":
    measure("gangs on 640 nodes, topology/tree", (tree(),))
    measure("gangs on 640 nodes, flat", ())
