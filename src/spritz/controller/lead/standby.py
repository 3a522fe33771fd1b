"""A standby controller: follows the leader's journal, answers that it stands by, and takes over.

Decides when to take the lease (`Watch`, pure), and keeps the state up to date: an image, then each new event. Every
controller with a journal in PostgreSQL begins here, also the first. Observations of the lease are compared with earlier
ones; times are of this process's monotonic clock, and count only while the database answers.

What keeps two controllers from leading at once, whoever is stopped, cut off or late:

    taking      one statement of the database, which compares the term and beat seen: of two standbys one succeeds,
                and a holder that has renewed its lease meanwhile keeps it
    writing     each write compares the term: a former holder that goes on writes nothing
    answering   a holder that could not renew its lease for its seconds ends (`lease`), before a standby may take it:
                its reads would be out of date
    nodes       refuse orders of a lower term than the highest that they have heard

And what keeps the new leader from leading with less than was acknowledged: it reads the journal's end once more after
it has the lease, when no other can add to it.

Source: slurm.conf(5) SlurmctldHost, SlurmctldTimeout; scontrol(1) takeover; docs/decisions/0184.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any, TypeVar

from spritz import SLURM_VERSION, __version__
from spritz.client.channel.server import Server
from spritz.client.trust.membership import KEY_FILE, KEYS_FILE
from spritz.client.trust.same_machine import is_here
from spritz.controller.configuration import read_configuration
from spritz.controller.journal.contract import JournalBusy, JournalCorrupt, JournalError, JournalNewer
from spritz.controller.journal.copy import JournalCopy
from spritz.controller.journal.postgresql import GONE_SECONDS, Lease, PostgresJournal, Store, set_aside
from spritz.controller.lead.agreement import RECORD, agreement_of, decoded
from spritz.controller.lead.probes import answer_probes
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.model.queries.daemons import Ping, Pong, Shutdown, TakeOver
from spritz.model.rejection import Rejection
from spritz.runtime import log as runtime_log
from spritz.runtime import tls
from spritz.runtime.tasks import END_SECONDS, must_end
from spritz.runtime.watchdog import Watchdog
from spritz.runtime.worker import Worker, WorkerTimeout
from spritz.timeouts import within

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.client.channel.handling import Call, Handler
    from spritz.client.trust.membership import Membership
    from spritz.controller.configuration import Configuration
    from spritz.controller.journal.recovery import Recovered
    from spritz.controller.lead.users import StandbyUsers
    from spritz.controller.options import Options
    from spritz.runtime.clock import Clock
    from spritz.runtime.daemon.daemonize import Startup
    from spritz.runtime.log import Logger

T = TypeVar("T")

#: Seconds between looks at the lease and the journal.
LOOK_SECONDS = 0.25

#: Additional seconds that each further SlurmctldHost waits for a free lease: the first of them shall lead.
ORDER_SECONDS = 1.0

#: Seconds for which a standby retries a database that does not answer before it reports it.
_PATIENCE_SECONDS = 2.0

#: Seconds for closing the connection to the database.
_DROP_SECONDS = 2.0

#: Seconds between attempts to lead with a database that cannot store events.
_TAKE_AGAIN_SECONDS = 5.0

#: Same as `tls.CONTROLLER`, whose module takes long to import.
_CONTROLLER = "controller"


class NoUsers:
    """Stands for `StandbyUsers` if there are no users to relay."""

    async def __aenter__(self) -> NoUsers:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    def follow(self, lease: Lease | None) -> None: ...

    async def close(self) -> None: ...


class Watch:
    """Decides from observations of the lease whether it may be taken. Pure; times are monotonic seconds."""

    def __init__(self, lease_seconds: float, index: int) -> None:
        self._lease_seconds = lease_seconds
        #: Of two standbys that see the holder go at the same time the first in slurm.conf is to lead. Only a
        #: preference: the database decides.
        self._wait_seconds = ORDER_SECONDS * index
        #: term and beat of the last observation
        self._seen: tuple[int, int] | None = None
        #: When the beat was first seen as it is. The holder counts from when it began to write it, which was earlier.
        self._beat_at = 0.0
        #: when the holder's session was last seen
        self._alive_at = 0.0
        #: when the database first answered; None: it does not
        self._first_at: float | None = None

    def unanswered(self) -> None:
        """The database did not answer, so the holder could not renew the lease either. All waits restart."""
        # A database that was away for a minute would otherwise come back with a lease that looks a minute old, and a
        # standby that asks before the holder does would depose one that is well.
        self._seen = None
        self._first_at = None

    def may_take(self, lease: Lease, now: float) -> bool:
        """Whether the holder has released the lease, or is gone."""
        if self._first_at is None:
            self._first_at = now
        if self._seen != (lease.term, lease.beat):
            self._seen = (lease.term, lease.beat)
            self._beat_at = self._alive_at = now
        if lease.alive:
            self._alive_at = now
        if not lease.holder:
            return now - self._first_at >= self._wait_seconds
        # A session that is gone says that the holder's process has ended or is connecting again, for which it has
        # GONE_SECONDS. One that is there says nothing: its process may be stopped, or its machine cut off. Then the
        # heartbeat counts.
        return now - self._alive_at >= GONE_SECONDS + self._wait_seconds or now - self._beat_at >= self._lease_seconds


def _changed_at(path: str) -> int:
    """When a file was written, in nanoseconds; 0 if it is not there."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


class Standby:
    """Stands by until it leads. `host`: index of its SlurmctldHost; `owners`: users that may make it take over."""

    def __init__(
        self,
        options: Options,
        configuration: Configuration,
        log: Logger,
        clock: Clock,
        owners: frozenset[int],
        membership: Membership | None,
    ) -> None:
        self._options = options
        self._membership = membership
        self._configuration = configuration
        self._log = log
        self._clock = clock
        self._owners = owners
        self._index, self._host = configuration.own_host(options.host)
        self._url = configuration.journal_url
        self._cluster = configuration.settings.cluster_name
        self._worker = Worker("standby")
        self._store = Store(self._url, self._cluster, patience_seconds=_PATIENCE_SECONDS)
        self._watch = Watch(configuration.lease_seconds, self._index)
        self._lease: Lease | None = None
        self._problem = ""
        #: the differences of the leader's settings, in words
        self._difference = ""
        self._own = agreement_of(configuration, membership)
        self._read_at = _changed_at(configuration.path)
        #: the mistake in a slurm.conf that was written since
        self._unreadable = ""
        #: after an attempt to lead failed, as with a database without space
        self._take_again_at = 0.0
        self._copy = JournalCopy(configuration.settings)
        self._wanted = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: set along with either of the two
        self._hurry = asyncio.Event()
        self._started_at = clock.now()
        self._certificate: tls.PortCertificate | None = None
        self._renew_at = clock.monotonic() + tls.READ_SECONDS

    async def lead(self, startup: Startup) -> tuple[PostgresJournal, Recovered] | None:
        """The journal, with its lease, and the state after its last event, once this controller leads; None when
        stopped.

        Raises SpritzError for a journal that is damaged or of a later release, and if the leader has another key of the
        cluster: waiting would not help.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        loop.add_signal_handler(signal.SIGUSR2, runtime_log.reopen)
        table: dict[type[Struct], Handler] = {Ping: self._ping, TakeOver: self._take_over, Shutdown: self._shut_down}
        server = Server(table, role="slurmctld", log=self._log, trusted=self._owners, otherwise=self._refuse)
        answer_probes(server, lambda: self._problem)
        try:
            async with server, self._led() as led_users:
                await self._listen(server)
                if self._options.clear:
                    kept = await self._worker.run(set_aside, self._store)
                    self._log.info("state.set_aside", schema=kept)
                serving = False
                with Watchdog(self._log, startup.alive):
                    while not self._stopping.is_set():
                        led = await self._look()
                        if led is not None:
                            # The socket's name must be free: the controller is about to serve its own users by it.
                            await led_users.close()
                            return led
                        led_users.follow(self._lease)
                        if self._clock.monotonic() > self._renew_at:
                            await self._renew()
                        if not serving:
                            serving = True
                            self._log.info("standby.began", host=self._host, leader=self._leader())
                            startup.serves()
                        await self._pause()
                self._log.info("daemon.stopped", standby=True)
                return None
        finally:
            try:
                await self._worker.run(self._store.drop, seconds=_DROP_SECONDS)
            except WorkerTimeout:
                pass  # it waits for the database; the end of the process closes the connection

    def _led(self) -> StandbyUsers | NoUsers:
        """The relay for users of this machine, if the other controllers are elsewhere."""
        others = [address for index, address in enumerate(self._configuration.addresses) if index != self._index]
        if self._membership is None or not others or is_here(others):
            return NoUsers()
        from spritz.controller.lead.users import StandbyUsers

        return StandbyUsers(self._configuration, self._membership, self._host, self._clock, self._log)

    async def _listen(self, server: Server) -> None:
        if (membership := self._membership) is not None:
            self._certificate = tls.PortCertificate(
                lambda: membership.keys(self._cluster, tls.CONTROLLER, self._clock.now()), self._log, streams=False
            )
            server.secure(self._certificate.context, None)
        try:
            for port in self._configuration.ports:
                await server.listen_tcp(self._configuration.listen_host(self._index), port)
        except OSError as error:
            raise SpritzError(
                f"cannot listen on SlurmctldPort {self._configuration.ports[0]}: {error.strerror}",
                hint="another slurmctld may be running; SlurmctldPort sets another port",
            ) from error

    async def _pause(self) -> None:
        try:
            async with within(LOOK_SECONDS):
                await self._hurry.wait()
        except TimeoutError:
            pass

    async def _look(self) -> tuple[PostgresJournal, Recovered] | None:
        """Follow the journal to its end; take the lease if allowed. Runs in a thread: replays and waits are long."""
        # It follows at each look, also while the holder is well: a standby that read a large state only when it leads
        # would keep the cluster without a controller for as long.
        taking = False
        try:
            followed = await self._done(self._worker.submit(self._follow))
            if followed is None:
                return None
            lease, difference = followed
            self._lease = lease
            if difference != self._difference:
                self._difference = difference
                if difference:
                    self._log.warning("standby.differs", detail=difference)
            forced = self._wanted.is_set()
            now = self._clock.monotonic()
            if not forced and (now < self._take_again_at or not self._watch.may_take(lease, now)):
                if lease.alive or not self._take_again_at:
                    self._database_answers()
                return None
            taking = True
            # Before the attempt: a takeover that is asked for while it runs is another one. Left set after a failed
            # attempt, `forced` would depose a holder minutes after the administrator asked.
            self._wanted.clear()
            self._hurry.clear()
            self._log.info("standby.taking_over", from_host=lease.holder or "none", term=lease.term, asked=forced)
            led = await self._done(self._worker.submit(self._take, lease, forced))
            if led is not None:
                self._database_answers()
        except JournalBusy:
            return None  # another standby was faster, or the holder lives after all
        except JournalError as error:
            if isinstance(error, (JournalCorrupt, JournalNewer)):
                raise  # waiting helps neither; the leader goes on without this standby
            self._watch.unanswered()
            # A database that is full answers reads, and each attempt to lead leaves a hole in its tables.
            if taking:
                self._take_again_at = self._clock.monotonic() + _TAKE_AGAIN_SECONDS
            if self._problem != error.message:
                self._problem = error.message
                self._log.error("standby.database_away", error=error.message)
            return None
        return led

    async def _done(self, work: asyncio.Future[T]) -> T | None:
        """The result of the thread, which may wait for long; None if this controller is stopped meanwhile."""
        # A lease that the thread takes after that is given up with its connection, when the process ends.
        either: list[asyncio.Future[Any]] = [work, self._stopped]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return None if self._stopped.done() else work.result()

    def _database_answers(self) -> None:
        if self._problem:
            self._log.info("standby.database_back")
            self._problem = ""
            self._take_again_at = 0.0

    def _follow(self) -> tuple[Lease, str]:
        """The lease, and what its holder has otherwise. Runs in the thread."""
        # The lease first: `lease.last` is then the end to which the copy goes. Read after the events, it could name
        # some that they lack.
        lease = self._store.prepared_lease()
        # And compared before anything long: a standby with another key must say so at its start, not after its first
        # replay.
        difference = self._compare(lease)
        self._copy.follow(self._store, lease.last)
        return lease, difference

    def _compare(self, lease: Lease) -> str:
        """The settings in which the leader differs from this controller, "" if none is known. Runs in the thread.

        Raises SpritzError if it has another key. The record of a former leader does not count: its key may have been
        replaced everywhere since.
        """
        leader = decoded(self._store.kept(RECORD)) if lease.holder and lease.alive else None
        # The record is written after the lease is taken: until then it is that of the leader before.
        if leader is None or leader.term != lease.term:
            return ""
        if self._own.has_other_key(leader):
            raise SpritzError(
                f"the cluster's key next to {self._configuration.path} is not that of {lease.holder}, which leads:"
                " nodes would not accept this controller",
                code="SLURM_PROTOCOL_AUTHENTICATION_ERROR",
                hint=f"copy {KEY_FILE} (or {KEYS_FILE}) from {lease.holder}",
            )
        self._read_again()
        names = self._own.other_settings(leader)
        differs = f"{', '.join(names)} of slurm.conf here differs from that of {lease.holder}" if names else ""
        return self._unreadable or differs

    def _read_again(self) -> None:
        """Read slurm.conf again if it was written since, only to compare it. Runs in the thread."""
        if (changed_at := _changed_at(self._configuration.path)) == self._read_at:
            return
        self._read_at = changed_at
        try:
            self._own = agreement_of(read_configuration(self._configuration.path), self._membership)
            self._unreadable = ""
        except SpritzError as error:
            self._unreadable = error.message

    def _take(self, lease: Lease, forced: bool) -> tuple[PostgresJournal, Recovered]:
        """Runs in the thread: raise the term, then read the last events of the former holder."""
        # In this order. Events read before the term is raised are not all: the former holder may commit a group, and
        # acknowledge it, between that read and the lease.
        journal = PostgresJournal(
            self._url,
            self._cluster,
            holder=self._host,
            address=self._configuration.addresses[self._index],
            lease_seconds=self._configuration.lease_seconds,
            seen=lease,  # taken only if it still is as it was when `Watch` judged it
            forced=forced,
        )
        try:
            return journal, self._copy.complete(journal)
        except BaseException:
            # It has the lease and cannot lead, with a damaged journal say. Closed, the lease is free for another.
            journal.close()
            raise

    # Requests

    def _leader(self) -> str:
        return self._lease.holder if self._lease is not None else ""

    def _ping(self, request: Ping, call: Call) -> Pong:
        return Pong(
            host=self._host,
            pid=os.getpid(),
            version=SLURM_VERSION,
            software=f"spritz {__version__}",
            started_at=self._started_at,
            now=self._clock.now(),
            mode="primary" if self._index == 0 else "backup",
            leading=False,
            leader=self._leader(),
            detail=self._problem or self._difference,
        )

    def _refuse(self, request: Struct, call: Call) -> Rejection:
        leader = self._leader()
        if self._problem:
            hint = f"no controller can lead while the journal's database is away: {self._problem}"
        elif leader:
            hint = f"{leader} leads" + (f" ({self._lease.address})" if self._lease and self._lease.address else "")
        else:
            hint = "no controller leads at this moment"
        return Rejection(code="ESLURM_IN_STANDBY_MODE", hint=hint)

    def _take_over(self, request: TakeOver, call: Call) -> Done | Rejection:
        if not self._may(call):
            return Rejection(code="ESLURM_USER_ID_MISSING")
        if self._problem:
            return Rejection(code="ESLURM_IN_STANDBY_MODE", hint=self._problem)
        self._wanted.set()
        self._hurry.set()
        return Done()

    def _shut_down(self, request: Shutdown, call: Call) -> Done | Rejection:
        if not self._may(call):
            return Rejection(code="ESLURM_USER_ID_MISSING")
        self._stop()
        return Done()

    def _hang_up(self) -> None:
        """SIGHUP: slurm.conf is compared with the leader's again; it comes into force when this controller leads."""
        self._renew_at = 0.0
        self._read_at = 0
        self._log.info("standby.reloaded", leader=self._leader())

    async def _renew(self) -> None:
        if self._certificate is not None:
            await self._certificate.renew()
        self._renew_at = self._clock.monotonic() + tls.READ_SECONDS

    def _stop(self) -> None:
        must_end(END_SECONDS)
        self._store.abandon()  # the thread may wait for a database that is frozen
        if not self._stopped.done():
            self._stopped.set_result(None)
        self._stopping.set()
        self._hurry.set()

    def _may(self, call: Call) -> bool:
        """Allow owners on this machine, and the leading controller, which has checked its caller."""
        machine = call.machine
        # A node's certificate is of this cluster too. With it any machine could make controllers take over.
        if machine is not None:
            return machine.role == _CONTROLLER and machine.cluster == self._cluster
        caller = call.caller
        return caller is not None and caller.uid in self._owners
