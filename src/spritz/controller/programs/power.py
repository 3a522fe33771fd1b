"""ResumeProgram, SuspendProgram and ResumeFailProgram: run here as SlurmUser, with a hostlist.

Owns their processes and the file that SLURM_RESUME_FILE names; the core decides when nodes go up and down
(`core.decide.node.power`). A program starts once the events that request it are durable, and its start is journaled, so
that a restarted controller does not run it again. Only a controller killed between the two runs it twice. Programs have
no time limit, and outlive the daemon.

Source: slurm.conf(5) ResumeProgram, SuspendProgram, ResumeFailProgram; the Power Saving Guide for the file.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from spritz.controller.needs import Configured, Logged, Reading, Spawning
from spritz.controller.writer.durable import Writing
from spritz.controller.writer.listeners import Loss
from spritz.model.events import cluster as cluster_events
from spritz.model.job.job_variables import SEARCH_PATH
from spritz.model.job.record import Sharing
from spritz.model.node_daemon.reports import PowerProgramStarted
from spritz.model.states import NodeFlag
from spritz.notation import hostlist

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from spritz.controller.nodes.links import NodeLinks
    from spritz.core.state import State
    from spritz.model.events import Event
    from spritz.model.job.record import Job


class Powering(Configured, Logged, Reading, Spawning, Writing, Protocol):
    """What programs for power follow and change."""

    @property
    def nodes(self) -> NodeLinks: ...


class PowerPrograms:
    def __init__(self, context: Powering) -> None:
        self._context = context
        self._handlers: dict[type[Event], Callable[..., None]] = {
            cluster_events.NodesPowered: self._powered,
            cluster_events.NodesNotResumed: self._not_resumed,
            cluster_events.NodesRebooting: self._rebooting,
        }
        context.writer.listeners.add("power_programs", self._listen, Loss.REBUILD, self._rebuild)
        for (up, at), names in _uncalled(context.machine.state).items():
            self._call(tuple(names), up, at)

    def _rebuild(self) -> None:
        """Run the programs that have not been run, as after a restart; one that is being started now runs twice."""
        for (up, at), names in _uncalled(self._context.machine.state).items():
            self._powered(cluster_events.NodesPowered(at=at, names=tuple(names), up=up))

    def _listen(self, events: Sequence[Event]) -> None:
        for event in events:
            handler = self._handlers.get(type(event))
            if handler is not None:
                handler(event)

    def _powered(self, event: cluster_events.NodesPowered) -> None:
        if event.up:
            # A daemon that stayed up would not register again by itself.
            self._context.nodes.dismiss(event.names)
        self._context.writer.when_durable(lambda: self._call(event.names, event.up, event.at))

    def _not_resumed(self, event: cluster_events.NodesNotResumed) -> None:
        self._context.log.error("node.not_resumed", nodes=hostlist.compress(event.names))
        self._context.writer.when_durable(lambda: self._call_fail(event.names))

    def _rebooting(self, event: cluster_events.NodesRebooting) -> None:
        if self._context.machine.state.settings.power.reboots_here:
            self._context.writer.when_durable(lambda: self._call_reboot(event.names, event.features))

    def _call_reboot(self, names: tuple[str, ...], features: tuple[str, ...]) -> None:
        self._context.tasks.spawn_contained(self._run_reboot(names, features), name="power_program")

    async def _run_reboot(self, names: tuple[str, ...], features: tuple[str, ...]) -> None:
        self._context.log.info("node.rebooting", nodes=hostlist.compress(names))
        more = [",".join(features)] if features else []
        await self._end("RebootProgram", await self._start("RebootProgram", names, {}, more))

    def _call(self, names: tuple[str, ...], up: bool, at: float) -> None:
        self._context.tasks.spawn_contained(self._run(names, up, at), name="power_program")

    def _call_fail(self, names: tuple[str, ...]) -> None:
        self._context.tasks.spawn_contained(self._run_fail(names), name="power_program")

    async def _run(self, names: tuple[str, ...], up: bool, at: float) -> None:
        key = "ResumeProgram" if up else "SuspendProgram"
        self._context.log.info("node.powering", up=up, nodes=hostlist.compress(names))
        path = self._resume_file(names) if up else ""
        process = await self._start(key, names, {"SLURM_RESUME_FILE": path} if path else {})
        try:
            # A failed start is not retried: the nodes' timeout decides what follows.
            self._context.writer.handle_own(PowerProgramStarted(names=names, up=up, began_at=at))
            await self._end(key, process)
        finally:
            if path and (process is None or process.returncode is not None):
                os.unlink(path)

    async def _run_fail(self, names: tuple[str, ...]) -> None:
        await self._end("ResumeFailProgram", await self._start("ResumeFailProgram", names, {}))

    async def _start(
        self, key: str, names: tuple[str, ...], more: dict[str, str], arguments: Sequence[str] = ()
    ) -> Process | None:
        configuration = self._context.configuration
        program = configuration.loaded.settings.text(key)
        if not program:
            return None
        variables = {
            "PATH": SEARCH_PATH,
            "SLURM_CONF": configuration.path,
            "SLURM_CLUSTER_NAME": configuration.settings.cluster_name,
        }
        try:
            return await asyncio.create_subprocess_exec(
                *(shlex.split(program) if key == "RebootProgram" else [program]),
                ",".join(names) if key == "RebootProgram" else hostlist.compress(names),
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env=variables | more,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            self._context.log.error("power_program.failed", program=program, error=error.strerror or "")
            return None

    async def _end(self, key: str, process: Process | None) -> None:
        if process is None:
            return
        status = await process.wait()
        if status:
            self._context.log.error("power_program.failed", program=key, exit_status=status)

    def _resume_file(self, names: tuple[str, ...]) -> str:
        text = json.dumps(resume_file(self._context.machine.state, names), indent=1)
        directory = self._context.configuration.loaded.settings.text("StateSaveLocation")
        try:
            handle, path = tempfile.mkstemp(prefix="resume-", suffix=".json", dir=directory)
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as stream:
                stream.write(text)
        except OSError as error:
            self._context.log.error("resume_file.failed", error=error.strerror or "")
            return ""
        return path


def _uncalled(state: State) -> dict[tuple[bool, float], list[str]]:
    """Nodes whose program the previous controller had not started, by direction and start time."""
    groups: dict[tuple[bool, float], list[str]] = {}
    for node in state.nodes.values():
        if node.power_called:
            continue
        if node.flags & NodeFlag.POWERING_UP:
            groups.setdefault((True, node.resumed_at), []).append(node.name)
        elif node.flags & NodeFlag.POWERING_DOWN:
            groups.setdefault((False, node.suspended_at), []).append(node.name)
    return groups


def resume_file(state: State, names: Sequence[str]) -> dict[str, object]:
    """For the nodes to be resumed, which jobs wait for which of them."""
    named = set(names)
    jobs = {number: state.jobs[number] for name in names for number in state.uses[name].jobs}
    return {
        "all_nodes_resume": hostlist.compress(names),
        "jobs": [_job_entry(state, jobs[number], named) for number in sorted(jobs)],
    }


def _job_entry(state: State, job: Job, wanted: set[str]) -> dict[str, object]:
    allocation = job.allocation
    nodes = allocation.names if allocation is not None else ()
    return {
        "extra": job.spec.extra or None,
        "features": job.spec.features or None,
        "job_id": job.id,
        "nodes_alloc": hostlist.compress(nodes),
        "nodes_resume": hostlist.compress([name for name in nodes if name in wanted]),
        "oversubscribe": _oversubscribe(state, job),
        "partition": job.partition,
        "reservation": job.spec.reservation or None,
    }


def _oversubscribe(state: State, job: Job) -> str:
    """The value that `scontrol show job` shows."""
    if job.allocation is not None and job.allocation.whole_nodes:
        return "NO"
    if job.spec.sharing in (Sharing.MCS, Sharing.TOPO):
        return str(job.spec.sharing.value).upper()
    if job.spec.sharing is Sharing.USER:
        return "USER"
    return "YES" if job.spec.sharing is Sharing.OVERSUBSCRIBE else "OK"
