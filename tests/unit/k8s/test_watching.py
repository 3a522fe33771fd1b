"""The reflector's cache over a server that drops, expires and refuses its watches; requests whose answers are lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Pod

from spritz.k8s.api import Api, ApiFailure
from spritz.k8s.watching import Change, ChangeKind, Patience, Reflector
from spritz.k8s.workqueue import Backoff, WorkQueue
from spritz_testing.kubernetes.server import KubeServer


def play(scene: Callable[[KubeServer, Api], Awaitable[None]]) -> None:
    async def run() -> None:
        async with KubeServer(bookmark_seconds=0.5, tls=False) as server, Api.connect(server.kubeconfig) as api:
            await scene(server, api)
            assert not server.failures

    asyncio.run(run())


@pytest.mark.parametrize("seed", [7, 8])
def test_after_a_storm_the_cache_is_what_the_server_has_and_every_change_was_told(seed: int) -> None:
    chance = random.Random(seed)

    async def scene(server: KubeServer, api: Api) -> None:
        heard: dict[str, ConfigMap] = {}

        def on_change(change: Change[ConfigMap]) -> None:
            if change.kind is ChangeKind.DELETED:
                del heard[change.key]  # it was told of before
            elif change.new is not None:
                heard[change.key] = change.new

        patience = Patience(first=0.02, longest=0.2)
        reflector = Reflector(api, ConfigMap, namespace="default", on_change=on_change, patience=patience)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reflector.run())
            await reflector.synced.wait()
            for number in range(200):
                name = f"c{chance.randrange(20)}"
                if chance.random() < 0.35:
                    await api.delete(ConfigMap, name, "default")
                else:
                    meta = ObjectMeta(name=name, namespace="default")
                    await api.apply(ConfigMap(metadata=meta, data={"number": str(number)}))
                trouble = chance.random()
                if trouble < 0.05:
                    server.drop_watches(abruptly=chance.random() < 0.5)
                elif trouble < 0.08:
                    server.expire_watches()
                elif trouble < 0.1:
                    server.faults.error(500, verb="list")
            server.faults.clear()

            def alike() -> bool:
                there = {
                    f"default/{one['metadata']['name']}": one["metadata"]["resourceVersion"]
                    for one in server.cluster.among("configmaps", "default")
                }
                return {key: reflector.object_version(key) for key in reflector.keys()} == there  # noqa: SIM118

            await reflector.until(alike)
            assert sorted(heard) == sorted(reflector.keys())
            assert all(heard[key] == reflector.get(key) for key in heard)
            task.cancel()

    play(scene)


def test_a_server_that_was_set_back_to_a_backup_is_listed_again() -> None:
    """Otherwise the cache would keep what is gone, and a watch from a version to come would tell nothing."""

    async def scene(server: KubeServer, api: Api) -> None:
        def named(name: str, value: str) -> ConfigMap:
            return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data={"value": value})

        await api.apply(named("kept", "old"))
        await api.apply(named("deleted", "old"))
        backup = server.cluster.backup()
        await api.apply(named("kept", "new"))
        await api.apply(named("lost", "new"))
        await api.delete(ConfigMap, "deleted", "default")
        changes: list[tuple[str, str]] = []
        patience = Patience(first=0.02, longest=0.2)
        reflector: Reflector[ConfigMap] = Reflector(
            api,
            ConfigMap,
            namespace="default",
            patience=patience,
            on_change=lambda change: changes.append((change.kind.value, change.key)),
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reflector.run())
            await reflector.until(lambda: "default/lost" in reflector)
            changes.clear()
            server.restore(backup)
            await reflector.until(lambda: "default/deleted" in reflector)
            assert sorted(changes) == [
                ("added", "default/deleted"),
                ("deleted", "default/lost"),
                ("modified", "default/kept"),
            ]
            await api.apply(named("later", "new"))
            await reflector.until(lambda: "default/later" in reflector)
            task.cancel()
        assert reflector.counters.restored == 1

    play(scene)


def test_a_binding_whose_answer_was_lost_is_recognised_as_the_operators_own() -> None:
    async def scene(server: KubeServer, api: Api) -> None:
        containers = [Container(name="c", image="i")]
        await api.create(Pod(metadata=ObjectMeta(name="p", namespace="default"), spec=PodSpec(containers=containers)))
        server.faults.lose(verb="create", resource="pods", subresource="binding")
        await api.bind("p", "default", "n1")
        assert api.repeated == 1
        with pytest.raises(ApiFailure) as refused:
            await api.bind("p", "default", "n2")
        assert refused.value.conflict

    play(scene)


def test_two_managers_do_not_take_each_others_fields() -> None:
    async def scene(server: KubeServer, api: Api) -> None:
        def made(value: str) -> ConfigMap:
            return ConfigMap(metadata=ObjectMeta(name="own", namespace="default"), data={"a": value})

        await api.apply(made("1"))
        async with Api.connect(server.kubeconfig, field_manager="other") as other:
            with pytest.raises(ApiFailure) as refused:
                await other.apply(made("2"), force=False)
            assert refused.value.conflict

    play(scene)


def test_a_key_is_never_with_two_workers_and_comes_again_after_a_failure() -> None:
    async def run() -> None:
        queue: WorkQueue[int] = WorkQueue(backoff=Backoff(first=0.001, longest=0.01))
        working: set[int] = set()
        handled: list[int] = []
        failing = {3: 2}

        async def handle(key: int) -> None:
            assert key not in working
            working.add(key)
            await asyncio.sleep(0)
            working.discard(key)
            if failing.get(key):
                failing[key] -= 1
                raise ValueError(key)
            handled.append(key)

        async with asyncio.TaskGroup() as group:
            task = group.create_task(queue.run(handle, workers=4))
            for _ in range(50):
                for key in range(6):
                    queue.add(key)
                await asyncio.sleep(0)
            async with asyncio.timeout(100):
                while 3 not in handled or not queue.idle or queue.delayed:  # noqa: ASYNC110  # no event says so
                    await asyncio.sleep(0.001)
            task.cancel()
        assert set(handled) == set(range(6))
        assert queue.failures(3) == 0
        assert queue.failed_count == 2

    asyncio.run(run())


def test_keys_come_whose_time_is_nearer_than_uvloop_tells_apart() -> None:
    async def scene() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("later", 0.0002)
        queue.add("sooner", 0.0001)
        async with asyncio.timeout(100):
            assert {await queue.get(), await queue.get()} == {"later", "sooner"}

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scene())
