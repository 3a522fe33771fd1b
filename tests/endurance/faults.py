"""Faults of real machines, one after the other or at once, each undone after a while."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

from spritz_testing.daemons.history import Booted, History, Injected
from tests.endurance.site import Site
from tests.machines.lan import Machine


class Faults:
    """Draws faults from a seed and carries them out until `stop`."""

    def __init__(self, site: Site, history: History, seed: int, pause_seconds: float) -> None:
        self._site = site
        self._history = history
        self._chance = random.Random(seed)
        self._pause = pause_seconds
        self._over = threading.Event()
        #: machine names that have a fault now: one at a time each
        self._struck: set[str] = set()
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self._threads: list[threading.Thread] = []
        self._kinds: list[tuple[str, Callable[[Machine, float], None]]] = [
            ("kill", self._kill),
            ("kill", self._kill),
            ("stop", self._stop),
            ("disk full", self._fill),
            ("cable", self._cut),
            ("power", self._power),
        ]

    def run(self) -> None:
        """Inject faults until told to stop; then wait until all are undone."""
        while not self._over.wait(self._chance.uniform(0.2, 2 * self._pause)):
            machine = self._chance.choice([self._site.controller, *self._site.nodes])
            kind, perform = self._chance.choice(self._kinds)
            seconds = self._chance.choice([0.2, 1.0, 3.0, 10.0, 25.0]) * self._chance.uniform(0.5, 1.5)
            if kind == "power" and machine is self._site.controller:
                continue  # its disk is in memory here, and a controller keeps its disk
            with self._lock:
                if machine.name in self._struck:
                    continue
                self._struck.add(machine.name)
            self.counts[kind] += 1
            thread = threading.Thread(target=self._strike, args=(kind, perform, machine, seconds), daemon=True)
            self._threads.append(thread)
            thread.start()
        for thread in self._threads:
            thread.join()

    def stop(self) -> None:
        self._over.set()

    def _strike(self, kind: str, perform: Callable[[Machine, float], None], machine: Machine, seconds: float) -> None:
        began = time.time()
        try:
            perform(machine, seconds)
        finally:
            with self._lock:
                self._struck.discard(machine.name)
                self._history.add(Injected(at=began, until=time.time(), kind=kind, target=machine.name))

    def _kill(self, machine: Machine, seconds: float) -> None:
        self._site.daemons[machine.name].kill()

    def _stop(self, machine: Machine, seconds: float) -> None:
        daemon = self._site.daemons[machine.name]
        daemon.signal(signal.SIGSTOP)
        time.sleep(seconds)
        daemon.signal(signal.SIGCONT)

    def _fill(self, machine: Machine, seconds: float) -> None:
        """No byte is left where the daemon keeps its state."""
        path = f"{self._site.disk(machine)}/filling"
        machine.run("dd", "if=/dev/zero", f"of={path}", "bs=64k")
        time.sleep(seconds)
        machine.run("rm", "-f", path)
        if machine is not self._site.controller:
            self._resume(machine, 30.0)

    def _resume(self, machine: Machine, seconds: float) -> None:
        """An administrator lets the node serve again, whose slurmd has drained it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._site.login_run("scontrol", "update", f"NodeName={machine.name}", "State=RESUME")
            time.sleep(5.0)  # its report may still be on its way

    def _cut(self, machine: Machine, seconds: float) -> None:
        self._site.lan.cut(machine)
        time.sleep(seconds)
        self._site.lan.mend(machine)

    def _power(self, machine: Machine, seconds: float) -> None:
        """The machine loses power, and with it what runs there; it comes up with an empty spool or with its own."""
        daemon = self._site.daemons[machine.name]
        daemon.power(False)
        machine.crash()
        with self._lock:
            self._history.add(Booted(at=time.time(), node=machine.name))
        time.sleep(seconds)
        daemon.power(True)
