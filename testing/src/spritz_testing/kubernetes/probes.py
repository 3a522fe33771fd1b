"""Probes of containers: a command, a page by HTTP or HTTPS, or a port. Source: Kubernetes, Probe v1."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

from spritz.timeouts import within
from spritz_testing.kubernetes.errors import Object

Command = tuple[list[str], dict[str, str], Path]


async def answers(
    probe: Object, host: str, port_of: Callable[[int], int], command_of: Callable[[list[str]], Command]
) -> bool:
    """Whether the container answers in time. `port_of`, `command_of`: what its ports and commands are here."""
    try:
        async with within(probe.get("timeoutSeconds", 1)):
            if "exec" in probe:
                return await _runs(*command_of(probe["exec"]["command"]))
            if "httpGet" in probe:
                return await _serves(probe["httpGet"], host, port_of(probe["httpGet"]["port"]))
            _, writer = await asyncio.open_connection(host, port_of(probe["tcpSocket"]["port"]))
            writer.close()
            return True
    except (OSError, TimeoutError):
        return False


async def _runs(words: list[str], env: dict[str, str], directory: Path) -> bool:
    process = await asyncio.create_subprocess_exec(
        *words, env=env, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        return await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _serves(page: Object, host: str, port: int) -> bool:
    """Whether the status is one of success, as the kubelet has it; certificates are not checked."""
    context = None
    if page.get("scheme") == "HTTPS":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        headers = {
            "Host": host,
            "Connection": "close",
            **{each["name"]: each["value"] for each in page.get("httpHeaders") or ()},
        }
        lines = [f"GET {page.get('path', '/')} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        words = (await reader.readline()).split()
        return len(words) > 1 and 200 <= int(words[1]) < 400
    finally:
        writer.close()
