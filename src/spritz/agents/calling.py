"""Running a command of ours for a tool."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError

from spritz import installed

#: Seconds for a command, and characters of an answer: an agent reads it all.
SECONDS, CHARACTERS = 60.0, 60_000


class Failed(ToolError):
    """The command refused; its own words."""


async def call(*words: str, stdin: str = "") -> str:
    """The command's output. Raises Failed."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
    process = await asyncio.create_subprocess_exec(
        installed.command(words[0]),
        *words[1:],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise Failed(f"{words[0]} did not answer within {SECONDS:.0f} s") from None
    text = out.decode(errors="replace")
    if process.returncode:
        raise Failed(err.decode(errors="replace").strip()[:4000] or text.strip()[:4000] or f"{words[0]} failed")
    return text


async def ask(*words: str) -> Any:
    """The command's answer as JSON. Raises Failed."""
    return json.loads(await call(*words))


def bounded(value: Any) -> Any:
    """The value, or where it is too long for a reader a text that says so."""
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) <= CHARACTERS:
        return value
    return f"{text[:CHARACTERS]}\n… {len(text) - CHARACTERS} more characters: ask for less"


def plain(value: Any) -> Any:
    """Slurm's `{"set": true, "infinite": false, "number": 5}` as 5; what is not set, or empty, is left out."""
    if isinstance(value, dict):
        if value.keys() == {"set", "infinite", "number"}:
            return None if not value["set"] else "UNLIMITED" if value["infinite"] else value["number"]
        found = {name: plain(each) for name, each in value.items()}
        return {name: each for name, each in found.items() if each not in (None, "", [], {})}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value
