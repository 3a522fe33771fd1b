"""The process for site scripts cannot be started: requests are refused, the controller serves on."""

from __future__ import annotations

import asyncio
import errno
import os
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.controller.plugins.host import ScriptHost
from spritz.controller.plugins.messages import Done
from spritz.runtime import tasks


@pytest.mark.parametrize("where", ["asyncio.create_subprocess_exec", "socket.socketpair"])
def test_a_machine_short_of_processes_or_files_fails_requests_alone(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Done] = []

    def refuse(*_words: Any, **_more: Any) -> Any:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    async def main() -> None:
        async with tasks.Supervisor() as group:
            context: Any = SimpleNamespace(tasks=group)
            host = ScriptHost(context, [("lua", "/etc/job_submit.lua")], 1.0)
            with monkeypatch.context() as patch:
                patch.setattr(where, refuse)
                asked: Any = SimpleNamespace(plugin="lua")
                host.ask(asked, answers.append, lambda: False)
                while len(group):  # noqa: ASYNC110 - turns of the loop
                    await asyncio.sleep(0)
            host.close()

    tasks.run(main(), debug=True)
    (done,) = answers
    assert "job_submit/lua: its process cannot be started: Resource temporarily unavailable" in str(done)
