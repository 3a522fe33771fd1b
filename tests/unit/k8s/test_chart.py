"""The Helm chart: what it renders to, what its schema refuses, and that our renderer agrees with Go's."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tools import chart

from spritz.k8s.api import APPLY, Api, ApiFailure
from spritz_testing.kubernetes.server import KubeServer

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
    (found,) = (each for each in objects(chart.render(chart.context(values))) if each["kind"] == "ConfigMap")
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
                found = objects(chart.render(chart.context(chart.values_of(profile), namespace=namespace)))
                assert await apply(api, [space, *found]) >= 6
            text = await api.send("GET", "apis/spritz.dev/v1alpha1/namespaces/site1/loginsets/vision")
            assert msgspec.json.decode(text)["spec"]["replicas"] == 2

    asyncio.run(journey())


def test_everything_is_in_the_namespace_of_the_release() -> None:
    for profile in PROFILES:
        for each in objects(chart.render(chart.context(chart.values_of(profile), namespace="other"))):
            if not each["kind"].startswith("ClusterRole") and not each["kind"].endswith("WebhookConfiguration"):
                assert each["metadata"]["namespace"] == "other", each["kind"]


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
        ("image: {repository: ''}", "image.repository"),
        ("clustres: {}", "clustres"),
        ("nodeSets: {Big: {cpus: 1}}", "Big"),
        ("serviceMonitor: {enabled: true, interval: often}", "serviceMonitor.interval"),
    ],
)
def test_values_that_the_schema_refuses_are_named(values: str, path: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(values)
    with pytest.raises(chart.ChartError, match=path):
        chart.values_of(file)


def test_what_the_renderer_does_not_have_is_an_error() -> None:
    for text, words in (
        ("{{ lookup 1 }}", "lookup"),
        ("{{ .Values.a | sha256sum }}", "sha256sum"),
        ("{{ end }}", "end"),
    ):
        with pytest.raises(chart.ChartError, match=words):
            chart._Scope({}, {}).render(chart._Template(text, {}).body, {})


def test_branches_loops_and_trimming() -> None:
    text = "a\n{{- if .x }}\n1\n{{- else if .y }}\n2\n{{- else }}\n3\n{{- end }}\n"
    text += "{{ range $k, $v := .m }}{{ $k }}={{ $v }};{{ end }}"
    body = chart._Template(text, {}).body
    assert chart._Scope({}, {}).render(body, {"y": 1, "m": {"b": 2, "a": True}}) == "a\n2\na=true;b=2;"
    assert chart._Scope({}, {}).render(body, {}) == "a\n3\n"


GO = r"""
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"
)

func js(v any) string { b, _ := json.Marshal(v); return string(b) }

// A mapping as lines with a key each and JSON as its value, which is YAML.
func yaml(v any) string {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		return js(v)
	}
	lines := []string{}
	for k, each := range m {
		lines = append(lines, js(k)+": "+js(each))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// As helm's: the files of the chart.
type files string

func (dir files) Get(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(string(dir), name))
	return string(text), err
}

func main() {
	var root map[string]any
	if err := json.NewDecoder(os.Stdin).Decode(&root); err != nil {
		panic(err)
	}
	root["Files"] = files(filepath.Dir(os.Args[1]))
	t := template.New("chart").Option("missingkey=zero")
	indent := func(n int, s string) string {
		p := strings.Repeat(" ", n)
		return p + strings.ReplaceAll(s, "\n", "\n"+p)
	}
	t.Funcs(template.FuncMap{
		"toYaml":  yaml,
		"toJson":  js,
		"quote":   func(v any) string { return js(fmt.Sprint(v)) },
		"nindent": func(n int, s string) string { return "\n" + indent(n, s) },
		"include": func(n string, d any) (string, error) {
			var b bytes.Buffer
			err := t.ExecuteTemplate(&b, n, d)
			return b.String(), err
		},
	})
	found, _ := filepath.Glob(os.Args[1] + "/*")
	template.Must(t.ParseFiles(found...))
	for _, f := range found {
		if strings.HasSuffix(f, ".yaml") {
			fmt.Println("---")
			if err := t.ExecuteTemplate(os.Stdout, filepath.Base(f), root); err != nil {
				panic(err)
			}
			fmt.Println()
		}
	}
}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("go") is None, reason="needs a Go")
@pytest.mark.parametrize("profile", [None, *PROFILES], ids=lambda path: path.stem if path else "defaults")
def test_gos_own_templates_render_the_same(profile: Path | None, tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text(GO)
    root = chart.context(chart.values_of(*filter(None, [profile])))
    command = ["go", "run", str(tmp_path / "main.go"), str(chart.CHART / "templates")]
    done = subprocess.run(command, input=json.dumps(root), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert objects(done.stdout) == objects(chart.render(root))
