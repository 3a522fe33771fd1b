"""The slurmdbd process: opens and migrates the database, listens, and stops in order.

The order of stopping: new connections are refused; the batch in progress is stored and answered; the connections close.
Controllers send again what was not acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import TYPE_CHECKING

from spritz.accounting.api import Api
from spritz.accounting.database_lock import ANSWER_SECONDS, LOOK_SECONDS, DatabaseLock
from spritz.accounting.engine import DatabaseError, checkpoint
from spritz.accounting.purge import rules_of
from spritz.client.channel.server import Server
from spritz.client.channel.token_requests import TokenRequests
from spritz.client.locate import database_socket_name
from spritz.client.relay.hub import Hub
from spritz.client.trust.tokens import token_keys
from spritz.config.fixed import need_unchanged
from spritz.config.load import load_slurmdbd
from spritz.model.errors import SpritzError
from spritz.model.ids import INFINITE
from spritz.runtime import log as runtime_log
from spritz.runtime import tls
from spritz.runtime.clock import SystemClock
from spritz.runtime.sockets import AddressInUse
from spritz.runtime.tasks import STOP_SECONDS, Supervisor, must_end
from spritz.runtime.watchdog import Watchdog
from spritz.runtime.worker import Worker
from spritz.timeouts import within

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.accounting.store import Store
    from spritz.client.channel.handling import Handler
    from spritz.client.trust.membership import Membership
    from spritz.config.loaded import DbdSettings
    from spritz.runtime.daemon.daemonize import Startup
    from spritz.runtime.daemon.pidfile import PidFile
    from spritz.runtime.log import Logger

#: Seconds that reading slurmdbd.conf again may take.
READ_SECONDS = 60.0

#: Longest pause, seconds, between attempts to connect to a database that is not up yet (as at boot).
RETRY_SECONDS_MAX = 30.0

#: Seconds between checkpoints. A copy of SQLite's file without its log lacks no more than this.
CHECKPOINT_SECONDS = 60.0

#: Keys that need a restart: the daemon has bound, opened or become what they name.
FIXED_KEYS = (
    "AuthAltParameters",
    "AuthAltTypes",
    "DbdAddr",
    "DbdBackupHost",
    "DbdPort",
    "LogFile",
    "PidFile",
    "SlurmUser",
    "StorageBackupHost",
    "StorageHost",
    "StorageLoc",
    "StorageParameters",
    "StoragePass",
    "StoragePassScript",
    "StoragePort",
    "StorageType",
    "StorageUrl",
    "StorageUser",
)

#: Exit status of `serve` after the lock was lost: another slurmdbd may serve, so restart as the standby.
STAND_BY = 75

_IGNORED_SIGNALS = (signal.SIGUSR1, signal.SIGPIPE, signal.SIGTSTP, signal.SIGXCPU, signal.SIGQUIT, signal.SIGALRM)


async def serve(
    store: Store,
    settings: DbdSettings,
    membership: Membership | None,
    startup: Startup,
    log: Logger,
    slurm_uid: int,
    pid_file: PidFile,
) -> int:
    """Serve until stopped. Returns the exit status."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    _watch_signals(loop, stopping)
    lock, thread, waited = None, Worker("database lock"), False
    lost = asyncio.Event()
    async with Supervisor(
        lambda name, error: log.error("task.failed", exception=error, task=name), end_seconds=STOP_SECONDS
    ) as watch:
        if settings.text("DbdBackupHost"):
            lock = DatabaseLock(store.engine)
            waited = await _stand_by(lock, thread, startup, log, stopping)
            if stopping.is_set():
                pid_file.release()
                log.info("daemon.stopped", standby=True)
                return 0
            # From now on: an upgrade of the tables may take longer than the database waits for a silent session.
            watch.spawn_contained(_watch_lock(lock, thread, log, lost, stopping), name="database lock")
        try:
            if await _open_database(store, log, stopping):
                await _serve_database(
                    store,
                    settings,
                    membership,
                    startup,
                    log,
                    slurm_uid,
                    stopping=stopping,
                    lost=lost,
                    start_reported=waited,
                )
            watch.cancel_all()
            if lost.is_set():
                return STAND_BY
            if lock is not None:
                await thread.run(lock.drop)
            pid_file.release()
        finally:
            store.engine.dispose()
    log.info("daemon.stopped")
    return 0


async def _serve_database(
    store: Store,
    settings: DbdSettings,
    membership: Membership | None,
    startup: Startup,
    log: Logger,
    slurm_uid: int,
    *,
    stopping: asyncio.Event,
    lost: asyncio.Event,
    start_reported: bool,
) -> None:
    """Serve until `stopping`, or until the lock is `lost`. `start_reported`: the start was reported already."""
    loop = asyncio.get_running_loop()
    reader = Worker("configuration")
    api, table = await _answers(store, settings, log, slurm_uid)
    api.admin.stop = stopping.set
    trusted = frozenset((0, slurm_uid, os.geteuid()))
    async with Server(table, role="slurmdbd", log=log, trusted=trusted, statistics=api.statistics_of_calls) as server:
        async with Supervisor(lambda name, error: log.error("task.failed", exception=error, task=name)) as tasks:
            certificate = _take_machines(server, membership, tasks, log) if membership is not None else None
            api.admin.reload = lambda: _reload(api, reader, settings.path, certificate, log)
            await _listen(server, settings, log)
            if not start_reported:
                startup.serves()
            log.info("daemon.started", database=store.describe(), port=settings.integer("DbdPort"))
            _begin_upkeep(api, store, tasks, log)
            _reload_on_hangup(api, settings.path, tasks, log)
            with Watchdog(log, startup.alive):
                await stopping.wait()
            must_end(STOP_SECONDS)
            loop.add_signal_handler(signal.SIGHUP, runtime_log.reopen)
            tasks.cancel_all()
        server.stop_listening()
        if not lost.is_set():  # else a write that waits for a dead database would block the switch
            await loop.run_in_executor(None, api.close)


def _watch_signals(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Stop on SIGTERM and SIGINT, open the log again on SIGHUP and SIGUSR2, ignore what Slurm's daemon ignores."""
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGUSR2, runtime_log.reopen)
    loop.add_signal_handler(signal.SIGHUP, runtime_log.reopen)
    for number in _IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


async def _stand_by(lock: DatabaseLock, thread: Worker, startup: Startup, log: Logger, stopping: asyncio.Event) -> bool:
    """Wait for the lock, or for the signal to stop. Returns whether it stood by, and so reported its start already."""
    reported = ""
    while not stopping.is_set():
        try:
            if await thread.run(lock.take):
                if reported:
                    log.info("standby.taking_over")
                return bool(reported)
            problem = "another slurmdbd serves"
        except DatabaseError as error:
            if not error.temporary:
                raise
            problem = error.message
        if problem != reported:
            log.info("standby.began", detail=problem)
            if not reported:
                startup.serves()
            reported = problem
        try:
            async with within(LOOK_SECONDS):
                await stopping.wait()
        except TimeoutError:
            continue
    return bool(reported)


async def _watch_lock(
    lock: DatabaseLock, thread: Worker, log: Logger, lost: asyncio.Event, stopping: asyncio.Event
) -> None:
    """Stop the daemon once the lock is lost."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            await thread.run(lock.hold, seconds=ANSWER_SECONDS)
        except Exception as error:  # whatever it is: without the lock another slurmdbd may serve
            why = error.message if isinstance(error, SpritzError) else repr(error)
            log.error("duty.lost", error=why, action="standing by")
            lost.set()
            stopping.set()
            return


async def _open_database(store: Store, log: Logger, stopping: asyncio.Event) -> bool:
    """Connect and upgrade the tables. False: the daemon is to stop. Raises DatabaseError for permanent failures."""
    wait = 0.5
    while not stopping.is_set():
        try:
            before, after = await asyncio.to_thread(store.migrate)
        except DatabaseError as error:
            if not error.temporary:
                raise
            log.error("database.unavailable", database=store.describe(), error=error.message, retry_seconds=wait)
            try:
                async with within(wait):
                    await stopping.wait()
            except TimeoutError:
                wait = min(wait * 2, RETRY_SECONDS_MAX)
            continue
        if before != after:
            log.info("database.migrated", before=before or "empty", after=after)
        return True
    return False


async def _answers(
    store: Store, settings: DbdSettings, log: Logger, slurm_uid: int
) -> tuple[Api, dict[type[Struct], Handler]]:
    """The handlers of all requests, tokens included. Reads the records that the daemon keeps in memory."""
    clock = SystemClock()
    api = Api(store, clock, log, slurm_uid)
    _configure(api, settings)
    await api.prepare()
    keys = token_keys(settings.words("AuthAltTypes"), settings.words("AuthAltParameters"))
    return api, {**api.handlers(), **TokenRequests(keys, api.directory, clock, slurm_uid).handlers()}


def _begin_upkeep(api: Api, store: Store, tasks: Supervisor, log: Logger) -> None:
    """Begin the work that no request asks for."""
    clock = SystemClock()
    tasks.keep_contained(api.purge_hourly, name="purge", clock=clock)
    tasks.keep_contained(api.usage.roll_always, name="roll-up", clock=clock)
    if store.engine.dialect.name == "sqlite":
        tasks.keep_contained(lambda: _checkpoint_always(store, log), name="checkpoint", clock=clock)


async def _checkpoint_always(store: Store, log: Logger) -> None:
    while True:
        try:
            await asyncio.to_thread(checkpoint, store.engine)
        except DatabaseError as error:
            log.error("database.no_checkpoint", error=error.message)
        await asyncio.sleep(CHECKPOINT_SECONDS)


def _take_machines(server: Server, membership: Membership, tasks: Supervisor, log: Logger) -> tls.PortCertificate:
    """Accept machines that hold a certificate of a cluster whose key this machine has."""
    clock = SystemClock()
    certificate = tls.PortCertificate(lambda: membership.keys("", tls.DATABASE, clock.now()), log)
    server.secure(certificate.context, Hub(membership, "", clock, tasks, server.complaints, server.take))
    tasks.keep(certificate.keep(clock), name="certificate")
    return certificate


async def _listen(server: Server, settings: DbdSettings, log: Logger) -> None:
    port = settings.integer("DbdPort")
    try:
        try:
            await server.listen_unix(database_socket_name(port))
        except AddressInUse as error:
            log.error("socket.taken", port=port, error=error, action="serving by TCP alone")
        await server.listen_tcp(settings.text("DbdAddr"), port)
    except OSError as error:
        host = socket.gethostname()
        raise SpritzError(
            f"cannot listen on DbdPort {port} of {host}: {error.strerror}",
            hint="another slurmdbd may be running; DbdPort sets another port",
        ) from error


def _configure(api: Api, settings: DbdSettings) -> None:
    """Apply the settings that may change while the daemon runs."""
    api.callers.private = frozenset(settings.words("PrivateData"))
    longest = settings["MaxQueryTimeRange"]
    api.callers.longest_window = longest if isinstance(longest, int) and longest < INFINITE else None
    api.coordinators_change = not settings["DisableCoordDBD"]
    api.book_options = tuple(key for key in ("AllResourcesAbsolute", "AllowNoDefAcct") if settings[key])
    api.default_qos = settings.text("DefaultQOS").lower() or "normal"
    api.message_timeout = float(settings.integer("MessageTimeout"))
    api.debug_flags.put(settings.words("DebugFlags"))
    api.purge_rules = rules_of(settings)
    api.admin.settings = settings


async def _reload(api: Api, reader: Worker, path: str, certificate: tls.PortCertificate | None, log: Logger) -> None:
    """Read slurmdbd.conf again, and the port's certificate. Raises SpritzError, and then changes nothing."""
    settings = await reader.run(load_slurmdbd, path, seconds=READ_SECONDS)
    before = api.admin.settings
    assert before is not None, "configured at the start"
    need_unchanged(FIXED_KEYS, before, settings, path=path, daemon="slurmdbd")
    runtime_log.set_levels(
        file_level=settings.text("DebugLevel"), syslog_level=settings.text("DebugLevelSyslog") or "quiet"
    )
    _configure(api, settings)
    runtime_log.reopen()
    for item in settings.warnings:
        log.warning("config.questionable", detail=item.text)
    if certificate is not None:
        await certificate.renew()
    log.info("config.reread", path=path)


def _reload_on_hangup(api: Api, path: str, tasks: Supervisor, log: Logger) -> None:
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGHUP, lambda: tasks.spawn_contained(_reload_or_log(api, path, log), name="configuration")
    )


async def _reload_or_log(api: Api, path: str, log: Logger) -> None:
    """For SIGHUP, where no request waits for the error."""
    try:
        await api.admin.reload()
    except SpritzError as error:
        log.error("config.refused", path=path, error=error.message)
        runtime_log.reopen()
