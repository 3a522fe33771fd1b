"""Requests about the daemon and the configuration: ping, show config, reconfigure, shutdown, setdebug, statistics.

Source: scontrol(1).
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from spritz import SLURM_VERSION, __version__
from spritz.config.fixed import need_unchanged
from spritz.config.power import changed_exceptions, exceptions_text
from spritz.config.show import show_config
from spritz.controller.callers.rate_limits import rate_rule
from spritz.controller.configuration import Configuration, read_configuration
from spritz.controller.journal.kept import Journaled
from spritz.controller.journal.postgresql import PostgresJournal
from spritz.controller.lead.agreement import record
from spritz.controller.lead.peers import Peers, need_administrator
from spritz.controller.needs import Clocked, Counted, Identifying, Logged, Reading, Spawning
from spritz.controller.plugins.submit import renew_plugins
from spritz.controller.reconfigure_overrides import apply_reconfig_flags
from spritz.controller.writer.durable import Writing
from spritz.core.rights import operates
from spritz.model.commands.cluster import Configure
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.model.node.networks import networks_of
from spritz.model.queries.configuration import ConfigText, ShowConfig
from spritz.model.queries.daemons import (
    PauseScheduling,
    Ping,
    Pong,
    Reconfigure,
    SetDampening,
    SetDebug,
    SetDebugFlag,
    SetPowerException,
    SetSchedulingLog,
    Shutdown,
)
from spritz.model.queries.diagnostics import Diagnostics, GetDiagnostics, ResetDiagnostics
from spritz.model.queries.events import Counters, Statistics
from spritz.model.rejection import Rejection
from spritz.runtime.log import set_levels
from spritz.runtime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.client.channel.handling import Call
    from spritz.controller.callers.rate_limits import RateLimits
    from spritz.controller.configuration import Configuration
    from spritz.controller.debug_flags import DebugFlags
    from spritz.controller.diagnostics import Counting
    from spritz.controller.nodes.links import NodeLinks
    from spritz.controller.nodes.machines import Machines
    from spritz.controller.plugins.submit import SubmitPlugins
    from spritz.controller.scheduler.log import SchedulingLog
    from spritz.model.cluster.settings import ClusterSettings
    from spritz.runtime.privilege import User

#: Seconds that reading the configuration again may take.
READ_SECONDS = 60.0

#: Keys that need a restart: the daemon has bound, opened or become what they name.
FIXED_KEYS = (
    "ClusterName",
    "SlurmUser",
    "SlurmctldPort",
    "StateSaveLocation",
    "SlurmctldPidFile",
    "AuthType",
    "AuthAltTypes",
    "AuthAltParameters",
)


class Administering(Clocked, Counted, Identifying, Journaled, Logged, Reading, Spawning, Writing, Protocol):
    """What administrators see and change: nearly every part of the controller."""

    configuration: Configuration
    scheduling_paused: bool
    submit_plugins: SubmitPlugins | None

    @property
    def counting(self) -> Counting: ...

    @property
    def debug_flags(self) -> DebugFlags: ...

    @property
    def limits(self) -> RateLimits | None: ...

    @property
    def machines(self) -> Machines | None: ...

    @property
    def nodes(self) -> NodeLinks: ...

    @property
    def own_index(self) -> int: ...

    @property
    def request_stop(self) -> Callable[[bool], None]: ...

    @property
    def scheduling_log(self) -> SchedulingLog: ...

    @property
    def started_at(self) -> float: ...


class ClusterQueries:
    """Answers requests about the daemon itself."""

    def __init__(self, context: Administering) -> None:
        self._context = context
        self._host = socket.gethostname()
        self._reader = Worker("configuration")
        self.peers = Peers(context)

    def ping(self, request: Ping, call: Call) -> Pong:
        """Open to every caller, authenticated or not: it reveals no more than the open port."""
        context = self._context
        return Pong(
            host=self._host,
            pid=os.getpid(),
            version=SLURM_VERSION,
            software=f"spritz {__version__}",
            started_at=context.started_at,
            now=context.clock.now(),
        )

    def show_config(self, request: ShowConfig, call: Call) -> ConfigText:
        """Every key with its value in force."""
        context = self._context
        context.identity.caller(call)
        configuration = context.configuration
        nodes = context.machine.state.nodes.values()
        places = {node.name: node.place for node in nodes if node.place}
        networks = networks_of(configuration.settings.topologies, places)
        return ConfigText(
            now=context.clock.now(),
            pairs=show_config(configuration.loaded, self._live(configuration)),
            settings=replace(configuration.settings, topologies=networks),
            controllers=configuration.addresses,
            started_at=context.started_at,
            digest=configuration.loaded.digest,
            remote_licenses=context.machine.state.rules.licenses,
        )

    def _live(self, configuration: Configuration) -> dict[str, str]:
        """Values that only the running daemon knows, and users with their ids."""
        return {
            "BOOT_TIME": "",
            "DebugFlags": ",".join(sorted(self._context.debug_flags.flags)) or "(null)",
            "FairShareDampeningFactor": str(self._context.machine.state.settings.priority_policy.dampening),
            "HASH_VAL": "",
            "MULTIPLE_SLURMD": "Yes",
            "NEXT_JOB_ID": str(self._context.machine.state.next_job_id),
            "SLURM_CONF": configuration.path,
            "SLURM_VERSION": SLURM_VERSION,
            **exceptions_text(self._context.machine.state.settings.power),
            "SlurmSchedLogLevel": str(self._context.scheduling_log.level),
            "SlurmUser": _with_id(configuration.slurm_user_entry, configuration.settings.slurm_user),
            "SlurmdUser": _with_id(configuration.slurmd_user_entry, configuration.slurmd_user),
        }

    async def reconfigure(self, request: Reconfigure, call: Call) -> Done:
        """Read the files again. With faults, nothing changes and all of them are reported."""
        self.administrators_only(call)
        messages = await self.reread()
        await renew_plugins(self._context, self._context.configuration)
        await self._context.writer.durable()
        return Done(messages=messages)

    async def reread(self) -> tuple[str, ...]:
        """Replace the configuration. Returns warnings for the administrator. Raises SpritzError, and then changes
        nothing.
        """
        context = self._context
        fresh = await self._reader.run(read_configuration, context.configuration.path, seconds=READ_SECONDS)
        old = context.configuration.loaded.settings
        need_unchanged(FIXED_KEYS, old, fresh.loaded.settings, path=fresh.path, daemon="slurmctld")
        files = await context.machines.read(fresh.loaded) if context.machines is not None else None
        before = {node.name for node in context.configuration.nodes}
        flags = fresh.loaded.settings.words("ReconfigFlags")
        reply = context.writer.handle_own(apply_reconfig_flags(fresh.command(), context.machine.state, flags))
        if isinstance(reply, Rejection):
            raise SpritzError(reply.text, code=reply.code, hint=reply.hint)
        context.configuration = fresh
        if isinstance(context.journal, PostgresJournal):
            membership = None if context.machines is None else context.machines.membership
            await record(context.journal, fresh, membership, context.log)
        context.debug_flags.put(fresh.loaded.settings.words("DebugFlags"))
        fresh.tell(context.scheduling_log)
        if context.limits is not None:
            context.limits.rule = rate_rule(fresh.loaded.settings)
        context.identity.directory.expire()
        if context.machines is not None and files is not None:
            context.machines.serve(files)  # nodes notified below fetch these
        context.nodes.reload()
        context.nodes.dismiss(sorted(before - {node.name for node in fresh.nodes}))
        warnings = tuple(item.text for item in fresh.loaded.warnings)
        for text in warnings:
            context.log.warning("config.questionable", detail=text)
        if context.machines is not None and (problem := await context.machines.certificate.renew()):
            warnings += (problem,)
        context.log.info("config.reread", path=fresh.path, nodes=len(fresh.nodes), partitions=len(fresh.partitions))
        return warnings

    async def shutdown(self, request: Shutdown, call: Call) -> Done:
        """Stop this controller and its standbys; the connection closes when everything is on disk."""
        self.administrators_only(call)
        if len(self._context.configuration.addresses) > 1:
            await self.peers.shut_down()
        self._context.log.info("daemon.shutdown_requested", uid=call.caller.uid if call.caller else -1)
        self._context.request_stop(not request.controller_only)
        return Done()

    def pause_scheduling(self, request: PauseScheduling, call: Call) -> Done:
        """Stop starting jobs, or start them again; for administrators only."""
        self.administrators_only(call)
        self._context.scheduling_paused = request.paused
        self._context.log.info("scheduler.paused" if request.paused else "scheduler.resumed")
        self._context.writer.turn()
        return Done()

    async def set_dampening(self, request: SetDampening, call: Call) -> Done:
        """Set FairShareDampeningFactor until the configuration is read again."""
        self.administrators_only(call)
        if not 1 <= request.factor <= 0xFFFF:
            raise SpritzError(f"invalid dampening factor: {request.factor}", code="ESLURM_NOT_SUPPORTED")
        state = self._context.machine.state
        policy = replace(state.settings.priority_policy, dampening=request.factor)
        return await self._settle(replace(state.settings, priority_policy=policy))

    async def set_power_exception(self, request: SetPowerException, call: Call) -> Done:
        """Set nodes, partitions or states exempt from power saving until the configuration is read again (longer with
        ReconfigFlags=KeepPowerSaveSettings).
        """
        self.administrators_only(call)
        state = self._context.machine.state
        try:
            power = changed_exceptions(state.settings.power, request.key, request.sign, request.text)
        except ValueError as error:
            raise SpritzError(f"Invalid {request.key} value: {request.text}", code="ESLURM_NOT_SUPPORTED") from error
        if not {name for names, _count in power.kept for name in names} <= state.nodes.keys():
            raise SpritzError(Rejection(code="ESLURM_INVALID_NODE_NAME").text, code="ESLURM_INVALID_NODE_NAME")
        if not state.partitions.keys() >= set(power.kept_partitions):
            code = "ESLURM_INVALID_PARTITION_NAME"
            raise SpritzError(Rejection(code=code).text, code=code)
        return await self._settle(replace(state.settings, power=power))

    async def _settle(self, settings: ClusterSettings) -> Done:
        """Apply changed settings."""
        state = self._context.machine.state
        nodes = tuple(node.config for node in state.nodes.values())
        partitions = tuple(state.partitions.values())
        self._context.writer.handle_own(Configure(settings=settings, nodes=nodes, partitions=partitions))
        await self._context.writer.durable()
        return Done()

    def set_debug(self, request: SetDebug, call: Call) -> Done:
        """Set the log level until the next restart or reading of the configuration."""
        self.administrators_only(call)
        try:
            set_levels(file_level=request.level, stderr_level=request.level)
        except ValueError as error:
            raise SpritzError(str(error), code="ESLURM_NOT_SUPPORTED") from error
        self._context.log.info("log.level_set", level=request.level)
        return Done()

    def set_scheduling_log(self, request: SetSchedulingLog, call: Call) -> Done:
        """Turn the scheduling log on or off."""
        self.administrators_only(call)
        self._context.scheduling_log.set_level(request.level)
        self._context.log.info("log.scheduling_level_set", level=request.level)
        return Done()

    def set_debug_flag(self, request: SetDebugFlag, call: Call) -> Done:
        """Turn a debug flag on or off."""
        self.administrators_only(call)
        self._context.debug_flags.change(request.flag, request.on)
        self._context.log.info("log.flag_set", flag=request.flag, on=request.on)
        return Done()

    def statistics(self, request: Statistics, call: Call) -> Counters:
        """Counters since the start of the daemon."""
        context = self._context
        context.identity.caller(call)
        values = {f"request.{kind}_count": count for kind, (count, _) in context.counting.calls.kinds.items()}
        values["journal.durable_sequence"] = float(context.writer.durable_sequence)
        values["journal.groups_count"] = float(context.writer.groups)
        values["writer.commands_count"] = float(context.writer.commands)
        for source in context.counters:
            values.update(source())
        return Counters(values=values)

    def diagnostics(self, request: GetDiagnostics, call: Call) -> Diagnostics:
        """The figures of sdiag, for every user."""
        self._context.identity.caller(call)
        return self._context.counting.figures(self._context)

    def reset_diagnostics(self, request: ResetDiagnostics, call: Call) -> Done:
        """Reset the counters to zero. Raises SpritzError unless the caller is an operator."""
        context = self._context
        if not operates(context.machine.state, context.identity.caller(call)):
            raise SpritzError(Rejection(code="ESLURM_ACCESS_DENIED").text, code="ESLURM_ACCESS_DENIED")
        self._context.counting.clear(self._context.clock.now())
        return Done()

    def administrators_only(self, call: Call) -> None:
        """Raises SpritzError unless the caller is an administrator."""
        need_administrator(self._context, call)


def _with_id(entry: User | None, name: str) -> str:
    """`root(0)`, as Slurm shows users in its configuration."""
    return name if entry is None else f"{entry.name}({entry.uid})"
