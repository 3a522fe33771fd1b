"""What pods ask for, which belong together, and where they may run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from spritz.k8s.pods import (
    Gres,
    Maker,
    Metadata,
    Pod,
    Shape,
    Unfit,
    amount,
    gang_size,
    maker_of,
    options_of,
    shape_of,
    workload_of,
)
from spritz.k8s.policy import Policy, PolicyError, read
from spritz.k8s.scheduling.placing import ClosedNodes, KubeNode, admits, describe, places, seat
from spritz.k8s.slurm import Job


def pod(name: str = "p", *, requests: dict[str, Any] | None = None, **parts: Any) -> Pod:
    """As the API server gives it. `parts`: labels, annotations, and fields of the spec."""
    meta: dict[str, Any] = {key: parts.pop(key) for key in ("labels", "annotations") if key in parts}
    spec: dict[str, Any] = {"containers": [{"resources": {"requests": requests or {"cpu": "1"}}}], **parts}
    whole = {"metadata": {"name": name, "namespace": "ns", "uid": f"u-{name}", **meta}, "spec": spec}
    return msgspec.convert(whole, Pod)


def node(name: str, *, taints: list[dict[str, str]] | None = None, **labels: str) -> KubeNode:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints or []}}, KubeNode)


@pytest.mark.parametrize(
    ("text", "value"),
    [("500m", 0.5), ("2", 2), (3, 3), ("16Gi", 16 * 2**30), ("1e3", 1000), ("1E", 1e18), ("0.1", 0.1), ("5k", 5000)],
)
def test_amounts(text: str | int, value: float) -> None:
    assert amount(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "x", "1Q", "Gi", "1 Gi", "--1"])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(Unfit):
        amount(text)


def test_a_shape_is_what_the_kubelet_counts() -> None:
    gpus = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2"}
    assert shape_of(pod(requests=gpus)) == Shape(cpus=2, memory_mib=1024, gres=(Gres("gpu", "", 2),))
    inits = [
        {"resources": {"requests": {"cpu": "6", "memory": "1Mi"}}},
        {"resources": {"requests": {"cpu": "1"}}, "restartPolicy": "Always"},
    ]
    assert shape_of(pod(requests={"cpu": "2"}, initContainers=inits)).cpus == 6, "they do not run together"
    inits.reverse()
    assert shape_of(pod(requests={"cpu": "2"}, initContainers=inits)).cpus == 7, "and now runs along with it"
    assert shape_of(pod(requests={"cpu": "2"}, overhead={"cpu": "250m", "memory": "10Mi"})) == Shape(3, 10)
    assert shape_of(pod(requests={"nvidia.com/mig-1g.10gb": 1})) == Shape(1, 0, (Gres("gpu", "1g.10gb"),))
    assert shape_of(pod(requests={"nvidia.com/gpu.shared": 2})) == Shape(1, 0, (Gres("shard", "", 2),))
    named = pod(requests={"amd.com/gpu": 1}, annotations={"spritz.dev/gpu-type": "mi300"})
    assert shape_of(named).gres == (Gres("gpu", "mi300"),)
    limits = [{"resources": {"limits": {"nvidia.com/gpu": 1, "cpu": 2}, "requests": {"cpu": "1"}}}]
    assert shape_of(pod(containers=limits)) == Shape(1, 0, (Gres("gpu"),))
    with pytest.raises(Unfit, match="several kinds"):
        shape_of(pod(requests={"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 1}))


def test_resources_of_the_pod_as_a_whole_replace_those_of_its_containers() -> None:
    """Source: Kubernetes, "Assign Pod-level CPU and memory resources"."""
    whole = {"requests": {"cpu": "8", "memory": "16Gi"}}
    assert shape_of(pod(requests={"cpu": "1"}, resources=whole)) == Shape(8, 16 * 1024)
    assert shape_of(pod(containers=[{}], resources=whole)) == Shape(8, 16 * 1024)
    assert shape_of(pod(requests={"cpu": "9"}, resources=whole)).cpus == 8
    assert shape_of(pod(requests={"nvidia.com/gpu": "1"}, resources=whole)) == Shape(8, 16 * 1024, (Gres("gpu"),))
    assert shape_of(pod(containers=[{}], resources={"limits": {"cpu": "4"}})).cpus == 4
    assert shape_of(pod(requests={"cpu": "2"}, resources={"limits": {"cpu": "4"}})).cpus == 2, "a limit is no request"
    assert shape_of(pod(resources=whole, overhead={"cpu": "250m"})).cpus == 9


@pytest.mark.parametrize("name", ["a/b", "../g", "a b", "a\nb", "é", "g" * 254])
def test_an_operator_reads_the_names_of_gangs_again(name: str) -> None:
    gang = {"spritz.dev/gang": name, "spritz.dev/gang-size": "1"}
    with pytest.raises(Unfit, match="is no name of a gang") as caught:
        describe(f"gang/ns/{name}", [pod(annotations=gang)], Policy(), ClosedNodes(list))
    assert caught.value.field == "metadata.annotations[spritz.dev/gang]"


def test_what_starts_together() -> None:
    assert workload_of(pod("a")) == "pod/ns/a/u-a"
    gang = {"spritz.dev/gang": "g", "spritz.dev/gang-size": "2"}
    assert workload_of(pod("a", annotations=gang)) == workload_of(pod("b", labels=gang)) == "gang/ns/g"
    assert gang_size([pod("a", annotations=gang), pod("b", labels=gang)]) == 2
    lws = {"leaderworkerset.sigs.k8s.io/group-key": "abc"}
    size = {"leaderworkerset.sigs.k8s.io/size": "4"}
    assert workload_of(pod(labels=lws)) == "gang/ns/lws-abc"
    assert gang_size([pod(labels=lws, annotations=size)]) == 4
    jobset = {"jobset.sigs.k8s.io/jobset-name": "t", "jobset.sigs.k8s.io/restart-attempt": "1"}
    assert workload_of(pod(labels=jobset)) == "gang/ns/jobset-t-1"
    reference = {"name": "train", "podGroup": "workers", "podGroupReplicaKey": "1"}
    assert workload_of(pod(workloadRef=reference)) == "gang/ns/workload-train-workers-1"
    assert maker_of(pod(workloadRef=reference)) == Maker("Workload", "train")
    assert maker_of(pod(schedulingGroup={"podGroupName": "pg"}, labels=jobset)) == Maker("PodGroup", "pg")
    assert maker_of(pod(annotations=gang, labels=jobset)) is None
    for wrong in ({"spritz.dev/gang": "g"}, {**gang, "spritz.dev/gang-size": "many"}):
        with pytest.raises(Unfit, match="gang-size"):
            gang_size([pod(annotations=wrong)])


def test_options_are_slurms() -> None:
    notes = {"spritz.dev/account": "lab", "spritz.dev/time-limit": "1-02:00:00", "spritz.dev/priority": "7"}
    assert options_of(pod(annotations=notes)) == {
        "account": "lab",
        "time_limit": {"set": True, "number": 1560},
        "priority": {"set": True, "number": 7},
    }
    assert options_of(pod(activeDeadlineSeconds=90)) == {"time_limit": {"set": True, "number": 2}}
    endless = {"set": True, "infinite": True}
    assert options_of(pod(annotations={"spritz.dev/time-limit": "UNLIMITED"})) == {"time_limit": endless}
    for wrong in ({"spritz.dev/time-limit": "soon"}, {"spritz.dev/priority": "-1"}):
        with pytest.raises(Unfit):
            options_of(pod(annotations=wrong))


def test_selectors_affinity_and_taints_keep_pods_off_nodes() -> None:
    fast = node("n1", disk="ssd", size="8")
    assert admits(fast, pod(nodeSelector={"disk": "ssd"}))
    assert not admits(fast, pod(nodeSelector={"disk": "hdd"}))

    def wants(*lines: tuple[str, str, list[str]], fields: bool = False) -> Pod:
        expressions = [{"key": key, "operator": word, "values": values} for key, word, values in lines]
        term = {"matchFields" if fields else "matchExpressions": expressions}
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        return pod(affinity={"nodeAffinity": rule})

    for line, holds in [
        (("disk", "In", ["ssd", "nvme"]), True), (("disk", "NotIn", ["ssd"]), False), (("disk", "Exists", []), True),
        (("disk", "DoesNotExist", []), False), (("size", "Gt", ["7"]), True), (("size", "Lt", ["8"]), False),
        (("disk", "Gt", ["7"]), False), (("none", "NotIn", ["a"]), True),
    ]:  # fmt: skip
        assert admits(fast, wants(line)) is holds, line
    assert admits(fast, wants(("metadata.name", "In", ["n1"]), fields=True))
    closed = node("n2", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    assert not admits(closed, pod())
    for toleration in ({"key": "gpu", "value": "yes"}, {"key": "gpu", "operator": "Exists"}, {"operator": "Exists"}):
        assert admits(closed, pod(tolerations=[toleration]))
    assert not admits(closed, pod(tolerations=[{"key": "gpu", "value": "yes", "effect": "NoExecute"}]))


def test_one_job_for_a_workload() -> None:
    policy = read(
        "namespaces: {ns: {account: lab, user: lab}, '*': {account: all}}\npriorityClasses: {hot: {qos: high}}"
    )
    members = [
        pod("leader", requests={"cpu": 4}, priorityClassName="hot"),
        pod("w1", requests={"cpu": 2, "memory": "3Gi", "nvidia.com/gpu": 8}),
        pod("w2", requests={"cpu": 2, "memory": "3Gi", "nvidia.com/gpu": 8}),
    ]
    nodes = [node("n1"), node("n2", taints=[{"key": "a", "effect": "NoSchedule"}])]
    leader, workers = describe("gang/ns/train", members, policy, ClosedNodes(lambda: nodes))
    assert (leader["tasks"], leader["cpus_per_task"], leader["qos"], leader["account"]) == (1, 4, "high", "lab")
    assert (workers["tasks"], workers["memory_per_cpu"]["number"]) == (2, 1536)
    assert workers["tres_per_task"] == "gres/gpu=8"
    assert workers["admin_comment"] == "kubernetes:gang/ns/train"
    assert workers["excluded_nodes"] == ["n2"]
    assert "user" not in leader
    assert policy.user(members[0]) == "lab"
    for wrong in (
        "namespaces: 3",
        "nosuch: {}",
        "a: [",
        "namespaces: {a: {uid: 0}}",
        "namespaces: {a: {allow: {priority: 4294967280}}}",
        "namespaces: {a: {allow: {user: [root]}}}",
        "priorityClasses: {a: {user: root}}",
        "priorityClasses: {a: {allow: {priority: 5}}}",
    ):
        with pytest.raises(PolicyError):
            read(wrong)
    assert read("") == Policy()


def test_tasks_are_places_with_gpus_of_their_own() -> None:
    shares = [
        {"node": "n1", "cpus": "f", "gres": [{"name": "gpu", "count": 4, "indexes": "f0"}]},
        {"node": "n2", "cpus": "c", "gres": [{"name": "gpu", "count": 2, "indexes": "3"}]},
    ]
    job = msgspec.convert([7, "RUNNING", "None", "", 0, [], {"nodes": shares}], Job)
    found = places(job, Shape(2, 0, (Gres("gpu", "", 2),)))
    assert [(place.node, place.gpus) for place in found] == [("n1", [4, 5]), ("n1", [6, 7]), ("n2", [0, 1])]
    first = pod("a", annotations={"spritz.dev/task": "1"})
    assert seat([first, pod("b"), pod("c"), pod("d")], found) == {"u-b": 0, "u-c": 2}


def test_a_service_account_counts_before_its_namespace_and_after_a_priority_class() -> None:
    policy = read(
        "{namespaces: {research: {user: lab, account: lab, partition: gpu}},"
        " serviceAccounts: {research/serving: {user: web, account: products, qos: normal}},"
        " priorityClasses: {critical: {qos: high}}}"
    )

    plain = msgspec.structs.replace(pod(), metadata=Metadata(name="p", namespace="research"))
    serving = msgspec.structs.replace(
        pod(serviceAccountName="serving", priorityClassName="critical"), metadata=plain.metadata
    )
    assert policy.fields(plain) == {"account": "lab", "partition": "gpu"}
    assert policy.fields(serving) == {"account": "products", "partition": "gpu", "qos": "high"}
    assert (policy.user(plain), policy.user(serving)) == ("lab", "web")


@pytest.mark.parametrize("text", ["", "{namespaces: {other: {user: lab}, ns: {account: lab}}}"])
def test_a_pod_without_a_user_in_the_policy_is_nobodys_job(text: str) -> None:
    """It would be the operator's, an administrator's."""
    with pytest.raises(Unfit, match="no rule of the policy names a user for namespace ns: ") as caught:
        read(text).user_of([pod()])
    assert caught.value.field == "metadata.namespace"


def test_pods_of_one_gang_have_one_user() -> None:
    policy = read("{namespaces: {ns: {user: lab}}, serviceAccounts: {ns/serving: {user: web}}}")
    assert policy.user_of([pod("a"), pod("b")]) == "lab"
    with pytest.raises(Unfit, match="several users in the policy: lab, web"):
        policy.user_of([pod("a"), pod("b", serviceAccountName="serving")])


WISHES = """\
namespaces:
  ns:
    {user: lab, account: lab, qos: normal,
     allow: {account: [lab-2], partition: ["*"], qos: [long], licenses: [matlab], priority: 100}}
serviceAccounts: {ns/serving: {qos: inference}, ns/strict: {allow: {}}}
priorityClasses: {hot: {qos: high}}
"""


@pytest.mark.parametrize(
    ("wish", "spec"),
    [
        ("account=lab", {}),  # what the policy gives anyway
        ("account=lab-2", {}),
        ("partition=any,other", {}),
        ("qos=long", {}),
        ("qos=long", {"serviceAccountName": "serving"}),
        ("qos=inference", {"serviceAccountName": "serving"}),
        ("qos=high", {"priorityClassName": "hot"}),
        ("licenses=matlab:2", {}),
        ("priority=100", {}),
        ("priority=0", {"serviceAccountName": "strict"}),
        ("time-limit=UNLIMITED", {"serviceAccountName": "strict"}),
    ],
)
def test_a_wish_that_the_policy_allows_is_asked_of_slurm(wish: str, spec: dict[str, Any]) -> None:
    name, value = wish.split("=")
    asks = pod(annotations={f"spritz.dev/{name}": value}, **spec)
    (desc,) = describe("pod/ns/p/u", [asks], read(WISHES), ClosedNodes(list))
    assert value in str(desc[name.replace("-", "_")]) or value == "UNLIMITED"


@pytest.mark.parametrize(
    ("wish", "spec"),
    [
        ("account=root", {}),
        ("account=lab-2,root", {}),
        ("account=lab-2", {"serviceAccountName": "strict"}),
        ("partition=gpu", {"serviceAccountName": "strict"}),
        ("qos=high", {}),
        ("qos=normal", {"serviceAccountName": "serving"}),
        ("reservation=r", {}),
        ("licenses=matlab:1,ansys:1", {}),
        ("priority=101", {}),
        ("priority=4000000000", {}),
        ("priority=1", {"serviceAccountName": "strict"}),
    ],
)
@pytest.mark.parametrize("place", ["annotations", "labels"])
def test_a_wish_that_the_policy_does_not_allow_is_refused(wish: str, spec: dict[str, Any], place: str) -> None:
    name, value = wish.split("=")
    asks = pod(**spec)
    asks = msgspec.structs.replace(
        asks, metadata=msgspec.structs.replace(asks.metadata, **{place: {f"spritz.dev/{name}": value}})
    )
    with pytest.raises(Unfit, match=f"^spritz.dev/{name}") as caught:
        describe("gang/ns/g", [pod("first"), asks], read(WISHES), ClosedNodes(list))
    assert caught.value.field == f"metadata.annotations[spritz.dev/{name}]"
