"""The common part of slurmd and sackd on machines other than the controller's.

It reaches the controller, relays users, renews the certificate and keeps the configuration up to date.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from spritz.client.channel.aio import Address, Secure
from spritz.client.channel.leader import DATABASE_SECONDS
from spritz.client.errors import ClientError
from spritz.client.joining.joining import parse_address, renewed
from spritz.client.locate import controller_socket_name, database_relay_name, database_socket_name, streams_socket_name
from spritz.client.relay.relay import DATABASE_UNREACHABLE, LEADER_SECONDS, PATIENCE_SECONDS, Relay
from spritz.client.trust.same_machine import is_here, plain_name
from spritz.model.errors import SpritzError
from spritz.model.node.machines import AuthorityCertificate, FetchAuthority, MachineJoined, RenewCertificate
from spritz.runtime import tls
from spritz.runtime.authority import new_key
from spritz.runtime.randomness import SystemRandomness
from spritz.runtime.sockets import connect_tcp

if TYPE_CHECKING:
    import ssl

    from spritz.client.channel.aio import PersistentChannel
    from spritz.client.trust.membership import Membership
    from spritz.client.trust.munged import Munged
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger
    from spritz.runtime.tasks import Supervisor

#: Seconds in which a port of this machine accepts a connection, if it does.
_PROBE_SECONDS = 1.0

#: Seconds between checks of the certificate's age, and whether slurmctld has started again.
_OLD_LOOK_SECONDS, _LOOK_SECONDS = 3600.0, 10.0

#: Seconds over which machines spread their renewals when the cluster's keys have changed: slurmctld writes a file for
#: each.
SPREAD_SECONDS = 120.0


class Member:
    """A machine of a cluster whose controller is on another machine. `role`: node or login."""

    def __init__(
        self,
        membership: Membership,
        cluster: str,
        role: str,
        controllers: tuple[str, ...],
        port: int,
        clock: Clock,
        *,
        has_controller: bool = False,
    ) -> None:
        self.membership = membership
        #: whether one of several controllers belongs on this machine: while it runs it serves the local users
        self.has_controller = has_controller
        #: this machine's own addresses among the controllers', once found
        self._own: list[str] = []
        #: the connection to the leading controller, if there are standbys
        self.link: PersistentChannel | None = None
        #: that connection is made and its controller leads, but the registration waits for HealthCheckProgram
        self.registers = False
        self.cluster = cluster
        #: the certificate of this daemon's port, if it has one
        self.port: tls.PortCertificate | None = None
        #: set where AuthType=auth/munge
        self.munge: Munged | None = None
        self._role = role
        self._clock = clock
        self._port = port
        known = membership.joined.controllers if membership.joined is not None else ()
        addresses = [(host, port) for host in controllers] + [parse_address(text) for text in known]
        #: addresses of controllers, in order
        self.addresses: tuple[Address, ...] = tuple(dict.fromkeys(addresses))
        #: whether several controllers stand by for each other
        self.has_standby = len(controllers) > 1

    def leading(self) -> tuple[Address, ...]:
        """The address of the leading controller, () while none is known; all addresses without standbys."""
        if self.link is None or not self.has_standby:
            return self.addresses
        address = self.link.address if self.link.is_connected or self.registers else None
        # A controller that hangs accepts connections: to try each in turn would wait for it.
        return () if address is None else (address,)

    def why_none_leads(self) -> SpritzError | OSError | None:
        """The answers of the controllers when they were last asked, while none leads."""
        return self.link.problem if self.link is not None and not self.link.is_connected else None

    def secure(self, role: str = tls.CONTROLLER, protocol: str = tls.CALLS) -> Secure:
        """For connections to daemons of this role."""

        def context() -> ssl.SSLContext:
            return tls.client_context(self.membership.keys(self.cluster, self._role, self._clock.now()), protocol)

        # slurmdbd may serve several clusters, which then share a key
        return Secure(context, "" if role == tls.DATABASE else self.cluster, role)

    def relay(self, tasks: Supervisor, log: Logger, database: tuple[tuple[str, int], ...], *, at_once: bool) -> Relay:
        """A relay for users of this machine to the cluster's daemons."""
        relay = self.relay_database(tasks, log, database)
        relay.why_none_leads = self.why_none_leads
        name = controller_socket_name(self.cluster, self._port)
        secure = self.secure(protocol=tls.STREAMS)
        sealing = self.munge.seal if self.munge is not None else None
        streams, patience = streams_socket_name(name), LEADER_SECONDS if self.has_standby else PATIENCE_SECONDS
        relay.serve(
            name,
            self.leading,
            secure,
            streams=streams,
            at_once=at_once,
            sealing=sealing,
            patience_seconds=patience,
            yields_to=self.controller_is_here if self.has_controller else None,
        )
        return relay

    async def controller_is_here(self) -> bool:
        """Whether slurmctld of this machine runs, leading or standing by: its port accepts connections."""
        if not self._own:
            self._own = [host for host in await self._addresses_of_controllers() if is_here((host,))]
        for host in self._own:
            try:
                pipe = await connect_tcp(host, self._port, timeout=_PROBE_SECONDS)
            except OSError:
                continue
            pipe.close()
            return True
        return False

    async def _addresses_of_controllers(self) -> list[str]:
        """The controllers' addresses as numbers, so that later look-ups need no name service."""
        addresses: list[str] = []
        for address in self.addresses:
            if isinstance(address, str):
                continue
            try:
                resolved = await asyncio.get_running_loop().getaddrinfo(
                    plain_name(address[0]), address[1], type=socket.SOCK_STREAM
                )
            except (OSError, UnicodeError):
                continue
            addresses += [str(place[0]) for _, _, _, _, place in resolved]
        return addresses

    def relay_database(self, tasks: Supervisor, log: Logger, database: tuple[tuple[str, int], ...]) -> Relay:
        """Relay users of this machine to slurmdbd: by its socket's name if it runs elsewhere, by a name apart if one of
        two runs here.
        """
        relay = Relay(
            self.membership,
            self.cluster,
            tasks=tasks,
            clock=self._clock,
            randomness=SystemRandomness(),
            log=log,
        )
        elsewhere = tuple((host, port) for host, port in database if not is_here((host,)))
        if elsewhere:
            name = database_socket_name if elsewhere == database else database_relay_name
            to_database = self.secure(tls.DATABASE, tls.STREAMS)
            silent = DATABASE_SECONDS if len(database) > 1 else 0.0
            relay.serve(
                name(database[0][1]),
                lambda: elsewhere,
                to_database,
                silent_seconds=silent,
                unreachable=DATABASE_UNREACHABLE,
            )
        return relay

    async def keep_certified(self, link: PersistentChannel, log: Logger) -> None:
        """Runs for ever: renews the certificate after half its validity, and when the cluster's keys have changed.

        Links are unaffected.
        """
        seen, renewed_at = 0, -_OLD_LOOK_SECONDS
        while True:
            if link.connections != seen and link.is_connected:
                connection = link.connections
                other = await self._has_other_keys(link)
                if other:
                    await self._clock.sleep(SystemRandomness().uniform(0.0, SPREAD_SECONDS))
                if other is False or (other and await self.renew(link, log)):
                    seen = connection  # slurmctld reads its keys when it starts; a failure is tried again
            elif self._clock.monotonic() - renewed_at >= _OLD_LOOK_SECONDS:
                renewed_at = self._clock.monotonic()
                if self.membership.renewal_due(self._clock.now()):
                    await self.renew(link, log)
            await self._clock.sleep(_LOOK_SECONDS)

    async def _has_other_keys(self, link: PersistentChannel) -> bool | None:
        """Whether the cluster trusts other authorities than this machine, or in another order. None: not known."""
        joined = self.membership.joined
        if joined is None or self.membership.site is not None:
            return False
        try:
            given = await link.call(FetchAuthority(), AuthorityCertificate)
        except SpritzError:
            return None
        return given.authorities not in ("", joined.authorities)

    async def renew(self, link: PersistentChannel, log: Logger) -> bool:
        """Get a certificate for a new key, and store both. A failure is logged; the old certificate stays in use.

        Returns whether it succeeded.
        """
        joined = self.membership.joined
        if joined is None:
            return True
        key, public = new_key()
        try:
            given = await link.call(RenewCertificate(public_key=public), MachineJoined, timeout=60.0)
        except SpritzError as error:
            log.error("certificate.not_renewed", error=error.message)
            return False
        try:
            await tls.reading.run(self.membership.replace, renewed(joined, key, given))
        except (SpritzError, OSError) as error:  # a full disk, say: the daemon has work to do all the same
            log.error("certificate.not_renewed", error=str(error))
            return False
        log.info("certificate.renewed", host=joined.host)
        if self.port is not None:
            await self.port.renew()
        return True


def member_of(
    membership: Membership | None, cluster: str, role: str, controllers: tuple[str, ...], port: int, clock: Clock
) -> Member | None:
    """The membership to keep up to date; None if all controllers are on this machine. Raises ClientError if another
    machine has a controller and there are no keys for it.
    """
    here = [is_here((host,)) for host in controllers]
    if all(here):
        return None
    if membership is None:
        raise ClientError.of("SLURM_PROTOCOL_AUTHENTICATION_ERROR")
    return Member(membership, cluster, role, controllers, port, clock, has_controller=any(here))
