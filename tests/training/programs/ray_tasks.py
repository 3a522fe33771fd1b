"""Ray's tasks on every node of the job's own Ray cluster."""

import os

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray.init(log_to_driver=False)


@ray.remote(num_cpus=1)
def where():
    return os.environ["SLURMD_NODENAME"]


alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
names = ray.get([where.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
                 for node in alive])  # fmt: skip
for place, name in enumerate(sorted(names)):
    print(f"process {place} of {len(alive)} on {name}")
