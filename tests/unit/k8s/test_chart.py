"""The Helm chart: what Helm renders it to, and what its schema refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from spritz.k8s.api import APPLY, Api, ApiFailure
from spritz_testing.kubernetes.server import KubeServer

pytest.importorskip("helm_python", reason="Helm's library has no wheel for this processor")
from tools import chart

PROFILES = sorted((chart.CHART / "profiles").iterdir())

#: Where objects of each kind are; those of other kinds (ServiceMonitor) need definitions that are not ours.
PLURALS = {
    "ClusterRole": "apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ConfigMap": "api/v1/namespaces/{}/configmaps",
    "CustomResourceDefinition": "apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Deployment": "apis/apps/v1/namespaces/{}/deployments",
    "LoginSet": "apis/spritz.dev/v1alpha1/namespaces/{}/loginsets",
    "MutatingWebhookConfiguration": "apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "Namespace": "api/v1/namespaces",
    "NodeSet": "apis/spritz.dev/v1alpha1/namespaces/{}/nodesets",
    "Role": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Service": "api/v1/namespaces/{}/services",
    "ServiceAccount": "api/v1/namespaces/{}/serviceaccounts",
    "SpritzCluster": "apis/spritz.dev/v1alpha1/namespaces/{}/spritzclusters",
    "ValidatingWebhookConfiguration": "apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}


def objects(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def bound_in(namespace: str) -> dict[str, Any]:
    """The binding that gives the packaged operator its rights in a namespace with clusters."""
    values = {"clusters": {"namespaces": [namespace]}}
    return next(
        each
        for each in objects(chart.render(values))
        if each["kind"] == "RoleBinding" and each["metadata"]["namespace"] == namespace
    )


async def apply(api: Api, found: list[dict[str, Any]]) -> int:
    """As `kubectl apply --server-side` does; how many."""
    count = 0
    for each in found:
        place = PLURALS.get(each["kind"])
        if place is None:
            continue
        name, namespace = each["metadata"]["name"], each["metadata"].get("namespace")
        path = f"{place.format(namespace)}/{name}"
        async with asyncio.timeout(100):
            while True:
                try:
                    body = msgspec.json.encode(each)
                    await api.send("PATCH", path, parameters={"fieldManager": "t"}, body=body, content_type=APPLY)
                except ApiFailure as failure:
                    if not failure.not_found or not each["apiVersion"].startswith("spritz.dev"):
                        raise
                    await asyncio.sleep(0.05)  # its definition is not served yet
                else:
                    break
        count += 1
    return count


def test_plain_manifests_are_those_of_the_chart() -> None:
    for name, text in chart.plain().items():
        assert (chart.CHART.parent / name).read_text() == text, "python -m tools.chart --write"


def test_the_dashboard_of_the_package_is_a_config_map_that_grafana_finds() -> None:
    assert (chart.CHART / "files/grafana.json").read_text() == chart.DASHBOARD.read_text(), "tools.chart --write"
    values = chart.values_of(chart.CHART / "profiles/gpu.yaml")
    (found,) = (each for each in objects(chart.render(values)) if each["kind"] == "ConfigMap")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["spritz.json"]) == json.loads(chart.DASHBOARD.read_text())
    assert len(found["data"]["spritz.json"]) < 1 << 20  # a ConfigMap's bound


def test_an_api_server_takes_every_profile() -> None:
    async def journey() -> None:
        async with KubeServer() as server, Api.connect(server.kubeconfig) as api:
            await apply(api, objects(chart.plain()["crds.yaml"]))
            await apply(api, objects((chart.CHART.parent / "operator.yaml").read_text()))
            for number, profile in enumerate(PROFILES):
                namespace = f"site{number}"
                space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                found = objects(chart.render(chart.values_of(profile), namespace=namespace))
                assert await apply(api, [space, *found]) >= 6
            text = await api.send("GET", "apis/spritz.dev/v1alpha1/namespaces/site1/loginsets/vision")
            assert msgspec.json.decode(text)["spec"]["replicas"] == 2

    asyncio.run(journey())


def test_everything_is_in_the_namespace_of_the_release() -> None:
    for profile in PROFILES:
        for each in objects(chart.render(chart.values_of(profile), namespace="other")):
            if not each["kind"].startswith("ClusterRole") and not each["kind"].endswith("WebhookConfiguration"):
                assert each["metadata"]["namespace"] == "other", each["kind"]


def test_secrets_are_read_only_in_namespaces_that_are_named() -> None:
    def where(*namespaces: str) -> list[tuple[str, str]]:
        found = objects(chart.render({"clusters": {"namespaces": list(namespaces)}}, namespace="site"))
        (rights,) = (
            each for each in found if each["kind"] == "ClusterRole" and "namespace" in each["metadata"]["name"]
        )
        everywhere = next(each for each in found if each["kind"] == "ClusterRole" and each is not rights)
        assert "secrets" in str(rights["rules"])
        for rule in everywhere["rules"]:
            assert not {"secrets", "configmaps", "deployments", "statefulsets"}.intersection(rule["resources"])
            assert "create" not in rule["verbs"] or rule["resources"] == ["events"]
        return [
            (each["kind"], each["metadata"].get("namespace", ""))
            for each in found
            if each.get("roleRef", {}).get("name") == rights["metadata"]["name"]
        ]

    assert where() == [("RoleBinding", "site")]
    assert where("a", "site") == [("RoleBinding", "site"), ("RoleBinding", "a")]
    assert where("a", "*") == [("ClusterRoleBinding", "")]


def test_containers_of_ours_have_no_rights_that_they_do_not_need() -> None:
    found = [each for text in chart.plain().values() for each in objects(text) if each["kind"] == "Deployment"]
    assert len(found) == 2
    for each in found:
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        for container in pod["containers"]:
            rights = container["securityContext"]
            assert rights["capabilities"] == {"drop": ["ALL"]}
            assert rights["readOnlyRootFilesystem"]
            assert not rights["allowPrivilegeEscalation"]


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ("image: {repository: ''}", "image/repository"),
        ("clustres: {}", "clustres"),
        ("nodeSets: {Big: {cpus: 1}}", "Big"),
        ("serviceMonitor: {enabled: true, interval: often}", "serviceMonitor/interval"),
    ],
)
def test_values_that_the_schema_refuses_are_named(values: str, path: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(values)
    with pytest.raises(chart.ChartError, match=path):
        chart.render(chart.values_of(file))
