"""ResvProlog and ResvEpilog: site programs at the start and end of a reservation, run here as SlurmUser.

Their only argument is the reservation's name. A program missed because the daemon died is not run later. Nothing waits
for them.

Source: slurm.conf(5) ResvProlog, ResvEpilog.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from spritz.controller.needs import Configured, Logged, Reading, Spawning
from spritz.controller.writer.durable import Writing
from spritz.controller.writer.listeners import Loss
from spritz.model.events import reservation as reservation_events
from spritz.model.job.job_variables import SEARCH_PATH
from spritz.runtime.programs import run_programs

if TYPE_CHECKING:
    from spritz.model.events import Event


class Reserving(Configured, Logged, Reading, Spawning, Writing, Protocol):
    """What programs of reservations follow."""


class ReservationPrograms:
    def __init__(self, context: Reserving) -> None:
        self._context = context
        #: reservations that have begun and not ended
        self._begun = self._begun_now()
        context.writer.listeners.add("reservation_programs", self._listen, Loss.REBUILD, self._rebuild)

    def _begun_now(self) -> set[str]:
        return {name for name, item in self._context.machine.state.reservations.items() if item.began}

    def _rebuild(self) -> None:
        """Run the programs for starts and ends that were missed."""
        begun = self._begun_now()
        for name in sorted(self._begun - begun):
            self._over(name)
        for name in sorted(begun - self._begun):
            self._run_later("ResvProlog", name)
        self._begun = begun

    def _listen(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, reservation_events.ReservationBegan):
                self._begun.add(event.name)
                self._run_later("ResvProlog", event.name)
            elif isinstance(event, reservation_events.ReservationDeleted):
                self._over(event.name)
            elif isinstance(event, reservation_events.ReservationUpdated) and not event.reservation.began:
                # the reservation goes on to its next occurrence
                self._over(event.reservation.name)

    def _over(self, name: str) -> None:
        if name in self._begun:
            self._begun.discard(name)
            self._run_later("ResvEpilog", name)

    def _run_later(self, key: str, name: str) -> None:
        program = self._context.configuration.loaded.settings.text(key)
        if program:
            self._context.writer.when_durable(lambda: self._start(key, program, name))

    def _start(self, key: str, program: str, name: str) -> None:
        self._context.tasks.spawn_contained(self._run(key, program, name), name=key.lower())

    async def _run(self, key: str, program: str, name: str) -> None:
        configuration = self._context.configuration
        variables = {
            "PATH": SEARCH_PATH,
            "SLURM_CONF": configuration.path,
            "SLURM_CLUSTER_NAME": configuration.settings.cluster_name,
        }
        seconds = float(configuration.loaded.settings.integer("PrologEpilogTimeout"))
        failure = await run_programs((program,), variables, seconds, arguments=(name,))
        if failure is not None:
            self._context.log.error(f"{key.lower()}.failed", reservation=name, **failure._asdict())
