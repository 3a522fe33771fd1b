"""Addresses are taken only if no process serves there, and the kernel identifies clients."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from spritz.runtime.credentials import peer_credentials
from spritz.runtime.sockets import AddressInUse, tcp_socket, unix_socket


def test_a_socket_file_of_a_dead_process_is_replaced_and_a_living_ones_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    dead = unix_socket(path, mode=0o600)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    dead.close()
    living = unix_socket(path)
    with pytest.raises(AddressInUse, match="another process listens there"):
        unix_socket(path)
    living.close()


def test_a_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(AddressInUse, match="it is no socket"):
        unix_socket(str(path))
    assert path.read_text() == "data"


def test_an_abstract_name_is_taken_once() -> None:
    name = f"\0spritz/test/{os.getpid()}"
    first = unix_socket(name)
    with pytest.raises(AddressInUse, match="@spritz/test"):
        unix_socket(name)
    first.close()
    unix_socket(name).close()


def test_a_tcp_port_is_taken_once_and_an_empty_host_means_everywhere() -> None:
    first = tcp_socket("", 0)
    port = first.getsockname()[1]
    socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(AddressInUse, match=f":{port}"):
        tcp_socket("127.0.0.1", port)
    first.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_owner_of_a_local_tcp_connection_is_known(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"no {host} here")
    client = socket.create_connection(server.getsockname()[:2])
    accepted, _ = server.accept()
    with server, client, accepted:
        caller = peer_credentials(accepted)
        assert caller is not None
        assert (caller.uid, caller.via, caller.pid, caller.gid) == (os.getuid(), "tcp", 0, -1)


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
@pytest.mark.parametrize("still_open", [True, False])
def test_closing_the_socket_does_not_make_a_client_root(still_open: bool) -> None:
    """The kernel shows a closed socket as owned by root: that must not be believed."""
    server = socket.create_server(("127.0.0.1", 0))
    ready, told = os.pipe()
    hold, release = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        client = socket.create_connection(server.getsockname())
        client.sendall(b"make me root")
        if not still_open:
            client.close()
        os.write(told, b"x")
        os.read(hold, 1)
        os._exit(0)
    os.read(ready, 1)
    accepted, _ = server.accept()
    caller = peer_credentials(accepted)
    os.write(release, b"x")
    os.waitpid(child, 0)
    for descriptor in (ready, told, hold, release):
        os.close(descriptor)
    accepted.close()
    server.close()
    if still_open:
        assert caller is not None
        assert caller.uid == 65534
    else:
        assert caller is None
