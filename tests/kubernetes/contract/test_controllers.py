"""What Kubernetes' own controllers do for owners and workloads. Skipped where no controller manager runs."""

from __future__ import annotations

from tests.kubernetes.contract.conftest import Json, Kube, Play, config_map, pod


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


async def _none(kube: Kube) -> bool:
    return not (await kube.get("pods", labelSelector="app=d"))["items"]
