"""Services: their addresses lead to their endpoints, and their names are in each pod's /etc/hosts.

The address of a Service becomes one of this machine, where a forwarder listens as long as the Service has endpoints;
so an API server of this machine reaches webhooks too. TCP alone.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from spritz.runtime.tasks import Supervisor
from spritz_testing.kubelet.network import Network
from spritz_testing.kubernetes.errors import Object
from spritz_testing.relaying import relay

#: namespace, name
Key = tuple[str, str]

#: host, port
Target = tuple[str, int]


class Services:
    """`server`: the API server's URL, to which the Service `kubernetes` leads."""

    def __init__(self, network: Network, tasks: Supervisor, server: str) -> None:
        self._network = network
        self._tasks = tasks
        parts = urlsplit(server)
        self._server: Target = (parts.hostname or "127.0.0.1", parts.port or 443)
        self._services: dict[Key, Object] = {}
        self._slices: dict[Key, Object] = {}
        self._listeners: dict[tuple[str, int], asyncio.Server] = {}
        self._claimed: set[str] = set()
        self._turns = itertools.count()
        self._woken = asyncio.Event()
        #: called when names may have changed
        self.on_change: Callable[[], None] = lambda: None

    def set_service(self, key: Key, service: Object | None) -> None:
        _set(self._services, key, service)
        self._changed()

    def set_slice(self, key: Key, endpoint_slice: Object | None) -> None:
        _set(self._slices, key, endpoint_slice)
        self._changed()

    def _changed(self) -> None:
        self._woken.set()
        self.on_change()

    async def run(self) -> None:
        """Keep the forwarders. Never returns."""
        while True:
            self._woken.clear()
            await self._sync()
            await self._woken.wait()

    async def close(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        for address in self._claimed:
            await self._network.release(address)

    async def _sync(self) -> None:
        wanted: dict[tuple[str, int], tuple[Key, Object]] = {}
        addresses: set[str] = set()
        for key, service in self._services.items():
            address = service["spec"].get("clusterIP")
            if address in (None, "", "None"):
                continue
            addresses.add(address)
            for port in service["spec"].get("ports") or ():
                if port.get("protocol", "TCP") == "TCP" and self._targets(key, port):
                    wanted[address, port["port"]] = key, port
        for place in self._listeners.keys() - wanted.keys():
            self._listeners.pop(place).close()
        # An address stays as long as its Service: connections outlive the readiness of their endpoint.
        for address in self._claimed - addresses:
            await self._network.release(address)
        for address in addresses - self._claimed:
            await self._network.claim(address)
        self._claimed = addresses
        for place in wanted.keys() - self._listeners.keys():
            key, port = wanted[place]
            self._listeners[place] = await asyncio.start_server(self._taker(key, port), *place)

    def _taker(self, key: Key, port: Object) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._tasks.spawn_contained(self._forward(key, port, reader, writer), name="service.forward")

        return take

    async def _forward(
        self, key: Key, port: Object, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            targets = self._targets(key, port)
            if not targets:
                return
            host, number = targets[next(self._turns) % len(targets)]
            try:
                other = await asyncio.open_connection(host, number)
            except OSError:
                return
            await relay((reader, writer), other)
        finally:
            writer.close()

    def _endpoints(self, key: Key) -> Iterator[tuple[Object, Object]]:
        """Endpoint slices and endpoints of a Service that take requests."""
        for (namespace, _name), endpoint_slice in self._slices.items():
            labels = endpoint_slice["metadata"].get("labels") or {}
            if (namespace, labels.get("kubernetes.io/service-name")) != key:
                continue
            for endpoint in endpoint_slice.get("endpoints") or ():
                if (endpoint.get("conditions") or {}).get("ready", True) is not False:
                    yield endpoint_slice, endpoint

    def _targets(self, key: Key, port: Object) -> list[Target]:
        if key == ("default", "kubernetes"):
            return [self._server]
        found = []
        for endpoint_slice, endpoint in self._endpoints(key):
            numbers = {each.get("name") or "": each.get("port") for each in endpoint_slice.get("ports") or ()}
            number = numbers.get(port.get("name") or "")
            found += [(address, number) for address in endpoint["addresses"] if number is not None]
        return sorted(found)

    def hosts(self, namespace: str) -> str:
        """Lines of /etc/hosts for pods of a namespace."""
        lines = []
        for (place, name), service in sorted(self._services.items()):
            address = service["spec"].get("clusterIP")
            names = _names(name, place, namespace)
            if address and address != "None":
                lines.append(f"{address} {names}")
                continue
            for _slice, endpoint in self._endpoints((place, name)):
                for each in endpoint["addresses"]:
                    host = endpoint.get("hostname")
                    lines += [f"{each} {_names(f'{host}.{name}', place, namespace)}"] if host else []
                    lines.append(f"{each} {names}")
        return "".join(f"{line}\n" for line in lines)


def _names(stem: str, of: str, namespace: str) -> str:
    """Every form of a Service's name that resolves in a namespace."""
    forms = [f"{stem}.{of}.svc.cluster.local", f"{stem}.{of}.svc", f"{stem}.{of}", *([stem] if of == namespace else [])]
    return " ".join(forms)


def write_hosts(path: Path, text: str) -> None:
    """Replace the text of a file that containers have mounted: as one write, since it stays the same file."""
    data = text.encode()
    length = path.stat().st_size if path.exists() else 0
    with path.open("r+b" if path.exists() else "w+b", buffering=0) as file:
        file.write(data + b"\n" * max(0, length - len(data)))


def _set(objects: dict[Key, Object], key: Key, obj: Object | None) -> None:
    if obj is None:
        objects.pop(key, None)
    else:
        objects[key] = obj
