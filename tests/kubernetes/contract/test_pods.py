"""Pods up to their node: admission, binding, eviction, deletion, budgets, quotas."""

from __future__ import annotations

import secrets

from tests.kubernetes.contract.conftest import STRATEGIC, Json, Kube, Play, binding, pod


def test_a_pod_is_filled_in(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        made = await kube.make("pods", pod("p"))
        spec, status = made["spec"], made["status"]
        assert (spec["schedulerName"], spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == (
            "contract",
            "Always",
            30,
        )
        assert (spec["serviceAccountName"], spec["priority"]) == ("default", 0)
        assert {each["key"] for each in spec["tolerations"]} == {
            "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
        }  # fmt: skip
        assert (status["phase"], status["qosClass"]) == ("Pending", "BestEffort")
        container = {
            "name": "main",
            "image": "b",
            "resources": {"limits": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "2"}},
        }
        limited = await kube.make("pods", pod("q", spec={"containers": [container]}))
        resources = limited["spec"]["containers"][0]["resources"]
        assert resources["requests"] == resources["limits"]
        assert limited["status"]["qosClass"] == "Guaranteed"
        refused = await kube.refused(422, kube.make("pods", pod("r", spec={"containers": []})))
        assert "spec.containers" in refused.fields
        missing = kube.make("pods", pod("r", spec={"serviceAccountName": "none"}))
        assert (await kube.refused(403, missing)).reason == "Forbidden"

    play(scene)


def test_a_priority_class_gives_the_number(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        name = f"contract-{secrets.token_hex(4)}"
        classes = "apis/scheduling.k8s.io/v1/priorityclasses"
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 1234,
        }
        await kube.make(classes, body | {"preemptionPolicy": "Never"})
        try:

            async def made() -> Json:
                return await kube.make("pods", pod("p", spec={"priorityClassName": name}))

            spec = (await kube.until(made, "admission knows the class"))["spec"]
            assert (spec["priority"], spec["preemptionPolicy"]) == (1234, "Never")
            unknown = pod("q", spec={"priorityClassName": f"{name}-none"})
            assert (await kube.refused(403, kube.make("pods", unknown))).reason == "Forbidden"
            said = pod("q", spec={"priorityClassName": name, "priority": 1})
            await kube.refused(403, kube.make("pods", said))
        finally:
            await kube.delete(f"{classes}/{name}")

    play(scene)


def test_a_pod_is_bound_once(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        made = await kube.make("pods", pod("p"))
        stale = binding("p", "n1", "00000000-0000-4000-8000-000000000000")
        assert (await kube.refused(409, kube.make("pods/p/binding", stale))).reason == "Conflict"
        noting = binding("p", "n1", made["metadata"]["uid"])
        noting["metadata"]["annotations"] = {"contract.example/task": "3"}
        await kube.make("pods/p/binding", noting)
        bound = await kube.get("pods/p")
        assert bound["metadata"]["annotations"] == {"contract.example/task": "3"}
        assert bound["spec"]["nodeName"] == "n1"
        assert [(each["type"], each["status"]) for each in bound["status"]["conditions"]] == [("PodScheduled", "True")]
        await kube.refused(409, kube.make("pods/p/binding", binding("p", "n1")))
        await kube.refused(409, kube.make("pods/p/binding", binding("p", "n2")))
        await kube.refused(404, kube.make("pods/none/binding", binding("none", "n1")))
        found = await kube.get("pods", fieldSelector="spec.schedulerName=contract,spec.nodeName=n1")
        assert [each["metadata"]["name"] for each in found["items"]] == ["p"]
        # Its specification stays, but for few fields.
        changed = {"spec": {"nodeName": "n2"}}
        assert "spec" in (await kube.refused(422, kube.patch("pods/p", changed))).fields
        noted = await kube.patch("pods/p", {"metadata": {"annotations": {"contract": "yes"}}})
        assert noted["metadata"]["annotations"]["contract"] == "yes"

    play(scene)


def test_a_claim_of_devices_is_allocated_and_reserved_in_its_status(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        claims = "resource.k8s.io/v1:resourceclaims"
        exactly = {"deviceClassName": "gpu.contract.example", "count": 1}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}
        made = await kube.make(claims, body)
        assert made["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] == "ExactCount"
        reference = [{"name": "gpu", "resourceClaimName": "c"}]
        user = await kube.make("pods", pod("p", spec={"resourceClaims": reference}))
        result = {"request": "gpu", "driver": "gpu.contract.example", "pool": "n1", "device": "gpu-0"}
        field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
        where = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        consumer = {"resource": "pods", "name": "p", "uid": user["metadata"]["uid"]}
        status = {"allocation": {"devices": {"results": [result]}, "nodeSelector": where}, "reservedFor": [consumer]}
        told = await kube.patch(f"{claims}/c/status", {"status": status})
        assert told["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
        assert told["status"]["reservedFor"] == [consumer]
        changed = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly | {"count": 2}}]}}}
        await kube.refused(422, kube.patch(f"{claims}/c", changed))

    play(scene)


def test_a_gate_keeps_a_pod_from_being_bound(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        gates = [{"name": "contract.example/wait"}]
        made = await kube.make("pods", pod("p", spec={"schedulingGates": gates}))
        assert made["status"]["conditions"][0]["reason"] == "SchedulingGated"
        await kube.refused(409, kube.make("pods/p/binding", binding("p", "n1")))
        await kube.patch("pods/p", {"spec": {"schedulingGates": None}})
        await kube.refused(422, kube.patch("pods/p", {"spec": {"schedulingGates": gates}}))
        await kube.make("pods/p/binding", binding("p", "n1"))

    play(scene)


def test_a_pod_that_waits_goes_at_once_and_one_with_a_node_after_its_grace(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        await kube.make("pods", pod("waits"))
        await kube.delete("pods/waits")
        await kube.gone("pods/waits")
        await kube.make("pods", pod("runs"))
        await kube.make("pods/runs/binding", binding("runs", "n1"))
        await kube.delete("pods/runs")
        leaves = (await kube.get("pods/runs"))["metadata"]
        assert leaves["deletionTimestamp"]
        assert leaves["deletionGracePeriodSeconds"] == 30
        await kube.delete("pods/runs", gracePeriodSeconds=0)
        await kube.gone("pods/runs")
        await kube.make("pods", pod("held", finalizers=["contract.example/hold"]))
        await kube.delete("pods/held")
        await kube.refused(409, kube.make("pods/held/binding", binding("held", "n1")))
        await kube.patch("pods/held", {"metadata": {"finalizers": None}})
        await kube.gone("pods/held")

    play(scene)


def test_conditions_of_a_pod_merge_by_their_type(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        await kube.make("pods", pod("p"))
        for kind, message in (("PodScheduled", "waits"), ("DisruptionTarget", "x"), ("PodScheduled", "waits longer")):
            condition = {"type": kind, "status": "False", "reason": "Unschedulable", "message": message}
            told = await kube.patch("pods/p/status", {"status": {"conditions": [condition]}}, STRATEGIC)
        said = {each["type"]: each["message"] for each in told["status"]["conditions"]}
        assert said == {"PodScheduled": "waits longer", "DisruptionTarget": "x"}
        ignored = await kube.patch("pods/p/status", {"spec": {"nodeName": "n1"}, "status": {"message": "m"}})
        assert "nodeName" not in ignored["spec"]

    play(scene)


def test_an_eviction_is_a_deletion_that_a_budget_may_refuse(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        }
        await kube.make("policy/v1:poddisruptionbudgets", budget)

        def eviction(name: str, **options: object) -> Json:
            metadata = {"name": name}
            return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}

        for name in ("waits", "runs"):
            await kube.make("pods", pod(name, labels={"app": "x"}))
        await kube.make("pods/runs/binding", binding("runs", "n1"))
        ready = {"type": "Ready", "status": "True"}
        status = {"phase": "Running", "conditions": [ready]}
        await kube.patch("pods/runs/status", {"status": status}, STRATEGIC)
        refused = await kube.refused(429, kube.make("pods/runs/eviction", eviction("runs")))
        assert refused.reason == "TooManyRequests"
        assert refused.details["causes"][0]["reason"] == "DisruptionBudget"
        await kube.make("pods/waits/eviction", eviction("waits"))  # nothing is disrupted
        await kube.gone("pods/waits")
        other = {"uid": "00000000-0000-4000-8000-000000000000"}
        await kube.refused(409, kube.delete("pods/runs", preconditions=other))
        await kube.delete("policy/v1:poddisruptionbudgets/b")
        await kube.make("pods/runs/eviction", eviction("runs"))
        assert (await kube.get("pods/runs"))["metadata"]["deletionTimestamp"]

    play(scene)


def test_a_quota_refuses_what_it_has_no_room_for(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        kube.needs_controllers()
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
        await kube.make("resourcequotas", body)

        async def counted() -> bool:
            found = (await kube.get("resourcequotas/q")).get("status", {})
            return bool(found.get("used") == {"pods": "0"})

        await kube.until(counted, "the quota is counted")
        await kube.make("pods", pod("p"))
        refused = await kube.refused(403, kube.make("pods", pod("q")))
        assert "exceeded quota: q" in refused.message

    play(scene)
