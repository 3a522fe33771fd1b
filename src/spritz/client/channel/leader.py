"""Finding the controller or slurmdbd that leads, for daemons that stay connected to it.

Source: docs/decisions/0184.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError
from spritz.model.queries.daemons import Ping, Pong

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.client.channel.aio import PersistentChannel
    from spritz.client.channel.channel import Channel
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger

#: Seconds between checks whether the controller still leads, and its time to answer.
LEADER_SECONDS = 2.0

#: The same for a slurmdbd with a standby, which takes over after 10 s of silence towards the database.
DATABASE_SECONDS = 5.0


async def must_lead(channel: Channel, seconds: float = LEADER_SECONDS) -> None:
    """Raises SpritzError if the daemon does not answer in time or does not lead."""
    pong = await channel.call(Ping(), Pong, timeout=seconds)
    if not pong.leading:
        raise SpritzError(
            "Slurm backup controller in standby mode",
            code="ESLURM_IN_STANDBY_MODE",
            hint=f"{pong.host} stands by: " + (pong.detail or f"{pong.leader or 'none'} leads"),
        )


async def watch_leader(
    link: PersistentChannel,
    clock: Clock,
    log: Logger,
    on_silent: Callable[[], object] | None = None,
    *,
    seconds: float = LEADER_SECONDS,
    event: str = "controller.silent",
) -> None:
    """Runs for ever: leaves a daemon that stopped without closing its connections, logs `event`, calls `on_silent`."""
    while True:
        await clock.sleep(seconds)
        channel = await link.channel()
        try:
            await must_lead(channel, seconds)
        except SpritzError as error:
            if channel.is_open:
                log.error(event, peer=channel.pipe.peer_name, reason=error.message)
                channel.pipe.abort()
            if on_silent is not None:
                on_silent()
