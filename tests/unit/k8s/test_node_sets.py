"""What a NodeSet plans: from pods and nodes to what is made, drained and deleted."""

from __future__ import annotations

from typing import Any

from spritz.k8s.custom_resources.cluster_objects import Cluster, ClusterSpec, Metadata, Partition, slurm_conf
from spritz.k8s.custom_resources.control import ClusterNode, Moment
from spritz.k8s.custom_resources.health import UNHEALTHY
from spritz.k8s.custom_resources.node_sets import (
    BUSY,
    NODE_SET,
    REVISION,
    Autoscaling,
    ContainerState,
    ContainerStatus,
    Fault,
    MachineNode,
    MachinePolicy,
    NodeCondition,
    NodeFacts,
    NodePod,
    NodeSet,
    NodeSetSpec,
    Plan,
    Taint,
    Waiting,
    cloud_lines,
    differs,
    node_keys,
    plan,
    revision_of,
)
from spritz.k8s.custom_resources.per_machine import machines_of, pod_name


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


def planned(
    replicas: int,
    pods: list[NodePod],
    known: dict[str, ClusterNode],
    most: int = 1,
    *,
    now: float = 0.0,
    leaves: bool = False,
    faults: dict[str, Fault] | None = None,
    **more: Any,
) -> Plan:
    spec = NodeSetSpec(cluster_ref="lab", cpus=1, memory="1Gi", replicas=replicas, max_unavailable=most, **more)
    metadata = Metadata(name="gpu", deletion_timestamp="2026-11-24T00:00:00Z" if leaves else None)
    return plan(NodeSet(metadata=metadata, spec=spec), pods, known, "new", now, faults)


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


def test_an_update_lets_nodes_be_that_have_not_answered_for_a_moment() -> None:
    pods = [pod(number, "old") for number in range(2)]
    spec = NodeSetSpec(cluster_ref="lab", cpus=1, memory="1Gi", replicas=2)
    node_set = NodeSet(metadata=Metadata(name="gpu"), spec=spec)
    known = nodes(gpu_0="IDLE+NOT_RESPONDING", gpu_1="IDLE+NOT_RESPONDING")
    assert plan(node_set, pods, known, "new").delete == ["gpu-1", "gpu-0"]
    found = plan(node_set, pods, known, "new", unsettled={"gpu-0", "gpu-1"})
    assert (found.delete, found.drain) == ([], {})


def test_nodes_without_pods_are_forgotten_unless_they_have_jobs() -> None:
    known = nodes(gpu_0="DOWN", gpu_7="DOWN", gpu_8="MIXED+DOWN", gpu_x="DOWN", other_1="DOWN", gpu_9="IDLE")
    found = planned(1, [pod(0)], known)
    assert (found.forget, found.drain) == (["gpu-7"], {"gpu-9": "spritz-operator: its pod is gone"})
    # slurmctld started again after the pod had gone, and still expects its slurmd.
    known = nodes(gpu_0="IDLE+DRAIN")
    assert (planned(1, [], known).forget, planned(1, [], known).create) == (["gpu-0"], [])


def test_no_job_starts_on_a_node_whose_pod_is_evicted_and_its_name_comes_back() -> None:
    leaving = pod(1)
    leaving.metadata.deletion_timestamp = "2026-11-24T00:00:30Z"
    found = planned(2, [pod(0), leaving], nodes(gpu_0="IDLE", gpu_1="MIXED"), now=1795478430.0)
    assert (found.drain, found.create) == ({"gpu-1": "spritz-operator: its pod is deleted"}, [])
    known = nodes(gpu_0="IDLE", gpu_1="IDLE+DRAIN spritz-operator: its pod is deleted")
    found = planned(2, [pod(0)], known)
    assert (found.forget, found.create) == (["gpu-1"], [])
    assert planned(2, [pod(0)], nodes(gpu_0="IDLE")).create == ["gpu-1"]


def test_jobs_of_a_node_that_has_lost_pod_and_slurmd_need_not_wait() -> None:
    found = planned(1, [pod(0)], nodes(gpu_0="MIXED+NOT_RESPONDING", gpu_1="MIXED+NOT_RESPONDING", gpu_2="MIXED"))
    assert (found.lost, list(found.drain), found.forget) == (["gpu-1"], ["gpu-2"], [])
    assert planned(1, [pod(0)], nodes(gpu_0="IDLE", gpu_1="MIXED+DOWN+NOT_RESPONDING")).lost == []


def test_a_node_whose_machine_is_lost_comes_back_under_its_name() -> None:
    lost = planned(2, [pod(0)], nodes(gpu_0="IDLE", gpu_1="MIXED+NOT_RESPONDING"))
    assert (lost.lost, lost.create) == (["gpu-1"], [])
    down = planned(2, [pod(0)], nodes(gpu_0="IDLE", gpu_1="DOWN+NOT_RESPONDING"))
    assert (down.forget, down.create) == (["gpu-1"], [])
    assert planned(2, [pod(0)], nodes(gpu_0="IDLE")).create == ["gpu-1"]


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


def test_an_update_replaces_a_pod_under_its_name() -> None:
    known = nodes(gpu_0="IDLE+DRAIN spritz-operator: update", gpu_1="IDLE")
    # Its pod has been deleted: the name is free when the pod and the node have gone.
    leaving = pod(0)
    leaving.metadata.deletion_timestamp = "2026-11-24T00:00:30Z"
    now = 1795478430.0
    assert planned(2, [leaving, pod(1)], known, now=now).create == []
    found = planned(2, [pod(1)], known, now=now)
    assert (found.create, found.forget) == ([], ["gpu-0"])
    assert planned(2, [pod(1)], nodes(gpu_1="IDLE"), now=now).create == ["gpu-0"]
    # A pod that cannot go, on a machine that is lost, is not waited for.
    assert planned(2, [leaving, pod(1)], nodes(gpu_1="IDLE"), now=now + 61).create == ["gpu-2"]


def test_an_update_requeues_jobs_when_they_have_had_their_time() -> None:
    node = ClusterNode("gpu-0", ["MIXED", "DRAIN"], "spritz-operator: update", reason_changed_at=Moment(1000))
    found = planned(1, [pod(0, "old")], {"gpu-0": node}, now=1060, drain_deadline_seconds=60)
    assert (found.down, found.delete) == ({}, [])
    found = planned(1, [pod(0, "old")], {"gpu-0": node}, now=1061, drain_deadline_seconds=60)
    assert found.down == {"gpu-0": "spritz-operator: update: jobs requeued after 60 s"}
    assert planned(0, [pod(0)], {"gpu-0": node}, now=9999, drain_deadline_seconds=60).down == {}, "scale-in waits"


def test_a_set_that_is_deleted_drains_and_lets_busy_pods_be() -> None:
    found = planned(
        2, [pod(0), pod(1)], nodes(gpu_0="MIXED", gpu_1="IDLE+DRAIN spritz-operator: scale-in"), leaves=True
    )
    assert (found.create, found.delete, list(found.drain)) == ([], ["gpu-1"], ["gpu-0"])


def test_a_scaled_set_has_pods_for_the_nodes_that_slurm_wants_up() -> None:
    scaling = Autoscaling(max_replicas=4, min_replicas=2, boot_seconds=60)
    known = nodes(
        gpu_0="MIXED+CLOUD+NOT_RESPONDING+POWERING_UP",
        gpu_1="IDLE+CLOUD+POWERED_DOWN",
        gpu_2="IDLE+CLOUD+POWERING_DOWN",
        gpu_3="DOWN+CLOUD+POWERED_DOWN ResumeTimeout reached",
    )
    found = planned(1, [pod(2)], known, now=59, autoscaling=scaling)
    assert (found.create, found.delete, found.wake, found.resume) == (["gpu-0"], ["gpu-2"], ["gpu-1"], [])
    # One that did not boot is tried again when others have had their turn.
    assert planned(1, [pod(0)], known, now=61, autoscaling=scaling).resume == ["gpu-3"]
    # Fewer are allowed: a busy node beyond the bound is drained, and stays in slurm.conf while it has its pod.
    scaling.max_replicas = 1
    known = nodes(gpu_0="IDLE+CLOUD", gpu_3="MIXED+CLOUD")
    found = planned(1, [pod(0), pod(3)], known, autoscaling=scaling)
    assert (found.drain, found.delete) == ({"gpu-3": "spritz-operator: scale-in"}, [])
    spec = NodeSetSpec(cluster_ref="lab", cpus=2, memory="1Gi", gpus=1, autoscaling=scaling)
    lines, devices = cloud_lines([NodeSet(metadata=Metadata(name="gpu"), spec=spec)], [pod(3)])
    assert lines[0].startswith("NodeName=gpu-[0-3] CPUs=2 RealMemory=921 Feature=gpu Gres=gpu:1 State=CLOUD")
    assert devices == ["AutoDetect=nvml"]


def test_shards_of_a_set_stand_in_slurm_conf_and_with_the_pod() -> None:
    spec = NodeSetSpec(cluster_ref="lab", cpus=2, memory="1Gi", gpus=2, shards=8)
    fixed = NodeSet(metadata=Metadata(name="gpu"), spec=spec)
    assert node_keys(fixed) == "CPUs=2 RealMemory=921 Feature=gpu Gres=gpu:2,shard:8"
    assert cloud_lines([fixed]) == ([], ["AutoDetect=nvml"])
    spec.autoscaling = Autoscaling(max_replicas=1)
    assert "Feature=gpu Gres=gpu:2,shard:8 State=CLOUD" in cloud_lines([fixed])[0][0]
    cluster = Cluster(metadata=Metadata(name="lab"), spec=ClusterSpec(image="i", extra_config="GresTypes=gpu,tape"))
    assert "GresTypes=gpu,shard,tape\n" in slurm_conf(cluster)


def test_a_node_follows_the_health_of_its_machine() -> None:
    fault = {"gpu-0": Fault("m7 GpuUnhealthy (Xid79)")}
    reason = "spritz-operator: health: m7 GpuUnhealthy (Xid79)"
    assert planned(1, [pod(0)], nodes(gpu_0="MIXED"), faults=fault).drain == {"gpu-0": reason}
    known = nodes(gpu_0=f"IDLE+DRAIN {reason}")
    assert planned(1, [pod(0)], known, faults=fault).resume == []
    assert planned(1, [pod(0)], known, faults=fault).delete == []
    assert planned(1, [pod(0)], known).resume == ["gpu-0"], "it is well again"
    elsewhere = {"gpu-0": Fault("m7 GpuUnhealthy (Xid79)", moves=True)}
    assert planned(1, [pod(0)], known, faults=elsewhere).delete == ["gpu-0"]
    assert planned(1, [pod(0)], nodes(gpu_0="MIXED+DRAIN fan"), faults=fault).drain == {}, "a drain of others stays"


def test_conditions_of_a_machine_are_faults_by_their_type() -> None:
    conditions = [NodeCondition("Ready", "True"), NodeCondition("GpuUnhealthy", "True", "Xid79")]
    machine = MachineNode(metadata=Metadata(name="m7"), status=NodeFacts(conditions=conditions))
    assert machine.fault([]) == ""
    assert machine.fault(["GpuUnhealthy"]) == "m7 GpuUnhealthy (Xid79)"
    conditions[0].status = "Unknown"
    assert machine.fault([]) == "m7 NotReady"


def test_what_keeps_a_pod_from_starting_stands_in_the_condition() -> None:
    stuck = pod(0)
    stuck.status.container_statuses = [ContainerStatus(ContainerState(Waiting("ImagePullBackOff", "no such image")))]
    message = planned(1, [stuck], {}).status.conditions[0].message
    assert message == "0 of 1 nodes serve; gpu-0: ImagePullBackOff: no such image"


def machine(
    name: str, *taints: Taint, cordoned: bool = False, gpu: str = "true", unhealthy: bool = False
) -> MachineNode:
    labels = {"gpu": gpu} | ({UNHEALTHY: "true"} if unhealthy else {})
    return MachineNode(metadata=Metadata(name=name, labels=labels), spec=MachinePolicy(list(taints), cordoned))


def test_machines_of_a_set_are_those_that_its_selector_and_tolerations_allow() -> None:
    spec = NodeSetSpec(
        cluster_ref="lab",
        cpus=1,
        memory="1Gi",
        per_machine=True,
        node_selector={"gpu": "true"},
        tolerations=[{"key": "gpu", "operator": "Exists"}, {"key": "team", "value": "a", "effect": "NoExecute"}],
    )
    node_set = NodeSet(metadata=Metadata(name="gpu"), spec=spec)
    fit = [
        machine("m0"),
        machine("m1", Taint("gpu", "NoSchedule", "true"), Taint("team", "NoExecute", "a")),
        machine("m2.example.org", Taint("node.kubernetes.io/not-ready", "NoExecute")),
        machine("m3", Taint("slow", "PreferNoSchedule")),
    ]
    unfit = [
        machine("n0", gpu="false"),
        machine("n1", cordoned=True),
        machine("n2", Taint("team", "NoExecute", "b")),
        machine("n3", Taint("team", "NoSchedule", "a")),
        machine("n4", unhealthy=True),
    ]
    found = machines_of(node_set, [*unfit, *fit])
    assert found == {"gpu-m0": "m0", "gpu-m1": "m1", "gpu-m2-example-org": "m2.example.org", "gpu-m3": "m3"}


def test_long_names_of_machines_make_host_names_that_differ() -> None:
    names = {pod_name("gpu", f"{'m' * 70}.{number}") for number in range(3)}
    assert len(names) == 3
    assert all(len(name) == 63 for name in names)


def test_a_set_per_machine_follows_its_machines() -> None:
    def pod_on(name: str, **marks: str) -> NodePod:
        return NodePod(metadata=Metadata(name=name, labels={NODE_SET: "gpu", REVISION: "new", BUSY: "false", **marks}))

    def look(pods: list[NodePod], known: dict[str, ClusterNode], *machines: str, leaves: bool = False) -> Plan:
        spec = NodeSetSpec(cluster_ref="lab", cpus=1, memory="1Gi", per_machine=True)
        metadata = Metadata(name="gpu", deletion_timestamp="2026-11-24T00:00:00Z" if leaves else None)
        names = [f"gpu-{each}" for each in machines]
        return plan(NodeSet(metadata=metadata, spec=spec), pods, known, "new", machines=names)

    found = look([pod_on("gpu-a")], nodes(gpu_a="IDLE"), "a", "b")
    assert (found.create, found.delete, found.status.desired_replicas) == (["gpu-b"], [], 2)
    # A machine that leaves is drained; its pod goes when no job is left, and then its node.
    busy = nodes(gpu_a="IDLE", gpu_b="MIXED")
    pods = [pod_on("gpu-a"), pod_on("gpu-b", **{BUSY: "true"})]
    found = look(pods, busy, "a")
    assert (found.drain, found.delete) == ({"gpu-b": "spritz-operator: scale-in"}, [])
    assert look(pods, nodes(gpu_a="IDLE", gpu_b="IDLE+DRAIN spritz-operator: scale-in"), "a").delete == ["gpu-b"]
    gone = {"gpu-b": ClusterNode(name="gpu-b", state=["DOWN"], features=["gpu"])}
    assert look([], gone).forget == ["gpu-b"]
    # It comes back before that: its node is used again. A node of another NodeSet is not ours.
    found = look(pods, nodes(gpu_a="IDLE", gpu_b="MIXED+DRAIN spritz-operator: scale-in"), "a", "b")
    assert (found.resume, found.delete) == (["gpu-b"], [])
    other = {"gpu-b-0": ClusterNode(name="gpu-b-0", state=["DOWN"], features=["gpu-b"])}
    assert look([], other).forget == []
    # The name is free when both pod and node have gone.
    assert look([], gone, "b").create == []
    assert "no machine has the labels" in look([], {}).status.conditions[0].message
    assert look(pods, busy, "a", "b", leaves=True).drain.keys() == {"gpu-a", "gpu-b"}


def test_annotations_of_a_set_are_a_part_of_its_pods_template() -> None:
    def revision(**annotations: str) -> str:
        spec = NodeSetSpec(cluster_ref="lab", cpus=1, memory="1Gi", annotations=annotations or None)
        return revision_of({"containers": []}, NodeSet(metadata=Metadata(name="gpu"), spec=spec))

    assert len({revision(), revision(a="1"), revision(a="2")}) == 3
    assert revision() == "122ec23ea1"  # of earlier releases too: an update of the operator replaces no pod
