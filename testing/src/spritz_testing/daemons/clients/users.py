"""Simulated users: each request of a plan is made by a command of its own (`command`), a process of its user.

What the user asked, and what the user was told, goes into the history. A plan names jobs by tags. An action on a job
whose number was never told to its user is skipped.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from spritz_testing.daemons import seam
from spritz_testing.daemons.clients import blocking, triggers
from spritz_testing.daemons.clients.command import Command, Data, Skipped
from spritz_testing.daemons.clients.followers import follow
from spritz_testing.daemons.clients.inquiries import inquire
from spritz_testing.daemons.clients.launches import LAUNCHES
from spritz_testing.daemons.clients.operators import OPERATIONS
from spritz_testing.daemons.clients.readings import READINGS
from spritz_testing.daemons.clients.requests import REQUESTS
from spritz_testing.daemons.history import Left
from spritz_testing.daemons.system.machine import user_name_of
from spritz_testing.daemons.system.world import EPOCH

if TYPE_CHECKING:
    from spritz_testing.daemons.node.nodes import NodeMachine
    from spritz_testing.daemons.node.work import StepRun
    from spritz_testing.daemons.plan import Action
    from spritz_testing.daemons.site import Site
    from spritz_testing.daemons.system.world import Host
    from spritz_testing.daemons.workloads.workload import NewJob, NewStep

seam.MORE.append(blocking.replacements)

_TAG = re.compile(rb"^# tag (.*)$", re.MULTILINE)

#: what carries out each kind of action
KINDS: dict[str, Callable[[Command, Data], None]] = {
    **REQUESTS,
    **LAUNCHES,
    **OPERATIONS,
    **READINGS,
    "inquire": inquire,
    "set_trigger": triggers.set_trigger,
    "follow": follow,
}


class Parent(Protocol):
    """What calls srun, which ends with it: salloc's process, or a script."""

    is_alive: bool
    on_end: list[Callable[[bool], None]]


class _Script:
    """A batch script that runs on a node."""

    def __init__(self, run: StepRun) -> None:
        self.is_alive = run.is_running or not run.tasks
        self.on_end: list[Callable[[bool], None]] = []

    def end(self) -> None:
        self.is_alive = False
        for ended in self.on_end:
            ended(False)


class Users:
    """All users of a site, and what they were told."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.world = site.world
        self.history = site.history
        site.users = self
        #: tag -> job id, as told; of a heterogeneous job the leader's
        self.jobs: dict[str, int] = {}
        #: commands that run, by pid
        self.commands: dict[int, Command] = {}
        #: jobs with steps in their script, by tag
        self._scripts: dict[str, NewJob] = {}
        for machine in site.machines.values():
            self.watch(machine)
        triggers.watch(self)

    def schedule(self, actions: Iterable[Action]) -> None:
        """Let all actions that are users' happen at their times."""
        for action in actions:
            if action.kind in KINDS:
                self.world.at(EPOCH + action.at, partial(self.perform, action))

    def perform(self, action: Action) -> None:
        """Start the command of an action. `action.target` is the user, `data["kill_after"]` when it is killed."""
        self.start(action.target, action.kind, KINDS[action.kind], action.data, self.site.login)

    def start(self, user: str, kind: str, body: Callable[[Command, Data], None], data: Data, host: Host) -> Command:
        """Run a command on a host."""
        command = Command(self, user, kind, host)
        if not host.is_up:
            command.process.end(silently=True)
            return command
        self.commands[command.process.pid] = command
        command.process.on_end.append(lambda silently: self._ended(command))
        command.process.loop.run_as(lambda: command.begin(body, data))
        if "kill_after" in data:
            self.world.after(data["kill_after"], command.kill)
        if "signal_after" in data:
            self.world.after(data["signal_after"], lambda: command.signal(signal.SIGINT))
        return command

    def watch(self, machine: NodeMachine) -> None:
        """Scripts that run there may call srun."""
        machine.on_began.append(self._began)

    def expect_script(self, wanted: NewJob) -> None:
        """This job's script will call srun."""
        self._scripts[wanted.tag] = wanted

    def _began(self, run: StepRun) -> None:
        """A script runs: it calls srun on its node, until it ends."""
        found = _TAG.search(run.spec.script) if run.spec.batch else None
        wanted = self._scripts.get(found[1].decode()) if found else None
        if wanted is not None:
            user, host = user_name_of(run.spec.identity.uid) or "root", run.machine.host
            script = _Script(run)
            run.on_end.append(lambda _: script.end())
            for step in wanted.steps:
                self.start_step(user, run.spec.job_id, step, host, script)

    def start_step(self, user: str, job_id: int, step: NewStep, host: Host, parent: Parent) -> None:
        """srun inside an allocation, called some time after this; it ends with the process that calls it."""

        def begin() -> None:
            if parent.is_alive:
                data: Data = {"job_id": job_id, "step": msgspec.to_builtins(step)}
                data |= {"kill_after": step.kill_after} if step.kill_after else {}
                data |= {"signal_after": step.abort_after} if step.abort_after else {}
                command = self.start(user, "step", KINDS["step"], data, host)
                parent.on_end.append(lambda silently: command.kill())

        self.world.after(step.after_seconds, begin)

    def _ended(self, command: Command) -> None:
        del self.commands[command.process.pid]
        if command.kind in LAUNCHES and command.operations:
            numbers = tuple(operation.id for operation in command.operations)
            self.history.add(Left(at=self.world.now, client=command.user, operations=numbers))

    def running(self) -> list[Command]:
        """Commands that have not ended."""
        return list(self.commands.values())

    def job_id(self, tag: str) -> int:
        """The job's number. Raises Skipped."""
        if tag not in self.jobs:
            raise Skipped(tag)
        return self.jobs[tag]
