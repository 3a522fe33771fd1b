"""The slurmctld process: opens the journal, recovers, listens, runs, and stops in order.

`scontrol shutdown` relies on the order of stopping: new connections are refused; accepted requests become durable and
are answered; an image is written; the journal's lock is released; only then do the connections close. A client whose
connection closes therefore knows that the daemon has stopped.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from spritz.client.channel.server import Server
from spritz.client.channel.token_requests import TokenRequests
from spritz.client.locate import controller_socket_name
from spritz.client.trust.tokens import token_keys
from spritz.controller.api.cluster import ClusterQueries
from spritz.controller.api.table import handlers
from spritz.controller.callers.identity import Identity
from spritz.controller.callers.rate_limits import RateLimits, rate_rule
from spritz.controller.clock_changes import watch_clock
from spritz.controller.configuration import Configuration, read_configuration
from spritz.controller.context import Context
from spritz.controller.debug_flags import DebugFlags
from spritz.controller.diagnostics import Counting
from spritz.controller.forked import FORKS
from spritz.controller.jobcomp.listener import begin_job_completion
from spritz.controller.journal.blobs import BlobCollector, BlobStore
from spritz.controller.journal.contract import Journal, JournalCorrupt, JournalError, JournalNewer
from spritz.controller.journal.images import ImageKeeper
from spritz.controller.journal.postgresql import PostgresJournal
from spritz.controller.journal.reader import JournalReader
from spritz.controller.journal.recovery import Recovered
from spritz.controller.journal.state_directory import open_state
from spritz.controller.lead.agreement import record
from spritz.controller.lead.lease import LeaseKeeper
from spritz.controller.lead.standby import Standby
from spritz.controller.metrics.begin import begin_http
from spritz.controller.nodes.links import NodeLinks
from spritz.controller.nodes.messages import NodeMessages
from spritz.controller.outbox import begin_outbox
from spritz.controller.plugins.submit import begin_plugins, renew_plugins
from spritz.controller.programs.mail import Mailer
from spritz.controller.programs.power import PowerPrograms
from spritz.controller.programs.reservations import ReservationPrograms
from spritz.controller.programs.site import SitePrograms
from spritz.controller.programs.triggers import TriggerWatch
from spritz.controller.reconfigure_overrides import with_partitions, with_power
from spritz.controller.scheduler.driver import SchedulerDriver
from spritz.controller.scheduler.log import SchedulingLog
from spritz.controller.scheduler.shares import Shares
from spritz.controller.scheduler.usage_from_accounting import RecordedUsage
from spritz.controller.writer.commit import CommitThread
from spritz.controller.writer.listeners import Loss
from spritz.controller.writer.loop import SingleWriter
from spritz.controller.writer.timers import ClockTimers, DeadlineTimer
from spritz.model.errors import SpritzError
from spritz.model.rejection import Rejection
from spritz.runtime import garbage_collection
from spritz.runtime import log as runtime_log
from spritz.runtime.clock import SystemClock
from spritz.runtime.credentials import peer_credentials
from spritz.runtime.directory import Directory
from spritz.runtime.programs import run_programs
from spritz.runtime.sockets import AddressInUse
from spritz.runtime.stalls import StallWatch
from spritz.runtime.tasks import END_SECONDS, STOP_SECONDS, Supervisor, must_end
from spritz.runtime.watchdog import Watchdog
from spritz.runtime.worker import Worker
from spritz.timeouts import within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from spritz.client.trust.membership import Membership
    from spritz.controller.options import Options
    from spritz.model.commands.cluster import Configure
    from spritz.runtime.daemon.daemonize import Startup
    from spritz.runtime.daemon.pidfile import PidFile
    from spritz.runtime.log import Logger

#: Seconds for node daemons to acknowledge `scontrol shutdown`.
STOP_DAEMONS_SECONDS = 5.0

#: Exit status of `serve` if another controller leads or the journal's database is away: restart as a standby.
STAND_BY = 75

#: Seconds that SlurmctldPrimaryOnProg and SlurmctldPrimaryOffProg may take.
PRIMARY_PROGRAM_SECONDS = 10.0

#: Seconds that all of `Context.at_end` may take together.
FINISH_SECONDS = 5.0

#: A controller that stood by would read the same journal.
_NO_STANDBY_HELPS = (JournalCorrupt, JournalNewer)

#: Seconds between attempts to take a socket's name that another daemon of this machine holds.
_NAME_SECONDS = 0.2

#: Lines of other log files (SlurmSchedLogFile, JobCompLoc) queued for a slow disk; more are dropped and counted.
LOG_LINES_MAX = 100_000

#: Longest time that the journal's thread waits for the interpreter lock: every submitter waits for this thread.
SWITCH_SECONDS = 0.001

_IGNORED_SIGNALS = (signal.SIGUSR1, signal.SIGTSTP, signal.SIGXCPU, signal.SIGQUIT, signal.SIGALRM)


def _leaves(group: BaseExceptionGroup[JournalError]) -> Iterator[JournalError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def serve(
    options: Options,
    configuration: Configuration,
    membership: Membership | None,
    startup: Startup,
    log: Logger,
    slurm_uid: int,
    pid_file: PidFile,
) -> int:
    """Serve until stopped. Returns the exit status: 0 after a clean stop, STAND_BY after the loss of the lease."""
    return await _Daemon(options, configuration, membership, log, slurm_uid).run(startup, pid_file)


class _Daemon:
    def __init__(
        self,
        options: Options,
        configuration: Configuration,
        membership: Membership | None,
        log: Logger,
        slurm_uid: int,
    ) -> None:
        self._membership = membership
        self._options = options
        self._configuration = configuration
        self._log = log
        self._slurm_uid = slurm_uid
        self._stopping = asyncio.Event()
        self._stop_nodes = False
        self._failure: SpritzError | None = None
        self._tasks_failed = 0
        #: whether the cluster has several controllers
        self._standing_by = bool(configuration.journal_url)

    async def run(self, startup: Startup, pid_file: PidFile) -> int:
        sys.setswitchinterval(SWITCH_SECONDS)
        led = await self._lead(startup)
        if led is None:
            pid_file.release()
            return 0
        journal, recovered = led
        try:
            await self._run_leading(journal, recovered, startup, pid_file)
        except JournalError as error:
            self._failure = self._failure or error
        except BaseExceptionGroup as group:
            lost, others = group.split(JournalError)
            if lost is None or others is not None:
                raise
            self._failure = self._failure or next(_leaves(lost))
        finally:
            journal.close()
        if isinstance(journal, PostgresJournal):
            await self._run_program("SlurmctldPrimaryOffProg")
            if isinstance(self._failure, JournalError) and not isinstance(self._failure, _NO_STANDBY_HELPS):
                self._log.error("daemon.deposed", error=self._failure.message, action="standing by")
                return STAND_BY
        if self._failure is not None:
            raise self._failure
        self._log.info("daemon.stopped", last_sequence=journal.last_sequence)
        return 0

    async def _run_leading(self, journal: Journal, recovered: Recovered, startup: Startup, pid_file: PidFile) -> None:
        """Serve with this journal, until stopped or a failure. Raises JournalError, alone or in a group."""
        settings = self._configuration.loaded.settings
        if self._options.clear and settings.text("AccountingStorageType") == "accounting_storage/slurmdbd":
            self._log.warning(
                "accounting.not_sent",
                detail="events of the former state that slurmdbd still lacked are not sent",
            )
        context = self._context()
        context.journal, context.machine = journal, recovered.machine
        if self._standing_by:
            context.own_index = self._configuration.own_host(self._options.host)[0]
        if self._membership is not None:
            from spritz.controller.nodes.machines import Machines

            context.machines = Machines(context, self._membership)
        async with Supervisor(self._contained_failure, end_seconds=END_SECONDS) as tasks:
            context.tasks = tasks
            await self._serve(context, recovered, startup, pid_file)
            tasks.cancel_all()

    # Parts

    async def _serve(self, context: Context, recovered: Recovered, startup: Startup, pid_file: PidFile) -> None:
        """Listen and answer until stopped, then stop in order, except for the journal and the tasks."""
        journal = context.journal
        committer = CommitThread(lambda error: self._journal_failed(context, error))
        cluster = self._assemble(context, committer, recovered)
        context.submit_plugins = await begin_plugins(context, self._configuration)
        watch = StallWatch(self._log) if self._log.enabled("debug") else nullcontext()
        counting = context.counting
        trusted = frozenset((0, self._slurm_uid, os.geteuid()))
        table = handlers(context, cluster)
        server = Server(table, role="slurmctld", log=self._log, trusted=trusted, statistics=counting.calls)
        counting.server = server
        context.counters.append(
            lambda: {"requests.waited_count": float(server.turns.waited if server.turns is not None else 0)}
        )
        begin_http(context, server)
        if context.machines is not None:
            context.machines.begin(server)
        async with server:
            await self._listen(context, server)
            if context.machines is not None:
                await self._take_name(context, context.machines.listen_streams)
            self._begin(context, cluster, recovered)
            startup.serves()
            lease_keeper = (
                LeaseKeeper(journal, lambda error: self._journal_failed(context, error))
                if isinstance(journal, PostgresJournal)
                else nullcontext()
            )
            with watch, watch_clock(self._clock_set), Watchdog(self._log, startup.alive), lease_keeper:
                await self._stopping.wait()
            must_end(STOP_SECONDS)
            server.stop_listening()
            if context.machines is not None:
                context.machines.stop_listening()
            await self._wind_down(context, committer)
            pid_file.release()

    async def _lead(self, startup: Startup) -> tuple[Journal, Recovered] | None:
        """The journal and the state once this controller leads; None if it was stopped while standing by."""
        if not self._configuration.journal_url:
            return open_state(self._options, self._configuration, self._log)

        owners = frozenset((0, self._slurm_uid, os.geteuid()))
        led = await Standby(
            self._options, self._configuration, self._log, SystemClock(), owners, self._membership
        ).lead(startup)
        if led is not None:
            try:  # it may have stood by for long
                path = self._configuration.path
                self._configuration = await Worker("configuration").run(read_configuration, path)
            except SpritzError as error:
                self._log.error("config.refused", detail=error.message, hint="the old configuration stays in force")
            await record(led[0], self._configuration, self._membership, self._log)
        return led

    async def _run_program(self, key: str) -> None:
        """Run SlurmctldPrimaryOnProg or SlurmctldPrimaryOffProg."""
        program = self._configuration.loaded.settings.text(key)
        if program:
            variables = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "SLURM_CONF": self._configuration.path}
            failure = await run_programs((program,), variables, PRIMARY_PROGRAM_SECONDS)
            if failure is not None:
                self._log.error("program.failed", key=key, **failure._asdict())

    def _context(self) -> Context:
        context = Context()
        context.clock = SystemClock()
        context.log = self._log
        context.configuration = self._configuration
        directory = Directory(context.clock, self._log)
        context.identity = Identity(self._slurm_uid, directory)
        loaded = self._configuration.loaded.settings
        types, options = loaded.words("AuthAltTypes"), loaded.words("AuthAltParameters")
        keys = token_keys(types, options, str(self._configuration.state_directory))
        context.limits = limits = RateLimits(self._log, rate_rule(loaded))
        context.tokens = TokenRequests(keys, directory, context.clock, self._slurm_uid)
        context.started_at = context.clock.now()
        context.counting = Counting(context.started_at)
        context.counters = []
        context.events_needed = []
        log_files = context.log_files = Worker("log files", waiting_max=LOG_LINES_MAX)
        context.counters.append(
            lambda: {
                "directory.unanswered_count": float(directory.unanswered),
                "log_files.dropped_lines": float(log_files.dropped),
                "requests.delayed_count": float(limits.delayed),
                "requests.refused_count": float(limits.refused),
            }
        )
        context.at_end = [lambda: log_files.run(lambda: None)]  # after all lines written so far
        context.request_stop = self._request_stop
        return context

    def _assemble(self, context: Context, committer: CommitThread, recovered: Recovered) -> ClusterQueries:
        context.reader = JournalReader(context.journal)
        context.blobs = BlobStore(context.journal, context.reader)
        context.blobs.attribute(context.machine.state.jobs.values())
        context.collector = BlobCollector(context)
        messages = NodeMessages(lambda: context.machine.state, context.blobs, lambda: context.journal.term)
        context.nodes = NodeLinks(context, messages)
        if isinstance(context.journal, PostgresJournal):
            leading = context.journal

            def record_again() -> None:
                recording = record(leading, self._configuration, self._membership, self._log)
                context.tasks.spawn_contained(recording, name="agreement")

            context.nodes.on_term.append(record_again)
        context.writer = writer = SingleWriter(
            recovered.machine,
            context.journal,
            context.blobs,
            committer,
            context.clock,
            self._log,
            on_effects=context.nodes.carry_out,
            on_broken=self._core_failed,
        )
        context.counters.append(lambda: {f"failure.{where}": float(count) for where, count in writer.failures.items()})
        context.counters.append(FORKS.counters)
        context.counters.append(lambda: {"failure.task": float(self._tasks_failed)})
        writer.listeners.add("counting", context.counting.listen, Loss.IGNORE)
        context.debug_flags = DebugFlags(context)
        context.debug_flags.put(self._configuration.loaded.settings.words("DebugFlags"))
        writer.listeners.add("debug_flags", context.debug_flags.listen, Loss.IGNORE)
        context.scheduling_log = SchedulingLog(context)
        self._configuration.tell(context.scheduling_log)
        writer.listeners.add("scheduling_log", context.scheduling_log.listen, Loss.IGNORE)
        # Order of hooks: the scheduler first, so that a start joins the group of the event that made it possible.
        self._scheduler = SchedulerDriver(context)
        context.recorded = RecordedUsage(context)
        self._shares = context.shares = Shares(context, self._scheduler.take_fairshare)
        self._timer = DeadlineTimer(context)
        self._images = ImageKeeper(context, recovered.image_sequence)
        self._timers = ClockTimers(context.clock)
        Mailer(context, self._timers)
        return ClusterQueries(context)

    async def _listen(self, context: Context, server: Server) -> None:
        configuration = self._configuration
        ports = configuration.ports
        host = configuration.listen_host(configuration.own_host(self._options.host)[0]) if self._standing_by else ""
        name = controller_socket_name(configuration.settings.cluster_name, ports[0])
        try:
            try:
                await self._take_name(context, lambda: server.listen_unix(name))
            except AddressInUse:
                stranger = self._stranger_at(name)
                if stranger is None:
                    raise
                # No client trusts a foreign process behind this socket name. The controller's own TCP port serves as
                # well: the kernel identifies its peers too.
                self._log.error(
                    "socket.taken", name=name.replace("\0", "@"), uid=stranger, action="serving by TCP alone"
                )
            for port in ports:
                await server.listen_tcp(host, port)
        except OSError as error:
            raise SpritzError(
                f"cannot listen on SlurmctldPort {ports[0]}: {error.strerror}",
                hint="another slurmctld may be running; SlurmctldPort sets another port",
            ) from error

    async def _take_name(self, context: Context, listen: Callable[[], Awaitable[object]]) -> None:
        """Listen at the name of a Unix socket. Raises AddressInUse, but not where controllers stand by for each other:
        slurmd or sackd of this machine has the name until it notices this controller, and a deposed controller that was
        stopped has it until it goes on. Then it is taken later.
        """
        try:
            await listen()
        except AddressInUse:
            if not self._standing_by:
                raise
            context.tasks.spawn_contained(self._take_name_later(context, listen), name="socket.name")

    async def _take_name_later(self, context: Context, listen: Callable[[], Awaitable[object]]) -> None:
        reported = False
        while True:
            await context.clock.sleep(_NAME_SECONDS)
            try:
                await listen()
            except AddressInUse as error:
                if not reported:
                    reported = True
                    shown = str(error.filename)
                    stranger = self._stranger_at(shown.replace("@", "\0", 1))
                    if stranger is None:
                        self._log.info("socket.awaited", name=shown, action="serving by TCP meanwhile")
                    else:
                        self._log.error("socket.taken", name=shown, uid=stranger, action="serving by TCP alone")
            else:
                return

    def _stranger_at(self, name: str) -> int | None:
        """The uid of a process that listens at a Unix socket, unless that user may run the controller."""
        probe = socket.socket(socket.AF_UNIX)
        try:
            probe.settimeout(1.0)
            probe.connect(name)
            holder = peer_credentials(probe)
        except OSError:
            return None
        finally:
            probe.close()
        return holder.uid if holder and holder.uid not in (0, self._slurm_uid, os.geteuid()) else None

    def _begin(self, context: Context, cluster: ClusterQueries, recovered: Recovered) -> None:
        """Give the core its configuration, and start the background tasks."""
        reply = context.writer.handle_own(self._first_configure(context))
        if isinstance(reply, Rejection):
            raise SpritzError(f"{self._configuration.path}: {reply.text}", code=reply.code, hint=reply.hint)
        for item in self._configuration.loaded.warnings:
            self._log.warning("config.questionable", detail=item.text)
        SitePrograms(context)
        ReservationPrograms(context)
        PowerPrograms(context)
        TriggerWatch(context, self._timers, self._happened())
        begin_outbox(context)
        begin_job_completion(context)
        context.tasks.keep(context.nodes.patrol(), name="node.patrol")
        context.tasks.keep(context.nodes.listen(), name="node.listen")
        context.tasks.keep(context.collector.run(), name="blobs.collect")
        garbage_collection.tame()
        context.tasks.keep(garbage_collection.keep_sweeping(context.clock), name="garbage.sweep")
        self._watch_signals(context, cluster)
        if self._standing_by:
            context.tasks.spawn_contained(self._run_program("SlurmctldPrimaryOnProg"), name="primary")
        self._log.info(
            "daemon.started",
            cluster=self._configuration.settings.cluster_name,
            term=context.journal.term,
            jobs=len(context.machine.state.jobs),
            nodes=len(context.machine.state.nodes),
            replayed_events=recovered.replayed,
            start_seconds=context.clock.now() - context.started_at,
        )

    def _happened(self) -> tuple[str, ...]:
        """Triggers that fire because this controller now leads."""
        if not self._standing_by:
            return ("primary_slurmctld_resumed_operation",)
        if self._configuration.own_host(self._options.host)[0]:
            return ("primary_slurmctld_failure", "backup_slurmctld_assumed_control")
        return ("primary_slurmctld_resumed_operation", "primary_slurmctld_resumed_control")

    def _first_configure(self, context: Context) -> Configure:
        command = self._configuration.command()
        if not self._options.recover_partitions:
            return command
        state = context.machine.state
        return with_power(with_partitions(command, state.partitions), state.settings.power)

    # Stopping

    def _request_stop(self, stop_nodes: bool) -> None:
        self._stop_nodes = self._stop_nodes or stop_nodes
        self._stopping.set()

    def _journal_failed(self, context: Context, error: JournalError) -> None:
        """Stop: only durable events have been released, and no others will be."""
        context.writer.stop()
        self._failure = error
        self._log.error("journal.failed", error=error.message)
        self._stopping.set()

    def _core_failed(self, error: Exception) -> None:
        """Stop and recover from the journal: the state in memory and the journal differ."""
        self._failure = SpritzError(
            f"slurmctld cannot continue with its state in memory: {error!r}; acknowledged changes are in the journal",
            hint="this is a fault of Spritz; the log has its traceback",
        )
        self._stopping.set()

    async def _wind_down(self, context: Context, committer: CommitThread) -> None:
        self._timer.cancel()
        self._timers.cancel()
        self._scheduler.stop()
        self._shares.stop()
        if self._failure is None and self._stop_nodes:
            await context.nodes.stop_daemons(STOP_DAEMONS_SECONDS)
        if self._failure is None:
            await context.writer.drain()
            await self._finish(context)
        context.writer.stop()
        committer.close()
        if self._failure is None:
            try:
                self._images.write_now()
            except JournalError as error:
                # No loss: the journal has all events, and the next start replays them.
                self._log.error("image.failed", error=error.message)
        context.journal.close()

    async def _finish(self, context: Context) -> None:
        try:
            async with within(FINISH_SECONDS):
                for finish in context.at_end:
                    await finish()
        except TimeoutError:
            self._log.error("daemon.unfinished", seconds=FINISH_SECONDS)

    def _contained_failure(self, name: str, error: Exception) -> None:
        self._tasks_failed += 1
        self._log.error("task.failed", exception=error, task=name)

    def _clock_set(self) -> None:
        self._log.info("clock.set")
        self._timer.look_again()
        self._timers.look_again()
        self._scheduler.clock_set()

    # Signals

    def _watch_signals(self, context: Context, cluster: ClusterQueries) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._terminated, number)
        loop.add_signal_handler(
            signal.SIGHUP, lambda: context.tasks.spawn_contained(self._reread(context, cluster), name="configuration")
        )
        loop.add_signal_handler(signal.SIGUSR2, self._reopen_log, context)
        for number in _IGNORED_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _terminated(self, number: int) -> None:
        self._log.info("daemon.terminating", signal=signal.Signals(number).name)
        self._request_stop(False)

    async def _reread(self, context: Context, cluster: ClusterQueries) -> None:
        try:
            await cluster.reread()
        except SpritzError as error:
            self._log.error("config.refused", detail=error.message, hint="the old configuration stays in force")
        else:
            await renew_plugins(context, context.configuration)

    def _reopen_log(self, context: Context) -> None:
        runtime_log.reopen()
        try:
            level = runtime_log.level_raised(context.configuration.log_level, self._options.verbose)
            to_syslog = context.configuration.loaded.settings.text("SlurmctldSyslogDebug")
            runtime_log.set_levels(file_level=level, syslog_level=to_syslog or "quiet")
        except ValueError as error:
            self._log.error("log.level_refused", error=error)
