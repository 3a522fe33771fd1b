"""Watches: what a reflector is built on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.kubernetes.contract.conftest import PATIENCE, Json, Kube, Play, Refused, config_map


async def following(events: AsyncIterator[Json]) -> tuple[str, str]:
    """The next event but bookmarks: its type, and the object's name."""
    async with asyncio.timeout(PATIENCE):
        async for event in events:
            if event["type"] != "BOOKMARK":
                return event["type"], event["object"]["metadata"]["name"]
    raise AssertionError("the watch has ended")


def test_a_watch_goes_on_from_a_list(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        before = await kube.make("configmaps", config_map("before"))
        listed = await kube.get("configmaps")
        version = listed["metadata"]["resourceVersion"]
        await kube.make("configmaps", config_map("c"))
        async with kube.watch("configmaps", resourceVersion=version) as events:
            assert await following(events) == ("ADDED", "c")
            await kube.patch("configmaps/c", {"data": {"a": "1"}})
            assert await following(events) == ("MODIFIED", "c")
            await kube.delete("configmaps/c")
            assert await following(events) == ("DELETED", "c")
            await kube.ask("PUT", "configmaps/before", before)  # changes nothing
            await kube.patch("configmaps/before", {"data": {"a": "1"}})
            assert await following(events) == ("MODIFIED", "before")

    play(scene)


def test_versions_of_events_are_later_ones_and_a_deletions_is_its_own(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        listed = await kube.get("configmaps")
        made = await kube.make("configmaps", config_map("c"))
        async with kube.watch("configmaps", resourceVersion=listed["metadata"]["resourceVersion"]) as events:
            await kube.delete("configmaps/c")
            versions = []
            async with asyncio.timeout(PATIENCE):
                async for event in events:
                    versions.append(event["object"]["metadata"]["resourceVersion"])
                    if event["type"] == "DELETED":
                        break
        assert versions[0] == made["metadata"]["resourceVersion"]
        assert len(set(versions)) == 2
        # A watch that has seen the deletion continues after it.
        async with kube.watch("configmaps", resourceVersion=versions[1]) as events:
            await kube.make("configmaps", config_map("d"))
            assert await following(events) == ("ADDED", "d")

    play(scene)


def test_an_object_that_is_selected_no_more_is_deleted_for_its_watch(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        version = (await kube.get("configmaps"))["metadata"]["resourceVersion"]
        async with kube.watch("configmaps", resourceVersion=version, labelSelector="seen=yes") as events:
            await kube.make("configmaps", config_map("c"))
            await kube.patch("configmaps/c", {"metadata": {"labels": {"seen": "yes"}}})
            assert await following(events) == ("ADDED", "c")
            await kube.patch("configmaps/c", {"metadata": {"labels": {"seen": "no"}}})
            assert await following(events) == ("DELETED", "c")

    play(scene)


def test_a_watch_without_a_version_begins_with_what_there_is(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        await kube.make("configmaps", config_map("c"))
        async with kube.watch("configmaps", fieldSelector="metadata.name=c") as events:
            assert await following(events) == ("ADDED", "c")

    play(scene)


@pytest.mark.slow
def test_a_watch_ends_in_order_after_its_time_with_a_bookmark(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        version = (await kube.get("configmaps"))["metadata"]["resourceVersion"]
        options = {"resourceVersion": version, "timeoutSeconds": "4", "allowWatchBookmarks": "true"}
        bookmarks = []
        async with asyncio.timeout(PATIENCE), kube.watch("configmaps", **options) as events:
            async for event in events:
                assert event["type"] == "BOOKMARK", event
                bookmarks.append(event["object"]["metadata"]["resourceVersion"])
        assert bookmarks
        async with kube.watch("configmaps", resourceVersion=bookmarks[-1]) as events:
            await kube.make("configmaps", config_map("c"))
            assert await following(events) == ("ADDED", "c")

    play(scene)


def test_a_version_that_is_too_old_is_gone(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        await kube.make("configmaps", config_map("c"))
        kube.forget_history()
        code = 0
        try:
            async with asyncio.timeout(PATIENCE), kube.watch("configmaps", resourceVersion="1") as events:
                async for event in events:  # a server may say it within the answer
                    if event["type"] == "ERROR":
                        code = event["object"]["code"]
                    break
        except Refused as refused:
            code = refused.code
        assert code == 410

    play(scene)
