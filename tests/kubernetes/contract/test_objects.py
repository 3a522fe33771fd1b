"""Any object: identity, versions, patches, lists, deletion."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.contract.conftest import JSON_PATCH, STRATEGIC, Json, Kube, Play, config_map, pod


def test_an_object_gets_its_identity_from_the_server(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        body = config_map("", generateName="c-")
        del body["metadata"]["name"]
        made = (await kube.make("configmaps", body))["metadata"]
        assert made["name"].startswith("c-")
        assert len(made["name"]) > 2
        assert all((made["uid"], made["resourceVersion"], made["creationTimestamp"]))
        assert (await kube.get(f"configmaps/{made['name']}"))["metadata"] == made

    play(scene)


def test_refusals_are_statuses_that_name_the_object(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        missing = await kube.refused(404, kube.get("configmaps/none"))
        assert (missing.reason, missing.details["name"], missing.details["kind"]) == ("NotFound", "none", "configmaps")
        await kube.make("configmaps", config_map("c"))
        again = await kube.refused(409, kube.make("configmaps", config_map("c")))
        assert again.reason == "AlreadyExists"
        bad = await kube.refused(422, kube.make("configmaps", config_map("No_Name")))
        assert (bad.reason, set(bad.fields)) == ("Invalid", {"metadata.name"})
        await kube.refused(404, kube.make("api/v1/namespaces/contract-none/configmaps", config_map("c")))
        await kube.refused(400, kube.make("configmaps", config_map("d", namespace="default")))
        assert (await kube.refused(404, kube.get("api/v1/things"))).reason == "NotFound"
        answer = await kube.api.exchange("GET", "apis/contract.invalid/v1/things")
        assert (answer.status, answer.body) == (404, b"404 page not found\n")

    play(scene)


def test_a_stale_write_is_refused_and_one_that_changes_nothing_makes_no_version(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        first = await kube.make("configmaps", config_map("c", {"a": "1"}))
        second = await kube.ask("PUT", "configmaps/c", first | {"data": {"a": "2"}})
        assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
        stale = await kube.refused(409, kube.ask("PUT", "configmaps/c", first | {"data": {"a": "3"}}))
        assert stale.reason == "Conflict"
        same = await kube.ask("PUT", "configmaps/c", second)
        assert same["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
        unversioned = config_map("c", {"a": "4"})
        assert (await kube.ask("PUT", "configmaps/c", unversioned))["data"] == {"a": "4"}
        other = config_map("c", {"a": "5"}, uid="00000000-0000-4000-8000-000000000000")
        await kube.refused(409, kube.ask("PUT", "configmaps/c", other))
        patched = await kube.refused(422, kube.patch("configmaps/c", {"metadata": {"uid": other["metadata"]["uid"]}}))
        assert "metadata.uid" in patched.fields
        stale_patch = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "data": {"a": "6"}}
        await kube.refused(409, kube.patch("configmaps/c", stale_patch))

    play(scene)


def test_a_lease_is_taken_by_the_writer_that_has_seen_it_last(play: Play) -> None:
    leases = "coordination.k8s.io/v1:leases"

    async def scene(kube: Kube) -> None:
        spec = {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.123456Z",
            "leaseTransitions": 0,
        }
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": spec}
        made = await kube.make(leases, lease)
        assert made["spec"] == spec
        taken = await kube.ask("PUT", f"{leases}/l", made | {"spec": spec | {"holderIdentity": "b"}})
        assert taken["spec"]["holderIdentity"] == "b"
        await kube.refused(409, kube.ask("PUT", f"{leases}/l", made | {"spec": spec | {"holderIdentity": "c"}}))
        blind = await kube.refused(422, kube.ask("PUT", f"{leases}/l", lease))
        assert "metadata.resourceVersion" in blind.fields

    play(scene)


def test_patches(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        await kube.make("configmaps", config_map("c", {"a": "1", "b": "2"}))
        merged = await kube.patch("configmaps/c", {"data": {"a": None, "c": "3"}})
        assert merged["data"] == {"b": "2", "c": "3"}
        changed = await kube.patch("configmaps/c", [{"op": "replace", "path": "/data/b", "value": "4"}], JSON_PATCH)
        assert changed["data"] == {"b": "4", "c": "3"}
        failed = [{"op": "test", "path": "/data/b", "value": "no"}, {"op": "remove", "path": "/data/b"}]
        await kube.refused(422, kube.patch("configmaps/c", failed, JSON_PATCH))
        await kube.refused(415, kube.patch("configmaps/c", {}, "application/json"))
        await kube.refused(404, kube.patch("configmaps/none", {}))
        ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": ports}}
        await kube.make("services", service)
        strategic = {"spec": {"ports": [{"port": 2, "name": "c"}]}}
        merged = await kube.patch("services/s", strategic, STRATEGIC)
        assert {(port["name"], port["port"]) for port in merged["spec"]["ports"]} == {("a", 1), ("c", 2)}

    play(scene)


def test_a_rehearsal_stores_nothing(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        made = await kube.make("configmaps", config_map("c"), dryRun="All")
        assert made["metadata"]["uid"]
        await kube.gone("configmaps/c")

    play(scene)


def test_an_application_is_rehearsed_with_all_checks(play: Play) -> None:
    """As the operator's webhook does it for the pods that a NodeSet would make."""

    async def scene(kube: Kube) -> None:
        good = pod("p")
        wrong = pod("p")
        wrong["spec"]["containers"][0]["volumeMounts"] = [{"name": "home", "mountPath": "/home"}]
        made = await kube.apply("pods/p", good, "us", dryRun="All")
        assert made["metadata"]["uid"]
        refused = await kube.refused(422, kube.apply("pods/p", wrong, "us", dryRun="All"))
        assert "spec.containers[0].volumeMounts[0].name" in refused.message
        await kube.gone("pods/p")

    play(scene)


def test_a_value_of_another_type_is_refused(play: Play) -> None:
    """By an error of the server's own where it is applied."""

    async def scene(kube: Kube) -> None:
        wrong = pod("wrong")
        wrong["spec"]["volumes"] = [{"name": "x", "nfs": 3}]
        refused = await kube.refused(500, kube.apply("pods/wrong", wrong, "a"))
        assert refused.message.startswith("failed to create typed patch object")
        await kube.refused(400, kube.make("pods", wrong))

    play(scene)


def test_unknown_fields_are_dropped_or_refused_as_asked(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        odd = config_map("c") | {"dat": {"a": "1"}}
        strict = await kube.refused(400, kube.make("configmaps", odd, fieldValidation="Strict"))
        assert "dat" in strict.message
        assert "dat" not in await kube.make("configmaps", odd, fieldValidation="Ignore")

    play(scene)


def test_a_list_in_pages_is_of_one_version(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        for number in range(5):
            await kube.make("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"s{number}"}})
        page = await kube.get("secrets", limit="2")
        version, names = page["metadata"]["resourceVersion"], []
        await kube.make("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s9"}})
        while True:
            names += [each["metadata"]["name"] for each in page["items"]]
            assert page["metadata"]["resourceVersion"] == version
            if not (token := page["metadata"].get("continue")):
                break
            page = await kube.get("secrets", **{"limit": "2", "continue": token})
        assert names == [f"s{number}" for number in range(5)]

    play(scene)


def test_selectors(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        for name, labels in (("a", {"tier": "x"}), ("b", {"tier": "y", "old": ""}), ("c", {})):
            await kube.make(
                "secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}}
            )

        async def names(**selector: str) -> set[str]:
            return {each["metadata"]["name"] for each in (await kube.get("secrets", **selector))["items"]}

        assert await names(labelSelector="tier") == {"a", "b"}
        assert await names(labelSelector="tier=x") == {"a"}
        assert await names(labelSelector="tier!=x") == {"b", "c"}
        assert await names(labelSelector="tier in (x,y),!old") == {"a"}
        assert await names(labelSelector="tier notin (x)") == {"b", "c"}
        assert await names(fieldSelector="metadata.name=b") == {"b"}
        await kube.refused(400, names(labelSelector="tier in x"))
        await kube.refused(400, names(fieldSelector="data.x=1"))

    play(scene)


def test_deletion_with_conditions_and_by_label(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        made = await kube.make("configmaps", config_map("c"))
        other = {"uid": "00000000-0000-4000-8000-000000000000"}
        assert (await kube.refused(409, kube.delete("configmaps/c", preconditions=other))).reason == "Conflict"
        await kube.delete("configmaps/c", preconditions={"uid": made["metadata"]["uid"]})
        await kube.gone("configmaps/c")
        for name, label in (("d", "x"), ("e", "y")):
            await kube.make("configmaps", config_map(name, labels={"l": label}))
        await kube.ask("DELETE", "configmaps", labelSelector="l=x")
        await kube.gone("configmaps/d")
        await kube.get("configmaps/e")

    play(scene)


def test_an_object_with_a_finalizer_stays_until_that_is_taken_off(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        await kube.make("configmaps", config_map("c", finalizers=["contract.example/a"]))
        await kube.delete("configmaps/c")
        left = await kube.get("configmaps/c")
        assert left["metadata"]["deletionTimestamp"]
        both = {"metadata": {"finalizers": ["contract.example/a", "contract.example/b"]}}
        added = await kube.refused(422, kube.patch("configmaps/c", both))
        assert "metadata.finalizers" in added.fields
        await kube.patch("configmaps/c", {"metadata": {"finalizers": None}})
        await kube.gone("configmaps/c")

    play(scene)


def test_an_event_has_a_name_like_any_object(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        about = {"kind": "Pod", "namespace": kube.namespace, "name": "p"}
        event: Json = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "p.1"},
            "involvedObject": about,
            "reason": "Waiting",
            "message": "for its turn",
            "type": "Normal",
            "source": {"component": "contract"},
        }
        await kube.make("events", event)
        await kube.refused(409, kube.make("events", event))
        found = await kube.get("events", fieldSelector="involvedObject.name=p,reason=Waiting")
        assert [each["message"] for each in found["items"]] == ["for its turn"]

    play(scene)


def managers(obj: Json) -> dict[tuple[str, str], Any]:
    return {(each["manager"], each["operation"]): each["fieldsV1"] for each in obj["metadata"]["managedFields"]}


def test_apply_shares_an_object_by_field(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        made = await kube.apply("configmaps/c", config_map("c", {"a": "1", "b": "1"}), "one")
        assert managers(made).keys() == {("one", "Apply")}
        both = await kube.apply("configmaps/c", config_map("c", {"z": "9"}), "two")
        assert both["data"] == {"a": "1", "b": "1", "z": "9"}
        clash = await kube.refused(409, kube.apply("configmaps/c", config_map("c", {"z": "8"}), "one"))
        assert clash.details["causes"][0]["reason"] == "FieldManagerConflict"
        assert clash.details["causes"][0]["field"] == ".data.z"
        forced = await kube.apply("configmaps/c", config_map("c", {"a": "1", "z": "8"}), "one", force="true")
        assert forced["data"] == {"a": "1", "z": "8"}, "what a manager applied before and not now goes"
        again = await kube.apply("configmaps/c", config_map("c", {"a": "1", "z": "8"}), "one")
        assert again["metadata"]["resourceVersion"] == forced["metadata"]["resourceVersion"]
        await kube.refused(422, kube.ask("PATCH", "configmaps/c", config_map("c"), "application/apply-patch+yaml"))
        await kube.refused(400, kube.apply("configmaps/c", config_map("c", managedFields=[{"manager": "x"}]), "one"))

    play(scene)


def test_lists_of_an_applied_object_merge_by_their_keys(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        def deployment(containers: list[Json]) -> Json:
            labels = {"app": "d"}
            template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
            spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
            return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}

        path = "apps/v1:deployments/d"
        await kube.apply(path, deployment([{"name": "main", "image": "a"}]), "one")
        side = {"template": {"spec": {"containers": [{"name": "side", "image": "b"}]}}}
        both = await kube.apply(
            path, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": side}, "two"
        )
        assert {each["name"] for each in both["spec"]["template"]["spec"]["containers"]} == {"main", "side"}
        changed = await kube.apply(path, deployment([{"name": "main", "image": "c"}]), "one")
        images = {each["name"]: each["image"] for each in changed["spec"]["template"]["spec"]["containers"]}
        assert images == {"main": "c", "side": "b"}

    play(scene)


def test_a_namespace_that_ends_takes_what_is_in_it(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        kube.needs_controllers()
        await kube.make("configmaps", config_map("c", finalizers=["contract.example/a"]))
        await kube.delete(f"api/v1/namespaces/{kube.namespace}")
        ends = await kube.get(f"api/v1/namespaces/{kube.namespace}")
        assert ends["status"]["phase"] == "Terminating"
        late = await kube.refused(403, kube.make("configmaps", config_map("late")))
        assert late.details["causes"][0]["reason"] == "NamespaceTerminating"

        async def leaves() -> bool:
            return "deletionTimestamp" in (await kube.get("configmaps/c"))["metadata"]

        await kube.until(leaves, "what is in it is deleted")
        await kube.patch("configmaps/c", {"metadata": {"finalizers": None}})
        await kube.until_gone(f"api/v1/namespaces/{kube.namespace}")
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": kube.namespace}}
        await kube.make("api/v1/namespaces", body)

    play(scene)
