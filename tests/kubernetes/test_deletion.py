"""The end of resources whose cluster can no longer be asked, with the packaged rights."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.kubernetes.operated import GROUP, WHOLE, Operated, define, operated, until

_DEFINITIONS: Final = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def held(scene: Operated) -> bool:
    """Whether the operator keeps cluster and NodeSet until it lets them go."""
    found = [scene.find(f"{kind.lower()}s", name) for kind, name, _ in WHOLE[:2]]
    keys = scene.find("secrets", "lab-keys")
    return keys is not None and all((each or {})["metadata"].get("finalizers") for each in found)


async def whole(scene: Operated) -> None:
    for kind, name, spec in WHOLE:
        await scene.make(kind, name, spec)


def test_a_namespace_with_a_cluster_goes_when_it_is_deleted() -> None:
    """Its keys go first, so that no slurmctld can be asked for jobs, and nothing can be made there again."""

    async def journey() -> None:
        async with operated() as scene:
            await whole(scene)
            async with scene.operator():
                await until(lambda: held(scene))
                await scene.delete("api/v1/namespaces/site")
                await until(lambda: scene.find("namespaces", "site", "") is None)

    asyncio.run(journey())


def test_a_cluster_that_never_came_up_goes_when_it_is_deleted() -> None:
    """No pod of its NodeSets was ever made, so there are no jobs to wait for, and no slurmctld to ask about them."""

    async def journey() -> None:
        async with operated() as scene:
            await whole(scene)
            async with scene.operator():
                await until(lambda: held(scene))
                # In the order of `kubectl delete -f`; a NodeSet alone waits, as slurmctld may be back in a moment.
                await scene.delete(f"{GROUP}/site/nodesets/cpu")
                await until(lambda: scene.condition("nodesets", "cpu").get("reason") == "ClusterAway")
                assert scene.find("nodesets", "cpu") is not None
                await scene.delete(f"{GROUP}/site/spritzclusters/lab")
                await until(lambda: scene.find("nodesets", "cpu") is None)
                await until(lambda: scene.find("spritzclusters", "lab") is None)

    asyncio.run(journey())


def test_definitions_that_were_deleted_without_an_operator_go_when_it_is_back() -> None:
    """Those of LoginSets and Tokens go at once, and an operator that waited to list these would let nothing go."""

    async def journey() -> None:
        async with operated() as scene:
            await whole(scene)
            async with scene.operator():
                await until(lambda: held(scene))
            kinds = [f"{kind.lower()}s.spritz.dev" for kind, _name, _spec in WHOLE]
            for name in kinds:
                await scene.delete(f"{_DEFINITIONS}/{name}")
            await until(lambda: scene.find("customresourcedefinitions", "loginsets.spritz.dev", "") is None)
            async with scene.operator():
                await until(lambda: not any(scene.find("customresourcedefinitions", name, "") for name in kinds))
                await define(scene)
                await whole(scene)
                await until(lambda: held(scene))

    asyncio.run(journey())
