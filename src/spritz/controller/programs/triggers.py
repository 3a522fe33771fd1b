"""Triggers: notices their events and runs their programs on this machine, as the user who set the trigger.

Owns the last observed states of nodes, the events since the last pull, and the programs' processes. The core owns the
triggers themselves. A pull is journaled with its time before the program starts, so it runs at most once.

Source: strigger(1). Differs: events are processed after a second, not every fifteen; a job's other triggers are removed
when it has ended.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from spritz.client.channel.handling import DEFERRED, Deferred
from spritz.controller.needs import Clocked, Configured, Identifying, Logged, Reading, Spawning
from spritz.controller.writer.durable import Writing, durable
from spritz.controller.writer.listeners import Loss
from spritz.model.events import cluster as cluster_events
from spritz.model.events import job as job_events
from spritz.model.events import trigger as trigger_events
from spritz.model.job.job_variables import SEARCH_PATH
from spritz.model.rejection import Rejection
from spritz.model.states import NodeFlag, NodeState
from spritz.model.triggers import (
    DAEMON_EVENTS,
    NODE_EVENTS,
    TIMED_EVENTS,
    ClearTriggers,
    FireTriggers,
    ListTriggers,
    Pull,
    PullTriggers,
    SetTrigger,
    Triggers,
)
from spritz.notation import hostlist
from spritz.runtime.directory import person_of
from spritz.runtime.programs import run_programs

if TYPE_CHECKING:
    from spritz.client.channel.handling import Call
    from spritz.controller.scheduler.usage_from_accounting import RecordedUsage
    from spritz.controller.writer.timers import ClockTimers
    from spritz.core.state import State
    from spritz.model.events import Event
    from spritz.model.job.record import Job
    from spritz.model.triggers import Trigger

#: Seconds for which events of a kind are collected into one run of a program.
GATHER_SECONDS = 1.0

#: Seconds between checks of conditions that no event reports: idle nodes, time limits, slurmdbd.
LOOK_SECONDS = 1.0

#: Time limit of a program, seconds. Source: strigger(1) --program.
PROGRAM_SECONDS = 300.0

#: Programs that run at once; others wait.
AT_ONCE = 64


class Triggering(Clocked, Configured, Identifying, Logged, Reading, Spawning, Writing, Protocol):
    """What triggers watch."""

    @property
    def recorded(self) -> RecordedUsage: ...


class TriggerRequests:
    def __init__(self, context: Triggering) -> None:
        self._context = context

    def change(self, command: SetTrigger | ClearTriggers, call: Call) -> Rejection | Deferred:
        """Allowed for callers that may run a program here as themselves: all users if SlurmUser is root, else only
        SlurmUser.
        """
        context = self._context
        caller = context.identity.caller(call)
        if isinstance(command, SetTrigger):
            slurm_user, ourselves = context.configuration.settings.slurm_user, os.geteuid()
            everybody = ourselves == 0 and slurm_user == "root"
            if not everybody and caller.uid != ourselves and caller.user != slurm_user:
                return Rejection(code="ESLURM_ACCESS_DENIED", hint="only SlurmUser may set triggers")
        context.writer.handle(command, caller, call.reply)
        return DEFERRED

    async def list(self, request: ListTriggers, call: Call) -> Triggers:
        """Triggers that have not fired, and permanent ones."""
        del request
        await durable(self._context, call)
        waiting = (
            trigger
            for trigger in self._context.machine.state.triggers.values()
            if trigger.permanent or not trigger.pulls
        )
        return Triggers(triggers=tuple(waiting))


class TriggerWatch:
    """Notices events of triggers in the events of the state and by looking periodically, and runs the programs."""

    def __init__(self, context: Triggering, timers: ClockTimers, happened: Iterable[str] = ()) -> None:
        self._context = context
        self._timers = timers
        self._room = asyncio.Semaphore(AT_ONCE)
        #: node -> its states out of `NODE_EVENTS`, without "up"; empty while there are no triggers
        self._states: dict[str, frozenset[str]] = {}
        #: event -> nodes on which it happened; for events of daemons the value has no nodes
        self._happened: dict[str, set[str]] = {event: set() for event in happened}
        #: permanent trigger -> idle nodes that it has reported
        self._idle_told: dict[int, frozenset[str]] = {}
        #: trigger -> start of the job's life whose time limit it has reported
        self._time_told: dict[int, float] = {}
        self._database: bool | None = None
        self._looking = False
        self._handlers: dict[type[Event], Callable[..., None]] = {
            cluster_events.NodeStateChanged: lambda event: self._see((event.name,), changed=True),
            cluster_events.NodeRegistered: lambda event: self._see((event.name,)),
            cluster_events.ClusterConfigured: lambda event: self._see(self._context.machine.state.nodes, changed=True),
            job_events.JobStarted: lambda event: self._see_job(event.job_id),
            job_events.JobEnded: lambda event: self._see_job(event.job_id),
            job_events.JobNodeGone: lambda event: self._see((event.node,)),
        }
        context.writer.listeners.add("triggers", self._listen, Loss.REBUILD, self._rebuild)
        self._rebuild()
        context.tasks.keep_contained(self._keep_looking, name="triggers.look", clock=context.clock)

    def _rebuild(self) -> None:
        """Read the current states; missed events pull no trigger."""
        state = self._context.machine.state
        self._states = {name: _holds(state, name) for name in state.nodes} if state.triggers else {}
        for trigger in state.triggers.values():
            self._arm(trigger.pulls)
        self._look_soon()

    def _listen(self, events: Sequence[Event]) -> None:
        state = self._context.machine.state
        if not state.triggers:
            self._states = {}
            return
        if not self._states:
            self._states = {name: _holds(state, name) for name in state.nodes}
        for event in events:
            if isinstance(event, trigger_events.TriggersPulled):
                self._arm(event.pulls)
            elif isinstance(event, trigger_events.TriggerSet):
                self._look_soon()
            else:
                handler = self._handlers.get(type(event))
                if handler is not None:
                    handler(event)

    def _see(self, names: Iterable[str], *, changed: bool = False) -> None:
        state = self._context.machine.state
        for name in names:
            before = self._states.get(name, frozenset())
            holds = _holds(state, name)
            self._states[name] = holds
            for event in holds - before:
                self._happened.setdefault(event, set()).add(name)
            if "down" in before - holds:
                self._happened.setdefault("up", set()).add(name)
        if changed:
            self._happened.setdefault("reconfig", set())
        self._look_soon()

    def _see_job(self, job_id: int) -> None:
        job = self._context.machine.state.jobs.get(job_id)
        if job is not None and job.allocation is not None:
            self._see(job.allocation.names)
        self._look_soon()

    def _look_soon(self) -> None:
        if not self._looking:
            self._looking = True
            self._timers.at(self._context.clock.now() + GATHER_SECONDS, self._look)

    async def _keep_looking(self) -> None:
        while True:
            await self._context.clock.sleep(LOOK_SECONDS)
            triggers = self._context.machine.state.triggers
            if triggers:
                self._see_database()
                if self._happened or any(
                    set(TIMED_EVENTS).intersection(trigger.events) for trigger in triggers.values()
                ):
                    self._look()

    def _see_database(self) -> None:
        configuration = self._context.configuration.loaded.settings
        if not configuration.text("AccountingStorageType").endswith("slurmdbd"):
            return
        channel = self._context.recorded.channel
        is_connected = channel is not None and channel.is_open
        if (self._database is not None and is_connected is not self._database) or (
            self._database is None and not is_connected
        ):
            self._happened["primary_slurmdbd_resumed_operation" if is_connected else "primary_slurmdbd_failure"] = set()
        self._database = is_connected

    # Pulling

    def _look(self) -> None:
        """Pull every trigger whose event has happened."""
        self._looking = False
        context = self._context
        state, now = context.machine.state, context.clock.now()
        happened, self._happened = self._happened, {}
        pulls: list[Pull] = []
        gone: list[int] = []
        for trigger in state.triggers.values():
            if trigger.pulls and not trigger.permanent:
                continue
            argument = self._argument(trigger, happened, now)
            if argument:
                timed = set(TIMED_EVENTS).intersection(trigger.events)
                pulls.append(Pull(trigger.id, now + (0 if timed else max(0, trigger.offset_seconds)), argument))
            job = state.jobs.get(trigger.job_id) if trigger.job_id else None
            # A trigger on a job that has ended can never fire again, so it is removed, unless it fires now or still
            # waits for a time.
            over = trigger.job_id and (job is None or job.state.ended)
            if over and (not argument or trigger.permanent) and not _waits(trigger, job, now):
                gone.append(trigger.id)
        if pulls or gone:
            gone = [number for number in gone if all(pull.id != number for pull in pulls)]
            context.writer.handle_own(PullTriggers(pulls=tuple(pulls), gone=tuple(gone)))

    def _argument(self, trigger: Trigger, happened: dict[str, set[str]], now: float) -> str:
        """The program's argument; "" if no event happened."""
        state = self._context.machine.state
        wanted: set[str] | None = None
        if trigger.job_id:
            job = state.jobs.get(trigger.job_id)
            over = job is None or job.state.ended
            if over and "fini" in trigger.events:
                return str(trigger.job_id)
            if job is not None and "time" in trigger.events and self._time_has_come(trigger, job, now):
                return str(trigger.job_id)
            # Events of nodes are the job's own only while it holds them.
            if job is None or over:
                return ""
            wanted = set(job.allocation.names) if job.state.active and job.allocation is not None else set()
        elif trigger.nodes != "*":
            wanted = set(hostlist.expand(trigger.nodes))
        names: set[str] = set()
        for event in trigger.events:
            if event in NODE_EVENTS:
                names |= happened.get(event, set())
            elif event == "idle":
                names |= self._idle(trigger, now)
            elif event in happened and (event in DAEMON_EVENTS or event == "reconfig"):
                return event
        names = names if wanted is None else names & wanted
        if not names:
            return ""
        return str(trigger.job_id) if trigger.job_id else hostlist.compress(sorted(names, key=_order(state)))

    def _time_has_come(self, trigger: Trigger, job: Job, now: float) -> bool:
        """Whether the time limit, or the end, is as near as the trigger says, for the first time in this life."""
        ends_at = job.ended_at if job.state.ended else job.ends_at if job.state.active else 0.0
        if not ends_at or now < ends_at + trigger.offset_seconds:
            return False
        was_fired = self._time_told.get(trigger.id) == job.started_at
        self._time_told[trigger.id] = job.started_at
        return not was_fired

    def _idle(self, trigger: Trigger, now: float) -> set[str]:
        """Nodes that have been idle for long enough, and are not yet reported."""
        state = self._context.machine.state
        idle = frozenset(
            node.name
            for node in state.nodes.values()
            if node.state is NodeState.IDLE
            and not node.flags
            and not state.uses[node.name].jobs
            and node.last_busy_at + max(0, trigger.offset_seconds) <= now
        )
        reported = self._idle_told.get(trigger.id, frozenset())
        self._idle_told[trigger.id] = idle
        return set(idle - reported)

    # Firing

    def _arm(self, pulls: Iterable[Pull]) -> None:
        for pull in pulls:
            self._timers.at(pull.due_at, partial(self._fire, pull))

    def _fire(self, pull: Pull) -> None:
        trigger = self._context.machine.state.triggers.get(pull.id)
        if trigger is None or pull not in trigger.pulls:
            return  # the trigger was cleared
        self._context.writer.handle_own(FireTriggers(pulls=(pull,)))
        self._context.writer.when_durable(lambda: self._begin(trigger, pull))

    def _begin(self, trigger: Trigger, pull: Pull) -> None:
        self._context.tasks.spawn_contained(self._run(trigger, pull), name="trigger")

    async def _run(self, trigger: Trigger, pull: Pull) -> None:
        context = self._context
        person = await context.identity.directory.answer(person_of, trigger.uid)
        words = trigger.program.split()
        if person is None and trigger.uid != os.geteuid():
            context.log.error("trigger.failed", trigger_id=trigger.id, problem=f"no user {trigger.uid}")
            return
        variables = {
            "PATH": SEARCH_PATH,
            "USER": trigger.user,
            "SLURM_CONF": context.configuration.path,
            "SLURM_CLUSTER_NAME": context.configuration.settings.cluster_name,
        }
        runner = None if person is None or trigger.uid == os.geteuid() else (person.uid, person.gid, person.groups)
        async with self._room:
            context.log.info("trigger.fired", trigger_id=trigger.id, program=words[0], argument=pull.argument)
            failure = await run_programs(
                (words[0],), variables, PROGRAM_SECONDS, (*words[1:], pull.argument), runner=runner
            )
        if failure is not None:
            context.log.error("trigger.failed", trigger_id=trigger.id, **failure._asdict())


def _waits(trigger: Trigger, job: Job | None, now: float) -> bool:
    """The job has ended less long ago than the trigger says."""
    return job is not None and "time" in trigger.events and now < job.ended_at + trigger.offset_seconds


def _holds(state: State, name: str) -> frozenset[str]:
    """Which of down, drained and fail apply to a node."""
    node = state.nodes.get(name)
    if node is None:
        return frozenset()
    names = set()
    if node.state is NodeState.DOWN:
        names.add("down")
    if node.flags & NodeFlag.DRAIN and not state.uses[name].jobs:
        names.add("drained")
    if node.flags & NodeFlag.FAIL:
        names.add("fail")
    return frozenset(names)


def _order(state: State) -> Callable[[str], int]:
    places = {name: place for place, name in enumerate(state.nodes)}
    return lambda name: places.get(name, len(places))
