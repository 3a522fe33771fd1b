"""Clusters that somebody disturbs: objects changed or deleted by hand, names of others, pods that are refused."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from spritz.k8s.custom_resources.clusters import Clusters
from tests.kubernetes.operated import WHOLE, Json, Operated, operated, until

SITE = "api/v1/namespaces/site"


def test_an_object_of_another_is_left_alone_and_said() -> None:
    """They came while no webhook answered, which refuses such names."""

    async def journey() -> None:
        async with operated() as scene:
            theirs = {"ports": [{"port": 80}], "selector": {"app": "theirs"}}
            for name in ("lab-rest", "team"):
                await scene.put(f"{SITE}/services", {"metadata": {"name": name}, "spec": theirs})
            for kind, name, spec in WHOLE:
                await scene.make(kind, name, spec)
            async with scene.operator():
                await until(
                    lambda: (
                        "a Service lab-rest of another" in scene.condition("spritzclusters", "lab").get("message", "")
                    )
                )
            for name in ("lab-rest", "team"):
                found = scene.find("services", name) or {}
                assert found["spec"]["selector"] == {"app": "theirs"}
                assert "ownerReferences" not in found["metadata"]

    asyncio.run(journey())


def test_a_selector_that_was_changed_is_mended() -> None:
    """A label more, and a Service leads nowhere, or a budget forbids nothing."""

    async def journey() -> None:
        async with operated() as scene:
            for kind, name, spec in WHOLE:
                await scene.make(kind, name, spec)
            budget = "apis/policy/v1/namespaces/site/poddisruptionbudgets/cpu"
            async with scene.operator() as clusters:
                await until(lambda: scene.find("services", "lab-rest") and scene.find("poddisruptionbudgets", "cpu"))
                await scene.change(f"{SITE}/services/lab-rest", {"spec": {"selector": {"more": "x"}}})
                await scene.change(budget, {"spec": {"selector": {"matchLabels": {"more": "x"}}}})
                for key in (("SpritzCluster", "site/lab"), ("NodeSet", "site/cpu")):
                    clusters.queue.add(key)
                await until(lambda: "more" not in str((scene.find("services", "lab-rest") or {})["spec"]))
                await until(lambda: "more" not in str((scene.find("poddisruptionbudgets", "cpu") or {})["spec"]))

    asyncio.run(journey())


def test_keys_that_are_gone_are_not_made_again() -> None:
    """Machines have certificates by them, and the daemons still have the old ones: they can be restored."""

    async def journey() -> None:
        async with operated() as scene:
            await scene.make(*WHOLE[0])
            async with scene.operator() as clusters:
                await until(lambda: scene.find("statefulsets", "lab-controller"))
                keys = scene.find("secrets", "lab-keys")
                await scene.delete(f"{SITE}/secrets/lab-keys")
                clusters.queue.add(("SpritzCluster", "site/lab"))
                await until(lambda: scene.condition("spritzclusters", "lab").get("reason") == "KeysMissing")
                assert scene.find("secrets", "lab-keys") is None
                assert keys is not None
                await scene.put(f"{SITE}/secrets", {"metadata": {"name": "lab-keys"}, "data": keys["data"]})
                await until(lambda: scene.condition("spritzclusters", "lab").get("reason") == "Starting")

    asyncio.run(journey())


def _told(scene: Operated, plural: str, name: str, words: str) -> bool:
    return words in scene.condition(plural, name).get("message", "")


@pytest.mark.parametrize("data", [{}, {"jwt.key": "####"}])
def test_keys_that_were_spoilt_are_named(data: Json) -> None:
    async def journey() -> None:
        async with operated() as scene:
            await scene.put(f"{SITE}/secrets", {"metadata": {"name": "lab-keys"}, "stringData": {"a": "b"}})
            (scene.find("secrets", "lab-keys") or {})["data"] = data
            for kind, name, spec in WHOLE:
                await scene.make(kind, name, spec)
            async with scene.operator():
                for plural, name in (("nodesets", "cpu"), ("loginsets", "team"), ("tokens", "join")):
                    await until(partial(_told, scene, plural, name, "the Secret lab-keys has no jwt.key"))

    asyncio.run(journey())


def test_pods_that_are_refused_are_told_of() -> None:
    """A quota, say, of which workloads know nothing: without a pod nothing else tells."""

    async def journey() -> None:
        async with operated() as scene:
            await scene.put(f"{SITE}/resourcequotas", {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
            await scene.make(*WHOLE[0])
            async with scene.operator():
                await until(lambda: scene.condition("spritzclusters", "lab").get("reason") == "Refused")
            words = scene.condition("spritzclusters", "lab")["message"]
            assert words.startswith("pods of lab-accounting are refused: ")
            assert "exceeded quota" in words

    asyncio.run(journey())


def test_what_nobody_foresaw_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    async def journey() -> None:
        async with operated() as scene:
            await scene.make(*WHOLE[0])

            async def fails(_cluster: Any) -> float:
                raise LookupError("odd")

            async with scene.operator(lambda clusters: monkeypatch.setattr(clusters, "_cluster", fails)):
                await until(lambda: scene.condition("spritzclusters", "lab").get("reason") == "Failed")
            assert "LookupError('odd')" in scene.condition("spritzclusters", "lab")["message"]

    asyncio.run(journey())


def test_a_cluster_that_does_not_answer_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def journey() -> None:
        async with operated() as scene:
            await scene.namespace("other")
            await scene.make(*WHOLE[0])
            for number in range(12):
                await scene.make("NodeSet", f"n{number}", WHOLE[1][2])
            looked: set[tuple[str, str]] = set()

            def silent(clusters: Clusters) -> None:
                look = clusters._look

                async def at(key: tuple[str, str]) -> float | None:
                    looked.add(key)
                    if key[1].startswith("site/"):
                        await asyncio.Event().wait()
                    return await look(key)

                monkeypatch.setattr(clusters, "_look", at)

            async with scene.operator(silent):
                await until(lambda: len(looked) == 13)
                await scene.make("SpritzCluster", "lab", {"image": "spritz"}, namespace="other")
                await until(lambda: scene.find("secrets", "lab-keys", "other"))

    asyncio.run(journey())
