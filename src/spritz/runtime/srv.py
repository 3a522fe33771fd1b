"""Finds a service by DNS SRV records, for which the system's resolver has no function.

Queries each name server of /etc/resolv.conf over UDP, twice, as a packet may be lost. Used by daemons at their start.

Source: RFC 1035, RFC 2782.
"""

from __future__ import annotations

import secrets
import socket
import struct

_SRV, _INTERNET = 33, 1
PORT = 53
_TIMEOUT_SECONDS, _ATTEMPTS = 2.0, 2
_HEADER = struct.Struct("!HHHHHH")


class NoService(Exception):
    """DNS has no such service, for these reasons."""


def service_servers(service: str, path: str = "/etc/resolv.conf") -> list[tuple[str, int]]:
    """Hosts and ports of `_service._protocol` in the search domains, preferred ones first. Raises NoService."""
    servers, domains = _configured(path)
    problems: dict[str, str] = {}
    for _ in range(_ATTEMPTS):
        for domain in domains:
            for server in servers:
                name = f"{service}.{domain}"
                try:
                    records = _ask(server, name)
                except (OSError, ValueError, struct.error, IndexError) as error:
                    problems[f"{name} at {server}"] = getattr(error, "strerror", None) or str(error)
                    continue
                if records:
                    return records
                problems[f"{name} at {server}"] = "no record"
    if not problems:
        raise NoService(f"{service}: no name server or no domain in {path}")
    raise NoService("; ".join(f"{where}: {why}" for where, why in problems.items()))


def _configured(path: str) -> tuple[list[str], list[str]]:
    servers: list[str] = []
    domains: list[str] = []
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                words = line.split()
                if words[:1] == ["nameserver"] and len(words) > 1:
                    servers.append(words[1])
                elif words[:1] in (["search"], ["domain"]):
                    domains = words[1:]
    except OSError:
        pass
    domain = socket.getfqdn().partition(".")[2]
    return servers, domains or ([domain] if domain else [])


def _ask(server: str, name: str) -> list[tuple[str, int]]:
    identity = secrets.randbits(16)
    question = b"".join(bytes((len(label),)) + label for label in name.encode("idna").split(b".") if label) + b"\0"
    query = _HEADER.pack(identity, 0x0100, 1, 0, 0, 0) + question + struct.pack("!HH", _SRV, _INTERNET)
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.settimeout(_TIMEOUT_SECONDS)
        asking.connect((server, PORT))
        asking.send(query)
        answer = asking.recv(65536)
    return _read(answer, identity)


def _read(answer: bytes, identity: int) -> list[tuple[str, int]]:
    """Parses an answer. Raises ValueError, struct.error or IndexError if it is invalid."""
    theirs, flags, questions, answers, _, _ = _HEADER.unpack_from(answer)
    if theirs != identity or not flags & 0x8000 or flags & 0x000F:
        return []
    at = _HEADER.size
    for _ in range(questions):
        _, at = _name(answer, at)
        at += 4
    records = []
    for _ in range(answers):
        _, at = _name(answer, at)
        kind, _, _, size = struct.unpack_from("!HHIH", answer, at)
        at += 10
        if kind == _SRV:
            priority, weight, port = struct.unpack_from("!HHH", answer, at)
            host, _ = _name(answer, at + 6)
            if host:
                records.append((priority, -weight, host, port))
        at += size
    return [(host, port) for _, _, host, port in sorted(records)]


def _name(answer: bytes, at: int) -> tuple[str, int]:
    """A name, and the offset after it. Names may refer to earlier ones."""
    labels: list[str] = []
    after = -1
    for _ in range(128):
        size = answer[at]
        if size & 0xC0 == 0xC0:
            after = at + 2 if after < 0 else after
            at = struct.unpack_from("!H", answer, at)[0] & 0x3FFF
        elif size == 0:
            return ".".join(labels), at + 1 if after < 0 else after
        else:
            labels.append(answer[at + 1 : at + 1 + size].decode("ascii"))
            at += 1 + size
    raise ValueError("a name that refers to itself")
