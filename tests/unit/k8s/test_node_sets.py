"""What a NodeSet plans: from pods and nodes to what is made, drained and deleted."""

from __future__ import annotations

from spritz.k8s.cluster_objects import Cluster, ClusterSpec, Metadata, Partition, slurm_conf
from spritz.k8s.control import ClusterNode
from spritz.k8s.node_sets import BUSY, NODE_SET, REVISION, NodePod, NodeSet, NodeSetSpec, Plan, differs, plan


def pod(number: int, revision: str = "new", **labels: str) -> NodePod:
    marks = {NODE_SET: "gpu", REVISION: revision, BUSY: "false", **labels}
    return NodePod(metadata=Metadata(name=f"gpu-{number}", labels=marks))


def nodes(**states: str) -> dict[str, ClusterNode]:
    """`gpu_0="IDLE+DRAIN spritz-operator: update"`."""
    found = {}
    for name, text in states.items():
        state, _, reason = text.partition(" ")
        name = name.replace("_", "-")
        found[name] = ClusterNode(name=name, state=state.split("+"), reason=reason)
    return found


def planned(replicas: int, pods: list[NodePod], known: dict[str, ClusterNode], most: int = 1) -> Plan:
    spec = NodeSetSpec(cluster_ref="lab", cpus=1, memory="1Gi", replicas=replicas, max_unavailable=most)
    return plan(NodeSet(metadata=Metadata(name="gpu"), spec=spec), pods, known, "new")


def test_missing_pods_get_the_lowest_free_numbers() -> None:
    assert planned(3, [pod(1)], nodes(gpu_1="IDLE")).create == ["gpu-0", "gpu-2"]


def test_scale_in_takes_not_ready_then_idle_then_draining_then_busy() -> None:
    pods = [pod(number) for number in range(4)]
    known = nodes(gpu_0="MIXED", gpu_1="IDLE+DRAIN somebody", gpu_2="IDLE", gpu_3="DOWN+NOT_RESPONDING")
    found = planned(3, pods, known)
    assert (found.delete, found.drain) == (["gpu-3"], {})
    found = planned(2, pods, known)
    assert (found.delete, list(found.drain)) == (["gpu-3"], ["gpu-2"])
    found = planned(1, pods, known)
    assert (found.delete, list(found.drain)) == (["gpu-3", "gpu-1"], ["gpu-2"])


def test_scale_in_never_deletes_a_busy_node() -> None:
    found = planned(0, [pod(0), pod(1)], nodes(gpu_0="ALLOCATED", gpu_1="ALLOCATED+DRAIN spritz-operator: scale-in"))
    assert (found.delete, found.drain) == ([], {"gpu-0": "spritz-operator: scale-in"})


def test_a_node_that_is_wanted_again_is_resumed_and_a_foreign_drain_stays() -> None:
    known = nodes(gpu_0="MIXED+DRAIN spritz-operator: scale-in", gpu_1="IDLE+DRAIN bad fan")
    assert planned(2, [pod(0), pod(1)], known).resume == ["gpu-0"]


def test_an_update_takes_as_many_as_may_be_away() -> None:
    pods = [pod(number, "old") for number in range(3)]
    found = planned(3, pods, nodes(gpu_0="IDLE", gpu_1="IDLE", gpu_2="MIXED"), most=1)
    assert found.drain == {"gpu-1": "spritz-operator: update"}
    # While its node is on the way back, no other goes.
    known = nodes(gpu_0="IDLE", gpu_2="MIXED")
    assert planned(3, [pods[0], pod(1), pods[2]], known).drain == {}
    found = planned(3, pods, nodes(gpu_0="IDLE", gpu_1="IDLE+DRAIN spritz-operator: update", gpu_2="MIXED"))
    assert (found.drain, found.delete) == ({}, ["gpu-1"])


def test_nodes_without_pods_are_forgotten_unless_they_have_jobs() -> None:
    known = nodes(gpu_0="DOWN", gpu_7="DOWN", gpu_8="MIXED+DOWN", gpu_x="DOWN", other_1="DOWN", gpu_9="IDLE")
    assert planned(1, [pod(0)], known).forget == ["gpu-7"]


def test_pods_with_jobs_are_marked_for_their_budget() -> None:
    found = planned(2, [pod(0), pod(1, **{BUSY: "true"})], nodes(gpu_0="MIXED", gpu_1="IDLE"))
    assert found.busy == {"gpu-0": True, "gpu-1": False}


def test_an_idle_node_set_has_nothing_to_do() -> None:
    found = planned(1, [pod(0)], nodes(gpu_0="IDLE"))
    status = found.status
    found.status = Plan().status
    assert found == Plan()
    assert status.conditions[0].status == "True"


def test_partitions_of_node_sets_stand_in_slurm_conf() -> None:
    spec = ClusterSpec(
        image="i", partitions=[Partition("a", ["gpu"]), Partition("b", default=True)], extra_config="X=1"
    )
    text = slurm_conf(Cluster(metadata=Metadata(name="lab"), spec=spec))
    assert text.endswith(
        "NodeSet=gpu Feature=gpu\nPartitionName=a Nodes=gpu MaxTime=UNLIMITED\n"
        "PartitionName=b Nodes=ALL MaxTime=UNLIMITED Default=YES\nX=1\n"
    )


def test_what_the_server_adds_is_no_difference() -> None:
    assert not differs({"a": [{"b": 1, "c": 2}], "d": 3}, {"a": [{"b": 1}]})
    assert differs({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}]})
    assert differs({}, {"a": 1})
