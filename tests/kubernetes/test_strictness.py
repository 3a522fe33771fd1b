"""Manifests and written objects, validated as strictly as server-side apply does, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from spritz.k8s.custom_resources.cluster_objects import (
    Cluster,
    ClusterSpec,
    Dashboard,
    Database,
    Metadata,
    OpenId,
    SecretKey,
    configuration,
    control_plane,
    keys,
)
from spritz.k8s.custom_resources.login_sets import LoginSet, LoginSetSpec, login_objects, secret_of
from spritz.k8s.custom_resources.machine_health import reboot_pod
from spritz.k8s.custom_resources.node_sets import NodeSet, NodeSetSpec, budget, pod, pod_template
from spritz_testing.kubernetes.schema import default_errors, of_definition
from tests.kubernetes.strictness import FOREIGN, PACKAGED, faults, load, not_structural

Json = dict[str, Any]

MANIFESTS = sorted(PACKAGED.glob("*.yaml"))
PROFILES = sorted((PACKAGED / "chart/profiles").iterdir())
METADATA = Metadata(name="lab", namespace="site", uid="1-2-3")


def wrong(wanted: list[Json]) -> dict[str, list[str]]:
    named = {f"{each['kind']} {each['metadata']['name']}": faults(each) for each in wanted}
    return {name: found for name, found in named.items() if found}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_no_manifest_has_what_an_apply_refuses(path: Path) -> None:
    assert wrong(load(path.read_text())) == {}


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.name)
def test_nothing_that_the_chart_renders_is_refused(path: Path) -> None:
    pytest.importorskip("helm_python", reason="Helm's library has no wheel for this processor")
    from tools import chart

    rendered = load(chart.render(chart.values_of(path)))
    assert len(rendered) > 5
    assert wrong([each for each in rendered if each["kind"] not in FOREIGN]) == {}


def test_the_definitions_are_structural_and_their_defaults_valid() -> None:
    found = []
    for definition in load((PACKAGED / "crds.yaml").read_text()):
        for version in definition["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            path = definition["spec"]["names"]["kind"]
            found += not_structural(schema, path) + [
                str(cause) for cause in default_errors(of_definition(schema), path)
            ]
    assert found == []


def clusters() -> list[Cluster]:
    """The smallest, and one with everything."""
    secret = SecretKey("accounting", "password")
    login = OpenId("https://id.example.org", "spritz", SecretKey("oidc", "secret"))
    full = ClusterSpec(
        image="spritz",
        controllers=2,
        metrics=True,
        dashboard=Dashboard(["dash.example.org"], login="oidc", oidc=login),
        database=Database(host="db", user="slurm", password_secret=secret),
    )
    return [Cluster(METADATA, ClusterSpec(image="spritz")), Cluster(METADATA, full)]


def node_sets() -> list[NodeSet]:
    tolerations: list[Json] = [{"key": "gpu", "operator": "Exists"}]
    volumes: list[Json] = [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]
    full = NodeSetSpec(
        cluster_ref="lab",
        cpus=4,
        memory="8Gi",
        gpus=2,
        per_machine=True,
        node_selector={"gpu": "yes"},
        tolerations=tolerations,
        volumes=volumes,
        volume_mounts=[{"name": "home", "mountPath": "/home"}],
    )
    plain = NodeSetSpec(cluster_ref="lab", cpus=1, memory="1Gi")
    privileged = NodeSetSpec(cluster_ref="lab", cpus=1, memory="1Gi", privileged=True)
    return [NodeSet(METADATA, spec) for spec in (plain, privileged, full)]


@pytest.mark.parametrize("cluster", clusters(), ids=["small", "full"])
def test_no_object_of_a_cluster_is_refused(cluster: Cluster) -> None:
    config = configuration(cluster)
    assert wrong([*control_plane(cluster, config, config.revision), keys(cluster, "a2V5", "a2V5")]) == {}


@pytest.mark.parametrize("node_set", node_sets(), ids=["plain", "privileged", "full"])
def test_no_object_of_a_node_set_is_refused(node_set: NodeSet) -> None:
    cluster = clusters()[0]
    made = pod(cluster, node_set, "gpu-0", pod_template(cluster, node_set), "m0" if node_set.spec.per_machine else "")
    assert wrong([made, budget(node_set), reboot_pod(cluster, node_set, "m0", "m0-reboot-1")]) == {}


def test_no_object_of_a_login_set_is_refused() -> None:
    spec = LoginSetSpec(cluster_ref="lab", authorized_keys="keys", volumes=[{"name": "home", "emptyDir": {}}])
    secret = secret_of("LoginSet", METADATA, "lab-join", {"token": "dA=="}, {"spritz.dev/expires": "1"})
    assert wrong([*login_objects(clusters()[0], LoginSet(METADATA, spec)), secret]) == {}


# What the validation itself finds


def test_an_unquoted_comma_in_a_definition_is_found() -> None:
    """A flow map ends its value at a comma: the rest is a key without a value. `kubectl apply` refuses it."""
    text = (PACKAGED / "crds.yaml").read_text().replace('"Queue the jobs on a faulty', "Queue the jobs on a faulty")
    (found,) = wrong(load(text.replace('for other nodes."}', "for other nodes.}"))).values()
    assert any("for other nodes." in fault for fault in found)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [], fsgroup: 1}", "spec.fsgroup"),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: '80'}]}", "spec.ports[0].port"),
        ("apiVersion: v1\nkind: Pot\nmetadata: {name: a}", "no such kind"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: }", "data.a: null"),
        ("apiVersion: spritz.dev/v1alpha1\nkind: NodeSet\nmetadata: {name: a}\nspec: {cpu: 1}", "spec.cpu"),
    ],
)
def test_faults_are_named(text: str, fault: str) -> None:
    (subject,) = load(text)
    assert fault in "\n".join(faults(subject))


def test_a_key_that_stands_twice_is_refused() -> None:
    with pytest.raises(yaml.YAMLError, match="name stands twice"):
        load("kind: Pod\nmetadata: {name: a, labels: {}, name: b}")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"description": "no type"}}},
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"type": "object", "x-kubernetes-validation": [], "properties": {"a": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
    ],
)
def test_schemas_that_are_not_structural_are_found(schema: Json) -> None:
    assert not_structural(schema) != []
