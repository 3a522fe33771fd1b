"""Nothing in a PodSpec that bears on where a pod runs is passed over in silence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from lightkube.models.core_v1 import PodSpec as WholeSpec

from spritz.k8s.admission.pods import answer
from spritz.k8s.pods import Pod, PodSpec, Unfit
from spritz.k8s.policy import Mapped, Policy
from spritz.k8s.scheduling.placing import ClosedNodes, describe
from spritz.k8s.scheduling.pod_fields import FIELDS, Treatment

POLICY = Policy(namespaces={"n": Mapped(user="lab")})
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
WEIGHED = [{"weight": 1, "podAffinityTerm": TERM}]
NODES = [{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]


def container(**parts: Any) -> dict[str, Any]:
    return {"name": "c", "image": "x", **parts}


#: field of PodSpec, a value that is refused, and the path of the mistake
REFUSED: list[tuple[str, Any, str]] = [
    ("affinity", {"podAntiAffinity": {REQUIRED: [TERM]}}, f"spec.affinity.podAntiAffinity.{REQUIRED}"),
    ("affinity", {"podAffinity": {REQUIRED: [TERM]}}, f"spec.affinity.podAffinity.{REQUIRED}"),
    (
        "topologySpreadConstraints",
        [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "spec.topologySpreadConstraints[0].whenUnsatisfiable",
    ),
    (
        "containers",
        [container(ports=[{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}])],
        "spec.containers[0].ports[1].hostPort",
    ),
    (
        "initContainers",
        [container(ports=[{"containerPort": 81, "hostPort": 81}], restartPolicy="Always")],
        "spec.initContainers[0].ports[0].hostPort",
    ),
]

#: field of PodSpec, a value that is a wish, and words of the warning
WARNED: list[tuple[str, Any, str]] = [
    ("affinity", {"podAntiAffinity": {PREFERRED: WEIGHED}}, "spec.affinity.podAntiAffinity"),
    ("affinity", {"podAffinity": {PREFERRED: WEIGHED}}, "spec.affinity.podAffinity"),
    ("affinity", {"nodeAffinity": {PREFERRED: NODES}}, "spec.affinity.nodeAffinity"),
    (
        "topologySpreadConstraints",
        [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        "spec.topologySpreadConstraints[0]",
    ),
    ("preemptionPolicy", "Never", "spec.preemptionPolicy"),
    ("volumes", [{"name": "v", "emptyDir": {}}, {"name": "w", "persistentVolumeClaim": {"claimName": "w"}}], "[1]"),
    ("volumes", [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}], "spec.volumes[0]"),
    ("containers", [container(resources={"limits": {"example.com/fpga": "2"}})], "example.com/fpga: is not counted"),
    ("initContainers", [container(resources={"requests": {"hugepages-2Mi": "2Mi"}})], "hugepages-2Mi: is not counted"),
    ("fieldOfALaterKubernetes", True, "spec.fieldOfALaterKubernetes: this release does not know it"),
]


def spec_with(field: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"schedulerName": "spritz", "containers": [container()], field: value, **more}


def review(spec: dict[str, Any]) -> dict[str, Any]:
    pod = {"metadata": {"name": "a", "namespace": "n"}, "spec": spec}
    return answer("/validate", {"request": {"uid": "1", "object": pod}}, "spritz", POLICY)["response"]  # type: ignore[no-any-return]


def test_every_field_of_kubernetes_has_a_treatment() -> None:
    """A new release of lightkube's models brings the new fields of its Kubernetes."""
    known = set(WholeSpec.__struct_fields__)
    assert known - FIELDS.keys() == set()
    assert {"workloadRef", "hostnameOverride"} <= FIELDS.keys(), "also those of single releases"


def test_every_field_that_is_read_is_called_so() -> None:
    """And the other way round: a field that is kept is read."""
    read = set(PodSpec.__struct_encode_fields__)
    kept = {name for name, treatment in FIELDS.items() if treatment is not Treatment.ELSEWHERE}
    assert read - kept == {"hostNetwork"}, "which is read for the ports of containers"
    assert kept - read == set()


def test_every_field_that_is_kept_in_part_is_tried() -> None:
    partly = {name for name, treatment in FIELDS.items() if treatment is Treatment.PARTLY}
    assert partly == {field for field, *_ in (*REFUSED, *WARNED)} & FIELDS.keys()


@pytest.mark.parametrize(("field", "value", "path"), REFUSED)
def test_what_cannot_be_kept_is_refused_with_its_path(field: str, value: Any, path: str) -> None:
    spec = spec_with(field, value)
    response = review(spec)
    assert not response["allowed"]
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == [path]
    # Past the webhook it becomes no job, and its owner hears why.
    pod = msgspec.convert({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": spec}, Pod)
    with pytest.raises(Unfit) as caught:
        describe("pod/n/a/u", [pod], POLICY, ClosedNodes(list))
    assert str(caught.value).startswith(f"{path} ")


@pytest.mark.parametrize(("field", "value", "words"), WARNED)
def test_what_is_not_followed_is_warned_about(field: str, value: Any, words: str) -> None:
    response = review(spec_with(field, value))
    assert response["allowed"]
    assert len(response["warnings"]) == 1
    assert words in response["warnings"][0]


def test_an_ordinary_pod_is_no_reason_to_warn() -> None:
    resources = {"limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}}
    spec = spec_with("containers", [container(resources=resources, ports=[{"containerPort": 80}])])
    spec |= {"preemptionPolicy": "PreemptLowerPriority", "volumes": [{"name": "v", "emptyDir": {}}]}
    assert review(spec) == {"uid": "1", "allowed": True}


def test_pods_of_other_schedulers_are_let_alone() -> None:
    assert review(spec_with("affinity", REFUSED[0][1], schedulerName="other")) == {"uid": "1", "allowed": True}


def test_ports_of_the_node_are_warned_about_where_all_ports_are() -> None:
    """The API server gives every port of a pod on the node's network a host port."""
    ports = [{"containerPort": 80, "hostPort": 80}]
    response = review(spec_with("containers", [container(ports=ports)], hostNetwork=True))
    assert response["allowed"]
    assert "spec.hostNetwork" in response["warnings"][0]
