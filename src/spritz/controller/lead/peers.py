"""Requests to the other controllers of the cluster, on behalf of users whose machine cannot reach them.

A command reaches only daemons of its own machine. So the leading controller forwards requests to the standbys on other
machines: ping, takeover, shutdown. It identifies itself with a controller's certificate.

Source: scontrol(1) ping, takeover, shutdown; docs/decisions/0184.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeVar

from spritz.client.channel.aio import Secure, connect
from spritz.controller.needs import Clocked, Configured, Identifying, Logged, Reading, Spawning
from spritz.core.rights import administers
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.model.queries.daemons import ControllerPongs, Ping, PingControllers, Pong, Shutdown, TakeOver
from spritz.model.rejection import Rejection
from spritz.runtime import tls

if TYPE_CHECKING:
    import ssl

    from msgspec import Struct

    from spritz.client.channel.handling import Call
    from spritz.controller.nodes.machines import Machines

T = TypeVar("T")

#: Seconds to reach another controller and get its answer.
PEER_SECONDS = 2.0


class Asked(Identifying, Reading, Protocol):
    """Who asks, and who administers."""


class Peering(Clocked, Configured, Identifying, Logged, Reading, Spawning, Protocol):
    """This controller among those of slurm.conf."""

    @property
    def machines(self) -> Machines | None: ...

    @property
    def own_index(self) -> int: ...

    @property
    def started_at(self) -> float: ...


def need_administrator(context: Asked, call: Call) -> None:
    """Raises SpritzError for callers that are no administrators, with Slurm's text "Invalid user id"."""
    if not administers(context.machine.state, context.identity.caller(call)):
        raise SpritzError(Rejection(code="ESLURM_USER_ID_MISSING").text, code="ESLURM_USER_ID_MISSING")


class Peers:
    def __init__(self, context: Peering) -> None:
        self._context = context

    async def ping(self, request: PingControllers, call: Call) -> ControllerPongs:
        """The answer of each SlurmctldHost, in the order of slurm.conf; None if it did not answer."""
        self._context.identity.caller(call)
        count = len(self._context.configuration.addresses)
        answers = await asyncio.gather(*map(self._ping, range(count)))
        return ControllerPongs(
            pongs=tuple(answer if isinstance(answer, Pong) else None for answer in answers),
            reasons=tuple("" if isinstance(answer, Pong) else answer for answer in answers),
        )

    async def take_over(self, request: TakeOver, call: Call) -> Done | Rejection:
        """Make another controller lead. For administrators."""
        need_administrator(self._context, call)
        index = request.index
        if not 0 <= index < len(self._context.configuration.addresses):
            return Rejection(code="ESLURM_NOT_SUPPORTED", message=f"Invalid backup controller index {index}")
        if index == self._context.own_index:
            return Done()
        return await self._ask(index, TakeOver(), Done)

    async def shut_down(self) -> None:
        """Stop the standbys, so that none takes over during the shutdown; unreachable ones are skipped."""

        # All at once, and before this controller gives its lease up: a standby that was asked after that would lead.
        async def stop(index: int) -> None:
            try:
                await self._ask(index, Shutdown(), Done)
            except (SpritzError, OSError):
                return

        others = [
            index for index in range(len(self._context.configuration.addresses)) if index != self._context.own_index
        ]
        await asyncio.gather(*map(stop, others))

    async def _ping(self, index: int) -> Pong | str:
        """The controller's answer, or the reason why there is none."""
        context = self._context
        if index == self._context.own_index:
            return Pong(
                host=context.configuration.loaded.settings.hosts[index].name,
                pid=0,
                version="",
                software="",
                started_at=context.started_at,
                now=context.clock.now(),
                mode="backup" if index else "primary",
            )
        try:
            return await self._ask(index, Ping(), Pong)
        except SpritzError as error:
            configuration = context.configuration
            return (error.hint or error.message).removeprefix(
                f"{configuration.addresses[index]}:{configuration.ports[0]}: "
            )
        except TimeoutError:
            return f"no answer in {PEER_SECONDS:g} s"
        except OSError as error:
            return error.strerror or str(error)

    async def _ask(self, index: int, request: Struct, reply: type[T]) -> T:
        """Raises SpritzError, or the other controller's refusal."""
        context = self._context
        configuration = context.configuration
        machines = context.machines
        secure = None
        if machines is not None:

            def certified() -> ssl.SSLContext:
                return tls.client_context(machines.own_keys())

            secure = Secure(certified, machines.cluster, tls.CONTROLLER)
        channel = await connect(
            [(configuration.addresses[index], configuration.ports[0])],
            role="slurmctld",
            log=context.log,
            tasks=context.tasks,
            owners=context.identity.owners,
            timeout=PEER_SECONDS,
            secure=secure,
        )
        try:
            return await channel.call(request, reply, timeout=PEER_SECONDS)
        finally:
            channel.close()
