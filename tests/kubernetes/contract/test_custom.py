"""Custom resources: schemas, defaults, rules, subresources."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.kubernetes.contract.conftest import JSON_PATCH, STRATEGIC, Json, Kube, Play

SPEC: Json = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "replicas": {"type": "integer", "default": 2},
        "mode": {"type": "string", "enum": ["slow", "fast"]},
        "name": {
            "type": "string",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "stays as it is"}],
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "either": {"x-kubernetes-int-or-string": True},
    },
    "x-kubernetes-validations": [
        {
            "rule": "!has(self.mode) || self.mode != 'fast' || self.size <= 5",
            "message": "fast ones are small",
            "fieldPath": ".mode",
        }
    ],
}
STATUS: Json = {
    "type": "object",
    "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}, "said": {"type": "string"}},
}


def definition(group: str, schema: Json, **more: object) -> Json:
    """A definition of Things with one version."""
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **more}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
            "versions": [version],
        },
    }


@asynccontextmanager
async def things(kube: Kube) -> AsyncIterator[str]:
    """A resource of our own; its path."""
    group = f"g{secrets.token_hex(4)}.contract.example"
    schema = {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
    more = {
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        "selectableFields": [{"jsonPath": ".spec.mode"}],
    }
    path = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await kube.make(path, definition(group, schema, **more))
    try:

        async def established() -> bool:
            found = (await kube.get(f"{path}/things.{group}")).get("status", {}).get("conditions")  # null at first
            return any(each["type"] == "Established" and each["status"] == "True" for each in found or ())

        await kube.until(established, "the definition is established")
        await kube.until(lambda: kube.get(f"{group}/v1:things"), "the resource is served")
        yield f"{group}/v1:things"
    finally:
        await kube.delete(f"{path}/things.{group}")


def thing(path: str, name: str, /, **spec: object) -> Json:
    return {"apiVersion": path.partition(":")[0], "kind": "Thing", "metadata": {"name": name}, "spec": spec}


def test_a_definition_is_refused_whose_rules_its_own_default_breaks(play: Play) -> None:
    """Rules see a default as it is written, without the defaults within it."""

    async def scene(kube: Kube) -> None:
        size = {"type": "string", "default": "10Gi"}
        fixed = {"rule": "self.size == oldSelf.size", "message": "stays"}
        about = {"type": "object", "properties": {"size": size}, "x-kubernetes-validations": [fixed]}
        path = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for default, good in (({}, False), ({"size": "10Gi"}, True)):
            schema = {"type": "object", "properties": {"storage": {**about, "default": default}}}
            body = definition(f"g{secrets.token_hex(4)}.contract.example", schema)
            if good:
                await kube.make(path, body, dryRun="All")
            else:
                refused = await kube.refused(422, kube.make(path, body, dryRun="All"))
                assert any(field.endswith("properties[storage].default") for field in refused.fields), refused.fields

    play(scene)


def test_a_schema_fills_in_prunes_and_refuses_with_the_field(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        async with things(kube) as path:
            body = thing(path, "a", size=1, odd=1, free={"any": {"thing": 1}}, either="x")
            made = await kube.make(path, body | {"status": {"said": "no"}})
            assert made["spec"] == {"size": 1, "replicas": 2, "free": {"any": {"thing": 1}}, "either": "x"}
            assert "status" not in made
            for spec, field in (
                ({"size": 0}, "spec.size"),
                ({"size": 11}, "spec.size"),
                ({"size": "1"}, "spec.size"),
                ({}, "spec.size"),
                ({"size": 1, "mode": "other"}, "spec.mode"),
                ({"size": 6, "mode": "fast"}, "spec.mode"),
            ):
                refused = await kube.refused(422, kube.make(path, thing(path, "b", **spec)))
                assert (refused.reason, field in refused.fields) == ("Invalid", True), (spec, refused.details)
            assert "fast ones are small" in refused.message
            strict = kube.make(path, thing(path, "b", size=1, odd=1), fieldValidation="Strict")
            assert "spec.odd" in (await kube.refused(400, strict)).message
            fixed = await kube.make(path, thing(path, "c", size=1, name="n"))
            changed = fixed | {"spec": fixed["spec"] | {"name": "m"}}
            assert "stays as it is" in (await kube.refused(422, kube.ask("PUT", f"{path}/c", changed))).message

    play(scene)


def test_status_and_specification_are_written_apart(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        async with things(kube) as path:
            made = await kube.make(path, thing(path, "a", size=1))
            assert made["metadata"]["generation"] == 1
            both = {"spec": {"size": 2}, "status": {"said": "hello"}}
            told = await kube.patch(f"{path}/a/status", both)
            assert (told["spec"]["size"], told["status"]["said"]) == (1, "hello")
            assert told["metadata"]["generation"] == 1
            changed = await kube.patch(f"{path}/a", {"spec": {"size": 2}, "status": {"said": "no"}})
            assert (changed["spec"]["size"], changed["status"]["said"]) == (2, "hello")
            assert changed["metadata"]["generation"] == 2
            blind = thing(path, "a", size=3)
            assert "metadata.resourceVersion" in (await kube.refused(422, kube.ask("PUT", f"{path}/a", blind))).fields
            await kube.refused(409, kube.ask("PUT", f"{path}/a", made))
            await kube.refused(415, kube.patch(f"{path}/a", {}, STRATEGIC))
            replaced = await kube.patch(f"{path}/a", [{"op": "replace", "path": "/spec/size", "value": 4}], JSON_PATCH)
            assert replaced["spec"]["size"] == 4
            mine = {"apiVersion": made["apiVersion"], "kind": "Thing", "metadata": {"name": "a"}}
            applied = await kube.apply(f"{path}/a/status", mine | {"status": {"replicas": 3}}, "contract")
            assert applied["status"] == {"said": "hello", "replicas": 3}

    play(scene)


def test_a_resource_with_a_scale_is_scaled(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        async with things(kube) as path:
            await kube.make(path, thing(path, "a", size=1))
            await kube.patch(f"{path}/a/status", {"status": {"replicas": 1, "selector": "x=y"}})
            scale = await kube.get(f"{path}/a/scale")
            assert (scale["kind"], scale["spec"], scale["status"]) == (
                "Scale", {"replicas": 2}, {"replicas": 1, "selector": "x=y"}
            )  # fmt: skip
            await kube.ask("PUT", f"{path}/a/scale", scale | {"spec": {"replicas": 5}})
            await kube.patch(f"{path}/a/scale", {"spec": {"replicas": 4}})
            assert (await kube.get(f"{path}/a"))["spec"]["replicas"] == 4

    play(scene)


def test_fields_select_and_columns_are_printed(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        async with things(kube) as path:
            await kube.make(path, thing(path, "a", size=1, mode="slow"))
            await kube.make(path, thing(path, "b", size=2, mode="fast"))
            found = await kube.get(path, fieldSelector="spec.mode=fast")
            assert [each["metadata"]["name"] for each in found["items"]] == ["b"]
            accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
            table = await kube.ask("GET", path, headers=accept)
            assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Size"]
            assert [row["cells"] for row in table["rows"]] == [["a", 1], ["b", 2]]

    play(scene)


def test_a_definition_takes_its_objects_along(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        async with things(kube) as path:
            await kube.make(path, thing(path, "a", size=1))
        await kube.until_gone(path)

    play(scene)


def test_a_definition_waits_for_objects_with_finalizers(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        async with things(kube) as path:
            kept = thing(path, "a", size=1)
            kept["metadata"]["finalizers"] = ["contract.example/kept"]
            await kube.make(path, kept)

        async def leaves() -> bool:
            return "deletionTimestamp" in (await kube.get(f"{path}/a"))["metadata"]

        await kube.until(leaves, "the object is being deleted")
        await kube.patch(f"{path}/a", {"metadata": {"finalizers": None}})
        await kube.until_gone(path)

    play(scene)
