"""The client of a step, as srun is one: it hears how tasks end, and its end ends the step.

What the two say crosses the simulated network, late or when a cut link is whole again; its bytes are not modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz_testing.daemons.node.supervisors import SimulatedSupervisor
    from spritz_testing.daemons.system.world import Process

#: Seconds until a supervisor takes a client for dead whose machine is silent.
_SILENT_SECONDS = 60.0


class StepClient:
    """The process that supervisors of its steps talk to: those with this `io_address`.

    `ended`: (node, rank) -> wait status, as they told it; `on_ended` is called with each, `on_lost` when a supervisor
    dies. The end of the process ends the steps, unless they were started with --no-kill (`kill_without_client`).
    """

    def __init__(self, process: Process, address: str) -> None:
        self.process = process
        self.address = address
        self.ended: dict[tuple[str, int], int] = {}
        self.on_ended: list[Callable[[str, int, int], None]] = []
        self.on_lost: Callable[[], None] = lambda: None
        self._supervisors: list[SimulatedSupervisor] = []
        #: nodes whose supervisors are connected, or have said all
        self._heard: set[str] = set()
        process.world.step_clients[address] = self
        process.on_end.append(self._gone)

    def join(self, supervisor: SimulatedSupervisor) -> bool:
        """A supervisor connects. False if it cannot."""
        if not self.process.is_alive or self.is_cut(supervisor):
            return False
        self._supervisors.append(supervisor)
        self._heard.add(supervisor.node)
        return True

    def leave(self, supervisor: SimulatedSupervisor) -> None:
        """All is said."""
        if supervisor in self._supervisors:
            self._supervisors.remove(supervisor)

    def missing(self, nodes: Iterable[str]) -> set[str]:
        """Those of a step's nodes that are not connected: not yet, or no more."""
        return set(nodes) - self._heard

    def is_cut(self, supervisor: SimulatedSupervisor) -> bool:
        """Whether nothing goes between the two."""
        here, there = self.process.host, supervisor.process.host
        network = self.process.world.network
        return network.is_cut(here, there) or network.is_cut(there, here) or not here.is_up

    def tell(self, supervisor: SimulatedSupervisor, node: str, rank: int, status: int) -> None:
        """A task has ended; it is told when the network carries it."""
        world = self.process.world
        if self.is_cut(supervisor):
            world.after(1.0, lambda: self.tell(supervisor, node, rank, status))
            return
        delay = world.network.delay(supervisor.process.host, self.process.host)
        world.after(delay, lambda: self.process.loop.arrive(self._hears, node, rank, status))

    def _hears(self, node: str, rank: int, status: int) -> None:
        self.ended[node, rank] = status
        for told in list(self.on_ended):
            told(node, rank, status)

    def lose(self, supervisor: SimulatedSupervisor, node: str) -> None:
        """A supervisor has died: its connection ends."""
        if supervisor not in self._supervisors:
            return
        world = self.process.world
        if self.is_cut(supervisor):
            world.after(1.0, lambda: self.lose(supervisor, node))
            return
        self._supervisors.remove(supervisor)
        delay = world.network.delay(supervisor.process.host, self.process.host)
        world.after(delay, lambda: self.process.loop.arrive(self._loses, node))

    def _loses(self, node: str) -> None:
        self._heard.discard(node)
        self.on_lost()

    def _gone(self, silently: bool) -> None:
        """Its connections end; of a machine without power, when their kernels have waited long enough."""
        world = self.process.world
        for supervisor in self._supervisors:
            seconds = _SILENT_SECONDS if silently else world.network.delay(self.process.host, supervisor.process.host)
            self._tell_gone(supervisor, seconds)

    def _tell_gone(self, supervisor: SimulatedSupervisor, seconds: float) -> None:
        def told() -> None:
            if self.is_cut(supervisor) and self.process.host.is_up:
                self._tell_gone(supervisor, 1.0)
            elif supervisor.process.is_alive:
                supervisor.process.loop.arrive(supervisor.client_gone, self)

        self.process.world.after(seconds, told)
