"""Ports that a daemon can keep."""

from __future__ import annotations

import socket
from pathlib import Path

from spritz.runtime.ports import unused_ports


def test_unused_ports_differ_and_can_be_bound_and_are_none_that_the_kernel_gives_out() -> None:
    ports = unused_ports(5)
    assert len(set(ports)) == 5
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 < port < max(first_ephemeral, 11_000) for port in ports)


def test_a_port_in_use_is_left_alone() -> None:
    with socket.socket() as holder:
        holder.bind(("", unused_ports(1)[0]))
        holder.listen()
        assert holder.getsockname()[1] not in unused_ports(200)
