"""Daemons that a service manager keeps running: started, started again when they end, stopped when told to.

Source: systemd.service(5) Restart=on-failure, RestartSec.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from spritz_testing.daemons.system.world import Process

if TYPE_CHECKING:
    from spritz_testing.daemons.system.world import Host, World

#: Seconds between the end of a daemon and its next start: from, to.
RESTART_SECONDS = 0.5, 5.0

#: Seconds for a daemon that replaces itself by a new one (execv) to be loaded: from, to.
_REPLACED_SECONDS = 0.1, 1.0


class Unit:
    """One daemon of one host. `main(process)` makes the daemon's main coroutine; it runs as that process."""

    def __init__(
        self,
        host: Host,
        name: str,
        main: Callable[[Process], Coroutine[Any, Any, Any]],
        *,
        replaced_for: int | None = None,
    ) -> None:
        self.host = host
        self.name = name
        self.world: World = host.world
        self._main = main
        #: with this exit status it replaces itself by a new one
        self._replaced_for = replaced_for
        self._random = self.world.random(f"unit {host.name} {name}")
        self.process: Process | None = None
        #: whether the service manager keeps it running
        self.is_wanted = False
        self.starts = 0
        #: what each of its processes ended with
        self.ends: list[tuple[float, Any, BaseException | None]] = []
        host.on_boot.append(self._begin_soon)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive

    def start(self) -> None:
        """Start it now, and again whenever it ends."""
        self.is_wanted = True
        if self.host.is_up and not self.is_running:
            self._begin()

    def stop(self) -> None:
        """SIGTERM, and no further start."""
        self.is_wanted = False
        if self.process is not None and self.process.is_alive:
            self.process.signal(15)

    def kill(self) -> None:
        """SIGKILL; the service manager starts it again."""
        if self.process is not None:
            self.process.end()

    def _begin_soon(self) -> None:
        self.world.after(self._random.uniform(*RESTART_SECONDS), self._begin)

    def _begin(self) -> None:
        if not self.is_wanted or not self.host.is_up or self.is_running:
            return
        self.starts += 1
        process = self.process = Process(self.host, self.name)
        process.on_end.append(lambda silently: self._ended(process))
        process.loop.run_as(lambda: process.begin(self._main(process)))

    def _ended(self, process: Process) -> None:
        self.ends.append((self.world.now, process.result, process.error))
        self.world.tell(f"{process} ended: {process.error!r}" if process.error else f"{process} ended")
        if self._replaced_for is not None and process.result == self._replaced_for:
            self.world.after(self._random.uniform(*_REPLACED_SECONDS), self._begin)
        else:
            self._begin_soon()
