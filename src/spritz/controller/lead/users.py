"""Relays users on a standby controller's machine to the leading controller, as sackd does on login hosts.

The standby has the cluster's key, so it issues itself a login host's certificate. It releases the socket's name before
it leads. A slurmd or sackd on the same machine has the name only while no slurmctld runs there
(`Member.controller_is_here`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from spritz.client.joining.member import Member
from spritz.client.locate import controller_socket_name
from spritz.client.trust.munged import munged_of
from spritz.runtime import tls
from spritz.runtime.sockets import AddressInUse, unix_socket
from spritz.runtime.tasks import Supervisor

if TYPE_CHECKING:
    from spritz.client.channel.aio import Address
    from spritz.client.trust.membership import Membership
    from spritz.controller.configuration import Configuration
    from spritz.controller.journal.postgresql import Lease
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger

#: Number of checks whether the socket's name is free again, and seconds between them.
_LOOKS, _LOOK_SECONDS = 100, 0.01


class StandbyUsers:
    """Relays users to the current leader while the block runs; `own`: the name of this controller."""

    def __init__(
        self, configuration: Configuration, membership: Membership, own_host: str, clock: Clock, log: Logger
    ) -> None:
        self._configuration = configuration
        self._own = own_host
        self._log = log
        self._leader: tuple[Address, ...] = ()
        self._name = controller_socket_name(configuration.settings.cluster_name, configuration.ports[0])
        self._member = Member(
            membership, configuration.settings.cluster_name, tls.LOGIN, (), configuration.ports[0], clock
        )
        settings = configuration.loaded.settings
        self._member.munge = munged_of(settings.text("AuthType"), ",".join(settings.words("AuthInfo")))
        self._tasks = Supervisor(lambda name, error: log.error("task.failed", exception=error, task=name))

    async def __aenter__(self) -> StandbyUsers:
        await self._tasks.__aenter__()
        self._member.leading = lambda: self._leader  # type: ignore[method-assign]  # the journal names the leader
        self._relay = self._member.relay(self._tasks, self._log, self._configuration.databases, at_once=False)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
        await self._tasks.__aexit__(None, None, None)

    def follow(self, lease: Lease | None) -> None:
        """Relay users to the holder of this lease from now on; None or an empty lease: to no controller."""
        addresses: tuple[Address, ...] = ()
        if lease is not None and lease.holder and lease.holder != self._own and lease.address:
            addresses = ((lease.address, self._configuration.ports[0]),)
        # Connections to the former leader end: a stopped machine keeps them open, and users would wait for it.
        if addresses != self._leader:
            self._leader = addresses
            self._relay.abandon()

    async def close(self) -> None:
        """Stop relaying; returns when the socket's name is free."""
        # An abstract name is free when the last descriptor of its socket is closed, which the relay's tasks do as they
        # end: asked for, not assumed. The controller that is about to lead could not listen otherwise.
        self._relay.close()
        self._relay.abandon()
        self._tasks.cancel_all()
        for _ in range(_LOOKS):
            try:
                unix_socket(self._name).close()
                return
            except AddressInUse:
                await asyncio.sleep(_LOOK_SECONDS)
