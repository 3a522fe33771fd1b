"""A client of slurmrestd: requests with the viewer's identity, and the event stream.

`RestError` has Slurm's message for a refusal. Requests are not retried.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx
import msgspec

T = TypeVar("T")

#: The API version in the paths of Slurm's resources.
VERSION = "v0.0.45"

#: Time limit of a request in seconds. A listing of 10,000 jobs takes about one second.
TIMEOUT = 30.0

#: Seconds without a heartbeat, which comes every 5 seconds, after which the event stream counts as broken.
SILENCE = 20.0


class RestError(Exception):
    """slurmrestd refused a request, or did not answer. `status`: HTTP status, 0 without an answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class _Fault(msgspec.Struct):
    error: str = ""
    description: str = ""
    error_number: int = 0


class _Envelope(msgspec.Struct):
    errors: list[_Fault] = []
    warnings: list[_Fault] = []


class Rest:
    """A connection pool. `address`: `unix:/path` or `http(s)://host:port`. `token`: the viewer's; "" uses the identity
    of the dashboard's process.
    """

    def __init__(self, address: str, token: str = "", user: str = "") -> None:
        headers = {"X-SLURM-USER-TOKEN": token} if token else {}
        if token and user:
            headers["X-SLURM-USER-NAME"] = user
        if address.startswith("unix:"):
            transport = httpx.AsyncHTTPTransport(uds=address.removeprefix("unix:"))
            self._client = httpx.AsyncClient(
                transport=transport, base_url="http://slurmrestd", headers=headers, timeout=TIMEOUT
            )
        else:
            self._client = httpx.AsyncClient(base_url=address, headers=headers, timeout=TIMEOUT)

    async def close(self) -> None:
        await self._client.aclose()

    async def get(self, path: str, kind: type[T], **query: Any) -> T:
        """The answer to a GET, decoded as `kind`; other fields are ignored. Raises RestError."""
        response = await self._send("GET", path, params=query)
        return self._decode(response, kind)

    async def send(self, method: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        """The answer to a request that makes a change. Raises RestError."""
        response = await self._send(method, path, json=body, params=query)
        answer: dict[str, Any] = self._decode(response, dict)
        return answer

    async def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            response = await self._client.request(method, path, **more)
        except httpx.InvalidURL as error:
            raise RestError(f"slurmrestd cannot be asked this: {error}", 400) from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise RestError(f"slurmrestd does not answer: {str(error) or type(error).__name__}") from error
        if response.status_code >= 400:
            raise RestError(_words(response.content) or response.text[:200], response.status_code)
        return response

    def _decode(self, response: httpx.Response, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.DecodeError as error:
            raise RestError(f"slurmrestd's answer cannot be read: {error}", response.status_code) from error

    @asynccontextmanager
    async def events(self, since: int | None) -> AsyncIterator[AsyncIterator[tuple[str, bytes]]]:
        """The event stream: (name, data) of each frame; a heartbeat is ("", b""). Raises RestError."""
        query: dict[str, str] = {"heartbeat": "5"}
        if since is not None:
            query["since"] = str(since)
        timeout = httpx.Timeout(TIMEOUT, read=SILENCE)
        try:
            async with self._client.stream("GET", "/spritz/v1/events", params=query, timeout=timeout) as response:
                if response.status_code != 200:
                    raise RestError(_words(await response.aread()), response.status_code)
                yield _frames(response)
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise RestError(f"the event stream ended ({type(error).__name__})") from error


async def _frames(response: httpx.Response) -> AsyncIterator[tuple[str, bytes]]:
    name = ""
    try:
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                yield name, line[6:].encode()
            elif line.startswith(":"):
                yield "", b""
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise RestError(f"the event stream ended ({type(error).__name__})") from error


def _words(content: bytes) -> str:
    """The error messages in an answer."""
    try:
        faults = msgspec.json.decode(content, type=_Envelope).errors
    except msgspec.DecodeError:
        return content[:200].decode("utf-8", "replace")
    return "; ".join(dict.fromkeys(fault.description or fault.error for fault in faults))
