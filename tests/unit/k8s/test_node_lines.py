"""What makes a node of a Kubernetes node: its labels as features, and its place in a topology."""

from __future__ import annotations

from spritz.k8s.pods import Metadata
from spritz.k8s.policy import Policy, features_of
from spritz.k8s.scheduling.node_sync import node_line
from spritz.k8s.scheduling.placing import KubeNode, NodeStatus

LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "topology.kubernetes.io/region": "eu",
    "topology.kubernetes.io/zone": "eu-1",
    "example.org/rack": "r7",
}


def node() -> KubeNode:
    given: dict[str, str | int] = {"cpu": "8", "memory": "16Gi"}
    return KubeNode(metadata=Metadata(name="k0", labels=LABELS), status=NodeStatus(allocatable=given))


def test_well_known_labels_are_features_by_default() -> None:
    line = node_line(node(), (8, 16384), Policy())
    assert line.split() == [
        "NodeName=k0",
        "CPUs=8",
        "RealMemory=16384",
        "Feature=kubernetes,NVIDIA-H100-80GB-HBM3,eu,eu-1",
        "State=EXTERNAL",
    ]


def test_the_policy_names_other_labels_and_those_of_topologies() -> None:
    policy = Policy(feature_labels=["example.org/rack"], topology_labels={"example.org/rack": "fabric", "none": "x"})
    assert node_line(node(), (8, 16384), policy).split()[3:5] == ["Feature=kubernetes,r7", "Topology=fabric:r7"]


def test_a_value_of_two_labels_is_one_feature() -> None:
    assert features_of({"a": "x", "b": "x", "c": ""}, ["b", "a", "c", "d"]) == ["x"]
    assert features_of(None, ["a"]) == []
