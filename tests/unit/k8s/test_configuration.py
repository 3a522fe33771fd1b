"""The check of a slurm.conf by the installed command."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import psutil

from spritz.k8s.custom_resources.configuration import mistakes


def test_a_check_that_is_given_up_leaves_no_process_and_no_pipe() -> None:
    """As when the operator stops. Whatever is left unclosed fails this test, or another, when it is collected."""

    async def journey() -> None:
        task = asyncio.create_task(mistakes("ClusterName=a\n" * 1000, ""))
        me = psutil.Process()
        before = set(me.children())
        while not set(me.children()) - before:  # noqa: ASYNC110  # nothing tells of a process
            await asyncio.sleep(0)
        for _ in range(50):  # its pipes are connected within a few turns of the loop
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert set(me.children()) <= before

    asyncio.run(journey())
    gc.collect()
