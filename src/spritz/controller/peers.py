"""The other controllers of the cluster, asked on behalf of users whose machine cannot reach them.

A command reaches daemons of its own machine alone. So the controller that leads asks those that stand by on other
machines: whether they are there, to take over, to stop. It shows a controller's certificate, which they believe.

Source: scontrol(1) ping, takeover, shutdown; docs/decisions/0201.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from spritz.client.aio import Secure, connect
from spritz.core.rights import administers
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.model.queries import ControllerPongs, Ping, PingControllers, Pong, Shutdown, TakeOver
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    import ssl

    from msgspec import Struct

    from spritz.client.handling import Call
    from spritz.controller.context import Context

T = TypeVar("T")

#: Seconds that another controller has to be reached and to answer.
PEER_SECONDS = 2.0


def need_administrator(context: Context, call: Call) -> None:
    """Raises SpritzError for anybody else: Slurm says "Invalid user id" here."""
    if not administers(context.machine.state, context.identity.caller(call)):
        raise SpritzError(Rejection(code="ESLURM_USER_ID_MISSING").text, code="ESLURM_USER_ID_MISSING")


class Peers:
    """Asks the other SlurmctldHosts."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def ping(self, request: PingControllers, call: Call) -> ControllerPongs:
        """Each SlurmctldHost's answer, as slurm.conf has them; None where there is none."""
        self._context.identity.caller(call)
        count = len(self._context.configuration.addresses)
        return ControllerPongs(pongs=tuple(await asyncio.gather(*map(self._ping, range(count)))))

    async def take_over(self, request: TakeOver, call: Call) -> Done | Rejection:
        """Have another controller lead. Administrators."""
        need_administrator(self._context, call)
        index = request.index
        if not 0 <= index < len(self._context.configuration.addresses):
            return Rejection(code="ESLURM_NOT_SUPPORTED", message=f"Invalid backup controller index {index}")
        if index == self._context.own_index:
            return Done()
        return await self._ask(index, TakeOver(), Done)

    async def shut_down(self) -> None:
        """Stop those that stand by, so that none takes over from us; those that do not answer are passed over."""

        async def stop(index: int) -> None:
            try:
                await self._ask(index, Shutdown(), Done)
            except (SpritzError, OSError):
                return

        others = [
            index for index in range(len(self._context.configuration.addresses)) if index != self._context.own_index
        ]
        await asyncio.gather(*map(stop, others))

    async def _ping(self, index: int) -> Pong | None:
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
        except (SpritzError, OSError):
            return None

    async def _ask(self, index: int, request: Struct, reply: type[T]) -> T:
        """Raises SpritzError, or what the other one refuses with."""
        context = self._context
        configuration = context.configuration
        machines = context.machines
        secure = None
        if machines is not None:
            from spritz.runtime import tls

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
