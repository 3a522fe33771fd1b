"""Handshakes take turns, so that other requests are answered meanwhile; and no peer can keep a turn."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

import pytest

pytest.importorskip("cryptography")

from spritz.runtime import sockets, tls
from spritz.runtime.authority import Authority, own_keys
from spritz.runtime.pipe import Pipe
from spritz.runtime.tasks import run

#: The beginning of a handshake: a record of 512 bytes, of which one is sent.
HALF = b"\x16\x03\x01\x02\x00\x01"
#: More than one address may have under way.
SILENT = 2 * tls.HANDSHAKES_PER_ADDRESS_MAX


@pytest.mark.parametrize("said", [b"", HALF])
def test_peers_that_go_silent_keep_no_other_waiting(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(sockets, "is_same_machine", lambda connection: False)
    another_is_served([said] * SILENT)


def test_a_handshake_has_a_while_though_others_need_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 machines that connect at once would else have half of their handshakes computed in vain."""
    monkeypatch.setattr(sockets, "is_same_machine", lambda connection: False)
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS_LEAST", tls.HANDSHAKE_SECONDS_MAX)
    monkeypatch.setattr(tls, "HANDSHAKES_MAX", 10)
    keys = own_keys([Authority(bytes(32))], tls.Machine("c", tls.CONTROLLER, "h"), time.time())
    context = tls.server_context(keys)

    async def main() -> None:
        refused = asyncio.Event()
        listener = await sockets.listen(
            sockets.tcp_socket("127.0.0.1", 0),
            lambda pipe: None,
            tls=lambda: context,
            on_refused=lambda peer, reason: refused.set(),
        )
        assert isinstance(listener.name, tuple)
        with contextlib.ExitStack() as peers:
            first = peers.enter_context(socket.create_connection(listener.name))
            first.setblocking(False)
            for _ in range(tls.HANDSHAKES_MAX):
                last = peers.enter_context(socket.create_connection(listener.name))
                await asyncio.sleep(0)
            await refused.wait()
            last.settimeout(60)
            assert last.recv(1) == b"", "the last is disconnected"
            with pytest.raises(BlockingIOError):
                first.recv(1)
        listener.close()
        await asyncio.sleep(0)

    run(main())


def test_silent_peers_of_this_machine_keep_out_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user can make such connections."""
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS_LEAST", 0.0)
    monkeypatch.setattr(tls, "HANDSHAKES_MAX", 200)  # an ordinary user may have 1,024 descriptors
    count = tls.HANDSHAKES_MAX + 1
    accepted = iter(range(count))
    monkeypatch.setattr(sockets, "is_same_machine", lambda connection: next(accepted, None) is not None)
    another_is_served([b""] * count)


def another_is_served(silent_ones: list[bytes]) -> None:
    """A machine is, after these peers have said so much and nothing more."""
    authority = Authority(bytes(32))
    server, client = (
        own_keys([authority], tls.Machine("c", role, "h"), time.time()) for role in (tls.CONTROLLER, tls.NODE)
    )
    context = tls.server_context(server)
    accepted: list[Pipe] = []

    async def main() -> None:
        known = asyncio.Event()

        def accept(pipe: Pipe) -> None:
            accepted.append(pipe)
            if pipe.machine is not None:
                known.set()

        listener = await sockets.listen(sockets.tcp_socket("127.0.0.1", 0), accept, tls=lambda: context)
        assert isinstance(listener.name, tuple)
        with contextlib.ExitStack() as silent:
            for said in silent_ones:
                peer = silent.enter_context(socket.create_connection(listener.name))
                peer.sendall(said)
                await asyncio.sleep(0)  # the queue of those to be accepted is short
            # Far less than a handshake may take: the silent ones have that long.
            async with asyncio.timeout(tls.HANDSHAKE_SECONDS_MAX / 2):
                while True:
                    # For a moment all handshakes may be this daemon's to go on with: then the machine tries again.
                    with contextlib.suppress(ConnectionError):
                        pipe = await sockets.connect_tcp(*listener.name, tls=tls.client_context(client))
                        break
                await known.wait()
            for one in (pipe, *accepted):
                one.abort()
        listener.close()
        await asyncio.sleep(0)

    run(main())
