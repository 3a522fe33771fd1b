"""Conversations of controllers that share a journal in PostgreSQL: who leads, and what the others may do.

`PostgresJournal`, `Store`, `Watch` and `JournalCopy` are the real ones; the database is that of
`spritz_testing.daemons`, and the clock the conversation's. Each line begins with the controller that acts, or `db:`.

    ctl1: look             what a standby sees: follow the journal, and judge the lease
    ctl1: wait SECONDS     look four times a second, until it may take the lease; what it says when it may
    ctl1: take [forced]    take the lease as last seen, and read the journal's end
    ctl1: commit [NAME]    a job is submitted, and its event committed
    ctl1: beat             one heartbeat
    ctl1: kill, ctl1: close   the process ends; it gives its lease back
    ctl1: cut, ctl1: heal  between it and the database
    db: lose N             a replica takes over that lacks the last N groups

While one waits, leaders that are named in `beating=` write a heartbeat each second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spritz.controller.journal.contract import Group, JournalError
from spritz.controller.journal.copy import JournalCopy
from spritz.controller.journal.postgresql import Lease, PostgresJournal, Store
from spritz.controller.lead.standby import Watch
from spritz.core.machine import Machine
from spritz.model.events.codec import encode_events
from spritz_testing.builders import World
from spritz_testing.conversation import words_of
from spritz_testing.rendering import render_job

if TYPE_CHECKING:
    from tests.simulation.daemons.database_runtimes import Clockwork

_URL, _CLUSTER, _SECONDS = "postgresql://slurm@db/slurm", "cluster", 6.0
_LOOK_SECONDS = 0.25


class Controller:
    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.store = Store(_URL, _CLUSTER, patience_seconds=0.5)
        self.watch = Watch(_SECONDS, index)
        self.copy = JournalCopy(World(nodes=1).settings)
        self.seen: Lease | None = None
        self.journal: PostgresJournal | None = None
        self.world: World | None = None


class StandbyTranscript:
    def __init__(self, clockwork: Clockwork) -> None:
        self._clockwork = clockwork
        self._controllers = {name: Controller(name, index) for index, name in enumerate(("ctl1", "ctl2", "ctl3"))}

    def command(self, line: str) -> list[str]:
        name, _, line = line.partition(":")
        (verb, *plain), named = words_of(line)
        if name == "db":
            count = self._clockwork.database.server.fail_over(lost_groups=int(plain[0]))
            return [f"lost groups: {count}"]
        controller = self._controllers[name]
        try:
            with self._clockwork.on(name):
                lines: list[str] = getattr(self, f"_{verb}")(controller, *plain, **named)
        except JournalError as error:
            return [f"! {type(error).__name__}: {error.message}"]
        return lines

    def close(self) -> None:
        for controller in self._controllers.values():
            with self._clockwork.on(controller.name):
                controller.store.drop()
                if controller.journal is not None:
                    controller.journal.close()

    # A standby

    def _observed(self, controller: Controller) -> Lease:
        try:
            lease = controller.store.prepared_lease()
            controller.copy.follow(controller.store, lease.last)
        except JournalError:
            controller.watch.unanswered()
            raise
        controller.seen = lease
        return lease

    def _look(self, controller: Controller) -> list[str]:
        lease = self._observed(controller)
        may = controller.watch.may_take(lease, self._clockwork.now())
        holder = f"{lease.holder}, term {lease.term}" if lease.holder else "nobody"
        return [f"{holder}; the copy is at event {controller.copy.position}{'; it may lead' if may else ''}"]

    def _wait(self, controller: Controller, seconds: str, beating: str = "") -> list[str]:
        began = self._clockwork.now()
        looks = 0
        while (passed := self._clockwork.now() - began) < float(seconds):
            try:
                may = controller.watch.may_take(self._observed(controller), self._clockwork.now())
            except JournalError:
                may = False
            if may:
                return [f"it may lead after {round(passed)} s"]
            self._clockwork.advance(_LOOK_SECONDS)
            looks += 1
            for name in filter(None, beating.split(",") if looks % 4 == 0 else ()):
                self._beat(self._controllers[name])
        return [f"it may not lead, for {float(seconds):g} s"]

    def _take(self, controller: Controller, how: str = "") -> list[str]:
        journal = PostgresJournal(
            _URL,
            _CLUSTER,
            holder=controller.name,
            lease_seconds=_SECONDS,
            seen=controller.seen,
            forced=how == "forced",
        )
        controller.journal = journal
        led = controller.copy.complete(journal)
        world = controller.world = World(nodes=1)
        if not journal.last_sequence:
            return [f"leads, term {journal.term}", *self._committed(controller, world.events)]
        world.machine = led.machine
        return [f"leads, term {journal.term}, from event {journal.last_sequence}", *_jobs(led.machine)]

    # A leader

    def _commit(self, controller: Controller, name: str = "job") -> list[str]:
        assert controller.world is not None
        before = len(controller.world.events)
        controller.world.submit(name=name)
        return self._committed(controller, controller.world.events[before:])

    def _committed(self, controller: Controller, events: list[Any]) -> list[str]:
        journal = controller.journal
        assert journal is not None
        first = journal.last_sequence + 1
        last = first + len(events) - 1
        journal.append(Group(first=first, last=last, at=0.0, payload=encode_events(events)), {})
        return [f"event {last} is acknowledged"]

    def _beat(self, controller: Controller) -> list[str]:
        journal = controller.journal
        assert journal is not None
        with self._clockwork.on(controller.name):
            return ["the lease is renewed" if journal.beat() else f"! {journal.fenced().message}"]

    def _kill(self, controller: Controller) -> list[str]:
        self._clockwork.database.network.process_ended(controller.name)
        self._controllers[controller.name] = Controller(controller.name, list(self._controllers).index(controller.name))
        return []

    def _close(self, controller: Controller) -> list[str]:
        assert controller.journal is not None
        controller.journal.close()
        self._controllers[controller.name] = Controller(controller.name, list(self._controllers).index(controller.name))
        return []

    def _cut(self, controller: Controller) -> list[str]:
        self._clockwork.database.network.partition(controller.name)
        return []

    def _heal(self, controller: Controller) -> list[str]:
        self._clockwork.database.network.heal(controller.name)
        return []


def _jobs(machine: Machine) -> list[str]:
    return [f"{job.spec.name}: {render_job(job)}" for job in machine.state.jobs.values()]
