"""What Kubernetes' own controllers do for owners and workloads. Skipped where no controller manager runs."""

from __future__ import annotations

import secrets

from tests.kubernetes.contract.conftest import Json, Kube, Play, config_map, pod
from tests.kubernetes.contract.test_custom import thing, things


async def family(kube: Kube, **reference: object) -> None:
    """An owner, and what depends on it."""
    owner = await kube.make("configmaps", config_map("owner"))
    about = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], **reference}
    await kube.make("configmaps", config_map("child", ownerReferences=[about]))


def test_what_an_owner_leaves_is_deleted(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        kube.needs_controllers()
        await family(kube)
        await kube.delete("configmaps/owner", propagationPolicy="Background")
        await kube.gone("configmaps/owner")
        await kube.until_gone("configmaps/child")

    play(scene)


def test_an_owner_waits_for_its_dependents_in_the_foreground(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        kube.needs_controllers()
        await family(kube, blockOwnerDeletion=True)
        await kube.patch("configmaps/child", {"metadata": {"finalizers": ["contract.example/hold"]}})
        await kube.delete("configmaps/owner", propagationPolicy="Foreground")

        async def leaves() -> bool:
            return "deletionTimestamp" in (await kube.get("configmaps/child"))["metadata"]

        await kube.until(leaves, "the dependent is deleted first")
        assert "foregroundDeletion" in (await kube.get("configmaps/owner"))["metadata"]["finalizers"]
        await kube.patch("configmaps/child", {"metadata": {"finalizers": None}})
        await kube.until_gone("configmaps/owner")

    play(scene)


def test_orphans_stay(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        kube.needs_controllers()
        await family(kube)
        await kube.delete("configmaps/owner", propagationPolicy="Orphan")
        await kube.until_gone("configmaps/owner")
        assert not (await kube.get("configmaps/child"))["metadata"].get("ownerReferences")

    play(scene)


def test_a_pod_gets_a_claim_from_a_template_and_its_devices_come_back(play: Play) -> None:
    """Shares and configuration stand in the allocation as they were written."""

    async def scene(kube: Kube) -> None:
        kube.needs_controllers()
        claims, driver = "resource.k8s.io/v1:resourceclaims", "gpu.contract.example"
        exactly = {
            "deviceClassName": driver,
            "capacity": {"requests": {"shares": "2"}},
            "selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}],
        }
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        templates = "resource.k8s.io/v1:resourceclaimtemplates"
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t"}}
        await kube.make(templates, {**body, "spec": {"spec": spec}})
        reference = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
        user = await kube.make("pods", pod("p", spec={"resourceClaims": reference}))

        async def made() -> str:
            statuses = (await kube.get("pods/p"))["status"].get("resourceClaimStatuses") or [{}]
            return str(statuses[0].get("resourceClaimName") or "")

        name = await kube.until(made, "the pod's status names its claim")
        claim = await kube.get(f"{claims}/{name}")
        assert [each["uid"] for each in claim["metadata"]["ownerReferences"]] == [user["metadata"]["uid"]]
        assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
        result = {"request": "gpu", "driver": driver, "pool": "n1", "device": "gpu-0"}
        share = {"shareID": "0c4a3e8e-6c3e-4e0f-9a53-5c1f0b8a7d11", "consumedCapacity": {"shares": "2"}}
        config = {"source": "FromClaim", "requests": ["gpu"], "opaque": {"driver": driver, "parameters": {"a": 1}}}
        consumer = {"resource": "pods", "name": "p", "uid": user["metadata"]["uid"]}
        allocation = {"devices": {"results": [result | share], "config": [config]}}
        await kube.patch(f"{claims}/{name}/status", {"status": {"allocation": allocation, "reservedFor": [consumer]}})
        told = (await kube.get(f"{claims}/{name}"))["status"]["allocation"]["devices"]
        assert told == {"results": [result | share], "config": [config]}
        await kube.patch("pods/p/status", {"status": {"phase": "Succeeded"}})

        async def back() -> bool:
            found: list[Json] = (await kube.get(claims))["items"]
            return not any((each.get("status") or {}).get("allocation") for each in found)

        await kube.until(back, "no claim has devices")
        await kube.delete("pods/p", gracePeriodSeconds=0)
        await kube.until_gone(f"{claims}/{name}")

    play(scene)


def test_a_deployment_makes_pods_again_that_go(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        kube.needs_controllers()
        labels = {"app": "d"}
        template = {"metadata": {"labels": labels}, "spec": pod("")["spec"]}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
        await kube.make("apps/v1:deployments", body)

        async def pods(count: int) -> list[Json]:
            found: list[Json] = (await kube.get("pods", labelSelector="app=d"))["items"]
            return found if len(found) == count else []

        first = await kube.until(lambda: pods(2), "two pods")
        assert {each["metadata"]["ownerReferences"][0]["kind"] for each in first} == {"ReplicaSet"}
        gone = first[0]["metadata"]["name"]
        await kube.delete(f"pods/{gone}")

        async def replaced() -> bool:
            names = {each["metadata"]["name"] for each in await pods(2)}
            return bool(names) and gone not in names

        await kube.until(replaced, "a pod is replaced")
        await kube.patch("apps/v1:deployments/d/scale", {"spec": {"replicas": 0}})
        await kube.until(lambda: _none(kube), "none is left")

    play(scene)


def test_a_budget_compares_with_what_the_controller_of_its_pods_is_to_have(play: Play) -> None:
    """Not with the pods that there are, but for a number that must be available."""

    async def scene(kube: Kube) -> None:
        kube.needs_controllers()
        async with things(kube) as path:
            owner = await kube.make(path, thing(path, "t", size=1, replicas=1))
            about = {**{name: owner[name] for name in ("apiVersion", "kind")}, "name": "t", "controller": True}
            about["uid"] = owner["metadata"]["uid"]
            for number in range(2):
                await kube.make("pods", pod(f"p{number}", labels={"app": "t"}, ownerReferences=[about]))
                ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                await kube.patch(f"pods/p{number}/status", {"status": ready})
            budgets = "policy/v1:poddisruptionbudgets"
            for name, limit in (("scale", {"maxUnavailable": 0}), ("number", {"minAvailable": 2**31 - 1})):
                spec = {**limit, "selector": {"matchLabels": {"app": "t"}}}
                body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}}
                await kube.make(budgets, {**body, "spec": spec})

            async def counted(name: str, *, expected: int, allowed: int) -> bool:
                # The controller learns of a new definition by and by, and looks again when a pod changes.
                await kube.patch(
                    "pods/p0", {"metadata": {"annotations": {"contract.example/look": secrets.token_hex(4)}}}
                )
                status = (await kube.get(f"{budgets}/{name}")).get("status") or {}
                return (status.get("expectedPods"), status.get("disruptionsAllowed")) == (expected, allowed)

            await kube.until(lambda: counted("scale", expected=1, allowed=1), "the scale of the owner counts")
            await kube.until(lambda: counted("number", expected=2, allowed=0), "the pods count")

    play(scene)


async def _none(kube: Kube) -> bool:
    return not (await kube.get("pods", labelSelector="app=d"))["items"]
