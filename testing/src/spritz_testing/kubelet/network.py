"""A network of pods: a bridge on this machine, and a network namespace with an address for each pod."""

from __future__ import annotations

import asyncio
import itertools
import os
from types import TracebackType
from typing import Final

#: Seconds for a command of `ip`.
_PATIENCE: Final = 30.0


class CommandFailed(Exception):
    """A command that must succeed did not."""


async def do(*words: str) -> str:
    """Run a command that must succeed; returns what it printed. Raises CommandFailed."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    if process.returncode:
        raise CommandFailed(f"{' '.join(words)}: {(err or out).decode(errors='replace').strip()}")
    return out.decode()


class Network:
    """The bridge is this machine's too, so that an API server here reaches pods and Services. All addresses are in
    10.`block`.0.0/16.
    """

    def __init__(self, block: int | None = None) -> None:
        self.block = os.getpid() % 40 + 200 if block is None else block
        self.bridge = f"pods{os.getpid()}"[:15]
        self.gateway = f"10.{self.block}.0.1"
        self._numbers = itertools.count(2)
        self._namespaces: set[str] = set()

    async def __aenter__(self) -> Network:
        await do("ip", "link", "add", self.bridge, "type", "bridge")
        await do("ip", "address", "add", f"{self.gateway}/16", "dev", self.bridge)
        await do("ip", "link", "set", self.bridge, "up")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for namespace in list(self._namespaces):
            await self.remove(namespace)
        await do("ip", "link", "delete", self.bridge)

    async def add(self) -> tuple[str, str]:
        """A new network namespace, by its path, and its address."""
        number = next(self._numbers)
        name, address = f"{self.bridge}-{number}", f"10.{self.block}.{number // 250}.{number % 250 + 1}"
        outer, inner = f"p{os.getpid() % 100000}x{number}", f"q{os.getpid() % 100000}x{number}"
        await do("ip", "netns", "add", name)
        path = f"/run/netns/{name}"
        self._namespaces.add(path)
        await do("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
        await do("ip", "link", "set", outer, "master", self.bridge, "up")
        await do("ip", "link", "set", inner, "netns", name)
        inside = ("ip", "-n", name)
        await do(*inside, "link", "set", "lo", "up")
        await do(*inside, "link", "set", inner, "name", "eth0")
        await do(*inside, "address", "add", f"{address}/16", "dev", "eth0")
        await do(*inside, "link", "set", "eth0", "up")
        await do(*inside, "route", "add", "default", "via", self.gateway)
        return path, address

    async def remove(self, path: str) -> None:
        """Delete the namespace, once its processes have ended."""
        self._namespaces.discard(path)
        await do("ip", "netns", "delete", os.path.basename(path))

    async def claim(self, address: str) -> None:
        """Give this machine an address that pods reach, as that of a Service."""
        await do("ip", "address", "replace", f"{address}/32", "dev", self.bridge)

    async def release(self, address: str) -> None:
        await do("ip", "address", "delete", f"{address}/32", "dev", self.bridge)
