"""The end of resources whose cluster can no longer be asked, with the packaged rights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from spritz.k8s.api import Api, ApiFailure
from spritz.k8s.custom_resources.clusters import Clusters
from spritz_testing.kubernetes.server import KubeServer
from tests.unit.k8s.test_chart import apply, bound_in

PACKAGED = Path(__file__).parents[2] / "packaging/kubernetes"

Json = dict[str, Any]


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  # what it waits for is the server's
            await asyncio.sleep(0.05)


def test_a_namespace_with_a_cluster_goes_when_it_is_deleted() -> None:
    """Its keys go first, so that no slurmctld can be asked for jobs, and nothing can be made there again."""
    resources: list[tuple[str, str, Json]] = [
        ("SpritzCluster", "lab", {"image": "spritz"}),
        ("NodeSet", "cpu", {"clusterRef": "lab", "cpus": 1, "memory": "1Gi"}),
        ("LoginSet", "team", {"clusterRef": "lab"}),
        ("Token", "join", {"clusterRef": "lab"}),
    ]

    async def journey() -> None:
        async with KubeServer() as server, Api.connect(server.kubeconfig) as admin, asyncio.TaskGroup() as group:
            for name in ("crds", "clusters"):
                await apply(
                    admin, [each for each in yaml.safe_load_all((PACKAGED / f"{name}.yaml").read_text()) if each]
                )
            await admin.send("POST", "api/v1/namespaces", body=msgspec.json.encode({"metadata": {"name": "site"}}))
            await apply(admin, [bound_in("site")])
            for kind, name, spec in resources:
                body = {"apiVersion": "spritz.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
                path = f"apis/spritz.dev/v1alpha1/namespaces/site/{kind.lower()}s"
                await admin.send("POST", path, body=msgspec.json.encode(body))
            async with Api.connect(server.service_account("spritz", "spritz-clusters")) as mine:
                log: list[str] = []
                clusters = Clusters(
                    mine,
                    lambda event, **fields: log.append(f"{event} {fields}"),
                    address=lambda cluster: "unix:/nonexistent",
                )
                task = group.create_task(clusters.run())

                def held() -> bool:
                    found = [server.cluster._find(f"{kind.lower()}s", "site", name) for kind, name, _ in resources[:2]]
                    keys = server.cluster._find("secrets", "site", "lab-keys")
                    return keys is not None and all((each or {})["metadata"].get("finalizers") for each in found)

                await _until(held)
                await admin.send("DELETE", "api/v1/namespaces/site")
                await _until(lambda: server.cluster._find("namespaces", "", "site") is None)
                task.cancel()
            assert not server.failures

    try:
        asyncio.run(journey())
    except* ApiFailure as failures:
        raise AssertionError(
            [failure.message for failure in failures.exceptions if isinstance(failure, ApiFailure)]
        ) from None
