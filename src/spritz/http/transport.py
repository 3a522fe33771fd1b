"""Requests to one HTTP server over kept connections.

aiohttp, because an operator's time is its requests': 0.1 ms of processor time each, against 0.65 ms of httpx2
(docs/decisions/0212). Connections are not counted here: callers bound how many requests they have under way.
"""

from __future__ import annotations

import os
import ssl
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec


class NoAnswer(Exception):
    """The server sent no answer, or only a part of it."""


class Unsendable(ValueError):
    """The request has a path, a parameter or a header that HTTP does not allow. Nothing was sent."""


class Answer(msgspec.Struct):
    """The answer to a request. The case of names does not matter in `headers`."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream:
    """An answer that is read as it comes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read(self) -> bytes:
        """The remaining body. Raises NoAnswer."""
        try:
            return await self._response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswer(_reason(error)) from error

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, in pieces of any size as they come. Raises NoAnswer."""
        try:
            async for piece in self._response.content.iter_any():
                yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswer(_reason(error)) from error

    async def lines(self) -> AsyncIterator[bytes]:
        """Lines without their ends, empty ones left out; what follows the last end is a line too. Raises NoAnswer."""
        incomplete: list[bytes] = []
        async for piece in self.pieces():
            first, *others = piece.split(b"\n")
            incomplete.append(first)
            for other in others:
                if line := b"".join(incomplete):
                    yield line
                incomplete = [other]
        if line := b"".join(incomplete):
            yield line


class Http:
    """`base` is the server's address, with the path before all paths; `socket`: a Unix socket on which it listens.

    `timeout`, in seconds, is for connecting and for each read of an answer.
    """

    def __init__(
        self,
        base: str,
        *,
        socket: str = "",
        tls: ssl.SSLContext | bool = True,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
    ) -> None:
        self.base = base.rstrip("/")
        self._socket = socket
        self._tls = tls
        self._headers = dict(headers or {})
        self._timeout = timeout
        self._opened: aiohttp.ClientSession | None = None
        self._closed = False

    def _session(self) -> aiohttp.ClientSession:
        """Made at the first request, since it belongs to a running loop. Raises NoAnswer after `close`."""
        if self._closed:
            raise NoAnswer("the connection was closed here")
        if self._opened is None:
            connector = (
                aiohttp.UnixConnector(self._socket, limit=0)
                if self._socket
                else aiohttp.TCPConnector(limit=0, ssl=self._tls)
            )
            self._opened = aiohttp.ClientSession(
                connector=connector,
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(sock_connect=self._timeout, sock_read=self._timeout),
                proxy=None if self._socket else _proxy(self.base),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=True,
            )
        return self._opened

    async def close(self) -> None:
        """Close every connection; a later request raises NoAnswer instead of opening one that would leak."""
        self._closed = True
        if self._opened is not None:
            opened, self._opened = self._opened, None
            await opened.close()

    async def send(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request and read the whole answer, whatever its status. Raises NoAnswer if none comes, Unsendable."""
        session, url = self._session(), self._url(path, parameters)
        try:
            async with session.request(method, url, data=body, headers=headers, allow_redirects=False) as response:
                return Answer(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _failure(error) from error

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        silence: float,
    ) -> AsyncIterator[Stream]:
        """A GET whose answer is read as it comes; it is given up after `silence` seconds without a byte."""
        timeout = aiohttp.ClientTimeout(sock_connect=self._timeout, sock_read=silence)
        session, url = self._session(), self._url(path, parameters)
        try:
            response = await session.get(url, headers=headers, timeout=timeout, allow_redirects=False)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _failure(error) from error
        try:
            yield Stream(response)
        finally:
            # A read that was cancelled or failed leaves a connection that cannot be used again.
            response.close()

    def _url(self, path: str, parameters: Mapping[str, str] | None) -> str:
        """The path may have a query of its own. Raises Unsendable."""
        url = f"{self.base}/{path.removeprefix('/')}"
        if not parameters:
            return url
        try:
            return f"{url}{'&' if '?' in path else '?'}{urlencode(parameters)}"
        except ValueError as error:  # half a surrogate pair
            raise Unsendable(str(error)) from error


def _proxy(base: str) -> str | None:
    """The proxy that the environment names for a server. aiohttp would look it up in a thread for each request, which
    costs twice what the request does.
    """
    url = urlsplit(base)
    if not url.hostname or urllib.request.proxy_bypass(url.hostname):
        return None
    return urllib.request.getproxies().get(url.scheme)


def _failure(error: Exception) -> NoAnswer | Unsendable:
    """What an error of a request comes to. (A certificate's is a ValueError too.)"""
    if isinstance(error, aiohttp.InvalidURL) or not isinstance(error, aiohttp.ClientError | TimeoutError | OSError):
        return Unsendable(str(error))
    return NoAnswer(_reason(error))


def _reason(error: Exception) -> str:
    """Why there is no answer, without the names of this library."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error  # asyncio puts the address in the place of the system's words
        return os.strerror(cause.errno) if cause.errno and cause.errno > 0 else cause.strerror or str(cause)
    if isinstance(error, TimeoutError):
        return "it was silent for too long"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionError):
        return "it closed the connection"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "its answer was cut off"
    return f"{type(error).__name__}: {error}".rstrip(": ")
