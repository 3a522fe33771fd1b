"""Cores and memory that jobs do not get, in `scontrol show node`. Source: slurm.conf(5) CoreSpecCount, MemSpecLimit."""

from __future__ import annotations

from msgspec.structs import replace

from spritz.model.node.partition import Partition
from spritz.model.queries.nodes import NodeView
from spritz.presentation.node import partition_text
from spritz.presentation.node.node_record import record_text
from spritz_testing.builders import World


def test_what_is_kept_from_jobs_is_shown() -> None:
    node = World(nodes=1).state.nodes["n1"]
    capacity = replace(node.config.capacity, cpus=8, threads_per_core=2, cpus_reserved="c0", memory_reserved_mib=512)
    special = replace(node, config=replace(node.config, capacity=capacity))
    text = record_text(NodeView(node=special, state_names=("IDLE",)))
    # As Slurm 22.05 prints them: before the state, and the CPUs for jobs in CfgTRES.
    assert "\n   CoreSpecCount=1 CPUSpecList=6-7 MemSpecLimit=512 \n   State=IDLE " in text
    assert "CfgTRES=cpu=6," in text
    assert "billing=6" in text
    partition = partition_text.record_text(
        Partition(name="p", nodes=("n1",)), {"n1": NodeView(node=special, state_names=("IDLE",))}
    )
    assert "TotalCPUs=8 " in partition
    assert "TRES=cpu=6," in partition
    assert "Spec" not in record_text(NodeView(node=node, state_names=("IDLE",)))
