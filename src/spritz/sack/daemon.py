"""The sackd process: relays users, renews its certificate and the configuration, and stops in order.

Source: sackd(8) SIGNALS.
"""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import TYPE_CHECKING

from spritz import __version__
from spritz.client.channel.aio import PersistentChannel
from spritz.client.channel.leader import must_lead, watch_leader
from spritz.model.errors import SpritzError
from spritz.model.node.machines import ConfigurationFiles, FetchConfiguration
from spritz.runtime import log as runtime_log
from spritz.runtime.clock import SystemClock
from spritz.runtime.tasks import END_SECONDS, STOP_SECONDS, Supervisor, must_end
from spritz.runtime.watchdog import Watchdog
from spritz.runtime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.client.channel.channel import Channel
    from spritz.client.joining.member import Member
    from spritz.runtime.daemon.daemonize import Startup
    from spritz.runtime.log import Logger

#: Seconds between attempts to reach a controller.
RECONNECT_SECONDS_MAX = 1.0

#: Seconds for a controller's answer on a new connection.
ADMITTED_SECONDS = 10.0

#: Seconds after an error before the configuration is fetched again.
_AGAIN_SECONDS = 5.0


async def serve(
    member: Member,
    database: tuple[tuple[str, int], ...],
    keep: Callable[[ConfigurationFiles], None] | None,
    startup: Startup,
    log: Logger,
) -> int:
    """Serve until stopped. `keep` stores a new configuration; None: the administrator maintains the files."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGUSR2, runtime_log.reopen)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    async with Supervisor(
        lambda name, error: log.error("task.failed", exception=error, task=name), end_seconds=END_SECONDS
    ) as tasks:
        relay = member.relay(tasks, log, database, at_once=True)
        async with PersistentChannel(
            member.addresses,
            role="sackd",
            log=log,
            ceiling_seconds=RECONNECT_SECONDS_MAX,
            secure=member.secure(),
            on_connect=partial(_admitted, member),
            each=member.has_standby,
        ) as link:
            member.link = link
            if member.has_standby:
                tasks.keep(watch_leader(link, SystemClock(), log, relay.abandon), name="leader")
            tasks.keep(member.keep_certified(link, log), name="certificate")
            if keep is not None:
                tasks.keep(_keep_configured(link, keep, log), name="configuration")
            log.info("daemon.started", version=__version__, cluster=member.cluster)
            startup.serves()
            with Watchdog(log, startup.alive):
                await stopping.wait()
            must_end(STOP_SECONDS)
            relay.close()
        tasks.cancel_all()
    log.info("daemon.stopped")
    return 0


async def _admitted(member: Member, channel: Channel) -> None:
    """Raises SpritzError, with the reason for users, if the controller does not lead or has excluded this machine."""
    if member.has_standby:
        await must_lead(channel)
    if member.membership.joined is not None:
        await channel.call(FetchConfiguration(), ConfigurationFiles, timeout=ADMITTED_SECONDS)


async def _keep_configured(link: PersistentChannel, keep: Callable[[ConfigurationFiles], None], log: Logger) -> None:
    """Runs for ever: fetches the configuration whenever it changes."""
    worker, clock, known = Worker("configuration"), SystemClock(), ""
    while True:
        try:
            channel = await link.channel()
            files = await channel.call(FetchConfiguration(known=known), ConfigurationFiles, timeout=None)
            await worker.run(keep, files)
        except (SpritzError, OSError) as error:
            log.verbose("configuration.not_fetched", error=error)
            await clock.sleep(_AGAIN_SECONDS)
            continue
        if known:
            log.info("config.read", digest=files.digest)
        known = files.digest
