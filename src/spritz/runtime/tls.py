"""TLS between machines: contexts, and the identity in a peer's certificate.

TLS 1.3 and nothing older. A machine's certificate names its cluster (O), its role (OU) and its host (CN). Clients check
that the server is of their cluster and a controller (or slurmdbd). Servers request a certificate and also accept
connections without one: such a peer can only ask to join.

A cluster of one machine never imports this module. Source: ssl; RFC 8446; docs/decisions/0176.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spritz.model.errors import SpritzError
from spritz.runtime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger

#: protocols on a connection (ALPN): requests and responses, or streams relayed by a daemon
CALLS, STREAMS = "spritz/1", "spritz-streams/1"

#: Seconds for a handshake; slower peers are disconnected.
HANDSHAKE_SECONDS_MAX = 10.0

#: Seconds that a handshake waits for its peer even where another address needs its place. Thousands of machines that
#: connect at once answer late, and a handshake that is given up must be computed again.
HANDSHAKE_SECONDS_LEAST = 2.0

#: Handshakes in progress at once, in total and per address. Further peers are disconnected. The total is what a
#: controller computes in two seconds: nodes that all connect at once wait rather than try again and again.
HANDSHAKES_MAX, HANDSHAKES_PER_ADDRESS_MAX = 1024, 64

#: Seconds between readings of a port's certificate: certificates of the cluster live for days.
READ_SECONDS = 3600.0

#: Where contexts are made: certificates are in files, and OpenSSL reads keys from files alone. The loop never waits for
#: a disk, or for memory that was swapped out.
reading = Worker("certificates", threads=2)

#: Seconds for that.
READING_SECONDS = 60.0

CONTROLLER, DATABASE, NODE, LOGIN = "controller", "slurmdbd", "node", "login"


class Machine(Struct, frozen=True, gc=False):
    """The peer, as a certificate of the cluster identifies it."""

    cluster: str
    role: str
    host: str


class Keys(Struct, frozen=True):
    """A certificate with its private key, and the authorities for peers' certificates. All PEM."""

    certificate: str
    key: str
    authorities: str
    #: the certificate of the issuer of `certificate`, to be sent along; without it OpenSSL looks for it in every
    #: handshake (0.1 ms)
    issuer: str = ""


def server_context(keys: Keys, *, streams: bool = True) -> ssl.SSLContext:
    """For a daemon that other machines connect to; without `streams` it refuses that protocol. Raises ssl.SSLError."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, keys)
    if not streams:
        context.set_alpn_protocols([CALLS])
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=keys.authorities)
    context.num_tickets = 0  # a ticket could be used after its certificate has expired
    return context


def client_context(keys: Keys, protocol: str = CALLS) -> ssl.SSLContext:
    """For a connection to a daemon of the cluster. Raises ssl.SSLError."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, keys)
    context.check_hostname = False  # the relevant name is in the subject: see `machine_of`
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=keys.authorities)
    context.set_alpn_protocols([protocol])
    return context


def stranger_context(authorities: str = "") -> ssl.SSLContext:
    """For a machine that has not joined: it has no certificate, and at first no authority to check the server with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED if authorities else ssl.CERT_NONE
    if authorities:
        context.load_verify_locations(cadata=authorities)
    context.set_alpn_protocols([CALLS])
    return context


class PortCertificate:
    """The certificate that a port shows, which is read again while the daemon serves.

    `keys()` reads it; raises SpritzError or OSError. It runs in the loop's thread at the start alone.
    """

    def __init__(self, keys: Callable[[], Keys], log: Logger, *, streams: bool = True) -> None:
        self._context = server_context(keys(), streams=streams)
        self._keys = keys
        self._streams = streams
        self._log = log

    def context(self) -> ssl.SSLContext:
        """For the next handshake."""
        return self._context

    async def renew(self) -> str:
        """Read the certificate again, for new handshakes; others are unaffected. Returns the mistake in it, which is
        also logged: then the earlier certificate stays.
        """
        try:
            self._context = await reading.run(self._read, seconds=READING_SECONDS)
        except (SpritzError, OSError) as error:  # ssl.SSLError is an OSError
            self._log.error("certificate.not_renewed", error=error)
            return f"the certificate was not renewed: {error}"
        return ""

    def _read(self) -> ssl.SSLContext:
        return server_context(self._keys(), streams=self._streams)

    async def keep(self, clock: Clock) -> None:
        """Read the certificate again each hour."""
        while True:
            await clock.sleep(READ_SECONDS)
            await self.renew()


def machine_of(certificate: Mapping[str, Any] | None) -> Machine | None:
    """The peer by its certificate (`getpeercert`), which the handshake has verified; None if it has shown none."""
    if not certificate:
        return None
    subject = {name: value for part in certificate.get("subject", ()) for name, value in part}
    names = ("organizationName", "organizationalUnitName", "commonName")
    return Machine(*(subject.get(name, "") for name in names))


def _context(kind: int, keys: Keys) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols([CALLS, STREAMS])
    _load(context, keys)
    return context


def _load(context: ssl.SSLContext, keys: Keys) -> None:
    with _in_memory(keys.certificate + keys.issuer + keys.key) as path:
        context.load_cert_chain(path)


class _in_memory:
    """A file that only this process can open: `ssl` reads keys only from files."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __enter__(self) -> str:
        self._descriptor = os.memfd_create("keys", os.MFD_CLOEXEC)
        os.write(self._descriptor, self._text.encode())
        return f"/proc/self/fd/{self._descriptor}"

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
